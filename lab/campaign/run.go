package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"trireme/internal/base/poll"
	"trireme/lab/rivals"
	"trireme/lab/stream"
	"trireme/lab/verify"
)

// Limits of waits. A system that exceeds one has not recovered, which is a violation.
const (
	writeLimit   = 90 * time.Second
	healthyLimit = 90 * time.Second
	quietAfter   = 20 * time.Second
	checkLimit   = 5 * time.Minute
	provenLimit  = 30 * time.Second // for the rarest workload to get something done, and each node to be read
	// a write so long after a leader was killed is not its last one: it is back, in the same term
	sameLeader = time.Second
	looks      = 200 * time.Millisecond // at all that was done so far
)

// phase of a campaign, for the account of where its time goes.
type phase string

const (
	phaseFaults  phase = "faults"  // until what lasts has ended
	phaseWrites  phase = "writes"  // until they go on
	phaseHealthy phase = "healthy" // until all nodes are
	phaseChecks  phase = "checks"  // end of a batch, comparison, next tables
)

// errViolated: a promise was broken. The message says which one.
var errViolated = errors.New("violated")

// batch is one set of tables: some steps, then a check of everything.
type batch struct {
	*campaign
	sys    system
	w      *verify.Set
	nodes  atomic.Pointer[[]verify.NodeLogin] // for readers of every node
	counts Part
	hurts  []hurt // the timeline of faults, as long as it matters
}

// batch runs steps on tables of their own, and checks them. Only then are its faults counted. It ends early, with its
// check, when ctx does.
func (c *campaign) batch(ctx context.Context, sys system) error {
	work := context.WithoutCancel(ctx) // what was begun is ended and checked: each wait has a limit of its own
	b := &batch{campaign: c, sys: sys, counts: Part{Counts: map[string]int{}, Problems: map[string]int{},
		Seconds: map[phase]float64{}}}
	defer b.close()
	if err := b.open(work); err != nil {
		return err
	}
	for range batchSteps {
		if !b.more(ctx) {
			break
		}
		err := b.step(work, c.schedule.Next())
		if errors.Is(err, errNeedsQuiet) && !errors.Is(err, errViolated) {
			fmt.Fprintf(c.script, "%s the writers stop: %v\n", c.clock(), err)
			break
		}
		if err != nil {
			return errors.Join(err, c.alarms(sys, false)) // the alarm may be why
		}
	}
	err := b.check(work)
	if errors.Is(err, errViolated) {
		err = errors.Join(err, c.alarms(sys, false))
	}
	if b.counts.Undecided > 0 {
		b.counts.discount()
	}
	if b.counts.Checks > 0 {
		c.part.add(b.counts)
		c.total.add(b.counts)
	}
	return err
}

// more reports whether the batch goes on.
func (b *batch) more(ctx context.Context) bool {
	return ctx.Err() == nil && (b.Faults == 0 || b.total.Faults+b.counts.Faults < b.Faults) &&
		(b.Time == 0 || time.Since(b.began) < b.Time)
}

// timed adds what f takes to a phase.
func (b *batch) timed(p phase, f func() error) error {
	begin := time.Now()
	err := f()
	b.counts.Seconds[p] += time.Since(begin).Seconds()
	return err
}

func (b *batch) open(ctx context.Context) error {
	return b.timed(phaseChecks, func() (err error) {
		cfg := verify.SetConfig{Login: b.sys.Login(), Seed: b.Seed, Clients: b.Clients,
			Dir: filepath.Join(b.dir, "histories")}
		if err := os.RemoveAll(cfg.Dir); err != nil { // the batch before was checked
			return err
		}
		if b.drawn != nil {
			cfg.Rate = b.drawn.rate
		}
		if _, ok := b.sys.Breakable.(rivals.Addressed); ok {
			b.lookAround()
			cfg.Nodes = func() []verify.NodeLogin { return *b.nodes.Load() }
		}
		if s, ok := b.sys.Breakable.(rivals.Splitting); ok {
			cfg.Split = s.Split()
		}
		if b.sys.stream != nil {
			cfg.Follow = func(login verify.Login, database string) verify.Follower {
				return stream.Follow(login, b.sys.stream, database)
			}
		}
		if b.w, err = verify.NewSet(cfg); err != nil {
			return err
		}
		begin := time.Now()
		if err := b.within(ctx, writeLimit, errViolated, "the tables were not made", b.w.Prepare); err != nil {
			return err
		}
		b.w.Start(ctx)
		return b.writes(ctx, begin)
	})
}

func (b *batch) close() {
	if b.w != nil {
		_ = b.w.Stop() // after an error: that one counts
		b.w.Close()
	}
}

