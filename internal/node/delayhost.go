package node

import (
	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/mysql/gtid"
	"trireme/internal/node/delay"
)

// delayHost is what delay sees of this node.
type delayHost struct{ host }

func (h delayHost) Applied() (gtid.Set, ledger.Backlog) {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	return h.n.appliedLocked()
}

// appliedLocked is what mysqld has, if it is ready, and what it has not applied.
func (n *Node) appliedLocked() (executed gtid.Set, lacks ledger.Backlog) {
	if s := n.lives.Status(); s.Life() != nil && s.State() == ha.ServerReady {
		executed = s.Life().Executed()
	}
	return executed, n.srv.backlog
}

func (h delayHost) Order() *delay.Order {
	if h.n.memory == nil {
		return nil // of a node that is being put together
	}
	return h.n.memory.Order()
}

func (h delayHost) SetOrder(o *delay.Order) error {
	return h.n.memory.SetOrder(o)
}
