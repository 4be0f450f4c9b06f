package node

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
	eventElection   = "election"   // no node had led, or none knew
	eventFailover   = "failover"   // a leader was lost
	eventSwitchover = "switchover" // a leader handed over on purpose
)

// routePatience bounds the wait for the routers of the other nodes, whose time is part of the report only.
const routePatience = 2 * time.Second

// timeline is what this node sees of a change of leaders. Times are on CLOCK_BOOTTIME, 0 when it did not happen or is
// not known.
type timeline struct {
	sign    time.Duration // last sign of life of the leader
	left    time.Duration // the leader says that it stopped taking writes
	noticed time.Duration // it is not the leader any more, for this node
	asked   time.Duration // somebody handed leadership to this node
	elected time.Duration
	applied time.Duration
	opened  time.Duration
	routed  time.Duration // every live node's router has followed
}

// phases divides the time without writes. detect ends when the loss is known, to the leader itself or to others; close
// when the leader has drained or fenced its mysqld and hands over; vote when this node is elected.
func (t timeline) phases() api.Phases {
	start := t.left
	if start == 0 {
		start = t.sign
	}
	if start == 0 {
		start = t.noticed
	}
	if start == 0 || start > t.elected {
		start = t.elected
	}
	detected, closed := start, start
	switch {
	case t.left == 0:
		detected = between(start, t.noticed, t.elected)
		closed = detected
	case t.asked > start:
		closed = between(start, t.asked, t.elected)
	}
	return api.Phases{DetectMS: ms(detected - start), CloseMS: ms(closed - detected), VoteMS: ms(t.elected - closed),
		ApplyMS: ms(t.applied - t.elected), OpenMS: ms(t.opened - t.applied), RouteMS: ms(max(t.routed-t.opened, 0))}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func between(low, x, high time.Duration) time.Duration { return max(low, min(x, high)) }

// takeover is one promotion, for the report.
type takeover struct {
	timeline
	term        uint64
	incarnation uint64         // of the mysqld that takes over
	before      ledger.Barrier // of the leader before
	began       time.Duration
	lost        string // how the leader before was lost, when that was seen
	forced      bool   // an operator forced it
	seenBy      string // who knows when the leader before last took writes; empty: no node does
	seen        time.Duration
}

// beginTakeover notes what is known of the loss of the leader before: the next one's success wipes it out.
func (n *Node) beginTakeover(term, incarnation uint64) *takeover {
	t := &takeover{term: term, incarnation: incarnation, before: n.led.NewestBarrier(), began: now()}
	t.seen, t.seenBy = n.gossip.LastOpen(t.before.Term)
	l, lost := n.gossip.LossOf(uint64(t.before.Node), t.before.Term)
	t.sign, t.noticed, t.asked, t.lost = l.Sign, l.Noticed, l.Asked, lost
	n.mu.Lock()
	defer n.mu.Unlock()
	t.elected, t.forced = n.control.Soft().LeaderSince, n.leadership.Forced(term)
	return t
}

// reportTakeover records how this node came to lead, once the routers have followed.
func (n *Node) reportTakeover(ctx context.Context, t *takeover) {
	t.routed = n.awaitRoutes(ctx, t.term)
	e := n.event(eventElection, 0, "")
	e.Term, e.Incarnation, e.To = t.term, t.incarnation, n.id.Name
	var left gossip.Leave
	if t.before.Index != 0 {
		e.FromTerm, e.FromIncarnation, e.From = t.before.Term, t.before.Incarnation, n.memberName(uint64(t.before.Node))
		left, t.left = n.gossip.LeaveOf(uint64(t.before.Node), t.before.Term)
	}
	switch {
	case t.before.Index == 0:
		e.Cause = "the first leader of the cluster"
	case t.forced:
		e.Kind, e.Cause = eventFailover, "an operator forced a failover"
	case left.Planned:
		e.Kind, e.Cause, e.By = eventSwitchover, left.Cause, shorten(left.By)
	case left.Term != 0:
		e.Kind, e.Cause = eventFailover, left.Cause
	case t.noticed == 0:
		if t.seenBy == "" {
			e.Cause = "no leader was known since this daemon started"
			break
		}
		e.Kind, e.Cause = eventFailover, n.outageText(e.From, t)
		t.sign, t.noticed = t.seen, t.elected
	case t.lost != "":
		e.Kind, e.Cause = eventFailover, t.lost
	default:
		e.Kind, e.Cause = eventFailover, fmt.Sprintf("not heard of for %.0f ms", ms(t.noticed-t.sign))
	}
	if t.left > t.elected {
		t.asked, t.elected = t.began, t.began // it leads again in the same term, with a mysqld that was fenced
	}
	p := t.phases()
	e.Phases = &p
	if e.Kind != eventElection {
		e.GapMS = p.DetectMS + p.CloseMS + p.VoteMS + p.ApplyMS + p.OpenMS
	}
	e.Message = e.To + " leads: " + e.Cause
	if e.From != "" && e.From != e.To {
		e.Message = fmt.Sprintf("%s leads instead of %s: %s", e.To, e.From, e.Cause)
	}
	n.log.Info("took over", "term", t.term, "from", e.From, "kind", e.Kind, "cause", e.Cause,
		"phases", fmt.Sprintf("%+v", p))
	n.history.add(e)
}

// awaitRoutes waits until the routers of all live nodes lead to this one, and returns when that was known.
func (n *Node) awaitRoutes(ctx context.Context, term uint64) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, routePatience)
	defer cancel()
	for {
		n.mu.Lock()
		all := n.routing.Told().Term >= term
		for _, p := range n.gossip.Peers() {
			all = all && (!p.Fresh() || p.Routed >= term)
		}
		n.mu.Unlock()
		if all {
			return now()
		}
		if poll.Pause(ctx, time.Millisecond) != nil {
			return now()
		}
	}
}

// explainRollbacks adds to each change of leaders what the leader before had to roll back when it came back: what its
// next rejoin says of the incarnation that led. It is put together when the history is read, since a node can come back
// at any time.
func explainRollbacks(events []api.Event) {
	for i := range events {
		e := &events[i]
		if e.FromIncarnation == 0 {
			continue
		}
		// A switchover drains mysqld, and so may a fence: then all that it wrote had been committed, and it went on as it
		// was.
		drained := e.Kind == eventSwitchover
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

// usual is the median of a figure of the newest events, in ms; ok is false without any.
func usual(events []api.Event, figure func(api.Event) (float64, bool)) (float64, bool) {
	var found []float64
	for _, e := range slices.Backward(events) {
		if v, ok := figure(e); ok && len(found) < recentChanges {
			found = append(found, v)
		}
	}
	if len(found) == 0 {
		return 0, false
	}
	slices.Sort(found)
	return found[len(found)/2], true
}

// recentChanges is of how many changes of leaders the median is expected next time.
const recentChanges = 5
