package node

import (
	"time"

	"trireme/internal/api"
	"trireme/internal/node/certs"
	"trireme/internal/node/recovery"
)

// recoveryHost is what recovery sees of this node.
type recoveryHost struct{ *Node }

func (h recoveryHost) Raft() recovery.Raft { return h.cons }

func (h recoveryHost) Heard() time.Duration { return h.gossip.RaftHeard() }

func (h recoveryHost) Remember(e api.Event) { h.history.add(e) }

func (h recoveryHost) AuditForce(state, by string, plan *api.ForceReport) error {
	return h.certs.Audit(certs.AuditLine{What: "force-quorum", State: state, By: by, Plan: plan})
}

func (h recoveryHost) Quiesce() {
	h.mu.Lock()
	h.stopping = true
	h.mu.Unlock()
	h.killServer()
	h.cons.Stop()
}

func (h recoveryHost) Fail(err error) { h.fail(err) }
