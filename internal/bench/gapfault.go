package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"trireme/internal/verify"
)

// Fault is one fault and what the clients of the router saw of it.
type Fault struct {
	Series      string    `json:"series"`
	Kind        string    `json:"kind"`
	At          time.Time `json:"at"`
	GapFrom     time.Time `json:"gap_from"`      // the last acknowledged write before the gap
	GapMS       float64   `json:"gap_ms"`        // longest time without an acknowledged write
	Failed      int64     `json:"failed"`        // attempts refused or without an answer
	HealthySecs float64   `json:"healthy_after"` // until every member was healthy again
	BackSecs    float64   `json:"back_after"`    // the same, from when the first process of the node was started again, or what was stopped went on
	TPSBefore   float64   `json:"tps_before"`    // in the rateTime before
	TPSNext     float64   `json:"tps_next"`      // in the next second
	TPSUntil    float64   `json:"tps_until"`     // until every member was healthy again; 0 when paused
	Behind      int       `json:"behind"`        // transactions that the slowest follower had not applied when the fault came
	Paused      bool      `json:"paused"`        // the writers had to pause for it: see healLimit
	Lost        int       `json:"lost"`          // acknowledged writes that are missing, one for each node that misses it
	Doubled     int       `json:"doubled"`
	Problem     string    `json:"problem,omitempty"` // it did not recover in time
}

// faultKind is one way to hit a node.
type faultKind struct {
	name     string
	expect   string // in words
	what     fault
	follower bool   // a follower is hit, and leadership must stay
	undo     bool   // what was stopped goes on once others take writes
	target   target // zero: none
	// How long one takes about, for the estimate: Trireme; Group Replication with its defaults, 0 when it has nothing like it; and with
	// member_expel_timeout=0, 0 when that is not measured.
	takes, mgrTakes, mgrTunedTakes time.Duration
}

// target is what Trireme must reach; zero fields are none.
type target struct {
	p50MS, p99MS float64
	dip          float64 // part of the rate lost in the next second
}

// backSeconds is the target for a node's return, whichever fault it was.
const backSeconds = 10

// faultKinds in the order in which they are measured.
var faultKinds = []faultKind{
	{name: "mysqld killed", expect: "the daemon sees it at once and hands over", what: faultKillMySQL, target: target{p50MS: 500, p99MS: 1000},
		takes: 4 * time.Second, mgrTakes: 26 * time.Second, mgrTunedTakes: 14 * time.Second},
	{name: "daemon killed", expect: "closed connections: the others elect at once", what: faultKillDaemon, target: target{p50MS: 500, p99MS: 1000},
		takes: 4 * time.Second},
	{name: "both killed", expect: "as a killed daemon", what: faultKillHost, target: target{p50MS: 500, p99MS: 1000}, takes: 4 * time.Second},
	{name: "daemon ended (SIGTERM)", expect: "hands over first", what: faultEndDaemon, takes: 3 * time.Second},
	{name: "daemon stopped (SIGSTOP)", expect: "heartbeats missed; its guard kills its mysqld", what: faultStopDaemon, undo: true, takes: 5 * time.Second},
	{name: "host stopped (SIGSTOP of all)", expect: "heartbeats missed: the others elect", what: faultStopHost, undo: true, target: target{p99MS: 2000},
		takes: 5 * time.Second, mgrTakes: 28 * time.Second, mgrTunedTakes: 14 * time.Second},
	{name: "mysqld stopped (SIGSTOP)", expect: "the probe finds it after 5 s, fence and hand over", what: faultStopMySQL, undo: true, takes: 10 * time.Second},
	{name: "switchover", expect: "planned: drained, no restart", what: faultSwitchover, target: target{p99MS: 300}, takes: 2 * time.Second, mgrTakes: 3 * time.Second},
	{name: "follower's mysqld killed", expect: "the leader does not notice", what: faultKillMySQL, follower: true, target: target{dip: 0.05},
		takes: 5 * time.Second, mgrTakes: 22 * time.Second},
	{name: "follower's daemon killed", expect: "the leader does not notice", what: faultKillDaemon, follower: true, takes: 6 * time.Second},
}

