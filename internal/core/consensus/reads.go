package consensus

import (
	"crypto/rand"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// reads asks for read indexes. Callers that arrive before a request is sent share it; a request without an answer is
// repeated. The context of a request is this life's random number and a counter, so that an answer to an earlier life
// of this member is never taken for one of ours.
type reads struct {
	life    uint64
	next    uint64
	waiting []*readRequest           // not asked yet
	asked   map[uint64]*readRequests // by counter
}

type readRequest struct {
	done func(index uint64) // called on the loop; must not wait
	gone bool               // the caller gave up; only touched on the loop
}

// readRequests is what one read index request stands for: callers, a lease round, or both.
type readRequests struct {
	callers []*readRequest
	lease   bool
	start   int64 // CLOCK_BOOTTIME, ns, before the request was made
	term    uint64
	tick    uint64
}

// maxAskedReads bounds the requests in flight; callers wait for the next one meanwhile.
const maxAskedReads = 64

func (r *reads) init() {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	r.life = binary.LittleEndian.Uint64(b[:])
	r.asked = make(map[uint64]*readRequests)
}

// flushReads asks for everything that waits, if a leader can answer.
func (c *core) flushReads() {
	r := &c.reads
	r.waiting = slices.DeleteFunc(r.waiting, func(q *readRequest) bool { return q.gone })
	if len(r.waiting) == 0 || len(r.asked) >= maxAskedReads || !c.canAskRead() {
		return
	}
	c.ask(&readRequests{callers: slices.Clone(r.waiting)})
	clear(r.waiting)
	r.waiting = r.waiting[:0]
}

// canAskRead: a follower without a leader would have its request dropped by raft; a leader that is the only voter and
// has not committed in its term would answer with an old commit index.
func (c *core) canAskRead() bool {
	if c.state.Role == Leader {
		return c.committedInTerm()
	}
	return c.state.Leader != 0
}

// ask starts one round.
func (c *core) ask(q *readRequests) {
	r := &c.reads
	r.next++
	q.start, q.term, q.tick = c.cfg.Clock(), c.state.Term, c.ticks
	r.asked[r.next] = q
	ctx := make([]byte, 16)
	binary.LittleEndian.PutUint64(ctx, r.life)
	binary.LittleEndian.PutUint64(ctx[8:], r.next)
	c.rn.ReadIndex(ctx)
}

// confirmRead takes raft's answer.
func (c *core) confirmRead(rs raft.ReadState) {
	r := &c.reads
	if len(rs.RequestCtx) != 16 || binary.LittleEndian.Uint64(rs.RequestCtx) != r.life {
		return
	}
	n := binary.LittleEndian.Uint64(rs.RequestCtx[8:])
	q := r.asked[n]
	if q == nil {
		return // answered late: it was asked again meanwhile
	}
	delete(r.asked, n)
	if c.state.Role == Leader && c.state.Term == q.term {
		c.lease.proven = max(c.lease.proven, q.tick)
	}
	for _, caller := range q.callers {
		caller.done(rs.Index)
	}
	if q.lease {
		c.extendLease(q)
	}
}

// reissue queues the callers of unanswered requests again.
func (r *reads) reissue(lost func(*readRequests) bool) {
	for _, n := range slices.Sorted(maps.Keys(r.asked)) { // those who have waited longest go first
		if q := r.asked[n]; lost(q) {
			r.waiting = append(r.waiting, q.callers...)
			delete(r.asked, n)
		}
	}
}

// tickReads repeats requests that got no answer within half an election timeout, forgets lease rounds that are too old
// to be worth anything, and starts the leader's lease rounds.
func (c *core) tickReads() {
	c.reads.reissue(func(q *readRequests) bool {
		age, timeout := c.ticks-q.tick, uint64(c.cfg.ElectionTicks)
		return age >= timeout/2 && len(q.callers) > 0 || age >= 2*timeout
	})
	c.tickBeat()
}

// lease is a leader's proof that it still leads (S10).
type lease struct {
	nextBeat uint64 // tick
	begun    bool   // a first round was started in this term
	proven   uint64 // tick at which the newest round began that a majority has answered
	// notBefore is a moment of CLOCK_BOOTTIME: rounds started earlier prove nothing any more.
	notBefore int64
	// suspendedTill is the tick until which no round proves anything, because a transfer was begun.
	suspendedTill uint64
}

// tickBeat sends the leader's heartbeats. Raft broadcasts one for every read index request, so a lease round is the
// heartbeat. Raft's own timer is set so long that it does not fire in addition.
func (c *core) tickBeat() {
	if c.state.Role != Leader || c.ticks < c.lease.nextBeat {
		return
	}
	c.lease.nextBeat = c.ticks + uint64(c.cfg.HeartbeatTicks)
	// A lone voter's raft answers by itself, without a broadcast; its learners still need one.
	if !c.leaseRound() || c.isAlone() {
		// Raft accepts this local message only from a storage thread; it offers a driver with its own timer no better
		// way.
		c.step(&raftpb.Message{Type: raftpb.MsgBeat.Enum(), From: new(raft.LocalAppendThread)})
	}
}

// beginLease starts a round as soon as a new leader has committed in its term.
func (c *core) beginLease() {
	if c.state.Role == Leader && !c.lease.begun && c.leaseRound() {
		c.lease.begun, c.lease.proven = true, c.ticks
	}
}

// tickQuorum makes a leader step down that no majority has answered for an election timeout. Raft's own check takes up
// to two. A leader that is heard but hears nothing keeps the others from electing a better one for that long. It then
// asks for votes, which tells them.
func (c *core) tickQuorum() {
	if c.state.Role != Leader || !c.lease.begun || c.ticks-c.lease.proven <= uint64(c.cfg.ElectionTicks) {
		return
	}
	// The first check records who has answered since raft's last check, the next ones decide. See tickBeat for From.
	c.step(&raftpb.Message{Type: raftpb.MsgCheckQuorum.Enum(), From: new(raft.LocalAppendThread)})
	if c.stateNow().Role == Follower {
		c.log.Info("stepping down: no majority has answered for an election timeout", "term", c.state.Term)
		c.campaign()
	}
}

// leaseRound starts a quorum round, if it can be answered.
func (c *core) leaseRound() bool {
	if !c.committedInTerm() || len(c.reads.asked) >= maxAskedReads {
		return false
	}
	c.ask(&readRequests{lease: true})
	return true
}

// extendLease counts a confirmed round from its start.
func (c *core) extendLease(q *readRequests) {
	if c.state.Role != Leader || c.state.Term != q.term || q.start < c.lease.notBefore || c.ticks < c.lease.suspendedTill {
		return
	}
	timeout := c.cfg.electionTimeout()
	if least := time.Duration(c.pub.leastTimeout.Load()); least != 0 {
		timeout = min(timeout, least)
	}
	until := q.start + int64(leaseOf(timeout))
	if until > c.pub.lease.Load() {
		c.pub.lease.Store(until)
	}
}

// dropLease ends the lease; a round started from now on may give a new one.
func (c *core) dropLease() {
	c.pub.lease.Store(0)
	c.lease.notBefore = c.cfg.Clock()
}

// suspendLease ends the lease when a voter is told to take over: the voter will be elected although others have heard
// this leader. Rounds prove nothing until the transfer has failed (after one election timeout) and its message can
// hardly be under way any more.
func (c *core) suspendLease() {
	c.dropLease()
	c.lease.suspendedTill = c.ticks + 3*uint64(c.cfg.ElectionTicks)
}

// leaseWithout ends the lease if it may rest on the answer of a member whose process is reported dead, and starts a
// round with the others at once.
func (c *core) leaseWithout(id uint64) {
	if _, voter := c.rn.Status().Config.Voters.IDs()[id]; !voter {
		return
	}
	c.dropLease()
	c.leaseRound()
}
