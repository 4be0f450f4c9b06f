package consensus

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// core owns the RawNode. It is not safe for concurrent use, starts no goroutine and reads no clock but Config.Clock.
// Inputs change it; advance then collects the actions that follow from them.
type core struct {
	cfg      *Config
	rn       *raft.RawNode
	throttle *readThrottle
	log      *slog.Logger
	pub      *published

	state     State
	commit    uint64
	committed entryID // newest committed entry whose term is known; see attachCommitHint
	change    uint64  // the last membership change in the log, 0 if it is known to be committed anyway
	lastIndex uint64  // last entry handed to the disk
	lastTerm  uint64
	termStart uint64          // leader: index of the first entry of its own term
	answered  map[uint64]bool // leader: who has answered in its term
	ticks     uint64

	props     proposals
	reads     reads
	lease     lease
	elections elections
	transfers []*transfer
	matches   Matches // as last reported; see WatchMatches
	deposed   deposed
}

// output holds the actions that advance asks for. Slices are reused: the caller must carry the actions out before the
// next advance.
type output struct {
	appends []*raftpb.Message // MsgStorageAppend, in order
	applies []*raftpb.Message // MsgStorageApply, in order
	sends   []*raftpb.Message // to peers, at once
	states  []State
}

func (o *output) reset() {
	clear(o.appends)
	clear(o.applies)
	clear(o.sends)
	o.appends, o.applies, o.sends, o.states = o.appends[:0], o.applies[:0], o.sends[:0], o.states[:0]
}

// newCore starts raft from what Storage holds. peers is the first membership, and allowed with an empty log only. A
// panic of raft, by which raft reports that the data on disk is inconsistent, becomes an error.
func newCore(cfg *Config, st *start, peers []raft.Peer, pub *published) (c *core, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrStorageInconsistent, p)
		}
	}()
	c = &core{cfg: cfg, log: cfg.Logger, pub: pub, lastIndex: st.last, lastTerm: st.lastTerm, commit: st.commit,
		committed: entryID{st.commit, st.commitTerm}, change: st.change}
	c.throttle = &readThrottle{Storage: st.storage, clock: cfg.Clock}
	rn, err := raft.NewRawNode(&raft.Config{
		ID:                        cfg.ID,
		ElectionTick:              2 * cfg.ElectionTicks,   // see elections: it is core that counts
		HeartbeatTick:             2*cfg.ElectionTicks - 1, // see tickBeat: the lease rounds are the heartbeats
		Storage:                   c.throttle,
		Applied:                   st.applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             cfg.MaxSizePerMsg,
		MaxCommittedSizePerReady:  cfg.MaxApplyingBytes,
		MaxInflightMsgs:           cfg.MaxInflightMsgs,
		MaxInflightBytes:          cfg.MaxInflightBytes,
		MaxUncommittedEntriesSize: 0, // proposals bounds it, and has them wait where raft would drop them
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    raftLogger{cfg.Logger},
	})
	if err != nil {
		return nil, fmt.Errorf("start raft: %w", err)
	}
	if rn.BasicStatus().GetTerm() > 0 { // not its first life
		c.elections.promised = uint64(cfg.ElectionTicks)
	}
	if len(peers) > 0 {
		if !st.empty {
			return nil, fmt.Errorf("%w: a new cluster cannot begin with a log of %d entries", ErrStorageInconsistent, st.last)
		}
		if err := rn.Bootstrap(peers); err != nil {
			return nil, fmt.Errorf("begin a new cluster: %w", err)
		}
	}
	c.rn = rn
	c.props.limit = cfg.MaxUncommittedBytes
	c.reads.init()
	c.state = c.stateNow()
	pub.commit.Store(c.commit)
	pub.applied.Store(st.applied)
	pub.last.Store(st.last)
	pub.durable.Store(st.last)
	c.publish()
	return c, nil
}

// stateNow reads role, term and leader from raft.
func (c *core) stateNow() State {
	bs := c.rn.BasicStatus()
	s := State{Term: bs.GetTerm(), Leader: bs.Lead}
	switch bs.RaftState {
	case raft.StateLeader:
		s.Role = Leader
	case raft.StateCandidate, raft.StatePreCandidate:
		s.Role = Candidate
	}
	return s
}

