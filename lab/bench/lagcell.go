package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"trireme/internal/base/poll"
	"trireme/lab/rivals"
)

const (
	saidEvery  = 250 * time.Millisecond // between two questions to the system
	stopBefore = 5 * time.Second        // of load before a replica is stopped
	stopFor    = 10 * time.Second
	raceEvery  = 200 * time.Millisecond // between two looks at how far a backlog is

	steadyShare = 0.6 // of the full speed
)

// lagCell measures a case of the suite lag.
func lagCell(k Key) func(context.Context, *Bed) (Record, error) {
	return func(ctx context.Context, b *Bed) (rec Record, err error) {
		if len(replicasOf(b)) == 0 {
			return rec, fmt.Errorf("%w: %s has no replica", rivals.ErrNotHere, b.System.Name)
		}
		if err := b.Settle(ctx); err != nil {
			return rec, fmt.Errorf("%w: %w", errBroken, err)
		}
		targets, err := b.Targets(rivals.Direct)
		if err != nil {
			return rec, err
		}
		m := lagMeasure{bed: b, load: b.Settings.load(k.Workload), length: time.Duration(b.Settings.Seconds) * time.Second}
		warm := time.Duration(max(5, b.Settings.WarmupSeconds)) * time.Second
		full, err := m.load.run(ctx, targets, k.Threads, warm)
		if err != nil {
			return rec, fmt.Errorf("warm-up: %w", err)
		}
		if k.Case != caseFull {
			m.load.TPS = max(1, int(steadyShare*float64(full.Transactions)/full.Seconds))
		}
		if k.Case == caseStopped {
			m.length += stopBefore + stopFor
		}
		if _, err := caughtUp(ctx, b, catchUpLimit); err != nil {
			return rec, err
		}
		err = m.run(ctx, targets, k)
		return m.rec, err
	}
}

// lagMeasure is one measurement.
type lagMeasure struct {
	bed    *Bed
	load   Load
	length time.Duration
	watch  *lagWatch
	rec    Record
}

// run watches lag from a second before the load until no replica lags.
func (m *lagMeasure) run(ctx context.Context, targets []rivals.Target, k Key) (err error) {
	if m.watch, err = watchLag(ctx, m.bed); err != nil {
		return err
	}
	said := watchSaid(ctx, m.bed)
	begin := time.Now().Add(time.Second)
	var stop *stopped
	loaded, runErr := LoadResult{}, poll.Pause(ctx, time.Second)
	if runErr == nil && k.Case == caseStopped {
		stop = stopReplica(ctx, m.bed)
	}
	if runErr == nil {
		loaded, runErr = m.load.run(ctx, targets, k.Threads, m.length)
	}
	end := time.Now()
	if stop != nil {
		runErr = errors.Join(runErr, stop.wait())
	}
	if runErr == nil {
		runErr = m.watch.quiet(ctx)
	}
	samples, err := m.watch.stop()
	words, saidErr := said.stop()
	if err := errors.Join(runErr, err, saidErr); err != nil {
		return fmt.Errorf("under load: %w", err)
	}
	m.rec.Values = map[string]float64{valLoadTPS: float64(loaded.Transactions) / loaded.Seconds}
	m.rec.Events = []Event{{1, "load begins"}, {1 + end.Sub(begin).Seconds(), "load ends"}}
	if m.load.TPS > 0 && float64(loaded.Transactions) < 0.95*float64(m.load.TPS)*loaded.Seconds {
		m.rec.Note = fmt.Sprintf("the load was to be %d TPS", m.load.TPS)
	}
	back := end
	worst := m.byReplica(begin, end)
	if stop != nil {
		worst, back = stop.host, stop.let
		stop.values(&m.rec, begin)
	}
	m.of(worst, samples, words, begin, end, back)
	return nil
}

// byReplica keeps the lag of each replica while there was load, and returns the one with the longest p99, whose figures
// count.
func (m *lagMeasure) byReplica(begin, end time.Time) (worst string) {
	v := m.rec.Values
	longest := time.Duration(-1)
	for _, host := range replicasOf(m.bed) {
		p50, p99, most := quantiles(m.watch.beats.delays(m.watch.sights[host], begin, end, time.Now()))
		v[ofReplica(host, valLag50)], v[ofReplica(host, valLag99)], v[ofReplica(host, valLagMax)] = milliseconds(p50),
			milliseconds(p99), milliseconds(most)
		if p99 > longest {
			worst, longest = host, p99
		}
	}
	return worst
}