// writes waits until one has been acknowledged that was not before.
func (b *batch) writes(ctx context.Context, since time.Time) error {
	return b.within(ctx, writeLimit, errViolated, "no write was acknowledged", func(context.Context) error {
		if !b.w.Meter().AckedSince(since) {
			return errors.New("none yet")
		}
		return nil
	})
}

// step makes the faults of one, and waits for recovery.
func (b *batch) step(ctx context.Context, s Step) error {
	spent := maps.Clone(b.counts.Seconds)
	defer func() {
		fmt.Fprintf(b.script, "%s step %d took: faults %.1f s, writes %.1f s, healthy %.1f s\n", b.clock(), s.Number,
			b.counts.Seconds[phaseFaults]-spent[phaseFaults], b.counts.Seconds[phaseWrites]-spent[phaseWrites],
			b.counts.Seconds[phaseHealthy]-spent[phaseHealthy])
	}()
	if s.Whole {
		_ = b.timed(phaseHealthy, func() error { b.ready(ctx); return nil })
	}
	b.mended(ctx)
	b.lookAtDonors(ctx, s)
	before, err := b.leader(ctx)
	if err != nil {
		return err
	}
	var strikes []*strike
	err = b.timed(phaseFaults, func() error {
		strikes = b.hitAll(ctx, s.Faults, before)
		b.forgive(strikes)
		return endAll(ctx, strikes)
	})
	b.transcribe(s, before, strikes, err)
	if err != nil {
		return err
	}
	after, err := b.recover(ctx, s.Rest, strikes)
	if stalled := b.available(strikes); stalled != nil {
		return errors.Join(err, stalled, b.alarms(b.sys, false))
	}
	if err == nil || errors.Is(err, errNeedsQuiet) {
		b.count(strikes, after)
	}
	return errors.Join(err, b.alarms(b.sys, s.Rest == UntilHealthy && err == nil))
}

// leader that takes writes, as soon as there is one.
func (b *batch) leader(ctx context.Context) (l rivals.Lead, err error) {
	err = b.within(ctx, writeLimit, errViolated, "there was no leader", func(ctx context.Context) (err error) {
		if l, err = b.sys.Leader(ctx); err == nil && !l.Open {
			err = errors.New("none yet")
		}
		return err
	})
	return l, err
}

// donorsLimit bounds a look at nodes of which some may not answer.
const donorsLimit = 3 * time.Second

// lookAtDonors notes what nodes hold of their own before one may lose its data: what a copy of it has inherited is
// compared with that.
func (b *batch) lookAtDonors(ctx context.Context, s Step) {
	loses := func(f Fault) bool {
		return slices.Contains([]Kind{Replace, Reseed, Power, DiskFull, DiskError}, f.Kind)
	}
	if !b.ours() || !slices.ContainsFunc(s.Faults, loses) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, donorsLimit)
	defer cancel()
	if nodes, err := b.sys.Endpoints(); err == nil {
		b.owned.Look(ctx, nodes)
		verify.CloseEndpoints(nodes)
	}
}

// hitAll makes the faults of a step. One that comes later hits by the roles of that moment, as far as they are known.
func (b *batch) hitAll(ctx context.Context, faults []Fault, lead rivals.Lead) (out []*strike) {
	for _, f := range faults {
		if f.Lag > 0 {
			_ = poll.Pause(ctx, f.Lag)
			if now, err := b.sys.Leader(ctx); err == nil && now.Name != "" {
				lead = now
			}
		}
		out = append(out, b.sys.hit(ctx, f, lead))
	}
	return out
}

// recover waits as long as the rest says, and returns who leads then.
func (b *batch) recover(ctx context.Context, r Rest, strikes []*strike) (after rivals.Lead, err error) {
	err = b.timed(phaseWrites, func() error {
		ended, killed := time.Now(), leadersKilled(strikes)
		if err := b.within(ctx, writeLimit, errViolated, "no node took over", func(ctx context.Context) (err error) {
			after, err = b.sys.Leader(ctx)
			old := slices.ContainsFunc(killed, func(term uint64) bool { return after.Term <= term }) && !b.w.Meter().
				AckedSince(ended.Add(sameLeader))
			if err == nil && (!after.Open || old) {
				err = fmt.Errorf("%q leads term %d", after.Name, after.Term)
			}
			return err
		}); err != nil {
			return err
		}
		if len(killed) > 0 {
			ended = time.Now() // what the one before it had acknowledged may have been under way
		}
		return b.writes(ctx, ended)
	})
	if err != nil || r == UntilWrites {
		return after, err
	}
	err = b.timed(phaseHealthy, func() (err error) {
		if r == UntilMajority {
			return b.majority(ctx)
		}
		after, err = b.healthy(ctx, quietAfter, errNeedsQuiet)
		return err
	})
	b.lookAround()
	return after, err
}

