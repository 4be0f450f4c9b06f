package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/consensus"
	"trireme/internal/node/links"
)

// Kinds of events about the members that the leader sees.
const (
	eventDown = "down"
	eventUp   = "up"
)

// watchMembers records which members the leader loses sight of, and which it sees again. Only the leader does:
// otherwise each node would tell the same. What the history says last of a member is what was known, whichever node led
// then.
func (n *Node) watchMembers(context.Context) {
	if s := n.control.Soft(); s.Role != consensus.Leader || now() < s.LeaderSince+links.Grace {
		return
	}
	type sight struct {
		up  bool
		why string
	}
	seen := map[string]sight{}
	for _, m := range n.Settings().Members {
		if p := n.gossip.Peers()[m.ID]; m.ID != n.id.ID && !m.Pending && !m.Removing {
			switch {
			case p.Fresh() && n.links.Shown().Failing[m.Name] > 2*links.Grace:
				seen[m.Name] = sight{why: "cannot be reached: " + n.links.Unreached(m.Name)}
			case p.Fresh():
				seen[m.Name] = sight{up: true}
			case p == nil || now() > p.At+links.Grace:
				seen[m.Name] = sight{why: "is down: " + n.links.Silence(m.ID)}
			}
		}
	}
	events := n.history.all()
	for name, s := range seen {
		last := lastSight(events, name)
		switch {
		case s.up && last.Kind == eventDown:
			e := n.event(eventUp, 0, fmt.Sprintf("%s is heard of again, %.0f s after it was lost", name, time.Since(last.Time).
				Seconds()))
			e.Member = name
			n.history.add(e)
		case !s.up && last.Kind != eventDown:
			e := n.event(eventDown, 0, name+" "+s.why)
			e.Member = name
			n.history.add(e)
		}
	}
}

// lastSight is the newest event about a member that was lost or is back.
func lastSight(events []api.Event, name string) api.Event {
	for _, e := range slices.Backward(events) {
		if e.Member == name && (e.Kind == eventDown || e.Kind == eventUp) {
			return e
		}
	}
	return api.Event{}
}