// count is how many faults of the kind are made when n are asked for.
func (k faultKind) count(n int) int {
	if k.target == (target{}) {
		return min(n, fewFaults)
	}
	return n
}

// kindsOf are the kinds with the given names, all of them when there are none.
func kindsOf(names []string) ([]faultKind, error) {
	if len(names) == 0 {
		return faultKinds, nil
	}
	var out []faultKind
	var known []string
	for _, k := range faultKinds {
		known = append(known, k.name)
		if slices.Contains(names, k.name) {
			out = append(out, k)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("no kind of fault %q; there are: %s", name, strings.Join(known, ", "))
		}
	}
	return out, nil
}

const (
	// rateTime is over how long the rate before a follower's fault is taken. Others begin settleTime after the last one has healed.
	rateTime   = 2 * time.Second
	settleTime = 300 * time.Millisecond
	nextSecond = time.Second
	// healLimit: when a system is not whole again so long after writes go on, the writers pause until it is: one that cannot catch up
	// under load would never be. Of a rival's later faults only the gap is wanted, so that more of them fit: they pause after healShort.
	healLimit = 20 * time.Second
	healShort = 3 * time.Second
)

// gapRun is the measurement of one running system.
type gapRun struct {
	c        contender
	w        *verify.Workload
	say      io.Writer
	rival    bool
	deadline time.Time // of the last fault; zero: none

	steadyMS, steadyTPS float64
	faults              []Fault
	begun               [][]int64 // of each fault: the newest attempt of each writer when it began
}

// measure makes the faults, one of each kind in turn, so that a limit leaves out the same of all.
func (m *gapRun) measure(ctx context.Context, p plan) error {
	if _, err := m.c.settled(ctx); err != nil {
		return err
	}
	if err := pause(ctx, steadyTime); err != nil { // warm-up
		return err
	}
	begin := time.Now()
	if err := pause(ctx, steadyTime); err != nil {
		return err
	}
	m.steadyMS, m.steadyTPS = milliseconds(m.w.Meter().LongestGap(begin).Length()), m.w.Meter().Rate(begin, time.Now())
	all := p.series(m.c)
	for i := range p.faults {
		for _, s := range all {
			if s.set != nil {
				if err := s.set(ctx); err != nil {
					return err
				}
			}
			for _, k := range s.kinds {
				if i >= k.count(p.faults) || s.half && i%2 == 1 {
					continue
				}
				if !m.deadline.IsZero() && time.Until(m.deadline) < s.takes(k) {
					fmt.Fprintf(m.say, "%s: its time is over\n", p.name)
					return nil
				}
				if err := m.one(ctx, s.name, k); err != nil {
					return fmt.Errorf("%s, %s, number %d: %w", s.name, k.name, i+1, err)
				}
			}
		}
	}
	return nil
}

