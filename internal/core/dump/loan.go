package dump

import (
	"context"
	"errors"
	"fmt"

	"trireme/internal/base/loop"
	"trireme/internal/core/raftlog"
)

// loan lends a walker to the member's loop. A goroutine that waits for the next committed entry costs two switches of
// threads for each; the loop, which has just committed it, sends it at once. It gives the walker back to its goroutine
// when something might wait: for the disk, the receiver, a gate, or a large or special transaction.
type loan struct {
	loop   *loop.Loop
	cached func(from, to uint64, maxBytes int) []Entry

	// These belong to the loop.
	walker *walker    // that is lent; nil: none
	back   chan error // why its goroutine has to go on; nil: there is something that might wait
}

// loanBytes bounds what the loop sends in a turn: it fits the writer's buffer.
const loanBytes = writeBufferBytes / 2

var errHold = errors.New("a transaction has to wait")

func newLoan(l *loop.Loop, cached func(from, to uint64, maxBytes int) []Entry) *loan {
	o := &loan{loop: l, cached: cached}
	l.Do(func() { l.Last(o.turn) })
	return o
}

// await returns when there is a committed entry that the goroutine has to see to.
func (k *walker) await(ctx context.Context) error {
	if k.o.loan == nil {
		if err := k.o.log.WaitCommitted(ctx, k.next); err != nil {
			return fmt.Errorf("wait for entry %d: %w", k.next, err)
		}
		return nil
	}
	o, next, back := k.o.loan, k.next, make(chan error, 1)
	o.loop.Do(func() {
		if ctx.Err() == nil { // else the next dump may have lent a walker of its own
			o.walker, o.back = k, back
		}
	})
	select {
	case err := <-back:
		return err
	case <-ctx.Done():
		o.loop.Do(func() {
			if o.walker == k {
				o.walker = nil
			}
		})
		return fmt.Errorf("wait for entry %d: %w", next, context.Cause(ctx))
	}
}

// turn is the last thing in each turn of the loop.
func (o *loan) turn() {
	if o.walker == nil {
		return
	}
	if done, err := o.walker.walkOnLoop(); !done {
		o.walker = nil
		o.back <- err
	}
}

// walkOnLoop sends what was committed since, without waiting. done is false if there is something that it cannot send,
// which is untouched then, or if the receiver does not take it all.
func (k *walker) walkOnLoop() (done bool, err error) {
	committed := k.o.log.Committed()
	if k.next > committed {
		return true, nil
	}
	k.w.mu.Lock() // only heartbeats take it meanwhile, and they do not wait
	defer k.w.mu.Unlock()
	entries := k.o.loan.cached(k.next, committed, loanBytes)
	if len(k.w.buf) > 0 || k.pending != nil || !simple(entries) {
		return false, nil
	}
	before, writer := *k, k.w.place
	k.onLoop, k.w.gather = true, true
	for i := range entries {
		if err = k.entry(k.w.ctx, &entries[i]); err != nil {
			break
		}
	}
	k.onLoop, k.w.gather = false, false
	if errors.Is(err, errHold) { // nothing has been written yet
		*k, k.w.place, k.w.buf = before, writer, k.w.buf[:0]
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("entry %d: %w", k.next-1, err)
	}
	k.o.stats.next.Store(k.next)
	if k.next <= committed {
		k.o.loan.loop.Wake() // more in the next turn
	}
	return k.w.tryFlush()
}

// simple reports whether entries are of small transactions that are nothing special, or raft's own.
func simple(entries []Entry) bool {
	size := 0
	for _, e := range entries {
		size += len(e.Data)
		if len(e.Data) > 0 && !raftlog.IsPlainTrx(e.Data) {
			return false
		}
	}
	return len(entries) > 0 && size <= loanBytes
}
