package sim

import (
	"fmt"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/consensus"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/transport"
)

// Top is what runs above consensus on one machine; see the package comment. It lives as long as the machine's disk.
type Top interface {
	// Opening begins a life of the daemon, before its log is open; after an error there is none.
	Opening() error
	// LogOpened is called when the log is open and nothing runs on it.
	LogOpened() error
	// Generation is what the node says of itself to others in this life, and OtherGeneration tells that a node of another
	// one is there, as transport.Handler has it.
	Generation() transport.Generation
	OtherGeneration(from uint64, theirs transport.Generation)
	// Takes says whether a message of another node's raft is taken.
	Takes(from uint64) bool
	// Start goes on with a life of the daemon: the log is open. It returns up to which index Committed is not wanted again
	// (consensus.Config.Applied).
	Start() (applied uint64, err error)
	// Committed gets committed entries in order, as consensus.Config.OnCommitted.
	Committed(entries []*raftpb.Entry)
	// Snapshot tells that the log was replaced, as consensus.Config.OnSnapshot.
	Snapshot(snap *raftpb.Snapshot)
	// Matched tells what a leader knows of the voters' logs, as consensus.Config.OnMatch.
	Matched(m consensus.Matches)
	// CampaignDelay is consensus.Config.CampaignDelay.
	CampaignDelay(lost uint64) time.Duration
	// State tells of a change of role, term or leader.
	State(s consensus.State)
	// Asked tells that the leader of a term asks this node to take over.
	Asked(term uint64)
	// PeerGone tells that the process of another node is seen to be gone.
	PeerGone(id uint64)
	// Told gets what another node's Top gave to Tell.
	Told(from uint64, what any)
	// Crash ends the life of the daemon, with power that of everything on the machine.
	Crash(power bool)
	// PurgeBelow is the index up to which the log may be purged now.
	PurgeBelow() uint64
	// MayChange says, on the leader, whether the voters out may give up their votes when in get one.
	MayChange(in, out []uint64) bool
	// Finish is called once at the very end, when everything has come to rest, on machines that are up.
	Finish()
}

// Node is a machine of the cluster.
type Node struct {
	ID  uint64
	w   *World
	top Top
	disk
	clock clock

	// A life of the daemon.
	life    uint64
	up      bool
	paused  bool
	stalled []func() // what would have happened while paused
	missed  bool     // a tick came while paused
	log     *raftlog.Log
	st      *consensus.Stepper
	status  consensus.Status // after the last piece of work
	turning bool             // a turn is due
	syncing bool             // between BeginAppend and EndAppend
	working bool             // an apply is due
	// confFrom is the entry of the membership that was in force when this life began: that of older ones cannot be seen.
	confFrom uint64
	confAt   uint64 // the entry of the membership in force
	// halted: raft is stopped for the rest of this life, and the log is at rest once it is not syncing any more.
	halted     bool
	generation transport.Generation
	met        map[uint64]int64 // before when the node and another one, of another generation, do not try to meet again

	lost    bool   // the disk is gone or unusable: the id never comes back
	lostWhy string // for the trace
	founder bool   // member of the first configuration
	off     bool   // the machine is switched off, until powerOn
}

const logDir = "/raft"

// clusterID is written into every log.
const clusterID = 0x5117

func (w *World) addNode(founder bool) *Node {
	n := &Node{ID: uint64(len(w.nodes) + 1), w: w, founder: founder, met: map[uint64]int64{}}
	n.disk.init(n)
	n.clock.rate = w.clockRate(w.rnd)
	n.clock.base = int64(time.Hour) + w.rnd.Int64N(int64(time.Hour))
	w.nodes = append(w.nodes, n)
	w.net.grow(len(w.nodes))
	w.check.addNode()
	n.top = w.opts.newTop(n)
	return n
}

// Log is the node's log, in the life that goes on.
func (n *Node) Log() *raftlog.Log { return n.log }

