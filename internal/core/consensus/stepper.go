package consensus

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Stepper is a Node without goroutines: its caller decides when each of them does its next piece of work, and when time
// passes. With the same calls it does the same things, down to the bytes it sends. It is for simulations; not safe for
// concurrent use.
//
//	inputs (Step, Propose, Tick, ...)    wait until Turn
//	Turn                                 raft's turn; the work that it hands on waits in two queues
//	BeginAppend, EndAppend               the disk: writes, then the sync and everything that it allows
//	Apply                                one job of those that deliver what is committed
//
// Callbacks of Config and of the methods are called from within Turn, EndAppend and Apply. They may call anything but
// those three.
//
// An error of a method ends the Stepper, as OnFatal ends a Node: it does nothing after that.
type Stepper struct {
	n     *Node
	opts  StepperOptions
	timer *int // raft's own election timer
	ticks int
	err   error

	batch, responses []*raftpb.Message // between BeginAppend and EndAppend
	jobs             []applyJob        // taken from the queue

	proposals []steppedProposal
	changes   []steppedProposal // accepted membership changes that are not yet in force
	reads     []steppedRead
	transfers []steppedTransfer
}

// StepperOptions stand in for what a Node takes from its surroundings. All are required.
type StepperOptions struct {
	// Life distinguishes this life of the member from all others.
	Life uint64
	// Jitter replaces raft's own random numbers: a number in [0, n), the same for the same arguments.
	Jitter func(term uint64, n int) int
	// After calls f once d has passed on this node's clock, unless the life has ended.
	After func(d time.Duration, f func())
}

type steppedProposal struct {
	p    *proposal
	done func(index, term uint64, err error)
}

type steppedRead struct {
	q    *readRequest
	done func(index uint64)
}

type steppedTransfer struct {
	t    *transfer
	done func(error)
}

// OpenStepper is Start for a Stepper.
func OpenStepper(cfg Config, bootstrapPeers []raft.Peer, opts StepperOptions) (*Stepper, error) {
	n, err := newNode(cfg, bootstrapPeers)
	if err != nil {
		return nil, err
	}
	n.core.reads.life = opts.Life
	n.after = opts.After
	n.applier.change = func(cc raftpb.ConfChangeI) (*raftpb.ConfState, error) { return n.core.applyConfChange(cc), nil }
	return &Stepper{n: n, opts: opts, timer: raftTimer(n.core.rn)}, nil
}

// raftTimer finds the number of ticks that raft's own election timer is set to. Raft draws it from the system's random
// numbers and has no interface to set it. If the library changes, reflect panics.
func raftTimer(rn *raft.RawNode) *int {
	v := reflect.ValueOf(rn).Elem().FieldByName("raft").Elem().FieldByName("randomizedElectionTimeout")
	if v.Kind() != reflect.Int {
		panic("consensus: raft keeps its election timer elsewhere: see raftTimer")
	}
	return (*int)(v.Addr().UnsafePointer())
}

// closed makes a wait end at once.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Step is Node.Step.
func (s *Stepper) Step(m *raftpb.Message) {
	if s.err == nil {
		s.n.inbox.receive(m)
	}
}

// Tick lets one tick interval pass at the next Turn.
func (s *Stepper) Tick() { s.ticks = 1 } // a ticker that is not read keeps one tick

// Idle reports whether a Turn would find nothing to do.
func (s *Stepper) Idle() bool { return s.ticks == 0 && s.n.inbox.idle() }

// Turn is raft's turn.
func (s *Stepper) Turn() (err error) {
	if s.err != nil {
		return s.err
	}
	defer s.guard(&err)
	ticked := s.ticks > 0
	s.ticks = 0
	timeout := 2 * s.n.cfg.ElectionTicks // as raft is configured in newCore
	*s.timer = timeout + s.opts.Jitter(s.n.core.state.Term, timeout)
	if err := s.n.turn(ticked); err != nil {
		return err
	}
	for _, st := range s.n.states.take() {
		s.n.cfg.OnSoftState(st)
	}
	s.finish()
	return nil
}

