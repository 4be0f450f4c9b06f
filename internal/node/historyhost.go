package node

import (
	"time"

	"trireme/internal/core/consensus"
)

// historyHost is what the history sees of this node.
type historyHost struct{ host }

func (h historyHost) MemberName(id uint64) string { return h.n.memberName(id) }

func (h historyHost) Term() uint64 { return h.n.cons.Status().Term }

func (h historyHost) Leads() (since time.Duration, leads bool) {
	s := h.n.control.Soft()
	return s.LeaderSince, s.Role == consensus.Leader
}

func (h historyHost) Routed() uint64 { return h.n.routing.Told().Term }

func (h historyHost) Unreached(name string) (why string, own time.Duration) {
	return h.n.links.Unreached(name), h.n.links.Shown().Failing[name]
}
