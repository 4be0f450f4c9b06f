package consensus

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Storage is the log and the vote of one member. Reading methods (raft.Storage) are called on the loop while the
// writing ones run as its job, and SetConfState on the apply goroutine; it must allow that.
type Storage interface {
	raft.Storage

	// Append writes entries, which are consecutive and start at or below LastIndex()+1; what the log holds from the first
	// one on is replaced. Not durable before Sync. They must be readable at once. The entries are immutable and may be
	// kept. At most one Append, Sync, ResetTo or SetHardState runs at a time.
	Append(entries []*raftpb.Entry) error

	// Sync makes everything appended so far durable.
	Sync() error

	// SetHardState records term, vote and commit. A changed term or vote is durable when it returns; a commit index alone
	// may be written lazily, because Raft finds it again.
	SetHardState(hs *raftpb.HardState) error

	// SetConfState records the membership in force from the entry at index on. Durable when it returns.
	SetConfState(cs *raftpb.ConfState, index uint64) error

	// ConfStateIndex is the index last given to SetConfState (or of the snapshot, if later); 0 if none.
	ConfStateIndex() uint64

	// ResetTo discards the log and begins a new one after the snapshot's index. Durable when it returns.
	ResetTo(snap *raftpb.Snapshot) error
}

// recovered is Storage with an InitialState that RawNode can start from: the commit index is kept lazily on disk, so it
// may lie below what is known to be committed (the purge point, the applied index).
type recovered struct {
	Storage
	hard *raftpb.HardState
	conf *raftpb.ConfState
}

func (r *recovered) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return r.hard, r.conf, nil
}

// start is what Storage held when the node was started.
type start struct {
	storage         *recovered
	last            uint64
	lastTerm        uint64
	commit, applied uint64
	commitTerm      uint64 // of the entry at commit
	kept            uint64 // commit index on disk, or what the caller has applied
	change          uint64 // the last membership change after kept, or 0
	confIndex       uint64
	empty           bool
}

// recoverState reads Storage and checks it for consistency, in itself and with applied, the index that the caller has
// applied. ErrStorageInconsistent means that log, vote and applied index cannot belong together: part of the log was
// lost, and the member must rejoin under a new raft id (S2).
func recoverState(st Storage, applied uint64) (*start, error) {
	hs, cs, err := st.InitialState()
	if err != nil {
		return nil, fmt.Errorf("read the raft state: %w", err)
	}
	first, err := st.FirstIndex()
	if err != nil {
		return nil, fmt.Errorf("read the first log index: %w", err)
	}
	last, err := st.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("read the last log index: %w", err)
	}
	if cs == nil {
		cs = &raftpb.ConfState{}
	}
	s := &start{last: last, confIndex: st.ConfStateIndex()}
	s.empty = last == 0 && raft.IsEmptyHardState(hs)
	if last+1 < first {
		return nil, fmt.Errorf("%w: the log begins at %d and ends at %d", ErrStorageInconsistent, first, last)
	}
	if s.lastTerm, err = st.Term(last); err != nil {
		return nil, fmt.Errorf("read the term of entry %d: %w", last, err)
	}
	switch {
	case hs.GetCommit() > last:
		return nil, fmt.Errorf("%w: commit index %d is beyond the last entry %d", ErrStorageInconsistent, hs.GetCommit(),
			last)
	case applied > last:
		return nil, fmt.Errorf("%w: applied index %d is beyond the last entry %d", ErrStorageInconsistent, applied, last)
	case s.confIndex > last:
		return nil, fmt.Errorf("%w: membership of entry %d is beyond the last entry %d", ErrStorageInconsistent, s.confIndex,
			last)
	case hs.GetTerm() < s.lastTerm:
		return nil, fmt.Errorf("%w: term %d is below the last entry's term %d", ErrStorageInconsistent, hs.GetTerm(),
			s.lastTerm)
	}
	s.applied = max(applied, first-1)
	s.kept = max(hs.GetCommit(), s.applied, s.confIndex)
	var before uint64
	if before, s.change, err = lastChanges(st, s.kept+1, last); err != nil {
		return nil, err
	}
	// The last change but one is committed, because a leader proposes a change only after it has applied the previous
	// one. A member that was killed before it had applied either, and that did not know this, would ask the voters of
	// the older membership for votes. A majority of them may no longer be part of what is committed. Raft relies on a
	// commit index on disk as soon as the next entry is there; ours is written lazily.
	s.commit = max(s.kept, before)
	if s.commitTerm, err = st.Term(s.commit); err != nil {
		return nil, fmt.Errorf("read the term of entry %d: %w", s.commit, err)
	}
	if !s.empty {
		hs = &raftpb.HardState{Term: new(hs.GetTerm()), Vote: new(hs.GetVote()), Commit: new(s.commit)}
	}
	s.storage = &recovered{Storage: st, hard: hs, conf: cs}
	return s, nil
}

// lastChanges returns the indexes of the last two membership changes in a part of the log, 0 for a missing one.
func lastChanges(st Storage, lo, last uint64) (before, newest uint64, err error) {
	for lo <= last {
		ents, err := st.Entries(lo, last+1, forceRead)
		if err != nil {
			return 0, 0, fmt.Errorf("look for membership changes from entry %d on: %w", lo, err)
		}
		for _, e := range ents {
			if e.GetType() != raftpb.EntryNormal {
				newest, before = e.GetIndex(), newest
			}
		}
		lo += uint64(len(ents))
	}
	return before, newest, nil
}