// WantsAppend reports whether BeginAppend would find something to do.
func (s *Stepper) WantsAppend() bool {
	return s.err == nil && s.batch == nil && len(s.n.disk.waiting) > 0
}

// BeginAppend writes everything that waits to Storage and does not sync it yet, except a change of term or vote.
func (s *Stepper) BeginAppend() (err error) {
	if s.err != nil {
		return s.err
	}
	defer s.guard(&err)
	s.batch, s.n.disk.waiting = s.n.disk.waiting, nil
	s.n.pub.appending.Store(s.n.cfg.Clock())
	s.responses, err = s.n.appender.begin(s.batch)
	return err
}

// EndAppend syncs what BeginAppend has written and delivers the responses.
func (s *Stepper) EndAppend() (err error) {
	if s.err != nil {
		return s.err
	}
	defer s.guard(&err)
	batch, responses := s.batch, s.responses
	s.batch, s.responses = nil, nil
	s.n.pub.appending.Store(0)
	if err := s.n.appender.end(); err != nil {
		return err
	}
	s.n.deliver(batch, responses)
	return nil
}

// WantsApply reports whether Apply would find something to do.
func (s *Stepper) WantsApply() bool { return s.err == nil && (len(s.jobs) > 0 || !s.n.applies.empty()) }

// Apply does the next job of the apply goroutine: a few committed entries, a snapshot, or news for OnMatch.
func (s *Stepper) Apply() (err error) {
	if s.err != nil {
		return s.err
	}
	defer s.guard(&err)
	if len(s.jobs) == 0 {
		s.jobs = slices.Clone(s.n.applies.take())
	}
	if len(s.jobs) == 0 {
		return nil
	}
	job := s.jobs[0]
	s.jobs = s.jobs[1:]
	if err := s.n.apply(job); err != nil {
		return err
	}
	s.finish()
	return nil
}

// guard turns a panic of raft, its way to report a broken invariant, into an error, and makes every error final.
func (s *Stepper) guard(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v\n%s", ErrInvariant, p, debug.Stack())
	}
	if *err != nil {
		s.err = *err
		s.n.fail(*err)
	}
}

// Stop ends this life. No callback comes after it.
func (s *Stepper) Stop() {
	if s.err == nil {
		s.err = ErrStopped
	}
	s.n.halt()
	s.n.core.abandon()
}

// Propose is Node.ProposeInTerm, with term 0 Node.Propose. done is called once the outcome is known, or never if the
// life ends before; ErrProposeTimeout means that too much is in flight.
func (s *Stepper) Propose(term uint64, data []byte, done func(index, term uint64, err error)) {
	if s.err != nil {
		return
	}
	p := &proposal{entry: &raftpb.Entry{Data: data}, want: term, bytes: uint64(len(data)) + entryOverhead,
		done: make(chan struct{})}
	if !s.n.quota.acquire(context.Background(), closed, p.bytes) {
		p.err = fmt.Errorf("%w: %d bytes in flight", ErrProposeTimeout, s.n.quota.inUse())
		close(p.done)
	} else {
		s.n.inbox.put(input{proposal: p})
	}
	s.proposals = append(s.proposals, steppedProposal{p, done})
}

// ProposeConfChange is Node.ProposeConfChange. done is called once the change is in force here, or will never be.
func (s *Stepper) ProposeConfChange(cc *raftpb.ConfChangeV2, done func(error)) {
	if s.err != nil {
		return
	}
	p, err := newChangeProposal(cc)
	if err != nil {
		p = &proposal{err: err, done: closed}
	} else {
		s.n.inbox.put(input{proposal: p})
	}
	s.proposals = append(s.proposals, steppedProposal{p, func(_, _ uint64, err error) {
		if err != nil {
			done(err)
			return
		}
		s.changes = append(s.changes, steppedProposal{p, func(_, _ uint64, err error) { done(err) }})
	}})
}

// ReadIndex is Node.ReadIndex. done is called with the answer, or never.
func (s *Stepper) ReadIndex(done func(index uint64)) {
	q := &readRequest{done: make(chan struct{})}
	s.n.inbox.put(input{call: func(c *core) { c.reads.waiting = append(c.reads.waiting, q) }})
	s.reads = append(s.reads, steppedRead{q, done})
}

