package rivals

import (
	"context"
	"time"

	"trireme/internal/base/poll"
)

// mgrOutage is how long the operator watches a group without a majority, all its servers answering, before he founds it
// again.
const mgrOutage = 5 * time.Second

// rests reports whether a member must not be started yet: it was the primary, and the others are enough to choose
// another one. It is called with mu held.
func (b *brokenMGR) rests(n *server) bool {
	others := 0
	for m, v := range b.views {
		if m != n && v.state == "ONLINE" && time.Since(v.at) <= mgrFresh {
			others++
		}
	}
	return b.leader.Name == n.host.name && 2*others > len(b.servers)
}

// refound is the operator after an outage of a majority: dba.rebootClusterFromCompleteOutage(). A group whose majority
// has died does not go on by itself.
func (b *brokenMGR) refound() {
	since := time.Now()
	for poll.Pause(b.ctx, mgrHelp) == nil {
		switch {
		case !b.out():
			since = time.Now()
		case time.Since(since) >= mgrOutage:
			ctx, cancel := context.WithTimeout(b.ctx, recoverLimit)
			_ = b.found(ctx) // an error is seen by Settled
			cancel()
			since = time.Now()
		}
	}
}

// out reports whether all servers answer and none sees a majority ONLINE.
func (b *brokenMGR) out() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.servers {
		if v, ok := b.views[n]; !ok || time.Since(v.at) > mgrFresh || 2*v.online > len(b.servers) {
			return false
		}
	}
	return !b.leader.Open
}
