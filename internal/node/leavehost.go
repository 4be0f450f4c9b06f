package node

import (
	"context"

	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/leave"
)

// end is how this node takes part in the end of its cluster.
func (n *Node) end() *leave.End {
	return &leave.End{ID: n.id, Mu: &n.mu, Lives: n.lives, Leadership: n.leadership, Members: n.members,
		Control: n.control, Gossip: n.gossip, Ledger: n.led, Memory: n.memory, Host: leaveHost{host{n}}, Log: n.log}
}

// leaveHost is what the end of the cluster sees of this node.
type leaveHost struct{ host }

func (h leaveHost) Term() uint64 { return h.n.cons.Status().Term }

func (h leaveHost) MySQL() mysqld.Config { return h.n.mysqldConfig() }

func (h leaveHost) Go(f func(ctx context.Context)) { h.n.task(f) }
