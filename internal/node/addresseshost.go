package node

// addressesHost is what addresses sees of this node.
type addressesHost struct{ host }

func (h addressesHost) Term() uint64 { return h.n.control.Soft().Term }

func (h addressesHost) HoldsLease() bool { return h.n.cons.HoldsLease() }

func (h addressesHost) Ready() bool {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	_, ready := h.n.control.ReadyLocked()
	return ready
}
