package consensus

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/failpoint"
	"trireme/internal/base/mutant"
)

// Node is a running member of the Raft group. All methods are safe for concurrent use.
type Node struct {
	cfg   Config
	core  *core // owned by the raft goroutine
	pub   published
	quota *quota

	inbox   *inbox
	appends *queue[*raftpb.Message]
	applies *queue[applyJob]
	states  *queue[State]

	appender *appender
	applier  *applier

	commitOnly      commitOnlyAppends // both owned by the raft goroutine
	commitOnlyArmed bool
	after           func(time.Duration, func()) // calls back after that time, on any goroutine

	matches atomic.Pointer[Matches] // the newest, not yet reported to OnMatch; nil: none, and no job for it

	commitWaits indexWaits
	applyWaits  indexWaits

	stop     chan struct{}
	stopOnce sync.Once
	fatal    sync.Once
	wg       sync.WaitGroup
}

// applyJob is either committed entries, a snapshot that replaced the log, or news of the voters' logs.
type applyJob struct {
	m       *raftpb.Message
	snap    *raftpb.Snapshot
	matches bool // in Node.matches
}

// maxQueuedStates bounds how many changes OnSoftState may lag by.
const maxQueuedStates = 1024

// Start opens the member on what Storage holds. bootstrapPeers is given once in the life of a cluster, by its very
// first node and with an empty log: it puts the first membership into the log, where every later member finds it. A
// joining node starts with an empty log and without peers, and waits for the leader.
func Start(cfg Config, bootstrapPeers []raft.Peer) (*Node, error) {
	n, err := newNode(cfg, bootstrapPeers)
	if err != nil {
		return nil, err
	}
	n.after = func(d time.Duration, f func()) { time.AfterFunc(d, f) }
	n.applier.change = n.changeMembership
	for _, run := range []func(){n.runRaft, n.runAppend, n.runApply, n.runStates} {
		n.wg.Add(1)
		go func() {
			defer n.wg.Done()
			run()
		}()
	}
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
		inbox:      newInbox(cfg.MaxReceivedBytes),
		appends:    newQueue[*raftpb.Message](),
		applies:    newQueue[applyJob](),
		states:     newQueue[State](),
		commitOnly: newCommitOnlyAppends(),
		stop:       make(chan struct{}),
	}
	if n.core, err = startCore(&n.cfg, st, bootstrapPeers, &n.pub); err != nil {
		return nil, err
	}
	n.quota = n.core.props.quota
	n.appender = newAppender(&n.cfg, st, &n.pub)
	n.applier = newApplier(&n.cfg, st, &n.pub)
	n.commitWaits.reach(n.core.commit)
	n.applyWaits.reach(st.applied)
	return n, nil
}

// startCore turns a panic of raft, by which raft reports that the data on disk is inconsistent, into an error.
func startCore(cfg *Config, st *start, peers []raft.Peer, pub *published) (c *core, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrStorageInconsistent, p)
		}
	}()
	return newCore(cfg, st, peers, pub)
}

// Stop ends the node and waits for its goroutines. Callers in flight get ErrStopped. The peers are not told.
func (n *Node) Stop() {
	n.halt()
	n.wg.Wait()
}

// halt makes everything stop without waiting.
func (n *Node) halt() {
	n.stopOnce.Do(func() { close(n.stop) })
	n.inbox.end()
}

// fail reports the end of this node once and stops it.
func (n *Node) fail(err error) {
	n.fatal.Do(func() {
		n.cfg.Logger.Error("consensus failed", "term", n.Status().Term, "err", err)
		n.halt()
		n.pub.lease.Store(0)
		if mutant.S13 {
			return
		}
		n.cfg.OnFatal(err)
	})
}

// Done is closed when the node has stopped or failed.
func (n *Node) Done() <-chan struct{} { return n.stop }

