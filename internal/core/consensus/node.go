package consensus

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/failpoint"
	"trireme/internal/base/mutant"
)

// Node is a running member of the Raft group. All methods are safe for concurrent use, but for Offer and WhenRoom.
type Node struct {
	cfg  Config
	core *core // owned by the loop, as all up to after
	pub  published

	inbox  *queue[input]
	ticked bool
	out    output
	disk   disk

	appender        *appender
	commitOnly      commitOnlyAppends
	commitOnlyArmed bool
	after           func(time.Duration, func()) // calls back after that time, on any goroutine

	applier  *applier
	applies  *queue[applyJob] // what the apply goroutine has to do
	applying atomic.Int64     // jobs that it has not done yet
	states   *queue[State]

	matches atomic.Pointer[Matches] // the newest, not yet reported to OnMatch; nil: none, and no job for it

	applyWaits indexWaits

	ctx   context.Context // ends when the node stops or fails
	halt  func()
	fatal sync.Once
	ended sync.Once
	wg    sync.WaitGroup
}

// input is one thing for raft; exactly one of m, proposal and call is set.
type input struct {
	m        *raftpb.Message
	local    bool // m comes from this node's storage
	proposal *proposal
	call     func(*core)
}

// disk is what the appender has to do.
type disk struct {
	waiting []*raftpb.Message
	busy    bool   // it is at work
	idle    func() // called when it is not any more; nil: nobody waits for that
}

// applyJob is either committed entries, a snapshot that replaced the log, or news of the voters' logs.
type applyJob struct {
	m       *raftpb.Message
	snap    *raftpb.Snapshot
	matches bool // in Node.matches
}

// Start opens the member on what Storage holds. bootstrapPeers is given once in the life of a cluster, by its very
// first node and with an empty log: it puts the first membership into the log, where every later member finds it. A
// joining node starts with an empty log and without peers, and waits for the leader.
func Start(cfg Config, bootstrapPeers []raft.Peer) (*Node, error) {
	n, err := newNode(cfg, bootstrapPeers)
	if err != nil {
		return nil, err
	}
	l := n.cfg.Loop
	n.after = func(d time.Duration, f func()) { l.After(d, f) }
	n.applier.change = n.changeMembership
	n.inbox.wake = l.Wake
	l.Hook(n.work)
	l.Do(n.tick)
	serve(n, n.applies, func(job applyJob) error {
		if err := n.apply(job); err != nil {
			return err // nothing is delivered after it: applying stays
		}
		n.applying.Add(-1)
		return nil
	})
	serve(n, n.states, func(s State) error {
		n.cfg.OnSoftState(s)
		return nil
	})
	return n, nil
}

// newNode makes a node that does nothing by itself yet: Start adds goroutines, a Stepper is driven by its caller.
func newNode(cfg Config, bootstrapPeers []raft.Peer) (*Node, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	cfg.Logger = cfg.Logger.With("node", cfg.ID)
	st, err := recoverState(cfg.Storage, cfg.Applied)
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg:        cfg,
		inbox:      newQueue[input](),
		applies:    newQueue[applyJob](),
		states:     newQueue[State](),
		commitOnly: newCommitOnlyAppends(),
	}
	n.ctx, n.halt = context.WithCancel(context.Background())
	if n.core, err = newCore(&n.cfg, st, bootstrapPeers, &n.pub); err != nil {
		return nil, err
	}
	n.appender = newAppender(&n.cfg, st, &n.pub)
	n.applier = newApplier(&n.cfg, st, &n.pub)
	n.applyWaits.reach(st.applied)
	return n, nil
}

// Stop ends the node and waits until nothing of it runs. Callers in flight get ErrStopped. The peers are not told.
// Config.Loop must run.
func (n *Node) Stop() { n.ended.Do(n.end) }

func (n *Node) end() {
	n.halt()
	idle := make(chan struct{})
	n.cfg.Loop.Do(func() {
		n.core.abandon()
		if n.disk.busy {
			n.disk.idle = func() { close(idle) }
		} else {
			close(idle)
		}
	})
	<-idle
	n.wg.Wait()
}

