package history

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/poll"
	"trireme/internal/core/ledger"
	"trireme/internal/mysql/gtid"
	"trireme/internal/node/gossip"
)

// Kinds of events that say who leads.
const (
	EventElection   = "election"   // no member had led, or none knew
	EventFailover   = "failover"   // a leader was lost
	EventSwitchover = "switchover" // a leader handed over on purpose
)

const (
	// routePatience bounds the wait for the routers of the other members, whose time is part of the report only.
	routePatience = 2 * time.Second
	// recentChanges is of how many changes of leaders the median is expected next time.
	recentChanges = 5
	// These are expected before there was any.
	firstTakeover = 300 * time.Millisecond
	firstGap      = 50 * time.Millisecond // of a switchover
)

// Takeover is one promotion of this member, as it sees it. Times are on CLOCK_BOOTTIME, 0 when it did not happen or is
// not known.
type Takeover struct {
	Term        uint64
	Incarnation uint64         // of the mysqld that takes over
	Before      ledger.Barrier // of the leader before
	Forced      bool           // an operator forced it
	Elected     time.Duration

	sign    time.Duration // last sign of life of the leader
	left    time.Duration // the leader says that it stopped taking writes
	noticed time.Duration // it is not the leader any more, for this member
	asked   time.Duration // somebody handed leadership to this member
	began   time.Duration
	applied time.Duration
	opened  time.Duration
	routed  time.Duration // every live member's router has followed
	lost    string        // how the leader before was lost, when that was seen
	seen    time.Duration // when the leader before was last known to take writes
	seenBy  string        // who knows that; empty: no member does
}

// phases divides the time without writes. detect ends when the loss is known, to the leader itself or to others; close
// when the leader has drained or fenced its mysqld and hands over; vote when this member is elected.
func (t *Takeover) phases() api.Phases {
	start := t.left
	if start == 0 {
		start = t.sign
	}
	if start == 0 {
		start = t.noticed
	}
	if start == 0 || start > t.Elected {
		start = t.Elected
	}
	detected, closed := start, start
	switch {
	case t.left == 0:
		detected = between(start, t.noticed, t.Elected)
		closed = detected
	case t.asked > start:
		closed = between(start, t.asked, t.Elected)
	}
	return api.Phases{DetectMS: ms(detected - start), CloseMS: ms(closed - detected), VoteMS: ms(t.Elected - closed),
		ApplyMS: ms(t.applied - t.Elected), OpenMS: ms(t.opened - t.applied), RouteMS: ms(max(t.routed-t.opened, 0))}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func between(low, x, high time.Duration) time.Duration { return max(low, min(x, high)) }

// Begin notes what is known of the loss of the leader before: the next one's success wipes it out.
func (h *History) Begin(t Takeover) *Takeover {
	t.began = now()
	t.seen, t.seenBy = h.gossip.LastOpen(t.Before.Term)
	l, lost := h.gossip.LossOf(uint64(t.Before.Node), t.Before.Term)
	t.sign, t.noticed, t.asked, t.lost = l.Sign, l.Noticed, l.Asked, lost
	return &t
}

// Opened notes that this member takes writes now, and when it had applied all that is below its barrier.
func (t *Takeover) Opened(applied time.Duration) { t.applied, t.opened = applied, now() }

// Report records how this member came to lead, once the routers have followed.
func (h *History) Report(ctx context.Context, t *Takeover) {
	t.routed = h.awaitRoutes(ctx, t.Term)
	e := h.Event(EventElection, 0, "")
	e.Term, e.Incarnation, e.To = t.Term, t.Incarnation, h.id.Name
	var left gossip.Leave
	if t.Before.Index != 0 {
		e.FromTerm, e.FromIncarnation, e.From = t.Before.Term, t.Before.Incarnation, h.host.MemberName(uint64(t.Before.Node))
		left, t.left = h.gossip.LeaveOf(uint64(t.Before.Node), t.Before.Term)
	}
	switch {
	case t.Before.Index == 0:
		e.Cause = "the first leader of the cluster"
	case t.Forced:
		e.Kind, e.Cause = EventFailover, "an operator forced a failover"
	case left.Planned:
		e.Kind, e.Cause, e.By = EventSwitchover, left.Cause, left.By
	case left.Term != 0:
		e.Kind, e.Cause = EventFailover, left.Cause
	case t.noticed == 0 && t.seenBy == "":
		e.Cause = "no leader was known since this daemon started"
	case t.noticed == 0: // this daemon did not see the outage begin
		e.Kind, e.Cause = EventFailover, fmt.Sprintf("%s was last known to take writes %.0f s before, by %s", e.From,
			(t.Elected-t.seen).Seconds(), t.seenBy)
		if h.started > t.seen {
			e.Cause += fmt.Sprintf("; the daemon of %s was started %.0f s after that", e.To, (h.started - t.seen).Seconds())
		}
		t.sign, t.noticed = t.seen, t.Elected
	case t.lost != "":
		e.Kind, e.Cause = EventFailover, t.lost
	default:
		e.Kind, e.Cause = EventFailover, fmt.Sprintf("not heard of for %.0f ms", ms(t.noticed-t.sign))
	}
	if t.left > t.Elected {
		t.asked, t.Elected = t.began, t.began // it leads again in the same term, with a mysqld that was fenced
	}
	p := t.phases()
	e.Phases = &p
	if e.Kind != EventElection {
		e.GapMS = p.DetectMS + p.CloseMS + p.VoteMS + p.ApplyMS + p.OpenMS
	}
	e.Message = e.To + " leads: " + e.Cause
	if e.From != "" && e.From != e.To {
		e.Message = fmt.Sprintf("%s leads instead of %s: %s", e.To, e.From, e.Cause)
	}
	h.log.Info("took over", "term", t.Term, "from", e.From, "kind", e.Kind, "cause", e.Cause,
		"phases", fmt.Sprintf("%+v", p))
	h.Add(e)
}

// awaitRoutes waits until the routers of all live members lead to this one, and returns when that was known.
func (h *History) awaitRoutes(ctx context.Context, term uint64) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, routePatience)
	defer cancel()
	for {
		all := h.host.Routed() >= term
		for _, p := range h.gossip.Peers() {
			all = all && (!p.Fresh() || p.Routed >= term)
		}
		if all || poll.Pause(ctx, time.Millisecond) != nil {
			return now()
		}
	}
}

