package consensus

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// elections makes an election quick when a leader is known to be dead. Raft's own election timeouts stay in force
// underneath: everything here is a campaign earlier than they would have it, through pre-vote, so it disturbs nobody.
type elections struct {
	// hurry is the number of ticks for which an unanswered campaign is repeated; 0: leave it to raft's timeouts.
	hurry int
	// since is the number of ticks since the last campaign.
	since int
	// held are votes asked for while this node still believed in the leader. A peer may learn of the leader's death a
	// moment earlier; its request is looked at again when this node learns of it too.
	held []heldVote
	// generation tells a delayed campaign from one that was cancelled.
	generation uint64
}

type heldVote struct {
	m    *raftpb.Message
	tick uint64
}

// maxHeldVotes bounds elections.held; more peers than this do not ask at once.
const maxHeldVotes = 16

// stop is called when a leader appears.
func (e *elections) stop() {
	e.hurry, e.since = 0, 0
	e.generation++
}

// receiveVote handles MsgVote and MsgPreVote.
func (c *core) receiveVote(m *raftpb.Message) {
	before := c.stateNow()
	if before.Leader != 0 && before.Leader != c.cfg.ID && m.GetTerm() > before.Term {
		c.hold(m)
	}
	c.step(m)
	c.outbid(m)
}

// hold keeps a vote request that raft is about to ignore, for the case that the leader's death becomes known here too.
func (c *core) hold(m *raftpb.Message) {
	e := &c.elections
	kept := e.held[:0]
	for _, h := range e.held {
		if h.m.GetFrom() != m.GetFrom() && c.ticks-h.tick <= uint64(c.cfg.HeartbeatTicks) {
			kept = append(kept, h)
		}
	}
	clear(e.held[len(kept):])
	e.held = kept
	if len(e.held) < maxHeldVotes {
		e.held = append(e.held, heldVote{m, c.ticks})
	}
}

// outbid campaigns at once when a candidate's log is shorter than ours and there is no leader: it cannot win, and
// without this two survivors would wait out an election timeout.
func (c *core) outbid(m *raftpb.Message) {
	now := c.stateNow()
	if now.Role != Follower || now.Leader != 0 || !c.isVoter() {
		return
	}
	longer := c.lastTerm > m.GetLogTerm() || c.lastTerm == m.GetLogTerm() && c.lastIndex > m.GetIndex()
	if longer {
		c.log.Info("campaigning: a candidate's log is shorter than ours", "term", now.Term, "index", c.lastIndex, "candidate", m.GetFrom())
		c.campaignInHurry()
	}
}

// campaignInHurry campaigns now and again until somebody leads.
func (c *core) campaignInHurry() {
	c.elections.hurry = 2 * c.cfg.ElectionTicks
	c.elections.since = 0
	c.campaign()
}

func (c *core) campaign() {
	if err := c.rn.Campaign(); err != nil {
		c.log.Debug("raft refused to campaign", "err", err)
	}
}

// campaignLater is the end of a delay: it campaigns unless a leader has appeared since generation was current.
func (c *core) campaignLater(generation uint64) {
	st := c.stateNow()
	if c.elections.generation != generation || st.Leader != 0 || !c.isVoter() {
		return
	}
	if st.Role == Candidate && c.elections.hurry > 0 {
		return // already at it
	}
	c.campaignInHurry()
}

// tickElection repeats a campaign that nobody answered. Pre-votes may be repeated at will: answers to an earlier one still
// count. A split vote is repeated after half an election timeout, the lower raft id first.
func (c *core) tickElection() {
	e := &c.elections
	if e.hurry == 0 {
		return
	}
	e.hurry--
	e.since++
	var wait int
	switch c.rn.BasicStatus().RaftState {
	case raft.StatePreCandidate:
		wait = c.cfg.HeartbeatTicks
	case raft.StateCandidate:
		wait = c.cfg.ElectionTicks/2 + int(c.cfg.ID%3)*c.cfg.HeartbeatTicks
	default:
		return // refused: raft's timeout, or the longer log's campaign, goes on from here
	}
	if e.since >= wait {
		e.since = 0
		c.campaign()
	}
}

// peerGone takes note that the process of a member is dead.
func (c *core) peerGone(id uint64) {
	c.rn.ReportUnreachable(id)
	st := c.stateNow()
	switch {
	case st.Role == Leader:
		c.leaseWithout(id)
	case st.Leader == id:
		c.log.Info("forgetting the leader: its process is gone", "term", st.Term, "leader", id)
		c.forgetLeader()
	}
}

// forgetLeader makes a follower leaderless and answers the votes that were asked for a moment too early.
func (c *core) forgetLeader() {
	if err := c.rn.ForgetLeader(); err != nil {
		c.log.Debug("raft refused to forget the leader", "err", err)
	}
	held := c.elections.held
	c.elections.held = nil
	for _, h := range held {
		if c.ticks-h.tick <= uint64(c.cfg.HeartbeatTicks) {
			c.step(h.m)
			c.outbid(h.m)
		}
	}
}

// transfer is a caller that waits for leadership to move.
type transfer struct {
	to       uint64
	term     uint64
	deadline uint64 // tick
	done     chan error
}

// startTransfer hands leadership to a voter, once it has the whole log. Raft gives up after one election timeout.
func (c *core) startTransfer(t *transfer) {
	st := c.stateNow()
	if st.Role != Leader {
		t.done <- ErrNotLeader
		return
	}
	rs := c.rn.Status()
	if _, voter := rs.Config.Voters.IDs()[t.to]; !voter {
		t.done <- fmt.Errorf("%w: member %d is not a voter", ErrTransferFailed, t.to)
		return
	}
	if t.to == c.cfg.ID {
		t.done <- nil
		return
	}
	t.term = st.Term
	t.deadline = c.ticks + uint64(c.cfg.ElectionTicks) + 2
	c.rn.TransferLeader(t.to)
	c.transfers = append(c.transfers, t)
	c.publish()
}

func (c *core) tickTransfers() {
	if len(c.transfers) > 0 {
		c.checkTransfers()
	}
}

// checkTransfers answers the transfers whose outcome is known.
func (c *core) checkTransfers() {
	kept := c.transfers[:0]
	for _, t := range c.transfers {
		switch {
		case c.state.Term > t.term && c.state.Leader == t.to:
			t.done <- nil
		case c.state.Term > t.term && c.state.Leader != 0:
			t.done <- fmt.Errorf("%w to member %d: member %d leads term %d", ErrTransferFailed, t.to, c.state.Leader, c.state.Term)
		case c.ticks >= t.deadline && c.rn.BasicStatus().LeadTransferee != t.to:
			t.done <- fmt.Errorf("%w: member %d did not take over within an election timeout", ErrTransferFailed, t.to)
		default:
			kept = append(kept, t)
		}
	}
	clear(c.transfers[len(kept):])
	c.transfers = kept
}