// tick lets one tick interval pass.
func (c *core) tick() {
	c.ticks++
	c.rn.Tick()
	if c.state.Leader == 0 && c.state.Role == Follower && c.isAlone() && c.pub.applied.Load() >= c.commit {
		c.campaign() // there are no other voters to wait for
	}
	c.tickDeposed()
	c.tickElection()
	c.tickReads()
	c.tickQuorum()
	c.checkTransfers()
	c.publish()
}

// respond takes a message that a storage thread had for this node itself.
func (c *core) respond(m *raftpb.Message) error {
	err := c.rn.Step(m)
	if errors.Is(err, raft.ErrStepPeerNotFound) {
		return nil // a leader that was removed meanwhile: what it has written does not count any more
	}
	if err != nil {
		return fmt.Errorf("%w: raft refuses %s of its own storage: %w", ErrInvariant, m.GetType(), err)
	}
	return nil
}

// isAlone reports whether this node is the only voter.
func (c *core) isAlone() bool {
	s := c.pub.state.Load()
	return len(s.Voters) == 1 && s.Voters[0] == s.ID && len(s.Outgoing) == 0
}

// isVoter reports whether this node may campaign.
func (c *core) isVoter() bool {
	s := c.pub.state.Load()
	return slices.Contains(s.Voters, s.ID) || slices.Contains(s.Outgoing, s.ID)
}

// receive takes a message from a peer. Messages that no peer may send are dropped.
func (c *core) receive(m *raftpb.Message) {
	if c.isDeafTo(m) {
		return
	}
	if c.elections.isStale(m) {
		c.log.Info("ignoring a message that hands leadership over: this process was stopped, and it may be old",
			"type", m.GetType().String(), "from", m.GetFrom())
		return
	}
	if isElection(m) {
		c.acceptCommitHint(m)
	}
	switch m.GetType() {
	case raftpb.MsgProp:
		return // proposals are made on the leader (DisableProposalForwarding)
	case raftpb.MsgReadIndex:
		// A leader that is the only voter would answer at once, with a commit index that may be old. Another member
		// would forward the question under the asker's name, which the leader's links refuse: so does one that has heard
		// of another leader in this turn, which its state does not show yet.
		if !c.committedInTerm() || c.rn.BasicStatus().RaftState != raft.StateLeader {
			return // asked again soon
		}
	case raftpb.MsgVote, raftpb.MsgPreVote:
		c.receiveVote(m)
		return
	case raftpb.MsgPreVoteResp:
		if c.elections.deferring && !m.GetReject() {
			return
		}
	case raftpb.MsgAppResp, raftpb.MsgHeartbeatResp:
		c.stepAnswer(m)
		return
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		c.hear(m)
	}
	c.step(m)
}

// step gives a message to raft. A refusal (a stale or foreign response) is harmless and is logged at debug level.
func (c *core) step(m *raftpb.Message) {
	if err := c.rn.Step(m); err != nil {
		c.log.Debug("raft dropped a message", "type", m.GetType().String(), "from", m.GetFrom(), "err", err)
	}
}

// committedInTerm reports whether this leader has committed an entry of its own term, so that its commit index is
// current.
func (c *core) committedInTerm() bool {
	return c.state.Role == Leader && c.termStart != 0 && c.commit >= c.termStart
}

// advance proposes what is waiting, and collects raft's requests in out until raft has no more.
func (c *core) advance(out *output) error {
	c.flushReads()
	c.beginLease()
	for c.stepProposals(); c.rn.HasReady(); c.stepProposals() { // a commit makes room for those that wait for it
		if err := c.handle(c.rn.Ready(), out); err != nil {
			return err
		}
	}
	c.props.tellRoom()
	c.repeatAsked(out)
	return nil
}

