package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"trireme/internal/api"
	"trireme/internal/gtid"
)

// reqApplied is a request between daemons: body index u64; answered, once the requester's limit is over or that index is applied, with the one up to
// which the node's mysqld has applied everything, u64.
const reqApplied uint8 = 24

const (
	// farPatience is followPatience for another node's mysqld.
	farPatience = 200 * time.Millisecond
	// farRetry is the pause before a node that did not answer, or whose mysqld is not in service, is asked again.
	farRetry = 20 * time.Millisecond
)

// farReaders are those who wait for other nodes' mysqlds, by raft id: one question at a time is out to each node.
type farReaders struct {
	mu    sync.Mutex
	nodes map[uint64]*appliedWaits
}

func (f *farReaders) of(id uint64) *appliedWaits {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.nodes == nil {
		f.nodes = map[uint64]*appliedWaits{}
	}
	if f.nodes[id] == nil {
		f.nodes[id] = &appliedWaits{}
	}
	return f.nodes[id]
}

// WaitAppliedEverywhere waits until the mysqlds of all data nodes that count as live have applied everything up to an index that is known to be
// committed: reads that begin then see it on any of them (live.go). The error names who is behind.
func (n *Node) WaitAppliedEverywhere(ctx context.Context, index uint64) error {
	whom := func(ctx context.Context) ([]uint64, error) {
		_, ids, err := n.askLive(ctx, liveWait)
		return ids, err
	}
	return everywhere(ctx, n.likelyLive(), whom, func(ctx context.Context, id uint64) error { return n.waitAppliedOn(ctx, id, index) }, n.memberName)
}

// likelyLive are the data nodes that seem to serve, to be waited for while the leader is asked whom to wait for.
func (n *Node) likelyLive() (ids []uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.dataMembersLocked() {
		if p := n.peers[m.ID]; m.ID == n.id.ID || p != nil && p.fresh() && p.status.Ready {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// everywhere calls wait for many nodes at once, and again where it fails, through whatever keeps a node from answering, until it has succeeded for all those
// that whom has named, at some one time. It begins with those of first.
func everywhere(ctx context.Context, first []uint64, whom func(context.Context) ([]uint64, error), wait func(ctx context.Context, id uint64) error, name func(uint64) string) error {
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
					if !pause(ctx, farRetry) {
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
		asking, stop := context.WithTimeout(ctx, confirmPatience)
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

// pause waits; false: ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// waitAppliedOn waits for one node.
func (n *Node) waitAppliedOn(ctx context.Context, id, index uint64) error {
	if id == n.id.ID {
		return n.WaitApplied(ctx, index)
	}
	return n.far.of(id).wait(ctx, n, index, func(ctx context.Context, index uint64) (uint64, error) { return n.askAppliedFar(ctx, id, index) })
}

// askAppliedFar is the follower of another node's mysqld.
func (n *Node) askAppliedFar(ctx context.Context, id, index uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*farPatience)
	defer cancel()
	b, err := n.tr.Request(ctx, id, reqApplied, binary.LittleEndian.AppendUint64(nil, index))
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("an answer of %d bytes", len(b))
	}
	return binary.LittleEndian.Uint64(b), nil
}

// appliedForPeer answers reqApplied.
func (n *Node) appliedForPeer(ctx context.Context, body []byte) ([]byte, error) {
	if len(body) != 8 {
		return nil, fmt.Errorf("a request of %d bytes", len(body))
	}
	wctx, cancel := context.WithTimeout(ctx, farPatience)
	defer cancel()
	if err := n.WaitApplied(wctx, binary.LittleEndian.Uint64(body)); err != nil && wctx.Err() == nil {
		return nil, err
	}
	at, err := n.appliedNow()
	return binary.LittleEndian.AppendUint64(nil, at), err
}

// ReadIndex implements api.Backend.
func (n *Node) ReadIndex(ctx context.Context, q api.ReadIndexQuery) (api.ReadIndexView, error) {
	if q.Live {
		l, err := routerReads{n}.Live(ctx)
		if err != nil {
			err = api.Errorf(api.KindNoLeader, "who counts as live cannot be told: %v", err).With("it needs a leader that a majority of the voters answers; see `trireme status`")
		}
		return api.ReadIndexView{Index: l.Index, Live: l.Nodes}, err
	}
	index, err := n.ReadBarrier(ctx)
	v := api.ReadIndexView{Index: index}
	if err != nil || !q.GTIDs {
		return v, err
	}
	if err := n.led.Await(ctx, index); err != nil {
		return v, api.Errorf(api.KindTimeout, "entry %d is not known to be committed on %s yet", index, n.id.Name).With("try again, or ask another node")
	}
	_, committed := n.led.Snapshot()
	v.GTIDs = committed.String()
	return v, nil
}

// Applied implements api.Backend.
func (n *Node) Applied(ctx context.Context, q api.AppliedQuery) (v api.AppliedView, err error) {
	v.Index = q.Index
	if q.GTIDs != "" {
		set, err := gtid.ParseSet(q.GTIDs)
		if err != nil {
			return v, api.Errorf(api.KindInvalid, "gtids: %v", err)
		}
		index, err := n.indexOf(ctx, set)
		if err != nil {
			return v, notApplied(err)
		}
		if q.Everywhere {
			index = n.led.Index() // what is applied here may be ahead of the others
		}
		v.Index = max(v.Index, index)
	}
	if q.Everywhere {
		if err = n.led.Await(ctx, v.Index); err == nil {
			err = n.WaitAppliedEverywhere(ctx, v.Index)
		}
	} else if err = n.WaitApplied(ctx, v.Index); err == nil {
		v.Index, err = n.appliedNow()
	}
	if err != nil {
		return v, notApplied(err)
	}
	return v, nil
}

// notApplied words an error for a router.
func notApplied(err error) error {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if errors.Is(err, context.DeadlineExceeded) {
		return api.Errorf(api.KindTimeout, "%s", text).With("wait longer, or read another node; see `trireme status`")
	}
	return api.Errorf(api.KindConflict, "%s", text).With("read another node; see `trireme status`")
}
