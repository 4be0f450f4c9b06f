package node

import (
	"crypto/rand"
	"encoding/binary"
	"time"

	"trireme/internal/api"
	"trireme/internal/node/certs"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/recovery"
)

// recoveryHost is what recovery sees of this node.
type recoveryHost struct{ host }

func (h recoveryHost) Raft() recovery.Raft { return h.n.cons }

func (h recoveryHost) Heard() time.Duration { return h.n.gossip.RaftHeard() }

func (h recoveryHost) Remember(e api.Event) { h.n.history.Add(e) }

func (h recoveryHost) AuditForce(state, by string, plan *api.ForceReport) error {
	return h.n.certs.Audit(certs.AuditLine{What: "force-quorum", State: state, By: by, Plan: plan})
}

func (h recoveryHost) Quiesce() {
	h.n.mu.Lock()
	h.n.lives.Change((*lifecycle.Status).BeginStop)
	h.n.mu.Unlock()
	h.n.killServer()
	h.n.cons.Stop()
}

func (h recoveryHost) RandomID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand crashes the program instead
	return max(1, binary.LittleEndian.Uint64(b[:]))
}