// Life counts the lives of the daemon.
func (n *Node) Life() uint64 { return n.life }

// Status is what consensus says of itself.
func (n *Node) Status() consensus.Status { return n.status }

// Clock is the node's CLOCK_BOOTTIME in nanoseconds.
func (n *Node) Clock() int64 { return n.clock.at(n.w.now) }

// HoldsLease reports whether the node holds a lease now.
func (n *Node) HoldsLease() bool { return n.up && n.st.HoldsLease() }

// LeaseUntil is when the lease ends on the node's clock; 0: it holds none.
func (n *Node) LeaseUntil() int64 { return n.st.LeaseUntil() }

func (n *Node) leads() bool { return n.status.Role == consensus.Leader }

// After calls f once d has passed on the node's clock, in this life only.
func (n *Node) After(d time.Duration, f func()) { n.in(n.clock.true(d), f) }

// in lets f happen after d of true time, in this life, and not while the process is stopped.
func (n *Node) in(d time.Duration, f func()) {
	life := n.life
	n.w.At(d, func() { n.run(life, f) })
}

// run lets f happen now, in this life, once the process is not stopped.
func (n *Node) run(life uint64, f func()) {
	switch {
	case n.life != life || !n.up:
	case n.paused:
		n.stalled = append(n.stalled, f)
	default:
		f()
	}
}

func (n *Node) tickLater() {
	life := n.life
	n.w.At(n.clock.true(tickInterval), func() {
		if n.life != life || !n.up {
			return
		}
		n.tickLater()
		if n.paused {
			n.missed = true
			return
		}
		n.st.Tick()
		n.turn()
	})
}

// wake makes sure that what was given to consensus is looked at.
func (n *Node) wake() {
	if !n.up || n.halted || n.turning || n.st.Idle() {
		return
	}
	n.turning = true
	n.in(time.Duration(2+n.w.rnd.IntN(30))*time.Microsecond, func() {
		n.turning = false
		n.turn()
	})
}

// turn lets raft do what waits for it.
func (n *Node) turn() {
	if n.disk.powerCut { // what met it may have been a task that only tries again
		n.cutOff()
		return
	}
	if n.halted {
		return
	}
	if err := n.st.Turn(); err != nil {
		n.fatal(err)
		return
	}
	n.after()
}

// after is called when the node has done a piece of work: what it leads to is scheduled, and everything is checked.
func (n *Node) after() {
	if !n.up || n.halted {
		return
	}
	n.status = n.st.Status()
	if n.st.WantsAppend() && !n.syncing {
		n.syncing = true
		n.in(time.Duration(1+n.w.rnd.IntN(10))*time.Microsecond, n.beginAppend)
	}
	if n.st.WantsApply() && !n.working {
		n.working = true
		n.in(n.applyDelay(), n.apply)
	}
	n.w.check.node(n)
	n.wake()
}

func (n *Node) beginAppend() {
	if n.halted {
		n.syncing = false
		return
	}
	n.w.count(cAppends)
	if err := n.st.BeginAppend(); err != nil {
		n.fatal(err)
		return
	}
	n.in(n.disk.syncTime(), n.endAppend)
	n.after()
}

func (n *Node) endAppend() {
	if n.disk.hung > 0 { // it goes on when the disk does
		n.in(20*time.Millisecond, n.endAppend)
		return
	}
	n.syncing = false
	end := n.st.EndAppend
	if n.halted {
		end = (&store{n.log, n}).Sync
	}
	if err := end(); err != nil {
		n.fatal(err)
		return
	}
	n.after()
}

func (n *Node) applyDelay() time.Duration {
	if n.w.rnd.IntN(50) == 0 {
		return time.Duration(n.w.rnd.IntN(20)) * time.Millisecond
	}
	return time.Duration(5+n.w.rnd.IntN(100)) * time.Microsecond
}