// of keeps the figures of the replica that counts: lag under load, the time from a moment until it was over, and what
// the system said meanwhile.
func (m *lagMeasure) of(host string, samples []lagSample, words []said, begin, end, from time.Time) {
	v := m.rec.Values
	for _, name := range []string{valLag50, valLag99, valLagMax} {
		v[name] = v[ofReplica(host, name)]
	}
	samples = slices.DeleteFunc(slices.Clone(samples), func(s lagSample) bool { return s.host != host })
	v[valLagBack] = max(0, lagBackAt(samples, noLag).Sub(from).Seconds())
	start := begin.Add(-time.Second)
	m.rec.Series = map[string][]float64{seriesSeen: lagSeries(samples, start)}
	words = slices.DeleteFunc(slices.Clone(words), func(s said) bool { return s.host != host })
	if len(words) == 0 {
		return
	}
	seen := slices.DeleteFunc(slices.Clone(samples),
		func(s lagSample) bool { return s.at.Before(begin) || !s.at.Before(end) })
	_, seen99, seenMax := lagOf(seen)
	v[valSeen99], v[valSeenMax] = milliseconds(seen99), milliseconds(seenMax)
	var all, low, high []time.Duration
	var told []lagSample
	var most int64
	for _, w := range words {
		told = append(told, lagSample{w.at, w.lag.Time, host})
		if w.at.Before(begin) || !w.at.Before(end) {
			continue
		}
		all, most = append(all, w.lag.Time), max(most, w.lag.Bytes)
		if shown, ok := near(samples, w.at); ok {
			low, high = append(low, max(0, shown-w.lag.Time)), append(high, max(0, w.lag.Time-shown))
		}
	}
	p50, p99, longest := quantiles(all)
	v[valSaid50], v[valSaid99], v[valSaidMax] = milliseconds(p50), milliseconds(p99), milliseconds(longest)
	_, low99, _ := quantiles(low)
	_, high99, _ := quantiles(high)
	v[valTooLow], v[valTooHigh] = milliseconds(low99), milliseconds(high99)
	if words[0].lag.Bytes >= 0 {
		v[valSaidKiB] = float64(most) / (1 << 10)
	}
	m.rec.Series[seriesSaid] = lagSeries(told, start)
}

// near is the lag that was seen at about a moment: samples are in the order of time.
func near(samples []lagSample, at time.Time) (time.Duration, bool) {
	i, _ := slices.BinarySearchFunc(samples, at, func(s lagSample, at time.Time) int { return s.at.Compare(at) })
	for _, j := range []int{i, i - 1} {
		if j >= 0 && j < len(samples) && samples[j].at.Sub(at).Abs() < beatEvery {
			return samples[j].lag, true
		}
	}
	return 0, false
}

// said is what a system said of a replica's lag, and when it did.
type said struct {
	at   time.Time
	host string
	lag  rivals.Lag
}

// saidWatch asks until it is stopped.
type saidWatch struct {
	cancel context.CancelFunc
	ended  chan struct{}
	words  []said
	failed error // the last question, where none was answered
}

func watchSaid(ctx context.Context, b *Bed) *saidWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &saidWatch{cancel: cancel, ended: make(chan struct{})}
	r := reporter(b)
	go func() {
		defer close(w.ended)
		for r != nil && poll.Pause(ctx, saidEvery) == nil {
			lags, err := r.ReportedLag(ctx)
			if err != nil {
				w.failed = err
				continue
			}
			for host, lag := range lags {
				w.words = append(w.words, said{time.Now(), host, lag})
			}
		}
	}()
	return w
}

// stop ends it and returns what was said, in the order of time.
func (w *saidWatch) stop() ([]said, error) {
	w.cancel()
	<-w.ended
	if len(w.words) == 0 && w.failed != nil {
		return nil, fmt.Errorf("what it says of its lag: %w", w.failed)
	}
	return w.words, nil
}

