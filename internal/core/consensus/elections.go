package consensus

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// elections makes an election quick once the leader is lost: the best candidate campaigns at once
// (Config.CampaignDelay), the others later, and requests without an answer are repeated. Raft's own random timeouts,
// twice as long, stay in force. All that happens here is a campaign that starts earlier than raft would start it. It
// goes through pre-vote, so it disturbs no leader.
//
// A voter refuses votes as long as it knows a leader, as raft does (CheckQuorum). So the promise on which the lease
// rests ends when the voter forgets the leader. The leader is lost when its process is known to be dead (peerGone),
// when it has been silent for an election timeout, or when it asks for a vote, which shows that it does not lead any
// more.
type elections struct {
	heard uint64 // tick at which the leader was last heard
	since int    // ticks since the last campaign of this node
	due   uint64 // tick at which this node campaigns unless there is a leader; 0: never
	lost  uint64 // the leader that was lost last
	// asked holds the requests of the current campaign, or the request to take over. Those without an answer are
	// repeated: a second campaign would throw away the answers to the first.
	asked  []*raftpb.Message
	repeat bool
	// deferring: a better candidate asks for pre-votes as well. This node accepts none meanwhile, because both would
	// split the votes.
	deferring bool
	// Until tick backoffUntil this node does not campaign against a candidate that it has answered. Until tick
	// votedUntil, having voted, it answers no other candidate's pre-vote.
	backoffUntil, votedUntil uint64
	// promised is the tick until which this node neither votes nor campaigns by itself: an earlier life of it may have
	// answered a leader whose lease counts on that answer, and this life does not remember (S10).
	promised uint64
	// turned is when the last turn began. If a turn begins late, because the process was stopped or starved, messages
	// that hand leadership over are ignored until stale: they may have waited meanwhile, and the leader's lease no
	// longer takes them into account (S10).
	turned, stale int64
	// held are votes asked for while this node still knew the leader. A peer may learn of the leader's death a moment
	// earlier; its request is looked at again when this node learns of the death too.
	held []heldVote
}

type heldVote struct {
	m    *raftpb.Message
	tick uint64
}

// maxHeldVotes bounds elections.held; more peers than this do not ask at once.
const maxHeldVotes = 16

// noteLeader is called when a leader appears.
func (e *elections) noteLeader(tick uint64) {
	e.heard, e.since, e.due, e.lost, e.asked, e.deferring, e.backoffUntil, e.votedUntil = tick, 0, 0, 0, nil, false, 0, 0
}

// noteTurn is called when a turn begins. What waited in the system's buffers arrives in one of the turns after the late
// one.
func (e *elections) noteTurn(now, timeout int64) {
	if e.turned != 0 && now-e.turned > timeout {
		e.stale = now + timeout
	}
	e.turned = now
}

// isStale reports whether a message may hand over leadership that the leader has taken back meanwhile.
func (e *elections) isStale(m *raftpb.Message) bool {
	return e.turned < e.stale && (m.GetType() == raftpb.MsgTimeoutNow || string(m.GetContext()) == handedOver)
}

// hear takes a sign of life from the leader; the first one of a new leader makes it known. c.state may be older than
// what raft knows: a message that raft rejects as too old only delays the next election by itself.
func (c *core) hear(m *raftpb.Message) {
	if m.GetTerm() >= c.state.Term {
		c.elections.heard = c.ticks
	}
}

// receiveVote handles MsgVote and MsgPreVote.
func (c *core) receiveVote(m *raftpb.Message) {
	before := c.stateNow()
	if c.ticks < c.elections.promised && before.Leader == 0 && string(m.GetContext()) != handedOver {
		return // the candidate asks again
	}
	if before.Leader != 0 && before.Leader != c.cfg.ID && m.GetTerm() > before.Term {
		if m.GetFrom() == before.Leader {
			// It asks for a later term's vote, so it no longer leads this term, and its lease has ended: no voter needs
			// to wait for its silence. The request may be the only sign: a leader that receives nothing may still send
			// heartbeats that the others hear.
			c.log.Info("forgetting the leader: it asks for votes itself", "term", before.Term, "leader", before.Leader)
			c.leaderLost(before.Leader)
			return
		}
		c.hold(m)
	}
	if c.ticks < c.elections.votedUntil && m.GetType() == raftpb.MsgPreVote && before.Leader == 0 {
		return // an election is under way that may succeed: another one would only depose the winner
	}
	c.step(m)
	c.noteVote(m)
	c.standBack(m)
	c.outbid(m)
}

// handedOver is the context of a vote that the leader itself has asked for by handing leadership over: its lease has
// ended before (suspendLease). The value is raft's campaignTransfer.
const handedOver = "CampaignTransfer"

