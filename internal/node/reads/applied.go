package reads

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"trireme/internal/mysql/gtid"
)

// appliedWaits are those who wait until one mysqld has applied an index. One goroutine follows that mysqld for all of
// them.
type appliedWaits struct {
	host   Host
	follow follower

	mu      sync.Mutex
	waiting map[*appliedWait]struct{}
	running bool
}

// follower waits a moment for a mysqld to apply an index, and returns the one up to which it has.
type follower func(ctx context.Context, index uint64) (uint64, error)

type appliedWait struct {
	index uint64
	done  chan error // buffered
}

const (
	// maxReaders bounds appliedWaits.
	maxReaders = 10_000
	// followPatience is for how long mysqld is asked for one index: somebody may come who waits for a lower one.
	followPatience = 50 * time.Millisecond
)

// errReaders: full means that they wait longer than their clients should.
var errReaders = fmt.Errorf("%d readers wait already for what this node has not applied", maxReaders)

// WaitApplied waits until this node's mysqld has applied everything up to an index. On the leader, too: what is
// committed is visible in its mysqld a moment later only (S10).
func (r *Reads) WaitApplied(ctx context.Context, index uint64) error {
	if err := r.ledger.Await(ctx, index); err != nil {
		return fmt.Errorf("entry %d is not known to be committed here: %w", index, err)
	}
	if at, err := r.host.AppliedIndex(); err != nil || at >= index {
		return err
	}
	return r.here.wait(ctx, index)
}

// wait waits until the mysqld that is followed has applied an index.
func (a *appliedWaits) wait(ctx context.Context, index uint64) error {
	w, err := a.add(index)
	if err != nil {
		return err
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		a.mu.Lock()
		delete(a.waiting, w)
		a.mu.Unlock()
		return fmt.Errorf("entry %d is not applied yet: %w", index, ctx.Err())
	}
}

// indexOf returns the index that this node's mysqld must have applied to hold a set, once all of it is known to be
// committed.
func (r *Reads) indexOf(ctx context.Context, set gtid.Set) (uint64, error) {
	for {
		_, changed := r.ledger.At()
		if index, known := r.ledger.IndexOf(set); known {
			return index, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			_, committed := r.ledger.Snapshot()
			return 0, fmt.Errorf("%s is not known to be committed here: %w", set.Subtract(committed), ctx.Err())
		}
	}
}

// add begins to wait, and to follow mysqld if no other waiter does.
func (a *appliedWaits) add(index uint64) (*appliedWait, error) {
	w := &appliedWait{index: index, done: make(chan error, 1)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) >= maxReaders {
		return nil, errReaders
	}
	if a.waiting == nil {
		a.waiting = map[*appliedWait]struct{}{}
	}
	a.waiting[w] = struct{}{}
	if !a.running {
		a.running = true
		a.host.Go(a.run)
	}
	return w, nil
}

// run follows a mysqld as long as somebody waits for it.
func (a *appliedWaits) run(ctx context.Context) {
	for {
		lowest, any := a.lowest()
		if !any {
			return
		}
		a.release(a.follow(ctx, lowest))
	}
}

// followHere is the follower of this node's mysqld.
func (r *Reads) followHere(ctx context.Context, index uint64) (uint64, error) {
	at, err := r.host.AppliedIndex()
	if err != nil || at >= index {
		return at, err
	}
	if err := r.host.Follow(ctx, index, followPatience); err != nil {
		return 0, err
	}
	return r.host.AppliedIndex()
}

// lowest is the index that is waited for and comes first. Without anybody the caller stops following.
func (a *appliedWaits) lowest() (uint64, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	lowest := uint64(math.MaxUint64)
	for w := range a.waiting {
		lowest = min(lowest, w.index)
	}
	a.running = len(a.waiting) > 0
	return lowest, a.running
}

// release ends the waits up to an index, or all with an error.
func (a *appliedWaits) release(at uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for w := range a.waiting {
		if err != nil || w.index <= at {
			w.done <- err
			delete(a.waiting, w)
		}
	}
}
