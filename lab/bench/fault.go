package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trireme/internal/base/poll"
	"trireme/lab/rivals"
	"trireme/lab/verify"
)

const (
	rateTime    = 5 * time.Second // before a fault, over which the rate is taken
	nextSecond  = time.Second
	faultLimit  = 90 * time.Second
	healLimit   = 20 * time.Second
	checkLimit  = 2 * time.Minute
	writeLimit  = 30 * time.Second // for the first write
	eventLeader = "%s leads"
	eventWhole  = "all healthy"
	eventPause  = "writers pause"
)

// faultRun is one fault on a running system.
type faultRun struct {
	kind faultKind
	c    rivals.Breakable
	w    *verify.Workload

	before rivals.Lead
	victim string
	begin  time.Time // of the load that is looked at
	at     time.Time
	wentOn time.Time // what was frozen or cut off; otherwise at
	rec    Record
}

// measure lets sessions write, makes the fault, and goes on until the time is over and the system is whole again. Then
// it compares the writers' log with the servers.
func (k faultKind) measure(ctx context.Context, b *Bed) (Record, error) {
	c, err := breakable(ctx, b)
	if err == nil {
		err = c.Can(k.fault)
	}
	if err != nil {
		return Record{}, err
	}
	f := &faultRun{kind: k, c: c, rec: Record{Values: map[string]float64{}}}
	if f.before, err = c.Settled(ctx); err != nil {
		return f.rec, fmt.Errorf("%w: %w", errBroken, err)
	}
	if f.w, err = verify.New(verify.Config{Login: c.Login(), Writers: b.Settings.Threads[0]}); err != nil {
		return f.rec, err
	}
	pctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	if err := f.w.Prepare(pctx); err != nil {
		return f.rec, err
	}
	f.w.Start(ctx)
	err = f.run(ctx, b.Settings)
	if serr := f.w.Stop(); err == nil {
		err = serr
	}
	if err == nil {
		err = ctx.Err()
	}
	if b.System.Ours && errors.Is(err, errBroken) && ctx.Err() == nil {
		f.rec.Broken = err.Error()
		return f.rec, nil
	}
	if err != nil {
		return f.rec, err
	}
	checked := f.judge(ctx)
	if b.System.Ours && (!checked || f.rec.Values[valLost]+f.rec.Values[valDoubled] > 0) {
		f.rec.Broken = "a promise was broken, or could not be checked: " + f.rec.Note
	}
	return f.rec, nil
}

// run is everything under load.
func (f *faultRun) run(ctx context.Context, s Settings) error {
	meter := f.w.Meter()
	if err := acked(ctx, meter, time.Now()); err != nil {
		return err
	}
	f.begin = time.Now()
	if err := poll.Pause(ctx, time.Duration(s.WarmupSeconds)*time.Second); err != nil {
		return err
	}
	var err error
	if f.before, err = f.c.Settled(ctx); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	f.victim = f.before.Name
	if f.kind.follower {
		f.victim = f.follower()
	}
	failed := meter.Failed()
	f.at = time.Now()
	f.wentOn = f.at
	v := f.rec.Values
	v[valSteadyGap], v[valRate] = milliseconds(meter.LongestGap(f.begin.Add(time.Second)).Length()),
		meter.Rate(f.at.Add(-rateTime), f.at)
	f.event(f.at, f.kind.name)
	hitErr := f.hit(ctx)
	whole, healErr := f.heal(ctx, time.Duration(s.Seconds)*time.Second)
	v[valFailed] = float64(meter.Failed() - failed)
	if f.rec.Series == nil {
		f.rec.Series = map[string][]float64{valTPS: perSecond(meter, f.begin, time.Now())}
	}
	if err := errors.Join(hitErr, healErr); err != nil {
		return fmt.Errorf("%w: it did not recover, the write gap was %.0f ms: %w", errBroken, v[valGap], err)
	}
	v[valHealthy] = whole.Sub(f.at).Seconds()
	if !f.kind.planned {
		v[valBack] = whole.Sub(f.backFrom()).Seconds()
	}
	return nil
}

func (f *faultRun) event(at time.Time, text string) {
	f.rec.Events = append(f.rec.Events, Event{Second: at.Sub(f.begin).Seconds(), Text: text})
}

// hit makes the fault, waits until it has been seen and writes go on, and ends it if it lasts.
func (f *faultRun) hit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, faultLimit)
	defer cancel()
	if err := f.c.Do(ctx, f.kind.fault, f.victim); err != nil {
		return err
	}
	err := f.seen(ctx)
	if f.kind.fault.Lasts() {
		err = errors.Join(err, f.c.Undo(ctx, f.kind.fault, f.victim))
		f.wentOn = time.Now()
		f.event(f.wentOn, f.victim+" goes on")
	}
	return err
}