// noteVote records a request for a vote, and the vote if it was given.
func (c *core) noteVote(m *raftpb.Message) {
	e, bs := &c.elections, c.rn.BasicStatus()
	if m.GetType() != raftpb.MsgVote || bs.GetTerm() != m.GetTerm() || bs.Lead != 0 {
		return
	}
	if m.GetFrom() == e.lost {
		e.lost = 0 // a majority has answered its pre-vote, so it can hear: see standBack
	}
	if bs.GetVote() == m.GetFrom() {
		e.votedUntil = c.ticks + uint64(c.cfg.ElectionTicks)/2
	}
}

// standBack keeps this node from campaigning against a candidate that it votes for: both at once would split the votes.
// If two ask for pre-votes, the one with the longer log continues; with equal logs, the one with the lower id. The
// leader that was lost does not count, because it may be unable to hear that it has won. Once it asks for votes it has
// heard answers, and counts. Otherwise, where every remaining voter is needed, the two would split the votes forever,
// each half an election timeout after the last time.
func (c *core) standBack(m *raftpb.Message) {
	e := &c.elections
	if m.GetFrom() == e.lost || c.longerThan(m) {
		return
	}
	equal := c.lastTerm == m.GetLogTerm() && c.lastIndex == m.GetIndex()
	switch {
	case c.rn.BasicStatus().RaftState == raft.StatePreCandidate:
		e.deferring = e.deferring || !equal || m.GetFrom() < c.cfg.ID
	default:
		e.backoffUntil = c.ticks + uint64(c.cfg.ElectionTicks)/2
	}
}

// longerThan reports whether this node's log is longer than a candidate's.
func (c *core) longerThan(m *raftpb.Message) bool {
	return c.lastTerm > m.GetLogTerm() || c.lastTerm == m.GetLogTerm() && c.lastIndex > m.GetIndex()
}

// hold keeps a vote request that raft is about to ignore, in case this node learns of the leader's death too.
func (c *core) hold(m *raftpb.Message) {
	e := &c.elections
	e.held = slices.DeleteFunc(e.held, func(h heldVote) bool {
		return h.m.GetFrom() == m.GetFrom() || c.ticks-h.tick > c.heldFor()
	})
	if len(e.held) < maxHeldVotes {
		e.held = append(e.held, heldVote{m, c.ticks})
	}
}

// heldFor is the number of ticks for which a held request may still be answered.
func (c *core) heldFor() uint64 { return uint64(2 * c.cfg.HeartbeatTicks) }

// outbid campaigns when a candidate's log is shorter than ours and there is no leader: that candidate cannot win, and
// without outbid two survivors would wait for an election timeout. If others can outbid it too, they take turns.
func (c *core) outbid(m *raftpb.Message) {
	now := c.stateNow()
	if now.Role != Follower || now.Leader != 0 || !c.isVoter() || !c.longerThan(m) {
		return
	}
	e := &c.elections
	if c.ticks < e.backoffUntil {
		return
	}
	turn := c.ticks + c.turn(m.GetFrom(), e.lost)*uint64(c.cfg.HeartbeatTicks)
	if e.due == 0 || turn < e.due {
		c.log.Info("campaigning: a candidate's log is shorter than ours", "term", now.Term, "index", c.lastIndex, "candidate",
			m.GetFrom())
		e.due = turn
	}
	if c.ticks >= e.due {
		c.campaign()
	}
}

// turn is this node's place among the voters, leaving two of them out.
func (c *core) turn(without, and uint64) uint64 {
	s := c.pub.state.Load()
	n := uint64(0)
	for _, id := range s.Voters {
		if id < s.ID && id != without && id != and {
			n++
		}
	}
	return n
}

func (c *core) campaign() {
	e := &c.elections
	if c.ticks < e.promised && !c.isAlone() {
		e.due = e.promised
		return
	}
	e.since, e.due, e.asked, e.deferring = 0, 0, nil, false
	if err := c.rn.Campaign(); err != nil {
		c.log.Debug("raft refused to campaign", "err", err)
	}
}

// tickElection notices that the leader is silent, repeats requests for votes that may have been lost, and campaigns
// when it is time. A split vote is repeated after half an election timeout, one member after the other.
func (c *core) tickElection() {
	e := &c.elections
	e.since++
	bs := c.rn.BasicStatus()
	again := c.cfg.ElectionTicks/2 + int(c.turn(e.lost, 0)%4)*c.cfg.HeartbeatTicks
	switch {
	case bs.RaftState == raft.StateLeader:
		e.repeat = len(c.transfers) > 0 && c.again()
	case bs.RaftState == raft.StatePreCandidate || bs.RaftState == raft.StateCandidate:
		if e.since >= again && (e.deferring || bs.RaftState == raft.StateCandidate) {
			c.campaign()
			return
		}
		e.repeat = !e.deferring && c.again()
	case bs.Lead != 0:
		if c.ticks-e.heard > uint64(c.cfg.ElectionTicks) {
			c.log.Info("forgetting the leader: it is silent", "term", bs.GetTerm(), "leader", bs.Lead)
			c.leaderLost(bs.Lead)
		}
	case e.due == 0 && c.isVoter(): // no leader has been known yet, or this node's campaign was refused
		e.due = c.ticks + uint64(again)
		if e.lost == 0 {
			e.due += uint64(c.cfg.ElectionTicks) / 2
		}
	case e.due != 0 && c.ticks >= max(e.due, e.backoffUntil):
		c.campaign()
	}
}