// one makes a fault and notes what came of it. A rival that does not recover in time is noted as well, if it does so later on.
func (m *gapRun) one(ctx context.Context, series string, k faultKind) error {
	before, err := m.c.settled(ctx)
	if err != nil {
		return err
	}
	if err := m.steady(ctx, k); err != nil {
		return err
	}
	f := Fault{Series: series, Kind: k.name, Behind: m.c.behind(ctx)}
	failed := m.w.Meter().Failed()
	m.begun = append(m.begun, m.w.Log().Last())
	victim := before.Name
	if k.follower {
		victim = m.follower(before)
	}
	at := time.Now()
	f.At = at.UTC()
	wentOn, err := m.hit(ctx, k, victim, before, at)
	if err != nil {
		f.Problem = err.Error()
	}
	meter := m.w.Meter()
	after, err := m.heal(ctx, at, &f)
	if err != nil {
		return errors.Join(err, errors.New(f.Problem), fmt.Errorf("the write gap was %.0f ms", f.GapMS))
	}
	healed := time.Now()
	if k.follower && f.Problem == "" && (after.Term != before.Term || after.Name != before.Name) {
		f.Problem = fmt.Sprintf("%s led term %d, now %s leads term %d, because of a follower", before.Name, before.Term, after.Name, after.Term)
	}
	if err := pause(ctx, time.Until(at.Add(nextSecond))); err != nil {
		return err
	}
	f.HealthySecs, f.BackSecs = healed.Sub(at).Seconds(), healed.Sub(backAt(m.c, victim, at, wentOn)).Seconds()
	f.TPSBefore, f.TPSNext = meter.Rate(at.Add(-rateTime), at), meter.Rate(at, at.Add(nextSecond))
	if !f.Paused {
		f.TPSUntil = meter.Rate(at, healed)
	}
	f.Failed = meter.Failed() - failed
	fmt.Fprintf(m.say, "%-12s %-29s %2d: write gap %6.0f ms, %3d attempts failed, next second %+4.0f %%, %5d behind, all healthy after %.1f s %s\n", series, k.name,
		m.number(series, k.name)+1, f.GapMS, f.Failed, 100*(f.TPSNext/max(f.TPSBefore, 1)-1), f.Behind, f.HealthySecs, f.Problem)
	m.faults = append(m.faults, f)
	return nil
}

// heal waits until the system is whole again, from some time on without load, and notes the gap under load.
func (m *gapRun) heal(ctx context.Context, at time.Time, f *Fault) (lead, error) {
	patience := healLimit
	if m.rival && m.number(f.Series, f.Kind) > 0 {
		patience = healShort
	}
	hctx, cancel := context.WithTimeout(ctx, patience)
	l, err := m.c.settled(hctx)
	cancel()
	gap := m.w.Meter().LongestGap(at)
	f.GapMS, f.GapFrom = milliseconds(gap.Length()), gap.From.UTC()
	if err == nil || ctx.Err() != nil {
		return l, err
	}
	f.Paused = true
	m.w.Pause()
	defer m.w.Resume()
	return m.c.settled(ctx)
}

// number of faults of a kind so far.
func (m *gapRun) number(series, kind string) int {
	n := 0
	for _, f := range m.faults {
		if f.Series == series && f.Kind == kind {
			n++
		}
	}
	return n
}

// steady waits until writes flow, for long enough to know their rate where that is asked for.
func (m *gapRun) steady(ctx context.Context, k faultKind) error {
	d := settleTime
	if k.follower {
		d = rateTime
	}
	begin := time.Now()
	if err := poll(ctx, faultLimit, "writes", func(context.Context) (bool, error) { return m.w.Meter().AckedSince(begin), nil }); err != nil {
		return err
	}
	return pause(ctx, d)
}

// hit does it, and waits until it has been seen and writes go on; then it lets go on what was stopped. It returns when that was.
func (m *gapRun) hit(ctx context.Context, k faultKind, victim string, before lead, at time.Time) (wentOn time.Time, err error) {
	if err := m.c.do(ctx, k.what, victim); err != nil {
		return at, err
	}
	what := "a new leader and writes"
	if k.follower {
		what = "the follower's fault to be seen"
	}
	err = poll(ctx, faultLimit, what, func(ctx context.Context) (bool, error) {
		if k.follower {
			ok, err := m.c.healthy(ctx, victim)
			return !ok, err
		}
		now, err := m.c.leader(ctx)
		return err == nil && now.Term > before.Term && now.open && m.w.Meter().AckedSince(at), err
	})
	if k.undo {
		err = errors.Join(err, m.c.undo(ctx, victim))
		return time.Now(), err
	}
	return at, err
}

// follower is a node that does not lead.
func (m *gapRun) follower(l lead) string {
	for _, name := range m.c.names() {
		if name != l.Name {
			return name
		}
	}
	return ""
}
