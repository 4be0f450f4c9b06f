package node

import (
	"context"
	"time"

	"trireme/internal/core/ha"
	"trireme/internal/node/gossip"
	"trireme/internal/node/leadership"
)

// leadershipHost is what leadership sees of this node.
type leadershipHost struct{ host }

func (h leadershipHost) Raft() leadership.Raft { return h.n.cons }

func (h leadershipHost) Clients() leadership.Clients { return clientsOf(h.host) }

func (h leadershipHost) View() ha.View { return h.n.control.View() }

func (h leadershipHost) CheckTerm(want uint64) error { return h.n.members.CheckTerm(want) }

func (h leadershipHost) Phase() ha.Phase {
	s := h.n.lives.Status()
	return s.Phase()
}

func (h leadershipHost) Stopping() bool { return h.n.isStopping() }

func (h leadershipHost) LeastTimeout() time.Duration { return h.n.gossip.LeastTimeout() }

func (h leadershipHost) Go(f func(ctx context.Context)) { h.n.task(f) }

// isStopping says whether this daemon was asked to stop.
func (n *Node) isStopping() bool {
	s := n.lives.Status()
	return s.Stopping()
}

// clientsOf a node are those of its mysqld to leadership.
type clientsOf struct{ n *Node }

func (c clientsOf) Hold(term uint64, why gossip.Leave) {
	c.n.gossip.Leave(term, why)
	c.n.routing.Update() // holds new connections
	c.n.gossip.Broadcast()
}

func (c clientsOf) Followed() bool { return c.n.routing.Followed() }

func (c clientsOf) Quiet(hold, term uint64) bool { return c.n.routing.Quiet(hold, term) }

func (c clientsOf) Moved() int { return c.n.routing.Moves() }

func (c clientsOf) DropAddresses() { c.n.addresses.Drop() }