func (n *Node) apply() {
	n.working = false
	if n.halted {
		return
	}
	if err := n.st.Apply(); err != nil {
		n.fatal(err)
		return
	}
	n.after()
}

func (n *Node) committed(entries []*raftpb.Entry) error {
	if n.w.opts.broken.deliver && n.ID == 2 {
		entries = garbleAll(entries)
	}
	n.w.check.committed(n, entries)
	n.top.Committed(entries)
	return nil
}

func (n *Node) snapshot(s *raftpb.Snapshot) error {
	n.w.count(cSnapshots)
	n.confAt = max(n.confAt, s.GetMetadata().GetIndex())
	n.w.Tracef("%d: log replaced by a snapshot at %d", n.ID, s.GetMetadata().GetIndex())
	n.top.Snapshot(s)
	return nil
}

func (n *Node) softState(s consensus.State) {
	n.w.note(2, n.ID, uint64(s.Role), s.Term, s.Leader)
	n.w.Tracef("%d: %s of term %d, leader %d", n.ID, s.Role, s.Term, s.Leader)
	n.w.check.state(n, s)
	n.top.State(s)
}

// fatal is the end of a daemon that consensus has given up: after a failure of the disk it is started again, anything
// else is a bug.
func (n *Node) fatal(err error) {
	why, _, _ := strings.Cut(err.Error(), "\n") // a panic's stack holds addresses, which no seed repeats
	n.w.Tracef("%d: fails: %s", n.ID, why)
	switch {
	case n.disk.powerCut:
		n.cutOff()
	case n.disk.mayFail():
		n.w.count(cDiskFailures)
		n.end(false)
		n.fs.Kill()
		n.w.At(time.Second, n.start)
	// raft reports it by a panic, in words
	case n.rotten != "" && strings.Contains(err.Error(), raftlog.ErrCorrupt.Error()):
		n.w.count(cCorruptFound)
		n.lose("what had rotted was read")
	default:
		n.w.Violate("S13", "node %d: %v", n.ID, err)
	}
}

// end stops the daemon.
func (n *Node) end(power bool) {
	if n.st != nil {
		n.st.Stop()
	}
	wasUp := n.up
	n.halted = false
	n.up, n.paused, n.turning, n.syncing, n.working, n.missed, n.stalled = false, false, false, false, false, false, nil
	n.log, n.st = nil, nil
	n.life++
	if wasUp || power {
		n.top.Crash(power)
	}
}

// kill ends the process: the page cache survives.
func (n *Node) kill() {
	if !n.up {
		return
	}
	n.w.note(3, n.ID)
	n.w.Tracef("%d: killed", n.ID)
	n.w.count(cKills)
	n.end(false)
	n.fs.Kill()
	n.tellGone()
}

// powerLoss ends the machine: what was not synced is kept or lost at random.
func (n *Node) powerLoss() {
	n.w.note(4, n.ID)
	n.w.Tracef("%d: loses power", n.ID)
	n.w.count(cPowerLosses)
	n.end(true)
	n.fs.Crash(n.w.rnd)
	n.w.At(time.Duration(200+n.w.rnd.IntN(1500))*time.Millisecond, n.start)
}

// halt ends raft's work in this life. What is being synced is.
func (n *Node) halt() {
	n.st.Stop()
	n.halted = true
}

// lose ends the member for good.
func (n *Node) lose(why string) {
	if n.lost {
		return
	}
	n.w.Tracef("%d: lost for good: %s", n.ID, why)
	n.end(true)
	n.lost, n.lostWhy = true, why
	n.w.count(cLost)
	if n.w.sql != nil && n.w.sql.logger != 0 {
		n.w.Count("disks lost beside a logger", 1)
	}
}

// pause stops the process as SIGSTOP does.
func (n *Node) pause() {
	if n.up && !n.paused {
		n.w.Tracef("%d: stopped", n.ID)
		n.w.count(cPauses)
		n.paused = true
	}
}