// isHealthy reports whether a host is, as far as can be told.
func (b *batch) isHealthy(ctx context.Context, host string) bool {
	ok, err := b.sys.Healthy(ctx, host)
	return ok && err == nil
}

// majority waits until one of the nodes is healthy.
func (b *batch) majority(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, quietAfter)
	defer cancel()
	for {
		well := 0
		for _, h := range b.sys.all {
			if b.isHealthy(ctx, h) {
				well++
			}
		}
		if 2*well > len(b.sys.all) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %d of %d nodes are healthy after %v", errNeedsQuiet, well, len(b.sys.all), quietAfter)
		}
		_ = poll.Pause(ctx, looks)
	}
}

// endAll undoes lasting faults, each in its time. Members are added again last: that may take long, and needs the
// others. Errors of faults that missed their target do not count.
func endAll(ctx context.Context, strikes []*strike) error {
	var errs []error
	turn := func(st *strike) time.Time {
		if st.fault.Kind == Replace {
			return st.end().Add(healthyLimit)
		}
		return st.end()
	}
	byEnd := slices.SortedFunc(slices.Values(strikes), func(a, b *strike) int { return turn(a).Compare(turn(b)) })
	for _, st := range byEnd {
		if st.err != nil && !errors.Is(st.err, errMissed) {
			errs = append(errs, fmt.Errorf("%v: %w", st.fault, st.err))
		}
		if st.undo == nil {
			continue
		}
		_ = poll.Pause(ctx, time.Until(st.end()))
		st.ended = time.Now()
		if err := st.undo(ctx); err != nil {
			errs = append(errs, fmt.Errorf("end of %v: %w", st.fault, err))
		}
	}
	return errors.Join(errs...)
}

func (st *strike) end() time.Time { return st.at.Add(st.fault.Hold) }

// errNeedsQuiet: a system is not healthy again although its faults are over. A node that has to catch up cannot on a
// machine whose CPUs are kept busy, so the batch ends, and without load it gets a last chance.
var errNeedsQuiet = errors.New("it did not become healthy under load")

// healthy waits until all nodes are.
func (b *batch) healthy(ctx context.Context, limit time.Duration, otherwise error) (lead rivals.Lead, err error) {
	err = b.within(ctx, limit, otherwise, "not all nodes were healthy", func(ctx context.Context) (err error) {
		lead, err = b.sys.Settled(ctx)
		return err
	})
	return lead, err
}

// lookAround notes where the nodes are: one that was replaced is elsewhere.
func (b *batch) lookAround() {
	if a, ok := b.sys.Breakable.(rivals.Addressed); ok {
		now := a.Logins()
		b.nodes.Store(&now)
	}
}

// leastPartition is how long hosts must have been cut off for a partition to count: Trireme's election timeout, so that
// somebody had to notice.
const leastPartition = time.Second

// leadersKilled are the terms that kills ended: each once, however many faults hit its leader.
func leadersKilled(strikes []*strike) (terms []uint64) {
	for _, st := range strikes {
		if st.err == nil && kindOf(st.fault.Kind).class == classKill && slices.Contains(st.hosts, st.lead.Name) &&
			!slices.Contains(terms, st.lead.Term) {
			terms = append(terms, st.lead.Term)
		}
	}
	return terms
}

// count what happened. A leader was killed if one that was hit led, and another term came of it. A partition counts if
// it lasted, a power loss if a disk lost something.
func (b *batch) count(strikes []*strike, after rivals.Lead) {
	c := &b.counts
	for _, st := range strikes {
		if st.err != nil {
			c.Missed++
			continue
		}
		c.Faults++
		c.Counts[string(st.fault.Kind)+" "+string(st.whom)]++
		switch kindOf(st.fault.Kind).class {
		case classPartition:
			if st.ended.Sub(st.at) >= leastPartition {
				c.Partitions++
			}
		case classPower:
			if len(st.lost) > 0 {
				c.PowerLosses++
			}
		}
	}
	for _, term := range leadersKilled(strikes) {
		if after.Term > term {
			c.LeaderKills++
		}
	}
}

// prove waits until a check has something of each workload and of each node to look at: large transactions are rare,
// and faults end many. What is still missing then, the check leaves undecided.
func (b *batch) prove(ctx context.Context) {
	b.lookAround()
	for deadline := time.Now().Add(provenLimit); len(b.w.Unproven()) > 0 && time.Now().Before(deadline); {
		_ = poll.Pause(ctx, looks)
	}
}

