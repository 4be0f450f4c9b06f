package verify

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"trireme/internal/base/poll"
)

// Span says who did an operation, when, and how it ended. Times are nanoseconds of a monotonic clock since the
// beginning of the set, taken by the client before it sends and after it has the answer.
type Span struct {
	Client  int     `json:"c"`
	Begin   int64   `json:"b"`
	End     int64   `json:"e"`
	Outcome Outcome `json:"o"`
}

func (s Span) span() Span { return s }

// MarshalText writes an outcome into a kept history.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// maxHistory bounds the operations of one workload: some 100 MB.
const maxHistory = 1 << 20

// history is what the clients of one workload did, in the order in which the answers came.
type history[T interface{ span() Span }] struct {
	mu  sync.Mutex
	ops []T
	sum Counts
}

// add records an operation. It fails when there is no room left.
func (h *history[T]) add(op T) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ops) >= maxHistory {
		return fmt.Errorf("the history is full: %d operations", maxHistory)
	}
	h.ops = append(h.ops, op)
	h.sum = h.sum.with(op.span().Outcome)
	return nil
}

// all operations so far. What is added later is not in it.
func (h *history[T]) all() []T {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ops[:len(h.ops):len(h.ops)]
}

// count of the operations so far that are as f wants them.
func (h *history[T]) count(f func(T) bool) (n int64) {
	for _, op := range h.all() {
		if f(op) {
			n++
		}
	}
	return n
}

func (h *history[T]) counts() Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sum
}

func (h *history[T]) saveTo(dir, name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return saveLines(dir, name, h.ops)
}

func (c Counts) with(o Outcome) Counts {
	c.Attempts++
	switch o {
	case Acked:
		c.Acked++
	case Failed:
		c.Failed++
	default:
		c.Unknown++
	}
	return c
}

// clock of the set's histories.
func (s *Set) now() int64 { return int64(time.Since(s.begin)) }

// random returns the source of one client's choices.
func (s *Set) random(workload string, client int) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%d", workload, client)
	return rand.New(rand.NewPCG(s.cfg.Seed, h.Sum64()))
}

// measure tells the meter of one operation that writes.
func (s *Set) measure(op Span) {
	if op.Outcome == Acked {
		s.meter.Ack()
	} else {
		s.meter.Error()
	}
}

// loop returns a client that takes one step after the other on a session of its own, at most rate times a second. Setup
// is run on each new connection. It ends with its context, or with a step's error.
func (s *Set) loop(login Login, setup []string, rate float64, rng *rand.Rand,
	step func(*session, *rand.Rand) error) client {
	return s.watched(login, setup, rate, rng, step, nil)
}

// watched is a loop whose session's errors somebody wants to know.
func (s *Set) watched(login Login, setup []string, rate float64, rng *rand.Rand, step func(*session, *rand.Rand) error,
	failed func(error)) client {
	return func(ctx context.Context) error {
		ss, err := newSession(login, s.cfg.Database, setup...)
		if err != nil {
			return err
		}
		defer ss.close()
		ss.failed = failed
		interval := time.Duration(float64(time.Second) / rate)
		for {
			begin, pause := time.Now(), interval/2+time.Duration(rng.Int64N(int64(interval)))
			if ss.connect(ctx) != nil {
				return nil // ctx has ended
			}
			if err := step(ss, rng); err != nil {
				return err
			}
			_ = poll.Pause(ctx, pause-time.Since(begin))
		}
	}
}

// saveLines writes one JSON object a line.
func saveLines[T any](dir, name string, all []T) error {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<16)
	enc := json.NewEncoder(w)
	for _, v := range all {
		if err = enc.Encode(v); err != nil {
			break
		}
	}
	return errors.Join(err, w.Flush(), f.Close())
}
