// Package links tells people how a member's links to the others are: round trips, and which of them fail.
package links

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/transport"
	"trireme/internal/node/gossip"
)

// Interval is the pause between two looks.
const Interval = 2 * time.Second

// A link is slow when a round trip takes more than a third of the election timeout: heartbeats, votes and leases come
// too late then (docs/benchmarks/elections.md measures up to there).
const (
	minSamples = 20 // before that many pings nothing is said of a link
	divisor    = 3
	clearAt    = 4 // it is good again below the election timeout divided by this
)

// Host is the rest of the member.
type Host interface {
	Settings() *config.Cluster
}

// Transport is what is asked of transport.Transport.
type Transport interface {
	RTT(id uint64) transport.RTT
	Trouble(id uint64) transport.Trouble
}

// Links are of one member. Their methods may be called from any goroutine.
type Links struct {
	cfg    config.Node
	id     config.Identity
	gossip *gossip.Gossip
	host   Host
	log    *slog.Logger
	began  time.Duration
	shown  atomic.Pointer[Shown]
}

// Shown is what was found last. It is never changed.
type Shown struct {
	Views    []api.LinkView
	Failing  map[string]time.Duration // members that cannot be reached, and for how long
	Warnings []string
	slow     map[uint64]bool
}

// New makes those of a member, of which nothing is known yet.
func New(cfg config.Node, id config.Identity, g *gossip.Gossip, host Host, log *slog.Logger) *Links {
	l := &Links{cfg: cfg, id: id, gossip: g, host: host, log: log, began: now()}
	l.shown.Store(&Shown{})
	return l
}

// Shown takes no lock.
func (l *Links) Shown() *Shown { return l.shown.Load() }

// Silence says how long a member has not been heard of.
func (l *Links) Silence(id uint64) string {
	text := l.gossip.Peers()[id].Silence()
	if m, ok := l.host.Settings().MemberByID(id); ok {
		if why := l.Unreached(m.Name); why != "" {
			text += "; " + why
		}
	}
	return text
}

// Unreached says who cannot reach a member at which address, as far as this node has heard.
func (l *Links) Unreached(name string) string {
	members := []api.MemberView{{Name: l.id.Name, Links: l.Shown().Views}}
	for _, m := range l.host.Settings().Members {
		if p := l.gossip.Peers()[m.ID]; p.Fresh() {
			members = append(members, api.MemberView{Name: m.Name, Links: p.Member.Links})
		}
	}
	return api.Unreached(name, members)
}

// Measure returns what looks at the round trips to the other members, each time that it is called. The election timeout
// itself does not follow them: it is a promise to the leader, on which the lease rests (S10), and a change would have
// to be agreed upon by all before anybody relied on it.
func (l *Links) Measure(tr Transport) func(context.Context) {
	return func(context.Context) { l.measure(tr) }
}

func (l *Links) measure(tr Transport) {
	was, timeout := l.Shown(), l.cfg.Raft.ElectionTimeout()
	others := map[string]time.Duration{}
	heard := now() < l.began+gossip.Grace
	next := Shown{slow: map[uint64]bool{}, Failing: map[string]time.Duration{}}
	var reached []string
	for _, m := range l.host.Settings().Members {
		p := l.gossip.Peers()[m.ID]
		if p.Fresh() && p.Timeout != 0 {
			others[m.Name] = p.Timeout
		}
		heard = heard || p != nil && now() < p.At+gossip.Grace
		r := tr.RTT(m.ID)
		view := api.LinkView{To: m.Name, RTTMS: ms(r.Median), P99MS: ms(r.P99)}
		if trouble := tr.Trouble(m.ID); len(trouble.Tried) > 0 && trouble.For > Interval {
			view.Address, view.Error = troubleText(trouble.Tried)
			next.Failing[m.Name] = trouble.For
		} else if len(trouble.Tried) == 0 && r.Samples > 0 && m.ID != l.id.ID {
			reached = append(reached, m.Name)
		}
		if m.ID == l.id.ID || r.Samples == 0 && view.Error == "" {
			continue
		}
		next.Views = append(next.Views, view)
		if r.Samples == 0 {
			continue
		}
		if m.Role == config.RoleLearner || l.id.Role == config.RoleLearner {
			continue // no election waits for it
		}
		if next.slow[m.ID] = isSlow(r, timeout, was.slow[m.ID]); next.slow[m.ID] {
			next.Warnings = append(next.Warnings,
				fmt.Sprintf("1 of 100 round trips to %s takes more than %.0f ms, over a third of "+
					"raft.election_timeout_ms (%d): failovers without a fault become likely; set it to %d or more on every node",
					m.Name, ms(r.P99), timeout.Milliseconds(), timeoutFor(r.P99).Milliseconds()))
		}
		if next.slow[m.ID] != was.slow[m.ID] {
			l.log.Warn("link to a peer", "peer", m.Name, "slow", next.slow[m.ID], "rtt_ms", ms(r.Median), "p99_ms", ms(r.P99),
				"election_timeout_ms", timeout.Milliseconds())
		}
	}
	if !heard && len(reached) > 0 {
		next.Warnings = append(next.Warnings,
			fmt.Sprintf("it reaches %s and hears from no node: can they reach it at peer.advertise = %s?",
				strings.Join(reached, " "), l.cfg.Peer.Advertise))
	}
	next.Warnings = append(next.Warnings, timeoutsDiffer(timeout, others)...)
	l.shown.Store(&next)
	if !slices.Equal(next.Warnings, was.Warnings) {
		l.gossip.Publish()
	}
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

// isSlow says whether round trips endanger elections; was is the last answer.
func isSlow(r transport.RTT, timeout time.Duration, was bool) bool {
	if was {
		return r.P99 > timeout/clearAt
	}
	return r.Samples >= minSamples && r.P99 > timeout/divisor
}

// timeoutFor is the election timeout that a round trip asks for, in steps of 100 ms.
func timeoutFor(rtt time.Duration) time.Duration {
	return (divisor*rtt + 100*time.Millisecond - 1).Truncate(100 * time.Millisecond)
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

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// now is CLOCK_BOOTTIME.
func now() time.Duration { return time.Duration(consensus.Boottime()) }