// check stops the writers and compares everything.
func (b *batch) check(ctx context.Context) error {
	return b.timed(phaseChecks, func() error {
		b.prove(ctx)
		if err := b.w.Stop(); err != nil {
			return err
		}
		if err := b.within(ctx, writeLimit, errViolated, "XA transactions could not be ended", b.w.Finish); err != nil {
			return err
		}
		if _, err := b.healthy(ctx, healthyLimit, errViolated); err != nil {
			return errors.Join(err, b.compareLeader(ctx)) // is anything lost besides?
		}
		if err := b.alarms(b.sys, true); err != nil {
			return err
		}
		nodes, err := b.sys.Endpoints()
		if err != nil {
			return err
		}
		defer verify.CloseEndpoints(nodes)
		b.owned.Look(ctx, nodes)
		for i := range nodes {
			nodes[i].Owned = &b.owned
		}
		return b.compare(ctx, nodes)
	})
}

// compareLeader looks at the server that takes writes alone, where others have not recovered: what it lacks is lost to
// its clients, what others lack may only not have come to them yet.
func (b *batch) compareLeader(ctx context.Context) error {
	lead, err := b.sys.Leader(ctx)
	if err != nil || !lead.Open {
		return err
	}
	nodes, err := b.sys.Endpoints()
	if err != nil {
		return err
	}
	defer verify.CloseEndpoints(nodes)
	return b.compare(ctx,
		slices.DeleteFunc(slices.Clone(nodes), func(n verify.Endpoint) bool { return n.Name != lead.Name }))
}

// compare everything that some nodes hold, the writers having stopped.
func (b *batch) compare(ctx context.Context, nodes []verify.Endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	r, err := b.w.Check(ctx, nodes)
	if err != nil {
		return fmt.Errorf("%w: the check could not be made: %w", errViolated, err)
	}
	b.counts.Checks++
	b.counts.Writes = r.Counts
	fmt.Fprintf(b.script, "%s check: %v\n", b.clock(), r)
	for _, p := range r.Problems {
		b.counts.Problems[string(p.Kind)]++
	}
	if r.Unread != "" {
		b.say("Nothing was looked up in the log: %s", r.Unread)
		b.counts.Unread++
	}
	for _, u := range r.Undecided {
		b.say("Not decided: %s", u)
	}
	b.counts.Undecided += len(r.Undecided)
	if len(r.Problems) > 0 {
		return fmt.Errorf("%w: %v", errViolated, r)
	}
	return nil
}

// transcribe a step.
func (b *batch) transcribe(s Step, before rivals.Lead, strikes []*strike, err error) {
	var parts []string
	for _, st := range strikes {
		text := fmt.Sprintf("%v (%s)", st.fault, strings.Join(st.hosts, ", "))
		if st.err != nil {
			text += ": " + st.err.Error()
		}
		parts = append(parts, text)
	}
	fmt.Fprintf(b.script, "%s step %d, %s leads term %d: %s", b.clock(), s.Number, before.Name, before.Term,
		strings.Join(parts, " + "))
	if err != nil {
		fmt.Fprintf(b.script, ": %v", err)
	}
	fmt.Fprintln(b.script)
}

// errUnjudged: whether a promise is broken could not be determined, because the machine had no CPU to spare.
var errUnjudged = errors.New("not judged")

// mostUnjudged waits in a row may end without a verdict.
const mostUnjudged = 5

// within waits until f is satisfied. If it is not within the limit, the error is otherwise, what went wrong, and f's
// last one. A broken promise is one if the machine had CPU to spare: a wait that it had none for is counted, said, and
// made again.
func (b *batch) within(ctx context.Context, limit time.Duration, otherwise error, wrong string,
	f func(context.Context) error) error {
	for waits := 1; ; waits++ {
		from := time.Now()
		limited, cancel := context.WithTimeout(ctx, limit)
		err := poll.Until(limited, f)
		cancel()
		if err == nil {
			return nil
		}
		l := b.load.between(from, time.Now())
		err = fmt.Errorf("%w: %s within %v: %w (%v)", otherwise, wrong, limit, err, l)
		if ctx.Err() != nil || !errors.Is(otherwise, errViolated) || !l.starved() {
			return err
		}
		b.counts.Unjudged++
		fmt.Fprintf(b.script, "%s not judged: %s within %v; %v\n", b.clock(), wrong, limit, l)
		b.say("Not judged: %s within %v; %v", wrong, limit, l)
		if waits == mostUnjudged {
			return fmt.Errorf("%w, %d times: %s within %v; %v", errUnjudged, waits, wrong, limit, l)
		}
	}
}