func (n *Node) stopped() bool { return n.ctx.Err() != nil }

// fail reports the end of this node once and stops it.
func (n *Node) fail(err error) {
	n.fatal.Do(func() {
		n.cfg.Logger.Error("consensus failed", "term", n.Status().Term, "err", err)
		n.halt()
		n.pub.lease.Store(0)
		n.inbox.wake()
		if mutant.S13 {
			return
		}
		n.cfg.OnFatal(err)
	})
}

// guard turns a panic on one of the node's goroutines (raft's way to report a broken invariant) into a fatal error.
func (n *Node) guard() {
	if p := recover(); p != nil {
		n.fail(fmt.Errorf("%w: %v\n%s", ErrInvariant, p, debug.Stack()))
	}
}

// tick lets one tick interval pass at the next turn.
func (n *Node) tick() {
	if n.stopped() {
		return
	}
	n.ticked = true
	n.cfg.Loop.After(failpoint.Paced(n.cfg.TickInterval), n.tick)
}

// work is raft's hook of the loop: one turn, if there is anything to do.
func (n *Node) work() (did bool) {
	defer n.guard()
	if n.stopped() {
		n.core.abandon() // a turn that was under way when the node failed may have renewed the lease
		return false
	}
	if !n.ticked && n.inbox.empty() {
		return false
	}
	ticked := n.ticked
	n.ticked = false
	if err := n.turn(ticked); err != nil {
		n.fail(err)
		return false
	}
	n.writeLog()
	return true
}

// turn handles everything queued, then the tick: a node that was held up must see the heartbeats that waited for it
// before it counts the time.
func (n *Node) turn(ticked bool) error {
	n.core.beginTurn()
	for _, in := range n.inbox.take() {
		switch {
		case in.call != nil:
			in.call(n.core)
		case in.proposal != nil:
			n.core.props.waiting = append(n.core.props.waiting, in.proposal)
		case in.local:
			if err := n.core.respond(in.m); err != nil {
				return err
			}
		default:
			n.core.receive(in.m)
		}
	}
	if ticked {
		n.core.tick()
	}
	out := &n.out
	if err := n.core.advance(out); err != nil {
		return err
	}
	if sends := n.commitOnly.filter(out.sends); len(sends) > 0 {
		failpoint.Hit("raft.before-send")
		n.cfg.Send(sends)
	}
	n.armCommitOnly()
	n.disk.waiting = append(n.disk.waiting, out.appends...)
	n.states.put(out.states...)
	if m := n.core.grownMatches(); m != nil && n.matches.Swap(m) == nil {
		if err := n.handOn(applyJob{matches: true}); err != nil {
			return err
		}
	}
	for _, m := range out.applies {
		if err := n.handOn(applyJob{m: m}); err != nil {
			return err
		}
	}
	out.reset()
	return nil
}

// handOn has a job of the apply goroutine done: at once if it takes no time and nothing comes before it.
func (n *Node) handOn(job applyJob) error {
	if n.applying.Load() == 0 && n.isQuick(job) {
		return n.apply(job)
	}
	n.applying.Add(1)
	n.applies.put(job)
	return nil
}

func (n *Node) isQuick(job applyJob) bool {
	if n.cfg.Quick == nil || job.snap != nil {
		return false
	}
	for _, e := range job.m.GetEntries() {
		if e.GetType() != raftpb.EntryNormal || !n.cfg.Quick(e.GetData()) {
			return false
		}
	}
	return true
}

// armCommitOnly makes sure that what is held back goes out after commitOnlyDelay.
func (n *Node) armCommitOnly() {
	if len(n.commitOnly.held) == 0 || n.commitOnlyArmed {
		return
	}
	n.commitOnlyArmed = true
	n.after(commitOnlyDelay, func() {
		n.inbox.put(input{call: func(c *core) {
			n.commitOnlyArmed = false
			if sends := n.commitOnly.flush(c.state); len(sends) > 0 {
				n.cfg.Send(sends)
			}
		}})
	})
}