// stopped is a replica whose applier is stopped for a while in the midst of a load, and how it catches up.
type stopped struct {
	host    string
	leader  string
	running sync.WaitGroup
	failed  error

	held, let time.Time // when its applier stopped, and when it went on
	backlog   int64     // transactions then
	race      []leg
}

// leg is how much the leader and the replica have executed at a moment.
type leg struct {
	at              time.Time
	leader, replica int64
}

// stopReplica stops the last replica, which in every topology is the furthest, once the load has gone on for a while.
func stopReplica(ctx context.Context, b *Bed) *stopped {
	replicas := replicasOf(b)
	s := &stopped{host: replicas[len(replicas)-1], leader: b.Hosts()[0].Name}
	s.running.Go(func() { s.failed = s.run(ctx, b) })
	return s
}

func (s *stopped) wait() error {
	s.running.Wait()
	return s.failed
}

func (s *stopped) run(ctx context.Context, b *Bed) error {
	if err := poll.Pause(ctx, stopBefore); err != nil {
		return err
	}
	sys, ok := b.Running.(rivals.Lockable)
	if !ok {
		return fmt.Errorf("%w: no session can lock the tables of %s", rivals.ErrNotHere, b.System.Name)
	}
	db, err := sys.Locker(s.host)
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := lockTables(ctx, conn); err != nil {
		return fmt.Errorf("stopping the applier of %s: %w", s.host, err)
	}
	s.held = time.Now()
	err = poll.Pause(ctx, stopFor)
	if err == nil {
		err = s.look(ctx, b)
	}
	_, unlockErr := conn.ExecContext(context.WithoutCancel(ctx), "UNLOCK TABLES")
	s.let = time.Now()
	if err := errors.Join(err, unlockErr); err != nil {
		return fmt.Errorf("%w: letting the applier of %s go on: %w", errBroken, s.host, err)
	}
	s.race[0].at, s.backlog = s.let, s.race[0].leader-s.race[0].replica
	for time.Since(s.let) < catchUpLimit {
		if err := poll.Pause(ctx, raceEvery); err != nil {
			return err
		}
		if err := s.look(ctx, b); err != nil {
			return err
		}
		if last := s.race[len(s.race)-1]; 10*(last.leader-last.replica) <= s.backlog {
			return nil
		}
	}
	return fmt.Errorf("%w: %s still has more than a tenth of its backlog after %v", errBroken, s.host, catchUpLimit)
}

// lockTables tries for a short time, again and again: while the lock waits for the applier, the applier may wait for
// it.
func lockTables(ctx context.Context, conn *sql.Conn) (err error) {
	if _, err := conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = 1"); err != nil {
		return err
	}
	for range 10 {
		if _, err = conn.ExecContext(ctx, "FLUSH TABLES WITH READ LOCK"); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (s *stopped) look(ctx context.Context, b *Bed) error {
	replica, err := executedOn(ctx, b, s.host)
	if err != nil {
		return err
	}
	l := leg{at: time.Now()}
	leader, err := executedOn(ctx, b, s.leader)
	l.leader, l.replica = int64(leader.Count()), int64(leader.Count()-leader.Subtract(replica).Count())
	s.race = append(s.race, l)
	return err
}

// values of the time in which the backlog went down to a tenth.
func (s *stopped) values(rec *Record, begin time.Time) {
	first, last := s.race[0], s.race[len(s.race)-1]
	took := last.at.Sub(first.at).Seconds()
	v := rec.Values
	v[valHeldMS], v[valBacklog] = milliseconds(s.let.Sub(s.held)), float64(s.backlog)
	v[valApplyTPS], v[valLeaderTPS] = float64(last.replica-first.replica)/took, float64(last.leader-first.leader)/took
	if v[valLeaderTPS] > 0 {
		v[valDrainRatio] = v[valApplyTPS] / v[valLeaderTPS]
	}
	rec.Events = append(rec.Events, Event{1 + s.held.Sub(begin).Seconds(), s.host + " is stopped"},
		Event{1 + s.let.Sub(begin).Seconds(), "it goes on"})
	slices.SortFunc(rec.Events, func(a, b Event) int { return int(1000 * (a.Second - b.Second)) })
}
