package alone

import (
	"context"
	"fmt"
	"sync"
	"time"

	"trireme/internal/api"
)

// waits are the sessions that wait until a server, or all, have applied an index. One question is out for all of them:
// for the highest index, which answers for all; if that is not applied in time, for the lowest, until the others have
// caught up with it. An answer that took long is not for those who came after its question: they may wait with a
// connection to a server that has started meanwhile, and come back with less.
type waits struct {
	f *follower
	// ask waits a moment for an index and returns one up to which all is applied. KindTimeout: not that one yet. Any
	// other error ends the waits.
	ask func(ctx context.Context, index uint64) (uint64, error)

	mu      sync.Mutex
	waiting map[*waiter]struct{}
	running bool
	put     uint64    // questions so far
	at      time.Time // of the last
	slow    uint64    // that was asked for and is not applied yet
	late    error     // what was said of it
}

type waiter struct {
	index uint64
	since uint64     // waits.put when it came
	done  chan error // buffered
}

// swift is a time in which no server ends and another one takes its clients.
const swift = 2 * appliedWait

// wait returns when an index is applied. If ctx ends before that the error says who is late.
func (w *waits) wait(ctx context.Context, index uint64) error {
	mine := &waiter{index: index, done: make(chan error, 1)}
	w.mu.Lock()
	mine.since = w.put
	if w.waiting == nil {
		w.waiting = map[*waiter]struct{}{}
	}
	w.waiting[mine] = struct{}{}
	if !w.running {
		w.running = true
		w.f.questions.Go(w.run)
	}
	w.mu.Unlock()
	select {
	case err := <-mine.done:
		return err
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, mine)
	if w.late != nil {
		return w.late
	}
	return fmt.Errorf("entry %d is not known to be applied: %w", mine.index, ctx.Err())
}

// run puts questions as long as somebody waits.
func (w *waits) run() {
	for {
		index, any := w.next()
		if !any {
			return
		}
		at, err := w.ask(w.f.ctx, index)
		w.answer(index, at, err)
	}
}

// next is the index to ask for. Without anybody who waits the caller ends.
func (w *waits) next() (uint64, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var lowest, highest uint64
	for one := range w.waiting {
		if lowest == 0 || one.index < lowest {
			lowest = one.index
		}
		highest = max(highest, one.index)
	}
	if w.running = len(w.waiting) > 0; !w.running {
		w.slow, w.late = 0, nil
	}
	w.put, w.at = w.put+1, time.Now()
	if lowest <= w.slow {
		return lowest, w.running
	}
	return highest, w.running
}

// answer ends the waits up to what is applied, or with an error all.
func (w *waits) answer(asked, at uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && w.f.ctx.Err() == nil && api.KindOf(err) == api.KindTimeout {
		w.slow, w.late = max(w.slow, asked), err
		return
	}
	if at >= w.slow {
		w.late = nil
	}
	old := time.Since(w.at) > swift
	for one := range w.waiting {
		if err != nil || one.index <= at && !(old && one.since == w.put) {
			one.done <- err
			delete(w.waiting, one)
		}
	}
}
