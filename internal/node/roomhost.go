package node

import "trireme/internal/core/consensus"

// roomHost is what room sees of this node.
type roomHost struct{ host }

func (h roomHost) Raft() consensus.Status { return h.n.cons.Status() }

func (h roomHost) Needs() (keep uint64, ready bool) {
	h.n.mu.Lock() // with which they change
	defer h.n.mu.Unlock()
	_, ready = h.n.control.ReadyLocked()
	return h.n.lives.KeepFrom(), ready
}

func (h roomHost) GaveUp(index uint64, text string) {
	h.n.history.Add(h.n.history.Event("purge", index, text))
}
