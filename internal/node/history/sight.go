package history

import (
	"context"
	"fmt"
	"time"

	"trireme/internal/api"
	"trireme/internal/node/gossip"
)

// Kinds of events about the members that the leader sees.
const (
	eventDown = "down"
	eventUp   = "up"
)

// WatchMembers records which members the leader loses sight of, and which it sees again. Only the leader does:
// otherwise each member would tell the same. What the history says last of a member is what was known, whichever member
// led then.
func (h *History) WatchMembers(context.Context) {
	if since, leads := h.host.Leads(); !leads || now() < since+gossip.Grace {
		return
	}
	last := map[string]api.Event{}
	for _, e := range h.All() {
		if e.Kind == eventDown || e.Kind == eventUp {
			last[e.Member] = e
		}
	}
	for _, m := range h.host.Settings().Members {
		p, lost := h.gossip.Peers()[m.ID], ""
		unreached, own := h.host.Unreached(m.Name)
		switch {
		case m.ID == h.id.ID || m.Pending || m.Removing:
			continue
		case p.Fresh() && own > 2*gossip.Grace:
			lost = "cannot be reached: " + unreached
		case p.Fresh():
		case p != nil && now() <= p.At+gossip.Grace:
			continue
		case unreached != "":
			lost = "is down: " + p.Silence() + "; " + unreached
		default:
			lost = "is down: " + p.Silence()
		}
		before := last[m.Name]
		if (lost != "") == (before.Kind == eventDown) {
			continue
		}
		e := h.Event(eventDown, 0, m.Name+" "+lost)
		if lost == "" {
			e = h.Event(eventUp, 0, fmt.Sprintf("%s is heard of again, %.0f s after it was lost", m.Name,
				time.Since(before.Time).Seconds()))
		}
		e.Member = m.Name
		h.Add(e)
	}
}