// handle processes one Ready.
func (c *core) handle(rd raft.Ready, out *output) error {
	if !raft.IsEmptySnap(rd.Snapshot) {
		c.lastIndex, c.lastTerm = rd.Snapshot.GetMetadata().GetIndex(), rd.Snapshot.GetMetadata().GetTerm()
		c.committed = entryID{c.lastIndex, c.lastTerm}
		c.pub.last.Store(c.lastIndex)
		c.publish() // the membership, before the commit index that goes with it
	}
	if n := len(rd.Entries); n > 0 {
		c.lastIndex, c.lastTerm = rd.Entries[n-1].GetIndex(), rd.Entries[n-1].GetTerm()
		c.pub.last.Store(c.lastIndex)
		c.noteChanges(rd.Entries)
	}
	if !raft.IsEmptyHardState(rd.HardState) {
		if rd.GetCommit() > c.commit {
			c.commit = rd.GetCommit()
			c.pub.commit.Store(c.commit)
			c.props.committed(c.commit)
		}
	}
	if rd.SoftState != nil || (rd.HardState != nil && rd.GetTerm() != c.state.Term) {
		c.changeState(rd.Entries, out)
	}
	if err := c.props.accepted(rd.Entries); err != nil {
		return err
	}
	for _, rs := range rd.ReadStates {
		c.confirmRead(rs)
	}
	for _, m := range rd.Messages {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			for _, r := range m.GetResponses() {
				c.attachCommitHint(r)
			}
			out.appends = append(out.appends, m)
		case raft.LocalApplyThread:
			c.noteCommitted(m.GetEntries())
			out.applies = append(out.applies, m)
		default:
			c.attachCommitHint(m)
			if m.GetType() == raftpb.MsgTimeoutNow {
				c.suspendLease() // before it is sent
			}
			c.noteAsked(m)
			out.sends = append(out.sends, m)
		}
	}
	return nil
}

// changeState records a new role, term or leader.
func (c *core) changeState(appended []*raftpb.Entry, out *output) {
	old, next := c.state, c.stateNow()
	if next.Seq = old.Seq; next == old {
		return
	}
	next.Seq++
	c.state = next
	c.log.Info("raft state changed", "role", c.state.Role.String(), "term", c.state.Term, "leader", c.state.Leader,
		"index", c.lastIndex)
	if c.state.Role != Leader || c.state.Term != old.Term {
		c.termStart = 0
		c.dropLease()
		c.props.lost()
	}
	if c.state.Role == Leader && (old.Role != Leader || c.state.Term != old.Term) {
		c.termStart = firstOfTerm(appended, c.state.Term)
		c.answered = map[uint64]bool{}
		c.lease.nextBeat, c.lease.suspendedTill, c.lease.begun = c.ticks+uint64(c.cfg.HeartbeatTicks), 0, false
	}
	if c.state.Role == Candidate {
		c.elections.since = 0
	} else {
		c.elections.deferring = false
	}
	if c.state.Leader != 0 {
		c.elections.noteLeader(c.ticks)
	}
	c.reads.reissue(func(*readRequests) bool { return true }) // the answers may never come
	c.checkTransfers()
	c.publish()
	out.states = append(out.states, c.state)
}

func firstOfTerm(entries []*raftpb.Entry, term uint64) uint64 {
	for _, e := range entries {
		if e.GetTerm() == term {
			return e.GetIndex()
		}
	}
	return 0
}

// applyConfChange puts a committed membership change in force and returns the resulting membership.
func (c *core) applyConfChange(cc raftpb.ConfChangeI) *raftpb.ConfState {
	cs := c.rn.ApplyConfChange(cc)
	c.publish()
	return cs
}

// publish updates what Status shows, except the indexes.
func (c *core) publish() {
	rs := c.rn.Status()
	s := &Status{ID: rs.ID, State: c.state, Vote: rs.GetVote(), Transferee: rs.LeadTransferee}
	tr := tracker.ProgressTracker{Config: rs.Config}
	cs := tr.ConfState()
	s.Voters, s.Outgoing = cs.GetVoters(), cs.GetVotersOutgoing()
	s.Learner = slices.Contains(cs.GetLearners(), rs.ID)
	s.Learners = append(cs.GetLearners(), cs.GetLearnersNext()...)
	if c.state.Role == Leader {
		s.Members = make(map[uint64]Progress, len(rs.Progress))
		for id, pr := range rs.Progress {
			s.Members[id] = Progress{Match: pr.Match, Next: pr.Next, Answered: c.answered[id] || id == s.ID,
				Learner: pr.IsLearner, Snapshot: pr.State == tracker.StateSnapshot, Paused: pr.IsPaused()}
		}
	}
	c.pub.state.Store(s)
}

// abandon is called when the node ends: what it has claimed will never be finished. Callers learn of the end
// through Node.ctx.
func (c *core) abandon() {
	c.pub.lease.Store(0)
}
