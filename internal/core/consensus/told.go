package consensus

import "go.etcd.io/raft/v3/raftpb"

// entryID identifies an entry: no two logs hold different entries of one index and term, nor different ones below it.
type entryID struct{ index, term uint64 }

// attachCommitHint adds to a message of an election the newest entry that this node knows to be committed: its index as
// commit, its term as reject hint. Raft looks at neither field in such messages.
func (c *core) attachCommitHint(m *raftpb.Message) {
	if isElection(m) {
		m.Commit, m.RejectHint = new(c.committed.index), new(c.committed.term)
	}
}

func isElection(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		return true
	}
	return false
}

// noteCommitted records committed entries that are about to be delivered: raft delivers what is on disk, so the entry
// is the one in this log.
func (c *core) noteCommitted(ents []*raftpb.Entry) {
	if n := len(ents); n > 0 && ents[n-1].GetIndex() > c.committed.index {
		c.committed = entryID{ents[n-1].GetIndex(), ents[n-1].GetTerm()}
	}
}

// noteChanges looks for membership changes in entries that the log gets. All changes before the last one are known to
// be committed: the message that brought the last one said so (see recoverState). So when the last one is replaced, no
// earlier one has to be found.
func (c *core) noteChanges(ents []*raftpb.Entry) {
	if ents[0].GetIndex() <= c.change {
		c.change = 0
	}
	for _, e := range ents {
		if e.GetType() != raftpb.EntryNormal {
			c.change = e.GetIndex()
		}
	}
}

// acceptCommitHint takes an entry that a peer reports in an election for committed, if that decides whom this node asks
// for votes: its log holds exactly that entry, and at it or below it a membership change that it does not know to be
// committed. doc.go says why this is safe and needed.
//
// This node tells raft by sending itself an empty append, and makes raft forget at once that it has heard a leader.
// Raft compares index and term once more, including entries that are on their way to the disk. A current campaign ends:
// it has asked the members of the older membership.
func (c *core) acceptCommitHint(m *raftpb.Message) {
	told := entryID{m.GetCommit(), m.GetRejectHint()} // an older peer sends 0
	bs := c.rn.BasicStatus()
	switch {
	case c.change <= bs.GetCommit() || told.index < c.change:
		return // there is no such change
	case bs.Lead != 0 || c.ticks < c.elections.promised:
		return // a leader tells it, or there may be one that counts on this node's promise
	}
	if term, err := c.cfg.Storage.Term(told.index); err != nil || term != told.term {
		return // not in this log, or not yet on the disk
	}
	c.log.Info("a membership change in the log is committed, as a peer tells", "from", m.GetFrom(), "change", c.change,
		"term", told.term, "index", told.index)
	c.step(&raftpb.Message{Type: raftpb.MsgApp.Enum(), To: new(c.cfg.ID), From: new(c.cfg.ID), Term: new(bs.GetTerm()),
		Index: new(told.index), LogTerm: new(told.term), Commit: new(told.index)})
	if err := c.rn.ForgetLeader(); err != nil {
		c.log.Debug("raft refused to forget the leader", "err", err)
	}
}
