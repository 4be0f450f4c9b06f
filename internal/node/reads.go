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
	"trireme/internal/config"
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

// WaitAppliedEverywhere waits until the mysqlds of all data nodes have applied everything up to an index: reads that begin then see it on any of
// them. A node that is down or cut off is waited for like any other, since its mysqld may still be read; one that is removed meanwhile is not, and
// one that joins meanwhile is, and a delayed learner is not: routers do not read it. The error names who is behind.
func (n *Node) WaitAppliedEverywhere(ctx context.Context, index uint64) error {
	// Who had joined when the index was committed is known here behind it only.
	if err := n.waitCommitted(ctx, index); err != nil {
		return fmt.Errorf("entry %d is not known to be committed here: %w", index, err)
	}
	return everywhere(ctx, n.dataMembers, func(ctx context.Context, id uint64) error { return n.waitAppliedOn(ctx, id, index) })
}

// dataMembers are the members with a mysqld that may be read.
func (n *Node) dataMembers() []config.Member {
	st := n.cons.Status()
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(n.cluster.Members), func(m config.Member) bool {
		return m.Role == config.RoleLogger || !takesPart(&st, m) || n.unwaitedLocked(m)
	})
}

// everywhere calls wait for all members at once, and again where it fails, through whatever keeps a node from answering, until it has succeeded for
// each of those that are members at the end.
func everywhere(ctx context.Context, members func() []config.Member, wait func(ctx context.Context, id uint64) error) error {
	done := map[uint64]bool{}
	for {
		left := slices.DeleteFunc(members(), func(m config.Member) bool { return done[m.ID] })
		if len(left) == 0 {
			return nil
		}
		var (
			wg   sync.WaitGroup
			errs = make([]error, len(left))
		)
		for i, m := range left {
			done[m.ID] = true
			wg.Go(func() {
				err := wait(ctx, m.ID)
				for err != nil && ctx.Err() == nil && slices.ContainsFunc(members(), func(x config.Member) bool { return x.ID == m.ID }) {
					select {
					case <-time.After(farRetry):
						err = wait(ctx, m.ID)
					case <-ctx.Done():
					}
				}
				if err != nil && ctx.Err() != nil {
					errs[i] = fmt.Errorf("%s: %w", m.Name, err)
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
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
	index, err := n.ReadBarrier(ctx)
	v := api.ReadIndexView{Index: index}
	if err != nil || !q.GTIDs {
		return v, err
	}
	if err := n.waitCommitted(ctx, index); err != nil {
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
		err = n.WaitAppliedEverywhere(ctx, v.Index)
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
