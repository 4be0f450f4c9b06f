package node

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"trireme/internal/api"
	"trireme/internal/gtid"
	"trireme/internal/ha"
)

// Reads that are as current as asked for. BEFORE is ReadBarrier on any node and then WaitApplied on the node that is read; a causal token
// is WaitExecuted of what was written. On the leader, too: what is committed is visible in its mysqld a moment later only (S10).

// appliedWaits are those who wait until one mysqld has applied an index. One goroutine follows that mysqld for all of them.
type appliedWaits struct {
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
var errReaders = fmt.Errorf("%d readers wait already for what is to be applied here", maxReaders)

// ReadBarrier returns an index of the log: a mysqld that has applied it shows everything that was answered before the call. It works on
// every node and costs a quorum round, shared with other callers.
func (n *Node) ReadBarrier(ctx context.Context) (uint64, error) {
	index, err := n.cons.ReadIndex(ctx)
	if err != nil {
		return 0, api.Errorf(api.KindNoLeader, "what is committed now cannot be told: %v", err).
			With("it needs a leader that a majority of the voters answers; see `trireme status`")
	}
	return index, nil
}

// WaitApplied waits until this node's mysqld has applied everything up to an index.
func (n *Node) WaitApplied(ctx context.Context, index uint64) error {
	if err := n.led.Await(ctx, index); err != nil {
		return fmt.Errorf("entry %d is not known to be committed here: %w", index, err)
	}
	if at, err := n.appliedNow(); err != nil || at >= index {
		return err
	}
	return n.readers.wait(ctx, n, index, n.followOnce)
}

// wait waits until the mysqld that follow asks has applied an index.
func (r *appliedWaits) wait(ctx context.Context, n *Node, index uint64, follow follower) error {
	w, err := r.add(n, index, follow)
	if err != nil {
		return err
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		r.mu.Lock()
		delete(r.waiting, w)
		r.mu.Unlock()
		return fmt.Errorf("entry %d is not applied yet: %w", index, ctx.Err())
	}
}

// WaitExecuted waits until this node's mysqld has applied a set of committed transactions.
func (n *Node) WaitExecuted(ctx context.Context, set gtid.Set) error {
	index, err := n.indexOf(ctx, set)
	if err != nil {
		return err
	}
	return n.WaitApplied(ctx, index)
}

// indexOf returns the index that this node's mysqld must have applied to hold a set, once all of it is known to be committed.
func (n *Node) indexOf(ctx context.Context, set gtid.Set) (uint64, error) {
	for {
		_, changed := n.led.At()
		if index, known := n.led.IndexOf(set); known {
			return index, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			_, committed := n.led.Snapshot()
			return 0, fmt.Errorf("%s is not known to be committed here: %w", set.Subtract(committed), ctx.Err())
		}
	}
}

// appliedNow is up to where this node's mysqld has been seen to have applied everything.
func (n *Node) appliedNow() (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.srv.life == nil || n.srv.state != ha.ServerReady {
		return 0, fmt.Errorf("its mysqld is %s", n.srv.state)
	}
	return n.led.AppliedIndex(), nil
}

// add begins to wait, and to follow mysqld if nobody does.
func (r *appliedWaits) add(n *Node, index uint64, follow follower) (*appliedWait, error) {
	w := &appliedWait{index: index, done: make(chan error, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) >= maxReaders {
		return nil, errReaders
	}
	if r.waiting == nil {
		r.waiting = map[*appliedWait]struct{}{}
	}
	r.waiting[w] = struct{}{}
	if !r.running {
		r.running = true
		n.tasks.Add(1)
		go func() { defer n.tasks.Done(); r.run(n.ctx, follow) }()
	}
	return w, nil
}

// run follows a mysqld as long as somebody waits for it.
func (r *appliedWaits) run(ctx context.Context, follow follower) {
	for {
		lowest, any := r.lowest()
		if !any {
			return
		}
		r.release(follow(ctx, lowest))
	}
}

// followOnce is the follower of this node's mysqld.
func (n *Node) followOnce(ctx context.Context, index uint64) (uint64, error) {
	n.mu.Lock()
	l := n.srv.life
	n.mu.Unlock()
	at, err := n.appliedNow()
	if err != nil || at >= index {
		return at, err
	}
	if _, err := l.Admin().FollowExecuted(ctx, n.led.Missing(index).String(), followPatience); err != nil {
		return 0, err
	}
	if _, err := l.ReadExecuted(ctx); err != nil {
		return 0, err
	}
	return n.appliedNow()
}

// lowest is the index that is waited for and comes first. Without anybody the caller stops following.
func (r *appliedWaits) lowest() (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lowest := uint64(math.MaxUint64)
	for w := range r.waiting {
		lowest = min(lowest, w.index)
	}
	r.running = len(r.waiting) > 0
	return lowest, r.running
}

// release ends the waits up to an index, or all with an error.
func (r *appliedWaits) release(at uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.waiting {
		if err != nil || w.index <= at {
			w.done <- err
			delete(r.waiting, w)
		}
	}
}
