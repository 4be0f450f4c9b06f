// Package ask shares one question among all callers that ask it at the same time. Unlike
// golang.org/x/sync/singleflight, it never returns the answer to a question that was put before the call: such an
// answer may be older than what the caller has seen.
package ask

import (
	"context"
	"sync"
)

// Shared puts questions, of each key one at a time. The zero value is ready; its methods may be called at the same
// time.
type Shared[K comparable, T any] struct {
	mu     sync.Mutex
	queues map[K]*queue[T] // keys that are being asked about
	runs   sync.WaitGroup
}

// queue is of one key. next is not put yet; nil: no caller waits for it.
type queue[T any] struct{ next *question[T] }

type question[T any] struct {
	done   chan struct{} // closed when answer and err are there
	answer T
	err    error
}

// Ask waits for the answer to a question that begins after the call, or for the end of ctx. The question is put by put,
// or by another caller with this key. put must end by itself: it does not have the callers' contexts.
func (s *Shared[K, T]) Ask(ctx context.Context, key K, put func() (T, error)) (answer T, err error) {
	s.mu.Lock()
	q, busy := s.queues[key]
	if !busy {
		if s.queues == nil {
			s.queues = map[K]*queue[T]{}
		}
		q = &queue[T]{}
		s.queues[key] = q
	}
	if q.next == nil {
		q.next = &question[T]{done: make(chan struct{})}
	}
	mine := q.next
	s.mu.Unlock()
	if !busy {
		s.runs.Go(func() { s.run(key, q, put) })
	}
	select {
	case <-mine.done:
		return mine.answer, mine.err
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

// Wait waits for the end of questions whose callers may have left. No caller may ask meanwhile.
func (s *Shared[K, T]) Wait() { s.runs.Wait() }

// run puts questions about a key until no caller waits for one.
func (s *Shared[K, T]) run(key K, q *queue[T], put func() (T, error)) {
	for {
		s.mu.Lock()
		this := q.next
		q.next = nil
		if this == nil {
			delete(s.queues, key)
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		this.answer, this.err = put()
		close(this.done)
	}
}
