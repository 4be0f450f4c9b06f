// Package coalesce runs one call on behalf of all callers that want its result at the same time (Group), or that wait
// for an index (Waits). Unlike golang.org/x/sync/singleflight, Group never returns the result of a run that started
// before the call: such a result may be older than what the caller has seen.
package coalesce

import (
	"context"
	"sync"
)

// Group runs calls, of each key one at a time. The zero value is ready; its methods may be called at the same time.
type Group[K comparable, T any] struct {
	mu     sync.Mutex
	queues map[K]*queue[T] // keys with a call that runs
	runs   sync.WaitGroup
}

// queue is of one key. next has not started; nil: no caller waits for it.
type queue[T any] struct{ next *call[T] }

type call[T any] struct {
	done   chan struct{} // closed when result and err are there
	result T
	err    error
}

// Do waits for the result of a run of fn that starts after the call, or for the end of ctx. The function that runs is
// fn, or that of another caller with this key. fn must end by itself: it does not have the callers' contexts.
func (g *Group[K, T]) Do(ctx context.Context, key K, fn func() (T, error)) (result T, err error) {
	g.mu.Lock()
	q, busy := g.queues[key]
	if !busy {
		if g.queues == nil {
			g.queues = map[K]*queue[T]{}
		}
		q = &queue[T]{}
		g.queues[key] = q
	}
	if q.next == nil {
		q.next = &call[T]{done: make(chan struct{})}
	}
	mine := q.next
	g.mu.Unlock()
	if !busy {
		g.runs.Go(func() { g.run(key, q, fn) })
	}
	select {
	case <-mine.done:
		return mine.result, mine.err
	case <-ctx.Done():
		return result, ctx.Err()
	}
}

// Wait waits for the end of runs whose callers may have left. No caller may call Do meanwhile.
func (g *Group[K, T]) Wait() { g.runs.Wait() }

// run runs fn for a key until no caller waits for a result.
func (g *Group[K, T]) run(key K, q *queue[T], fn func() (T, error)) {
	for {
		g.mu.Lock()
		this := q.next
		q.next = nil
		if this == nil {
			delete(g.queues, key)
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		this.result, this.err = fn()
		close(this.done)
	}
}