// again is true at every second heartbeat.
func (c *core) again() bool { return c.ticks%uint64(2*c.cfg.HeartbeatTicks) == 0 }

// noteAsked keeps the requests of a campaign, or of a transfer, that begins. Raft campaigns by itself as well, for the
// same term while no voter answers: its new requests replace the earlier ones.
func (c *core) noteAsked(m *raftpb.Message) {
	t := m.GetType()
	if t != raftpb.MsgPreVote && t != raftpb.MsgVote && t != raftpb.MsgTimeoutNow {
		return
	}
	e := &c.elections
	again := slices.ContainsFunc(e.asked, func(o *raftpb.Message) bool {
		return o.GetType() != t || o.GetTerm() != m.GetTerm() || o.GetTo() == m.GetTo()
	})
	if again || t == raftpb.MsgTimeoutNow {
		e.asked = nil
	}
	e.asked = append(e.asked, m)
}

// repeatAsked repeats the requests.
func (c *core) repeatAsked(out *output) {
	e := &c.elections
	if e.repeat && len(e.asked) > 0 {
		if e.asked[0].GetType() == raftpb.MsgTimeoutNow {
			c.suspendLease() // before it is sent
		}
		out.sends = append(out.sends, e.asked...)
	}
	e.repeat = false
}

// peerGone records that the process of a member is dead.
func (c *core) peerGone(id uint64) {
	c.rn.ReportUnreachable(id)
	st := c.stateNow()
	switch {
	case st.Role == Leader:
		c.leaseWithout(id)
	case st.Leader == id:
		c.log.Info("forgetting the leader: its process is gone", "term", st.Term, "leader", id)
		c.leaderLost(id)
	}
}

// leaderLost forgets the leader, answers the votes that were asked for a moment too early, and campaigns when it is
// this node's turn.
func (c *core) leaderLost(id uint64) {
	e := &c.elections
	e.lost, e.due = id, 0
	if c.isVoter() {
		e.due = c.ticks + c.campaignTicks(id)
	}
	if err := c.rn.ForgetLeader(); err != nil {
		c.log.Debug("raft refused to forget the leader", "err", err)
	}
	held := e.held
	e.held = nil
	for _, h := range held {
		if c.ticks-h.tick <= c.heldFor() {
			c.step(h.m)
			c.standBack(h.m)
			c.outbid(h.m)
		}
	}
	if e.due == c.ticks && e.backoffUntil <= c.ticks && c.stateNow().Role == Follower {
		c.campaign()
	}
}

// transfer is a caller that waits for leadership to move.
type transfer struct {
	to       uint64
	term     uint64
	deadline uint64      // tick
	done     func(error) // called on the loop; must not wait
}

// startTransfer hands leadership to a voter, once it has the whole log. It is given up after one election timeout.
func (c *core) startTransfer(t *transfer) {
	st := c.stateNow()
	if st.Role != Leader {
		t.done(ErrNotLeader)
		return
	}
	rs := c.rn.Status()
	if _, voter := rs.Config.Voters.IDs()[t.to]; !voter {
		t.done(fmt.Errorf("%w: member %d is not a voter", ErrTransferFailed, t.to))
		return
	}
	if t.to == c.cfg.ID {
		t.done(nil)
		return
	}
	t.term = st.Term
	t.deadline = c.ticks + uint64(c.cfg.ElectionTicks) + 2
	if c.rn.BasicStatus().LeadTransferee != t.to {
		c.elections.asked = nil // the members that an earlier transfer asked are not asked again
	}
	c.rn.TransferLeader(t.to)
	c.transfers = append(c.transfers, t)
	c.publish()
}

// checkTransfers answers the transfers whose outcome is known.
func (c *core) checkTransfers() {
	c.transfers = slices.DeleteFunc(c.transfers, func(t *transfer) bool {
		switch {
		case c.state.Term > t.term && c.state.Leader == t.to:
			t.done(nil)
		case c.state.Term > t.term && c.state.Leader != 0:
			t.done(fmt.Errorf("%w to member %d: member %d leads term %d", ErrTransferFailed, t.to, c.state.Leader,
				c.state.Term))
		case c.ticks >= t.deadline:
			if c.rn.BasicStatus().LeadTransferee == t.to {
				c.rn.TransferLeader(c.cfg.ID) // a transfer to itself cancels the transfer
			}
			t.done(fmt.Errorf("%w: member %d did not take over within an election timeout", ErrTransferFailed, t.to))
		default:
			return false
		}
		return true
	})
}
