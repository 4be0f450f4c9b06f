package consensus

import (
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
	*Node // its methods that do not wait serve here, too; what they start is done at the next Turn
	opts  StepperOptions
	timer *int // raft's own election timer

	batch, responses []*raftpb.Message // between BeginAppend and EndAppend
	jobs             []applyJob        // taken from the queue
	results          []func()          // call those whose outcome is known
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

// OpenStepper is Start for a Stepper.
func OpenStepper(cfg Config, bootstrapPeers []raft.Peer, opts StepperOptions) (*Stepper, error) {
	n, err := newNode(cfg, bootstrapPeers)
	if err != nil {
		return nil, err
	}
	n.core.reads.life = opts.Life
	n.after = opts.After
	n.applier.change = func(cc raftpb.ConfChangeI) (*raftpb.ConfState, error) { return n.core.applyConfChange(cc), nil }
	return &Stepper{Node: n, opts: opts, timer: raftTimer(n.core.rn)}, nil
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

// Tick lets one tick interval pass at the next Turn.
func (s *Stepper) Tick() { s.ticked = true } // a ticker that is not read keeps one tick

// Idle reports whether a Turn would find nothing to do.
func (s *Stepper) Idle() bool { return !s.ticked && s.inbox.empty() }

// Turn is raft's turn.
func (s *Stepper) Turn() error {
	return s.work(func() error {
		ticked := s.ticked
		s.ticked = false
		timeout := 2 * s.cfg.ElectionTicks // as raft is configured in newCore
		*s.timer = timeout + s.opts.Jitter(s.core.state.Term, timeout)
		if err := s.turn(ticked); err != nil {
			return err
		}
		for _, st := range s.states.take() {
			s.cfg.OnSoftState(st)
		}
		return nil
	})
}

// WantsAppend reports whether BeginAppend would find something to do.
func (s *Stepper) WantsAppend() bool {
	return !s.stopped() && s.batch == nil && len(s.disk.waiting) > 0
}

// BeginAppend writes everything that waits to Storage and does not sync it yet, except a change of term or vote.
func (s *Stepper) BeginAppend() error {
	return s.work(func() (err error) {
		s.batch, s.disk.waiting = s.disk.waiting, nil
		s.pub.appending.Store(s.cfg.Clock())
		s.responses, err = s.appender.begin(s.batch)
		return err
	})
}

// EndAppend syncs what BeginAppend has written and delivers the responses.
func (s *Stepper) EndAppend() error {
	return s.work(func() error {
		batch, responses := s.batch, s.responses
		s.batch, s.responses = nil, nil
		s.pub.appending.Store(0)
		if err := s.appender.end(); err != nil {
			return err
		}
		s.deliver(batch, responses)
		return nil
	})
}

// WantsApply reports whether Apply would find something to do.
func (s *Stepper) WantsApply() bool { return !s.stopped() && (len(s.jobs) > 0 || !s.applies.empty()) }

// Apply does the next job of the apply goroutine: a few committed entries, a snapshot, or news for OnMatch.
func (s *Stepper) Apply() error {
	return s.work(func() error {
		if len(s.jobs) == 0 {
			s.jobs = slices.Clone(s.applies.take())
		}
		if len(s.jobs) == 0 {
			return nil
		}
		job := s.jobs[0]
		s.jobs = s.jobs[1:]
		return s.apply(job)
	})
}

// work does a piece of work and tells the results, which may ask for more. It turns a panic of raft, its way to report
// a broken invariant, into an error, and makes every error final.
func (s *Stepper) work(f func() error) (err error) {
	if s.stopped() {
		return ErrStopped
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", ErrInvariant, p, debug.Stack())
		}
		if err != nil {
			s.fail(err)
		}
	}()
	if err := f(); err != nil {
		return err
	}
	results := s.results
	s.results = nil
	for _, tell := range results {
		tell()
	}
	return nil
}

// Stop ends this life. No callback comes after it.
func (s *Stepper) Stop() {
	s.halt()
	s.core.abandon()
}

// Propose is Node.ProposeInTerm, with term 0 Node.Propose. done is called once the outcome is known, or never if the
// life ends before. giveUp takes it back; false: raft has it.
func (s *Stepper) Propose(term uint64, data []byte, done func(index, term uint64, err error)) (giveUp func() bool) {
	p := newProposal(term, data)
	s.propose(p, done)
	return func() bool { return p.claimed.CompareAndSwap(false, true) }
}

func (s *Stepper) propose(p *proposal, done func(index, term uint64, err error)) {
	p.done = func(index, term uint64, err error) {
		s.results = append(s.results, func() { done(index, term, err) })
	}
	s.inbox.put(input{proposal: p})
}

// ProposeConfChange is Node.ProposeConfChange. done is called once the change is in force here, or will never be.
func (s *Stepper) ProposeConfChange(cc *raftpb.ConfChangeV2, done func(error)) {
	p, err := newChangeProposal(cc)
	if err != nil {
		s.results = append(s.results, func() { done(err) })
		return
	}
	s.propose(p, func(index, term uint64, err error) {
		if err != nil {
			done(err)
			return
		}
		s.applyWaits.wait(index, func() {
			s.results = append(s.results, func() { done(s.changed(index, term)) })
		})
	})
}

// ReadIndex is Node.ReadIndex. done is called with the answer, or never.
func (s *Stepper) ReadIndex(done func(index uint64)) {
	s.readIndex(func(index uint64) {
		s.results = append(s.results, func() { done(index) })
	})
}

// TransferLeadership is Node.TransferLeadership. done is called with its result.
func (s *Stepper) TransferLeadership(to uint64, done func(error)) {
	s.transfer(to, func(err error) {
		s.results = append(s.results, func() { done(err) })
	})
}