// TransferLeadership is Node.TransferLeadership. done is called with its result.
func (s *Stepper) TransferLeadership(to uint64, done func(error)) {
	t := &transfer{to: to, done: make(chan error, 1)}
	s.n.inbox.put(input{call: func(c *core) { c.startTransfer(t) }})
	s.transfers = append(s.transfers, steppedTransfer{t, done})
}

// finish calls back the callers whose outcome is known. A callback may ask for more.
func (s *Stepper) finish() {
	var calls []func()
	s.proposals = settle(s.proposals, &calls, func(p steppedProposal) func() {
		select {
		case <-p.p.done:
			return func() { p.done(p.p.result()) }
		default:
			return nil
		}
	})
	s.changes = settle(s.changes, &calls, s.changeDone)
	s.reads = settle(s.reads, &calls, func(r steppedRead) func() {
		select {
		case <-r.q.done:
			return func() { r.done(r.q.index) }
		default:
			return nil
		}
	})
	s.transfers = settle(s.transfers, &calls, func(t steppedTransfer) func() {
		select {
		case err := <-t.t.done:
			return func() { t.done(err) }
		default:
			return nil
		}
	})
	for _, f := range calls {
		f()
	}
}

func (s *Stepper) changeDone(p steppedProposal) func() {
	if s.n.pub.applied.Load() < p.p.index {
		return nil
	}
	var err error
	if term, terr := s.n.cfg.Storage.Term(p.p.index); terr != nil || term != p.p.term {
		err = fmt.Errorf("membership change: %w: leadership was lost before it was committed", ErrNotLeader)
	}
	return func() { p.done(p.p.index, p.p.term, err) }
}

// settle appends to calls what result returns for each waiter, and returns those for which it is nil.
func settle[T any](waiting []T, calls *[]func(), result func(T) func()) []T {
	kept := waiting[:0]
	for _, w := range waiting {
		if f := result(w); f != nil {
			*calls = append(*calls, f)
		} else {
			kept = append(kept, w)
		}
	}
	clear(waiting[len(kept):])
	return kept
}

// Failed is the error that ended this life, nil while it goes on or after Stop.
func (s *Stepper) Failed() error {
	if errors.Is(s.err, ErrStopped) {
		return nil
	}
	return s.err
}

// The following are those of Node; what they start is done at the next Turn.

// Status is Node.Status.
func (s *Stepper) Status() Status { return s.n.Status() }

// LeaseUntil is Node.LeaseUntil.
func (s *Stepper) LeaseUntil() int64 { return s.n.LeaseUntil() }

// HoldsLease is Node.HoldsLease.
func (s *Stepper) HoldsLease() bool { return s.n.HoldsLease() }

// AppendingSince is Node.AppendingSince.
func (s *Stepper) AppendingSince() int64 { return s.n.AppendingSince() }

// SetLeastTimeout is Node.SetLeastTimeout.
func (s *Stepper) SetLeastTimeout(d time.Duration) { s.n.SetLeastTimeout(d) }

// Campaign is Node.Campaign.
func (s *Stepper) Campaign() { s.n.Campaign() }

// PeerGone is Node.PeerGone.
func (s *Stepper) PeerGone(id uint64) { s.n.PeerGone(id) }

// Depose is Node.Depose.
func (s *Stepper) Depose(leader, term uint64, campaign bool) { s.n.Depose(leader, term, campaign) }

// ReportUnreachable is Node.ReportUnreachable.
func (s *Stepper) ReportUnreachable(id uint64) { s.n.ReportUnreachable(id) }

// ReportSnapshot is Node.ReportSnapshot.
func (s *Stepper) ReportSnapshot(id uint64, ok bool) { s.n.ReportSnapshot(id, ok) }

// WatchMatches is Node.WatchMatches.
func (s *Stepper) WatchMatches(on bool) { s.n.WatchMatches(on) }

// Matches is Node.Matches.
func (s *Stepper) Matches() (Matches, bool) { return s.n.Matches() }