// Explained returns the events, in order, each change of leaders with what had to be rolled back.
func (h *History) Explained() []api.Event { return explainRollbacks(h.All()) }

// explainRollbacks adds to each change of leaders what the leader before had to roll back when it came back: what its
// next rejoin says of the incarnation that led. It is put together when the history is read, since a member can come
// back at any time.
func explainRollbacks(events []api.Event) []api.Event {
	for i := range events {
		e := &events[i]
		if e.FromIncarnation == 0 {
			continue
		}
		// A switchover drains mysqld, and so may a fence: then all that it wrote had been committed, and it went on as it
		// was.
		drained := e.Kind == EventSwitchover
		for _, o := range events {
			if o.Node == e.From && o.Kind == "fence" && o.Term == e.FromTerm {
				drained = o.Drained
			}
		}
		r := &api.RolledBack{Known: drained}
		for _, o := range events {
			if o.Node == e.From && o.Kind == "rejoin" && o.Incarnation > e.FromIncarnation && !r.Known {
				r.Known = true
				r.Count, r.GTIDs, r.More = ofIncarnation(o.GTIDs, e.FromIncarnation)
			}
		}
		e.RolledBack = r
	}
	return events
}

// ofIncarnation gives the part of a set that an incarnation made, whichever node's it was. more says that there may be
// more of it: the text was shortened.
func ofIncarnation(text string, incarnation uint64) (count uint64, part string, more bool) {
	if text, more = strings.CutSuffix(text, "…"); more {
		text = text[:max(0, strings.LastIndexAny(text, ",:"))] // what is cut in its middle says something else
	}
	set, err := gtid.ParseSet(text)
	if err != nil {
		return 0, "", true // the cut left nothing but a UUID
	}
	var out gtid.Set
	for _, r := range set.Ranges() {
		if _, _, i, ok := gtid.ParseIncarnation(r.UUID); ok && i == incarnation {
			out.AddRange(r)
		}
	}
	return out.Count(), out.String(), more
}

// UsualTakeover is the median of what the last failovers took besides noticing the fault and applying a backlog:
// closing, votes, barrier, opening writes, routers.
func (h *History) UsualTakeover() time.Duration {
	return h.usual(EventFailover, firstTakeover, func(e api.Event) float64 {
		return e.Phases.CloseMS + e.Phases.VoteMS + e.Phases.OpenMS + e.Phases.RouteMS
	})
}

// UsualGap is the median of the last switchovers' gaps.
func (h *History) UsualGap() time.Duration {
	return h.usual(EventSwitchover, firstGap, func(e api.Event) float64 { return e.GapMS })
}

// usual is the median of a figure, in ms, of the newest events of a kind.
func (h *History) usual(kind string, first time.Duration, figure func(api.Event) float64) time.Duration {
	var found []float64
	for _, e := range slices.Backward(h.All()) {
		if e.Kind == kind && e.Phases != nil && len(found) < recentChanges {
			found = append(found, figure(e))
		}
	}
	if len(found) == 0 {
		return first
	}
	slices.Sort(found)
	return time.Duration(found[len(found)/2] * float64(time.Millisecond))
}
