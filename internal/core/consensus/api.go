package consensus

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Propose appends data to the log and returns once Raft has accepted it, with the index and term it has been given.
// It owns data from then on. Calls made one after the other get ascending indexes. An accepted proposal is either
// committed at exactly that index and term, or lost together with the leadership of that term.
//
// It blocks while MaxUncommittedBytes are in flight or a leadership transfer is under way. ErrNotLeader, ErrStopped and
// ErrProposeTimeout (ctx is done) mean that data is in no log.
func (n *Node) Propose(ctx context.Context, data []byte) (index, term uint64, err error) {
	return n.proposeData(ctx, 0, data)
}

// ProposeInTerm is Propose for a leader of one certain term: ErrNotLeader if that term is over, even if this node leads
// again (S7).
func (n *Node) ProposeInTerm(ctx context.Context, term uint64, data []byte) (index uint64, err error) {
	index, _, err = n.proposeData(ctx, term, data)
	return index, err
}

func (n *Node) proposeData(ctx context.Context, want uint64, data []byte) (index, term uint64, err error) {
	bytes := uint64(len(data)) + entryOverhead
	if !n.quota.acquire(ctx, n.stop, bytes) {
		if ctx.Err() != nil {
			return 0, 0, fmt.Errorf("%w: %d bytes in flight: %w", ErrProposeTimeout, n.quota.inUse(), ctx.Err())
		}
		return 0, 0, ErrStopped
	}
	p := &proposal{entry: &raftpb.Entry{Data: data}, want: want, bytes: bytes, done: make(chan struct{})}
	return n.propose(ctx, p)
}

// ProposeConfChange proposes a membership change and waits until it is in force on this node. With more than one
// change, or when asked for, it goes through a joint configuration, which the leader leaves by itself soon after,
// unless the change says ConfChangeTransitionJointExplicit. ErrConfChangePending, ErrInvalidConfChange and Propose's
// errors mean that it will not happen; ErrApplyTimeout and ErrStopped that it may still.
func (n *Node) ProposeConfChange(ctx context.Context, cc *raftpb.ConfChangeV2) error {
	p, err := newChangeProposal(cc)
	if err != nil {
		return err
	}
	index, term, err := n.propose(ctx, p)
	if err != nil {
		return err
	}
	if err := n.WaitApplied(ctx, index); err != nil {
		return err
	}
	if got, err := n.cfg.Storage.Term(index); err != nil || got != term {
		return fmt.Errorf("membership change: %w: leadership was lost before it was committed", ErrNotLeader)
	}
	return nil
}

// Offer is ProposeInTerm without waiting, on the loop: proposals of one caller get ascending indexes, and refused is
// called on the loop, with ErrNotLeader, if this one is in no log. It owns data from then on. If raft has made a copy
// of it, copied is called on the loop, unless it is nil: data is the caller's again. more is false when as much is in
// flight as MaxUncommittedBytes allows: the caller then offers nothing more until WhenRoom's call.
func (n *Node) Offer(term uint64, data []byte, refused func(error), copied func()) (more bool) {
	bytes := uint64(len(data)) + entryOverhead
	more = n.quota.take(bytes)
	p := &proposal{entry: &raftpb.Entry{Data: data}, want: term, bytes: bytes, refused: refused,
		copied: copied}
	n.inbox.put(input{proposal: p})
	return more
}

// WhenRoom has f called once, soon after less is in flight than MaxUncommittedBytes allow. f must not wait and may be
// called from any goroutine.
func (n *Node) WhenRoom(f func()) { n.quota.whenRoom(f) }

func (n *Node) propose(ctx context.Context, p *proposal) (index, term uint64, err error) {
	n.inbox.put(input{proposal: p})
	select {
	case <-p.done:
		return p.result()
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", ErrProposeTimeout, ctx.Err())
	case <-n.stop:
		err = ErrStopped
	}
	if p.claimed.CompareAndSwap(false, true) {
		n.quota.release(p.bytes)
		return 0, 0, err
	}
	select {
	case <-p.done: // claimed: the loop is about to finish it
		return p.result()
	case <-n.stop:
		return 0, 0, ErrStopped
	}
}

func (p *proposal) result() (index, term uint64, err error) {
	if p.err != nil {
		return 0, 0, p.err
	}
	return p.index, p.term, nil
}

// Step takes a message from a peer; the transport has made sure that it comes from m.From and is meant for this node.
// It never waits.
func (n *Node) Step(m *raftpb.Message) {
	if !n.stopped() {
		n.inbox.receive(m)
	}
}

// Status is a snapshot; it takes no lock and never waits. The slices and the map are shared: do not change them.
func (n *Node) Status() Status {
	s := *n.pub.state.Load()
	s.Applied = n.pub.applied.Load()
	s.Durable = n.pub.durable.Load()
	s.Commit = n.pub.commit.Load()
	s.LastIndex = n.pub.last.Load()
	return s
}

