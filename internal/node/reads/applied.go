package reads

import (
	"context"
	"fmt"
	"time"

	"trireme/internal/mysql/gtid"
)

const (
	// maxReaders bounds those who wait for one mysqld. With more they wait longer than their clients should.
	maxReaders = 10_000
	// followPatience is for how long mysqld is asked for one index: somebody may come who waits for a lower one.
	followPatience = 50 * time.Millisecond
)

// WaitApplied waits until this node's mysqld has applied everything up to an index. On the leader, too: what is
// committed is visible in its mysqld a moment later only (S10).
func (r *Reads) WaitApplied(ctx context.Context, index uint64) error {
	if err := r.ledger.Await(ctx, index); err != nil {
		return fmt.Errorf("entry %d is not known to be committed here: %w", index, err)
	}
	if at, err := r.host.AppliedIndex(); err != nil || at >= index {
		return err
	}
	return r.applied.Wait(ctx, r.id.ID, index)
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

// follow waits a moment for a node's mysqld to apply an index, and returns the one up to which it has.
func (r *Reads) follow(ctx context.Context, id, index uint64) (uint64, error) {
	if id != r.id.ID {
		ctx, cancel := context.WithTimeout(ctx, 2*farPatience)
		defer cancel()
		return ReqApplied.Ask(ctx, r.host, id, index)
	}
	at, err := r.host.AppliedIndex()
	if err != nil || at >= index {
		return at, err
	}
	if err := r.host.Follow(ctx, index, followPatience); err != nil {
		return 0, err
	}
	return r.host.AppliedIndex()
}
