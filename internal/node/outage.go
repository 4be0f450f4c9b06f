package node

import (
	"context"
	"fmt"
)

// watchOpen notes that somebody takes writes.
func (n *Node) watchOpen(context.Context) {
	s, own := n.lives.Status(), uint64(0)
	if s.TakesWrites() {
		own = s.Term()
	}
	if err := n.gossip.SeeOpen(own); n.warnings.isNew("open.json", err) {
		n.log.Warn("when writes were last taken was not written down", "err", err)
	}
}

// outageText is the cause of an outage that this daemon did not see begin.
func (n *Node) outageText(from string, t *takeover) string {
	text := fmt.Sprintf("%s was last known to take writes %.0f s before, by %s", from, (t.elected - t.seen).Seconds(),
		t.seenBy)
	if n.started > t.seen {
		text += fmt.Sprintf("; the daemon of %s was started %.0f s after that", n.id.Name, (n.started - t.seen).Seconds())
	}
	return text
}