// writeLog begins to write what waits for the disk, unless it is at work: all that has queued up meanwhile shares the
// next sync. Peers have been sent theirs by then, and sync at the same time.
func (n *Node) writeLog() {
	if n.disk.busy || len(n.disk.waiting) == 0 {
		return
	}
	batch := n.disk.waiting
	n.disk.waiting, n.disk.busy = nil, true
	var responses []*raftpb.Message
	n.cfg.Loop.Job(isLarge(batch), func() {
		defer n.guard()
		failpoint.Hit("raft.before-append")
		n.pub.appending.Store(n.cfg.Clock())
		var err error
		responses, err = n.appender.process(batch)
		n.pub.appending.Store(0)
		if err != nil {
			n.fail(err)
		}
	}, func() {
		defer n.guard()
		n.disk.busy = false
		if n.disk.idle != nil {
			n.disk.idle()
		}
		if n.stopped() {
			return
		}
		failpoint.Hit("raft.before-respond")
		n.deliver(batch, responses)
		n.writeLog()
	})
}

// largeAppend takes the disk for so long that the network should not wait for it, bytes.
const largeAppend = 256 << 10

func isLarge(batch []*raftpb.Message) bool {
	size := 0
	for _, m := range batch {
		for _, e := range m.GetEntries() {
			if size += len(e.GetData()); size >= largeAppend {
				return true
			}
		}
	}
	return false
}

// deliver hands on what an appended batch results in: the responses to this node and to the peers, in order for each
// receiver.
func (n *Node) deliver(batch, responses []*raftpb.Message) {
	for _, m := range batch {
		if snap := m.GetSnapshot(); !raft.IsEmptySnap(snap) {
			n.applying.Add(1)
			n.applies.put(applyJob{snap: snap})
		}
	}
	remote := make([]*raftpb.Message, 0, len(responses))
	local := make([]input, 0, len(responses))
	for _, r := range responses {
		if r.GetTo() == n.cfg.ID {
			local = append(local, input{m: r, local: true})
		} else {
			remote = append(remote, r)
		}
	}
	if len(remote) > 0 {
		n.cfg.Send(remote)
	}
	n.inbox.put(local...)
}

// apply runs on the apply goroutine, or on the loop while that has nothing to do.
func (n *Node) apply(job applyJob) error {
	switch {
	case job.snap != nil:
		if err := n.applier.snapshot(job.snap); err != nil {
			return err
		}
	case job.matches:
		n.cfg.OnMatch(*n.matches.Swap(nil))
		return nil
	default:
		if err := n.applier.process(job.m); err != nil {
			return err
		}
	}
	n.applyWaits.reach(n.pub.applied.Load())
	for _, r := range job.m.GetResponses() {
		n.inbox.put(input{m: r, local: true})
	}
	return nil
}

// changeMembership runs on the apply goroutine.
func (n *Node) changeMembership(cc raftpb.ConfChangeI) (*raftpb.ConfState, error) {
	var cs *raftpb.ConfState
	if err := n.do(context.Background(), func(c *core) { cs = c.applyConfChange(cc) }, nil); err != nil {
		return nil, err // the loop may still be writing cs
	}
	return cs, nil
}

// do runs f on the loop, and waits for it as await does.
func (n *Node) do(ctx context.Context, f func(*core), late error) error {
	done := make(chan struct{})
	n.inbox.put(input{call: func(c *core) {
		f(c)
		close(done)
	}})
	return n.await(ctx, done, late)
}

// await waits for what was started on the loop; what is done counts also when ctx is. ErrStopped, or late with ctx's
// error.
func (n *Node) await(ctx context.Context, done <-chan struct{}, late error) error {
	select {
	case <-done:
		return nil
	case <-n.ctx.Done():
	case <-ctx.Done():
	}
	select {
	case <-done:
		return nil
	default:
	}
	if n.stopped() {
		return ErrStopped
	}
	return fmt.Errorf("%w: %w", late, ctx.Err())
}
