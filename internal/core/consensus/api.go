package consensus

import (
	"context"
	"errors"
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
	return n.propose(ctx, newProposal(0, data))
}

// ProposeInTerm is Propose for a leader of one certain term: ErrNotLeader if that term is over, even if this node leads
// again (S7).
func (n *Node) ProposeInTerm(ctx context.Context, term uint64, data []byte) (index uint64, err error) {
	index, _, err = n.propose(ctx, newProposal(term, data))
	return index, err
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
	return n.changed(index, term)
}

// changed reports that the entry that was applied at index is the membership change proposed in a term.
func (n *Node) changed(index, term uint64) error {
	if got, err := n.cfg.Storage.Term(index); err != nil || got != term {
		return fmt.Errorf("membership change: %w: leadership was lost before it was committed", ErrNotLeader)
	}
	return nil
}

// Offer is ProposeInTerm without waiting, on the loop: proposals of one caller get ascending indexes, and done is
// called on the loop with the outcome. An error means that it is in no log. It owns data from then on. If raft has made
// a copy of it, copied is called on the loop, unless it is nil: data is the caller's again. more is false when as much
// is in flight as MaxUncommittedBytes allows, or others wait for room: the caller then offers nothing more until
// WhenRoom's call.
func (n *Node) Offer(term uint64, data []byte, done func(index, term uint64, err error), copied func()) (more bool) {
	p := newProposal(term, data)
	p.done, p.copied = done, copied
	n.core.props.count(p)
	n.inbox.put(input{proposal: p})
	return n.core.props.hasRoom()
}

// WhenRoom has f called once on the loop, soon after less is in flight than MaxUncommittedBytes allow. f must not wait.
func (n *Node) WhenRoom(f func()) {
	n.inbox.put(input{call: func(c *core) { c.props.room = f }})
}

func (n *Node) propose(ctx context.Context, p *proposal) (uint64, uint64, error) {
	var index, term uint64
	var refused error
	done := make(chan struct{})
	p.done = func(i, t uint64, err error) {
		index, term, refused = i, t, err
		close(done)
	}
	n.inbox.put(input{proposal: p})
	err := n.await(ctx, done, ErrProposeTimeout)
	if err != nil && !p.claimed.CompareAndSwap(false, true) {
		err = n.await(context.Background(), done, nil) // the loop is about to finish it
	}
	switch {
	case errors.Is(err, ErrProposeTimeout):
		return 0, 0, fmt.Errorf("%w (%d bytes in flight)", err, n.core.props.used.Load())
	case err != nil:
		return 0, 0, err
	}
	return index, term, refused
}

// Step takes a message from a peer; the transport has made sure that it comes from m.From and is meant for this node.
// It never waits.
func (n *Node) Step(m *raftpb.Message) {
	if !n.stopped() {
		n.inbox.put(input{m: m})
	}
}

// Status is a snapshot; it takes no lock and never waits. The slices and the map are shared: do not change them.
func (n *Node) Status() Status {
	applied, durable, commit, last := n.pub.applied.Load(), n.pub.durable.Load(), n.pub.commit.Load(), n.pub.last.Load()
	// After them: the loop publishes the membership of a snapshot before the commit index that comes with it, and who is a
	// member has a say in what may be purged. So the indexes may be older than the role.
	s := *n.pub.state.Load()
	s.Applied, s.Durable, s.Commit, s.LastIndex = applied, durable, commit, last
	return s
}

// WaitApplied waits until OnCommitted has returned for index. ErrApplyTimeout when ctx is done.
func (n *Node) WaitApplied(ctx context.Context, index uint64) error {
	done := make(chan struct{})
	defer n.applyWaits.cancel(n.applyWaits.wait(index, func() { close(done) }))
	return n.await(ctx, done, fmt.Errorf("%w: entry %d", ErrApplyTimeout, index))
}

// ReadIndex returns a commit index that is at least as high as every index committed anywhere when the call was made.
// It works on every member and costs a quorum round, shared with other callers. ErrReadIndexTimeout when ctx is done.
func (n *Node) ReadIndex(ctx context.Context) (uint64, error) {
	var index uint64
	done := make(chan struct{})
	q := n.readIndex(func(i uint64) {
		index = i
		close(done)
	})
	if err := n.await(ctx, done, ErrReadIndexTimeout); err != nil {
		n.inbox.put(input{call: func(*core) { q.gone = true }})
		return 0, err
	}
	return index, nil
}

func (n *Node) readIndex(done func(index uint64)) *readRequest {
	q := &readRequest{done: done}
	n.inbox.put(input{call: func(c *core) { c.reads.waiting = append(c.reads.waiting, q) }})
	return q
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
	return n.do(ctx, func(*core) {}, errors.New("raft's loop does not answer"))
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
	var failed error
	done := make(chan struct{})
	n.transfer(to, func(err error) {
		failed = err
		close(done)
	})
	if err := n.await(ctx, done, fmt.Errorf("%w to member %d", ErrTransferFailed, to)); err != nil {
		return err
	}
	return failed
}

func (n *Node) transfer(to uint64, done func(error)) {
	n.inbox.put(input{call: func(c *core) { c.startTransfer(&transfer{to: to, done: done}) }})
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
