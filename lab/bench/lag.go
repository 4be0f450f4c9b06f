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
	beatEvery = 50 * time.Millisecond  // between two heartbeats
	beatLook  = 5 * time.Millisecond   // between two looks at a replica
	noLag     = 100 * time.Millisecond // a lag below this does not count
)

// heartbeats are what one session writes to the leader, numbered, and when each was acknowledged. Numbers stand for
// times: writer and readers are this process and share its clock.
type heartbeats struct {
	mu    sync.Mutex
	acked []time.Time // number n is acked[n-1]
}

func (h *heartbeats) add(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acked = append(h.acked, at)
}

// lag of a server that showed heartbeat seen when it was asked at a time: how long the oldest one that it lacked had
// been acknowledged.
func (h *heartbeats) lag(seen int, at time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if seen >= len(h.acked) { // it may show one that the writer has no answer to yet
		return 0
	}
	return max(0, at.Sub(h.acked[seen]))
}

// lagSample is the lag of a replica at one moment.
type lagSample struct {
	at   time.Time
	lag  time.Duration
	host string
}

// sight is when a replica first showed a heartbeat, or a later one: the moment of its answer.
type sight struct {
	n  int
	at time.Time
}

// delays of the heartbeats that were acknowledged from one moment up to another: how long each was acknowledged when
// the replica first showed it; 0 if it did before that. One that it never showed counts until end.
func (h *heartbeats) delays(sights []sight, from, to, end time.Time) (out []time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := 0
	for n, acked := range h.acked {
		if acked.Before(from) || !acked.Before(to) {
			continue
		}
		for i < len(sights) && sights[i].n < n+1 {
			i++
		}
		shown := end
		if i < len(sights) {
			shown = sights[i].at
		}
		out = append(out, max(0, shown.Sub(acked)))
	}
	return out
}

// lagWatch writes heartbeats and looks for them on every replica until it is stopped.
type lagWatch struct {
	beats   heartbeats
	begin   time.Time
	cancel  context.CancelFunc
	running sync.WaitGroup
	close   []func() error

	mu      sync.Mutex
	samples []lagSample
	sights  map[string][]sight // by host
	failed  error              // the first error
}

// watchLag begins to write, and to look at each replica. Stop must be called.
func watchLag(ctx context.Context, b *Bed) (*lagWatch, error) {
	db, err := openLeader(b, 1)
	if err != nil {
		return nil, err
	}
	w := &lagWatch{begin: time.Now(), close: []func() error{db.Close}, sights: map[string][]sight{}}
	for _, st := range []string{"CREATE TABLE IF NOT EXISTS bench_heartbeat (id INT PRIMARY KEY, n INT NOT NULL)",
		"REPLACE INTO bench_heartbeat VALUES (1, 0)"} {
		if _, err := db.ExecContext(ctx, st); err != nil {
			return nil, errors.Join(fmt.Errorf("heartbeats: %w", err), db.Close())
		}
	}
	if _, err := caughtUp(ctx, b, catchUpLimit); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.keep(ctx, beatEvery, func(ctx context.Context, n int) error {
		if _, err := db.ExecContext(ctx, "UPDATE bench_heartbeat SET n = ?", n); err != nil {
			return err
		}
		w.beats.add(time.Now())
		return nil
	})
	for _, name := range replicasOf(b) {
		replica := b.DB(name)
		shown := 0
		w.keep(ctx, beatLook, func(ctx context.Context, _ int) error {
			at := time.Now()
			var seen int
			if err := replica.QueryRowContext(ctx, "SELECT n FROM "+rivals.Database+".bench_heartbeat").Scan(&seen); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			answered, lag := time.Now(), w.beats.lag(seen, at)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.samples = append(w.samples, lagSample{at, lag, name})
			if seen > shown {
				shown = seen
				w.sights[name] = append(w.sights[name], sight{seen, answered})
			}
			return nil
		})
	}
	return w, nil
}

// keep calls f again and again with 1, 2, 3 …, until the context ends or f fails.
func (w *lagWatch) keep(ctx context.Context, every time.Duration, f func(ctx context.Context, n int) error) {
	w.running.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := f(ctx, n); err != nil {
				w.mu.Lock()
				if ctx.Err() == nil && w.failed == nil {
					w.failed = fmt.Errorf("heartbeats: %w", err)
				}
				w.mu.Unlock()
				return
			}
		}
	})
}

// stop ends it and returns what was seen, in the order of time.
func (w *lagWatch) stop() ([]lagSample, error) {
	w.cancel()
	w.running.Wait()
	for _, f := range w.close {
		w.failed = errors.Join(w.failed, f())
	}
	if seconds := int(time.Since(w.begin).Seconds()); len(w.beats.acked) < seconds { // a lag could hide between them
		w.failed = errors.Join(w.failed, fmt.Errorf("only %d heartbeats were acknowledged in %d s", len(w.beats.acked),
			seconds))
	}
	slices.SortFunc(w.samples, func(a, b lagSample) int { return a.at.Compare(b.at) })
	return w.samples, w.failed
}

// quiet waits until no replica has shown a lag for a second.
func (w *lagWatch) quiet(ctx context.Context) error {
	for deadline := time.Now().Add(catchUpLimit); time.Now().Before(deadline); {
		w.mu.Lock()
		failed, last := w.failed, lagBackAt(w.samples, noLag)
		w.mu.Unlock()
		if failed != nil || time.Since(last) > time.Second {
			return failed
		}
		if err := poll.Pause(ctx, drainPoll); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: replicas lag %v after the load's end", errBroken, catchUpLimit)
}

// lagOf is quantiles 0.5 and 0.99 and the maximum.
func lagOf(samples []lagSample) (p50, p99, longest time.Duration) {
	var all []time.Duration
	for _, s := range samples {
		all = append(all, s.lag)
	}
	return quantiles(all)
}

// quantiles 0.5 and 0.99, and the maximum.
func quantiles(all []time.Duration) (p50, p99, longest time.Duration) {
	return quantile(all, 0.5), quantile(all, 0.99), quantile(all, 1)
}

// lagBackAt is when the lag was below the limit for good: the last sample that was not.
func lagBackAt(samples []lagSample, limit time.Duration) time.Time {
	var last time.Time
	for _, s := range samples {
		if s.lag >= limit {
			last = s.at
		}
	}
	return last
}

// lagSeries is the longest lag in each second, in seconds.
func lagSeries(samples []lagSample, begin time.Time) []float64 {
	var out []float64
	for _, s := range samples {
		i := int(s.at.Sub(begin) / time.Second)
		for len(out) <= i {
			out = append(out, 0)
		}
		out[i] = max(out[i], s.lag.Seconds())
	}
	return out
}

// openLeader is a pool of n connections to the database on the server that takes writes, with statements that may take
// minutes.
func openLeader(b *Bed, n int) (*sql.DB, error) {
	targets, err := b.Targets(rivals.Direct)
	if err != nil {
		return nil, err
	}
	db, err := targets[0].Open(rivals.Database, 5*time.Minute)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

// replicasOf are the hosts with data that do not take writes.
func replicasOf(b *Bed) []string {
	var out []string
	for _, h := range b.Hosts() {
		if !h.Leader && b.DB(h.Name) != nil {
			out = append(out, h.Name)
		}
	}
	return out
}