// seen waits until others know of the fault, and somebody takes writes.
func (f *faultRun) seen(ctx context.Context) error {
	if f.kind.planned {
		return nil
	}
	if f.kind.follower {
		return poll.Within(ctx, faultLimit, "the follower's fault to be seen", func(ctx context.Context) error {
			healthy, err := f.c.Healthy(ctx, f.victim)
			if err == nil && healthy {
				err = errors.New("it counts as healthy")
			}
			return err
		})
	}
	known := false
	return poll.Within(ctx, faultLimit, "a new leader and writes", func(ctx context.Context) error {
		now, err := f.c.Leader(ctx)
		switch {
		case err != nil:
			return err
		case now.Term <= f.before.Term || !now.Open:
			return errors.New("there is no new leader")
		case !known:
			known = true
			f.event(time.Now(), fmt.Sprintf(eventLeader, now.Name))
		}
		if !f.w.Meter().AckedSince(f.at) {
			return errNoWrites
		}
		return nil
	})
}

var errNoWrites = errors.New("no write is acknowledged")

// acked waits until a write is acknowledged.
func acked(ctx context.Context, m *verify.Meter, since time.Time) error {
	return poll.Within(ctx, writeLimit, "writes", func(context.Context) error {
		if !m.AckedSince(since) {
			return errNoWrites
		}
		return nil
	})
}

// heal waits until the system is whole again, and says when, and until so much time has passed under load. A system
// that is not whole by then gets help after healLimit: the writers pause until it is, because one that cannot catch up
// under load would never be.
func (f *faultRun) heal(ctx context.Context, load time.Duration) (whole time.Time, err error) {
	meter := f.w.Meter()
	hctx, cancel := context.WithTimeout(ctx, max(load, healLimit)) // since writes go on
	after, err := f.c.Settled(hctx)
	cancel()
	if err == nil {
		whole = time.Now()
		f.event(whole, eventWhole)
		err = poll.Pause(ctx, time.Until(f.at.Add(nextSecond)))
	}
	f.rec.Values[valDip] = 100 * (1 - meter.Rate(f.at, f.at.Add(nextSecond))/max(f.rec.Values[valRate], 1))
	if err == nil {
		err = poll.Pause(ctx, time.Until(f.at.Add(load)))
	}
	f.rec.Values[valGap] = milliseconds(meter.LongestGap(f.at).Length())
	if ctx.Err() != nil {
		return whole, ctx.Err()
	}
	if err != nil {
		f.rec.Series = map[string][]float64{valTPS: perSecond(meter, f.begin, time.Now())}
		f.rec.Note = "the writers had to pause until it had caught up"
		f.event(time.Now(), eventPause)
		f.w.Pause()
		defer f.w.Resume()
		after, err = f.c.Settled(ctx)
		whole = time.Now()
		if err == nil {
			f.event(whole, eventWhole)
		}
	}
	if err == nil && f.kind.follower && (after.Term != f.before.Term || after.Name != f.before.Name) {
		f.rec.Note = fmt.Sprintf("leadership went from %s to %s because of a follower", f.before.Name, after.Name)
	}
	return whole, err
}

// backFrom is when the node's return began: the start of the first of its processes that did not exist at the fault;
// without such a one, when what was frozen or cut off went on.
func (f *faultRun) backFrom() time.Time {
	first := f.wentOn
	for _, pid := range f.c.Processes(f.victim) {
		if at, err := startedAt(pid); err == nil && at.After(f.at) && (first.Equal(f.wentOn) || at.Before(first)) {
			first = at
		}
	}
	return first
}

// follower is a node that does not lead.
func (f *faultRun) follower() string {
	for _, name := range f.c.Names() {
		if name != f.before.Name {
			return name
		}
	}
	return ""
}

// judge compares what the writers were told with what every server holds.
func (f *faultRun) judge(ctx context.Context) (checked bool) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	r, err := f.check(ctx)
	if err != nil {
		f.rec.Note = joinNotes(f.rec.Note, "the check could not be made: "+err.Error())
		return false
	}
	v := f.rec.Values
	v[valAcked] = float64(r.Counts.Acked)
	v[valLost], v[valDoubled] = count(r.Problems, verify.Lost), count(r.Problems, verify.Doubled)
	if !r.OK() {
		f.rec.Note = joinNotes(f.rec.Note, r.String())
	}
	return true
}

func (f *faultRun) check(ctx context.Context) (verify.Report, error) {
	if _, err := f.c.Settled(ctx); err != nil {
		return verify.Report{}, err
	}
	nodes, err := f.c.Endpoints()
	if err != nil {
		return verify.Report{}, err
	}
	defer verify.CloseEndpoints(nodes)
	return f.w.Check(ctx, nodes)
}

// count the writes that have a problem of a kind on any server.
func count(problems []verify.Problem, kind verify.Kind) float64 {
	seen := map[verify.Attempt]bool{}
	for _, p := range problems {
		if p.Kind == kind {
			seen[p.Attempt] = true
		}
	}
	return float64(len(seen))
}

func joinNotes(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// perSecond is how many writes were acknowledged in each whole second between two times.
func perSecond(m *verify.Meter, from, to time.Time) (tps []float64) {
	for at := from.Add(time.Second); !at.After(to); at = at.Add(time.Second) {
		tps = append(tps, m.Rate(at.Add(-time.Second), at))
	}
	return tps
}