// WaitCommitted waits until the commit index has reached index. That says nothing about whose entry is there: compare
// terms (S1). ErrCommitTimeout when ctx is done.
func (n *Node) WaitCommitted(ctx context.Context, index uint64) error {
	return n.waitIndex(ctx, &n.commitWaits, index, ErrCommitTimeout)
}

// WaitApplied waits until OnCommitted has returned for index. ErrApplyTimeout when ctx is done.
func (n *Node) WaitApplied(ctx context.Context, index uint64) error {
	return n.waitIndex(ctx, &n.applyWaits, index, ErrApplyTimeout)
}

func (n *Node) waitIndex(ctx context.Context, waits *indexWaits, index uint64, timeout error) error {
	w := waits.wait(index)
	if w == nil {
		return nil
	}
	defer waits.cancel(w)
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: entry %d: %w", timeout, index, ctx.Err())
	case <-n.stop:
		return ErrStopped
	}
}

// ReadIndex returns a commit index that is at least as high as every index committed anywhere when the call was made.
// It works on every member and costs a quorum round, shared with other callers. ErrReadIndexTimeout when ctx is done.
func (n *Node) ReadIndex(ctx context.Context) (uint64, error) {
	q := &readRequest{done: make(chan struct{})}
	n.inbox.put(input{call: func(c *core) { c.reads.waiting = append(c.reads.waiting, q) }})
	select {
	case <-q.done:
		return q.index, nil
	case <-ctx.Done():
		n.inbox.put(input{call: func(*core) { q.gone = true }})
		return 0, fmt.Errorf("%w: %w", ErrReadIndexTimeout, ctx.Err())
	case <-n.stop:
		return 0, ErrStopped
	}
}

// LeaseUntil is the moment of CLOCK_BOOTTIME, in nanoseconds, until which no other member can have become leader; 0
// when this node holds no lease. Check it after a result is ready, not before it is computed (S10).
func (n *Node) LeaseUntil() int64 { return n.pub.lease.Load() }

// SetLeastTimeout sets the shortest election timeout of any voter, as far as it is known: the lease must end before the
// first of them votes for another candidate (S10).
func (n *Node) SetLeastTimeout(d time.Duration) { n.pub.leastTimeout.Store(int64(d)) }

// AppendingSince is the moment of CLOCK_BOOTTIME, in nanoseconds, at which the write and fsync under way began; 0 when
// none is.
func (n *Node) AppendingSince() int64 { return n.pub.appending.Load() }

// Answers waits until raft has taken one more input, which shows that the loop is not stuck. It returns
// ErrStopped, or ctx's error.
func (n *Node) Answers(ctx context.Context) error {
	done := make(chan struct{})
	n.inbox.put(input{call: func(*core) { close(done) }})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("raft's loop does not answer: %w", ctx.Err())
	case <-n.stop:
		return ErrStopped
	}
}

// HoldsLease reports whether the lease is running now.
func (n *Node) HoldsLease() bool {
	until := n.pub.lease.Load()
	return until != 0 && n.cfg.Clock() < until
}

// TransferLeadership hands leadership to a voter and waits until it leads. Proposals wait meanwhile. The lease ends
// when the voter is told. ErrNotLeader, ErrTransferFailed (Raft gives up after an election timeout), ErrStopped, or
// ctx's error.
func (n *Node) TransferLeadership(ctx context.Context, to uint64) error {
	t := &transfer{to: to, done: make(chan error, 1)}
	n.inbox.put(input{call: func(c *core) { c.startTransfer(t) }})
	select {
	case err := <-t.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w to member %d: %w", ErrTransferFailed, to, ctx.Err())
	case <-n.stop:
		return ErrStopped
	}
}

// Campaign starts a pre-vote now, unless a leader is known: a voter that campaigns has forgotten the leader, whose
// lease may count on it (S10).
func (n *Node) Campaign() {
	n.inbox.put(input{call: func(c *core) {
		if c.stateNow().Leader == 0 {
			c.campaign()
		}
	}})
}

// PeerGone reports that the process of member id is dead: its connections were closed and no process listens on its
// port. If it was the leader, this node forgets it, and the next one is elected at once (Config.CampaignDelay). If this
// node leads, the member's answers no longer count for the lease. The caller must be sure: a live leader that is
// forgotten may still hold a lease.
func (n *Node) PeerGone(id uint64) {
	n.inbox.put(input{call: func(c *core) { c.peerGone(id) }})
}

// ReportUnreachable reports that messages to id were dropped, so that the leader probes instead of streaming.
func (n *Node) ReportUnreachable(id uint64) {
	n.inbox.put(input{call: func(c *core) { c.rn.ReportUnreachable(id) }})
}

// ReportSnapshot reports whether a MsgSnap reached member id.
func (n *Node) ReportSnapshot(id uint64, ok bool) {
	status := raft.SnapshotFinish
	if !ok {
		status = raft.SnapshotFailure
	}
	n.inbox.put(input{call: func(c *core) { c.rn.ReportSnapshot(id, status) }})
}
