package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/transport"
)

// A link is slow when a round trip takes more than a third of the election timeout: heartbeats, votes and leases come
// too late then (docs/benchmarks/elections.md measures up to there).
const (
	linkInterval = 2 * time.Second
	linkSamples  = 20 // before that many pings nothing is said of a link
	linkDivisor  = 3
	linkClear    = 4 // it is good again below the election timeout divided by this
)

// links is what this node measures of its links, for people.
type links struct {
	views    []api.LinkView
	failing  map[string]time.Duration // members that cannot be reached, and for how long
	slow     map[uint64]bool
	warnings []string
}

// watchLinks looks at the round trips to the other members. The election timeout itself does not follow them: it is a
// promise to the leader, on which the lease rests (S10), and a change would have to be agreed upon by all before
// anybody relied on it.
func (n *Node) watchLinks(context.Context) {
	n.mu.Lock()
	c, timeout, slow := n.Settings(), n.cfg.Raft.ElectionTimeout(), n.links.slow
	others := map[string]time.Duration{}
	heard := now() < n.started+sightGrace
	for _, m := range c.Members {
		p := n.gossip.Peers()[m.ID]
		if p.Fresh() && p.Timeout != 0 {
			others[m.Name] = p.Timeout
		}
		heard = heard || p != nil && now() < p.At+sightGrace
	}
	n.mu.Unlock()
	next := links{slow: map[uint64]bool{}, failing: map[string]time.Duration{}}
	var reached []string
	for _, m := range c.Members {
		r := n.tr.RTT(m.ID)
		view := api.LinkView{To: m.Name, RTTMS: ms(r.Median), P99MS: ms(r.P99)}
		if trouble := n.tr.Trouble(m.ID); len(trouble.Tried) > 0 && trouble.For > linkInterval {
			view.Address, view.Error = troubleText(trouble.Tried)
			next.failing[m.Name] = trouble.For
		} else if len(trouble.Tried) == 0 && r.Samples > 0 && m.ID != n.id.ID {
			reached = append(reached, m.Name)
		}
		if m.ID == n.id.ID || r.Samples == 0 && view.Error == "" {
			continue
		}
		next.views = append(next.views, view)
		if r.Samples == 0 {
			continue
		}
		if m.Role == config.RoleLearner || n.id.Role == config.RoleLearner {
			continue // no election waits for it
		}
		if next.slow[m.ID] = linkSlow(r, timeout, slow[m.ID]); next.slow[m.ID] {
			next.warnings = append(next.warnings,
				fmt.Sprintf("1 of 100 round trips to %s takes more than %.0f ms, over a third of "+
					"raft.election_timeout_ms (%d): failovers without a fault become likely; set it to %d or more on every node",
					m.Name, ms(r.P99), timeout.Milliseconds(), timeoutFor(r.P99).Milliseconds()))
		}
		if next.slow[m.ID] != slow[m.ID] {
			n.log.Warn("link to a peer", "peer", m.Name, "slow", next.slow[m.ID], "rtt_ms", ms(r.Median), "p99_ms", ms(r.P99),
				"election_timeout_ms", timeout.Milliseconds())
		}
	}
	if !heard && len(reached) > 0 {
		next.warnings = append(next.warnings,
			fmt.Sprintf("it reaches %s and hears from no node: can they reach it at peer.advertise = %s?",
				strings.Join(reached, " "), n.cfg.Peer.Advertise))
	}
	next.warnings = append(next.warnings, timeoutsDiffer(timeout, others)...)
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(next.warnings, n.links.warnings) {
		n.gossip.Publish()
	}
	n.links = next
}

// troubleText is the first of the addresses that a member was looked for at, and the reason without it; the others
// follow with theirs.
func troubleText(tried []transport.Attempt) (address, reason string) {
	tried = slices.SortedFunc(slices.Values(tried),
		func(a, b transport.Attempt) int { return cmp.Compare(a.Address, b.Address) })
	for i, a := range tried {
		text := a.Err.Error()
		for _, prefix := range []string{"dial " + a.Address + ": ", "dial tcp " + a.Address + ": ", "dial tcp: "} {
			text = strings.TrimPrefix(text, prefix)
		}
		if i > 0 {
			reason += "; at " + a.Address + ": "
		}
		reason += text
	}
	return tried[0].Address, reason
}

// linkSlow says whether round trips endanger elections; was is the last answer.
func linkSlow(r transport.RTT, timeout time.Duration, was bool) bool {
	if was {
		return r.P99 > timeout/linkClear
	}
	return r.Samples >= linkSamples && r.P99 > timeout/linkDivisor
}

// timeoutFor is the election timeout that a round trip asks for, in steps of 100 ms.
func timeoutFor(rtt time.Duration) time.Duration {
	return (linkDivisor*rtt + 100*time.Millisecond - 1).Truncate(100 * time.Millisecond)
}

// timeoutsDiffer warns of members with another election timeout.
func timeoutsDiffer(mine time.Duration, others map[string]time.Duration) []string {
	var out []string
	for name, d := range others {
		if d != mine {
			out = append(out,
				fmt.Sprintf(
					"raft.election_timeout_ms is %d here and %d on %s: set it to the same on every node; leases follow the shortest",
					mine.Milliseconds(), d.Milliseconds(), name))
		}
	}
	slices.Sort(out)
	return out
}