// pauseFor stops the process for some time.
func (n *Node) pauseFor(d time.Duration) {
	n.pause()
	life := n.life
	n.w.At(d, func() {
		if n.life == life {
			n.resume()
		}
	})
}

// resume lets it go on.
func (n *Node) resume() {
	if !n.up || !n.paused {
		return
	}
	n.w.Tracef("%d: goes on", n.ID)
	n.paused = false
	stalled, life := n.stalled, n.life
	n.stalled = nil
	if n.missed {
		n.missed = false
		n.st.Tick()
	}
	for _, f := range stalled {
		if n.life == life && !n.w.done {
			f()
		}
	}
	n.wake()
}

// tellGone lets the others know that the process is dead, if they can see that.
func (n *Node) tellGone() {
	life := n.life
	for _, m := range n.w.nodes {
		if m == n || !m.up || m.generation.Number != n.generation.Number {
			continue
		}
		m.in(time.Duration(1+n.w.rnd.IntN(10))*time.Millisecond, func() {
			if n.up || n.life != life || n.w.net.cut(n.ID, m.ID) || n.w.net.cut(m.ID, n.ID) {
				return
			}
			n.w.count(cPeerGone)
			n.w.Tracef("%d: sees that the process of %d is gone", m.ID, n.ID)
			m.st.PeerGone(n.ID)
			m.wake()
			m.top.PeerGone(n.ID)
		})
	}
}

// Propose gives data to raft, in one term only unless term is 0. done is called with the outcome, or never if the life
// ends. giveUp takes it back; false: raft has it.
func (n *Node) Propose(term uint64, data []byte, done func(index, term uint64, err error)) (giveUp func() bool) {
	n.w.count(cProposals)
	defer n.wake()
	return n.st.Propose(term, data, done)
}

// Offer is consensus's. done is not called once the life has ended.
func (n *Node) Offer(term uint64, data []byte, done func(index, term uint64, err error), copied func()) (more bool) {
	n.w.count(cProposals)
	defer n.wake()
	return n.st.Offer(term, data, done, copied)
}

// ReadIndex is consensus's; the answer is checked to be no older than what was committed when it was asked for.
func (n *Node) ReadIndex(done func(index uint64)) {
	n.w.count(cReads)
	known := n.w.check.commit
	n.st.ReadIndex(func(index uint64) {
		if index < known && !n.past() {
			n.w.Violate("linearizable reads", "node %d was given read index %d, and %d had been committed when it asked", n.ID,
				index, known)
		}
		n.w.count(cReadsAnswered)
		done(index)
	})
	n.wake()
}

// Transfer hands leadership over.
func (n *Node) Transfer(to uint64, done func(error)) {
	n.w.count(cTransfers)
	n.w.Tracef("%d: hands leadership to %d", n.ID, to)
	n.st.TransferLeadership(to, done)
	n.wake()
}

// ConfChange proposes a change of membership.
func (n *Node) ConfChange(cc *raftpb.ConfChangeV2, done func(error)) {
	n.w.count(cChangesAsked)
	n.w.Tracef("%d: proposes %s", n.ID, describe(cc))
	n.st.ProposeConfChange(cc, done)
	n.wake()
}

func describe(cc *raftpb.ConfChangeV2) string {
	s := cc.GetTransition().String()
	for _, c := range cc.GetChanges() {
		s += fmt.Sprintf(" %s %d", c.GetType(), c.GetNodeId())
	}
	return s
}

// clock is a node's CLOCK_BOOTTIME.
type clock struct {
	base, since int64 // it showed base at the true moment since
	rate        float64
}

func (c *clock) at(now int64) int64 { return c.base + int64(float64(now-c.since)*c.rate) }

// true is how long d takes.
func (c *clock) true(d time.Duration) time.Duration { return time.Duration(float64(d) / c.rate) }

func (c *clock) setRate(now int64, rate float64) {
	c.base, c.since, c.rate = c.at(now), now, rate
}
