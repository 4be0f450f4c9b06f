package reads

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"trireme/internal/base/poll"
)

const (
	// farPatience is followPatience for another node's mysqld.
	farPatience = 200 * time.Millisecond
	// farRetry is the pause before a node that did not answer, or whose mysqld is not in service, is asked again.
	farRetry = 20 * time.Millisecond
)

// WaitEverywhere waits until the mysqlds of all data nodes that count as live have applied everything up to an index
// that is known to be committed: reads that begin then see it on any of them (live.go). The error names who has not.
func (r *Reads) WaitEverywhere(ctx context.Context, index uint64) error {
	whom := func(ctx context.Context) ([]uint64, error) {
		_, ids, err := r.askLive(ctx, liveWait)
		return ids, err
	}
	return waitOnAll(ctx, r.likelyLive(), whom,
		func(ctx context.Context, id uint64) error { return r.waitOn(ctx, id, index) }, r.name)
}

// likelyLive are the data nodes that seem to serve, to be waited for while the leader is asked whom to wait for.
func (r *Reads) likelyLive() (ids []uint64) {
	peers := r.host.Peers()
	for _, m := range r.dataMembers() {
		if p := peers[m.ID]; m.ID == r.id.ID || p.Fresh() && p.Ready {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// waitOnAll calls wait for many nodes at once, and again where it fails, through whatever keeps a node from answering,
// until it has succeeded for all those that whom has named, at some one time. It begins with those of first.
func waitOnAll(ctx context.Context, first []uint64, whom func(context.Context) ([]uint64, error),
	wait func(ctx context.Context, id uint64) error, name func(uint64) string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		done  = map[uint64]bool{} // whom one waits for or has waited for, and whether it is over
		shown = make(chan uint64)
	)
	begin := func(ids []uint64) {
		for _, id := range ids {
			if _, begun := done[id]; begun {
				continue
			}
			done[id] = false
			go func() {
				for wait(ctx, id) != nil {
					if poll.Pause(ctx, farRetry) != nil {
						return
					}
				}
				select {
				case shown <- id:
				case <-ctx.Done():
				}
			}()
		}
	}
	begin(first)
	var before []uint64 // whom the answer before has named
	for {
		asking, stop := context.WithTimeout(ctx, askPatience)
		ids, err := whom(asking)
		stop()
		begin(ids)
		late := func(id uint64) bool { return !done[id] }
		for again := time.After(liveAgain); ; {
			if err == nil && !slices.ContainsFunc(ids, late) {
				return nil
			}
			select {
			case id := <-shown:
				done[id] = true
				continue
			case <-again:
			case <-ctx.Done():
			}
			break
		}
		if ctx.Err() == nil {
			before = ids
			continue
		}
		if err != nil && slices.ContainsFunc(before, late) { // there was no time left for another answer
			ids, err = before, nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", err, ctx.Err())
		}
		for _, id := range slices.Sorted(slices.Values(ids)) {
			if late(id) {
				err = errors.Join(err, fmt.Errorf("%s: %w", name(id), ctx.Err()))
			}
		}
		return err
	}
}

// waitOn waits for one node.
func (r *Reads) waitOn(ctx context.Context, id, index uint64) error {
	if id == r.id.ID {
		return r.WaitApplied(ctx, index)
	}
	return r.applied.Wait(ctx, id, index)
}

// AppliedForPeer answers ReqApplied.
func (r *Reads) AppliedForPeer(ctx context.Context, _, index uint64) (uint64, error) {
	wctx, cancel := context.WithTimeout(ctx, farPatience)
	defer cancel()
	if err := r.WaitApplied(wctx, index); err != nil && wctx.Err() == nil {
		return 0, err
	}
	return r.host.AppliedIndex()
}
