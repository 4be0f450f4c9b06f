package coalesce

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"
)

// Waits lets many callers wait until a server has applied an index of the log, or several servers have: K names which.
// For each key one question at a time is out, on behalf of all who wait. Set the exported fields before the first Wait.
//
// An answer that took long is not for callers who came after its question: they may wait with a connection to a server
// that has started meanwhile, and come back with less.
type Waits[K comparable] struct {
	// Go runs f on a goroutine of its own, with a context that ends with its owner.
	Go func(f func(ctx context.Context))
	// Ask waits a moment for an index, and returns one up to which all is applied. late is why that is less, if it has
	// to be told to callers whose time ends. err ends all waits for the key, as late does once ctx has ended.
	Ask func(ctx context.Context, key K, index uint64) (at uint64, late, err error)
	// Ascending asks for the lowest index that is waited for, so that no caller waits for more than its own. Otherwise
	// the highest one is asked for, whose answer is for all, and the lowest only while the highest is late.
	Ascending bool
	Most      int // callers that may wait for a key; 0: any number

	mu     sync.Mutex
	queues map[K]*waiters // keys that somebody waits for
}

// waiters are those of one key.
type waiters struct {
	all   map[*waiter]struct{}
	asked uint64    // questions so far
	at    time.Time // of the last
	slow  uint64    // that was asked for and is late
	late  error     // what was said of it
}

type waiter struct {
	index uint64
	since uint64     // waiters.asked when it came
	done  chan error // buffered
}

// swift is a time in which no server ends and another one takes its clients.
const swift = 400 * time.Millisecond

// Wait returns when an index is applied. If ctx ends before that, the error says who is late, if that is known.
func (w *Waits[K]) Wait(ctx context.Context, key K, index uint64) error {
	mine := &waiter{index: index, done: make(chan error, 1)}
	w.mu.Lock()
	q := w.queues[key]
	switch {
	case q == nil:
		if w.queues == nil {
			w.queues = map[K]*waiters{}
		}
		q = &waiters{all: map[*waiter]struct{}{}}
		w.queues[key] = q
		w.Go(func(ctx context.Context) { w.run(ctx, key, q) })
	case w.Most > 0 && len(q.all) >= w.Most:
		w.mu.Unlock()
		return fmt.Errorf("%d wait already for what is not applied", w.Most)
	}
	mine.since = q.asked
	q.all[mine] = struct{}{}
	w.mu.Unlock()
	select {
	case err := <-mine.done:
		return err
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(q.all, mine)
	if q.late != nil {
		return q.late
	}
	return fmt.Errorf("entry %d is not known to be applied: %w", index, ctx.Err())
}

// run asks as long as somebody waits for a key.
func (w *Waits[K]) run(ctx context.Context, key K, q *waiters) {
	for {
		index, any := w.next(key, q)
		if !any {
			return
		}
		at, late, err := w.Ask(ctx, key, index)
		if late != nil && ctx.Err() != nil {
			err = late
		}
		w.answer(q, index, at, late, err)
	}
}

// next is the index to ask for. Without anybody who waits the caller ends.
func (w *Waits[K]) next(key K, q *waiters) (index uint64, any bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(q.all) == 0 {
		delete(w.queues, key)
		return 0, false
	}
	lowest, highest := uint64(math.MaxUint64), uint64(0)
	for one := range q.all {
		lowest, highest = min(lowest, one.index), max(highest, one.index)
	}
	q.asked, q.at = q.asked+1, time.Now()
	if w.Ascending || lowest <= q.slow {
		return lowest, true
	}
	return highest, true
}

// answer ends the waits up to what is applied, or all with an error.
func (w *Waits[K]) answer(q *waiters, asked, at uint64, late, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if late != nil {
		q.slow, q.late = max(q.slow, asked), late
	} else if at >= q.slow {
		q.late = nil
	}
	old := time.Since(q.at) > swift
	for one := range q.all {
		if err != nil || one.index <= at && !(old && one.since == q.asked) {
			one.done <- err
			delete(q.all, one)
		}
	}
}