// guard turns a panic on one of the node's goroutines (raft's way to report a broken invariant) into a fatal error.
func (n *Node) guard() {
	if p := recover(); p != nil {
		n.fail(fmt.Errorf("%w: %v\n%s", ErrInvariant, p, debug.Stack()))
	}
}

// runRaft is the raft goroutine.
func (n *Node) runRaft() {
	defer n.guard()
	defer n.core.abandon()
	ticker := time.NewTicker(n.cfg.TickInterval)
	defer ticker.Stop()
	var out output
	for {
		ticked := false
		select {
		case <-n.stop:
			return
		case <-n.inbox.wake:
		case <-ticker.C:
			ticked = true
			failpoint.Pace(ticker, n.cfg.TickInterval)
		}
		if err := n.turn(ticked, &out); err != nil {
			n.fail(err)
			return
		}
	}
}

// turn handles everything queued, then the tick: a node that was held up must see the heartbeats that waited for it
// before it counts the time.
func (n *Node) turn(ticked bool, out *output) error {
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
	if err := n.core.advance(out); err != nil {
		return err
	}
	// Peers first: their fsync runs in parallel with ours.
	if sends := n.commitOnly.filter(out.sends); len(sends) > 0 {
		failpoint.Hit("raft.before-send")
		n.cfg.Send(sends)
		if len(out.appends) > 0 {
			// let the links write now: the append goroutine was woken last, so it would run first and take this thread
			// to the disk
			runtime.Gosched()
		}
	}
	n.armCommitOnly()
	n.appends.put(out.appends...)
	if m := n.core.grownMatches(); m != nil && n.matches.Swap(m) == nil {
		n.applies.put(applyJob{matches: true})
	}
	for _, m := range out.applies {
		n.applies.put(applyJob{m: m})
	}
	n.states.put(out.states...)
	out.reset()
	n.commitWaits.reach(n.core.commit)
	return nil
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

// runAppend is the append goroutine: everything that has queued up while the disk was busy shares the next sync.
func (n *Node) runAppend() {
	defer n.guard()
	for {
		batch := n.appends.next(n.stop)
		if batch == nil {
			return
		}
		failpoint.Hit("raft.before-append")
		n.pub.appending.Store(n.cfg.Clock())
		responses, err := n.appender.process(batch)
		n.pub.appending.Store(0)
		if err != nil {
			n.fail(err)
			return
		}
		failpoint.Hit("raft.before-respond")
		n.deliver(batch, responses)
	}
}

// deliver hands on what an appended batch results in: the responses to this node and to the peers, in order for each
// receiver.
func (n *Node) deliver(batch, responses []*raftpb.Message) {
	for _, m := range batch {
		if snap := m.GetSnapshot(); !raft.IsEmptySnap(snap) {
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

// runApply is the apply goroutine.
func (n *Node) runApply() {
	defer n.guard()
	for {
		batch := n.applies.next(n.stop)
		if batch == nil {
			return
		}
		for _, job := range batch {
			if err := n.apply(job); err != nil {
				if !errors.Is(err, ErrStopped) {
					n.fail(err)
				}
				return
			}
		}
	}
}

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
	if err := n.do(context.Background(), func(c *core) { cs = c.applyConfChange(cc) }); err != nil {
		return nil, err // the raft goroutine may still be writing cs
	}
	return cs, nil
}

// runStates is the state goroutine.
func (n *Node) runStates() {
	defer n.guard()
	for {
		batch := n.states.next(n.stop)
		if batch == nil {
			return
		}
		for _, s := range batch[max(0, len(batch)-maxQueuedStates):] {
			n.cfg.OnSoftState(s)
		}
	}
}

// do runs f on the raft goroutine and waits for it.
func (n *Node) do(ctx context.Context, f func(*core)) error {
	done := make(chan struct{})
	n.inbox.put(input{call: func(c *core) {
		f(c)
		close(done)
	}})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.stop:
		return ErrStopped
	}
}
