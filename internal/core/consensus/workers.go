package consensus

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"trireme/internal/base/failpoint"
	"trireme/internal/base/mutant"
)

// appender carries out MsgStorageAppend. Not safe for concurrent use.
type appender struct {
	id      uint64
	storage Storage
	hard    raftpb.HardState // as persisted
	run     []*raftpb.Entry  // consecutive entries that wait to be written together
	last    uint64           // last index written, or in run
	dirty   bool             // written and not synced
	commit  uint64           // newest known
	settled uint64           // committed and on disk: never replaced
	pub     *published
}

func newAppender(cfg *Config, st *start, pub *published) *appender {
	a := &appender{id: cfg.ID, storage: cfg.Storage, last: st.last, commit: st.commit, settled: st.commit, pub: pub}
	hs := st.storage.hard
	a.hard = raftpb.HardState{Term: new(hs.GetTerm()), Vote: new(hs.GetVote()), Commit: new(st.kept)}
	return a
}

// process writes what a batch of messages asks for, makes it durable with one sync, and returns their responses in
// order. After an error nothing may be delivered, and the appender must not be used again.
//
// A new term or vote is made durable before the entries, so that the log never holds an entry of a term that the vote
// file does not know. Taking the last term of the batch for all of it is safe: it is as if the node had crashed before
// the entries.
func (a *appender) process(batch []*raftpb.Message) ([]*raftpb.Message, error) {
	responses, err := a.begin(batch)
	if err != nil {
		return nil, err
	}
	return responses, a.end()
}

// begin is process up to the sync.
func (a *appender) begin(batch []*raftpb.Message) ([]*raftpb.Message, error) {
	if err := a.writeVote(batch); err != nil {
		return nil, err
	}
	var responses []*raftpb.Message
	for _, m := range batch {
		if err := a.write(m); err != nil {
			return nil, err
		}
		for _, r := range m.GetResponses() {
			if a.isStale(r) {
				continue
			}
			if err := a.check(r); err != nil {
				return nil, err
			}
			responses = append(dropCovered(responses, r), r)
		}
	}
	return responses, a.flush()
}

// dropCovered removes from the responses the one that r makes needless: the last answer says what a follower has, and a
// leader that gets sixteen answers has fifteen times the work.
func dropCovered(responses []*raftpb.Message, r *raftpb.Message) []*raftpb.Message {
	if !isProgress(r) {
		return responses
	}
	for i, o := range slices.Backward(responses) {
		switch {
		case o.GetTo() != r.GetTo():
		case isProgress(o) && o.GetTerm() == r.GetTerm() && o.GetIndex() <= r.GetIndex():
			return slices.Delete(responses, i, i+1)
		default:
			return responses
		}
	}
	return responses
}

// isProgress reports whether r says up to where a follower has the log, and nothing else.
func isProgress(r *raftpb.Message) bool {
	return r.GetType() == raftpb.MsgAppResp && !r.GetReject()
}

// end makes durable what begin has written.
func (a *appender) end() error {
	if a.dirty && !mutant.S2 {
		if err := a.storage.Sync(); err != nil {
			return fmt.Errorf("sync the log up to entry %d: %w", a.last, err)
		}
		a.dirty = false
	}
	a.pub.durable.Store(a.last)
	return a.writeCommit()
}

func (a *appender) writeVote(batch []*raftpb.Message) error {
	term, vote := a.hard.GetTerm(), a.hard.GetVote()
	for _, m := range batch {
		if m.Term != nil { // set together with Vote and Commit, or not at all
			term, vote = m.GetTerm(), m.GetVote()
			a.commit = max(a.commit, m.GetCommit())
		}
	}
	switch {
	case term == a.hard.GetTerm() && vote == a.hard.GetVote():
		return nil
	case term < a.hard.GetTerm():
		return fmt.Errorf("%w: term falls from %d to %d", ErrInvariant, a.hard.GetTerm(), term)
	}
	a.hard.Term, a.hard.Vote = new(term), new(vote)
	if err := a.storage.SetHardState(proto.Clone(&a.hard).(*raftpb.HardState)); err != nil {
		return fmt.Errorf("persist term %d and vote %d: %w", term, vote, err)
	}
	return nil
}

// write queues what m wants written. Its entries wait in run for those that follow them: after a disk was busy for a
// while there is one write, not one for each message.
func (a *appender) write(m *raftpb.Message) error {
	if snap := m.GetSnapshot(); !raft.IsEmptySnap(snap) {
		if err := a.flush(); err != nil {
			return err
		}
		if err := a.storage.ResetTo(snap); err != nil {
			return fmt.Errorf("replace the log by the snapshot at %d: %w", snap.GetMetadata().GetIndex(), err)
		}
		a.last = snap.GetMetadata().GetIndex()
		a.commit = max(a.commit, a.last)
	}
	ents := m.GetEntries()
	if len(ents) == 0 {
		return nil
	}
	first := ents[0].GetIndex()
	if first > a.last+1 {
		return fmt.Errorf("%w: entry %d would follow entry %d", ErrInvariant, first, a.last)
	}
	if first <= a.settled {
		return fmt.Errorf("%w: entry %d would be replaced, %d are committed", ErrInvariant, first, a.settled)
	}
	if first <= a.last {
		if err := a.flush(); err != nil {
			return err
		}
	}
	if len(a.run) == 0 {
		a.run = slices.Clip(ents) // the slice is raft's own: do not write after its end
	} else {
		a.run = append(a.run, ents...)
	}
	a.last = ents[len(ents)-1].GetIndex()
	return nil
}

// flush writes what waits in run.
func (a *appender) flush() error {
	if len(a.run) == 0 {
		return nil
	}
	if err := a.storage.Append(a.run); err != nil {
		return fmt.Errorf("append entries %d to %d: %w", a.run[0].GetIndex(), a.last, err)
	}
	a.run, a.dirty = nil, true
	return nil
}

// isStale reports whether r acknowledges entries to the leader of a term that this node has left. Raft makes such a
// response when it takes entries, and then a new leader that replaces them, between two Readys: the entries were never
// written. Raft's own reasoning covers that, but a lost acknowledgement costs nothing, and S2 then holds to the letter.
func (a *appender) isStale(r *raftpb.Message) bool {
	return r.GetType() == raftpb.MsgAppResp && !r.GetReject() && r.GetIndex() > 0 && r.GetTerm() < a.hard.GetTerm()
}

// check asserts that a positive answer to a peer claims no more than what is written by now and will be synced before
// the answer is delivered (S2).
func (a *appender) check(r *raftpb.Message) error {
	if r.GetType() == raftpb.MsgAppResp && !r.GetReject() && r.GetIndex() > a.last {
		return fmt.Errorf("%w: entry %d would be acknowledged, the log ends at %d", ErrInvariant, r.GetIndex(), a.last)
	}
	return nil
}

// writeCommit gives the commit index to the storage, which may write it lazily: Raft finds it again. The written index
// never exceeds the durable log, nor what was delivered. The next life skips the part of the log that this index
// covers, so everything that its entries require, membership changes above all, must have been done.
func (a *appender) writeCommit() error {
	a.settled = max(a.settled, min(a.commit, a.last))
	commit := min(a.settled, a.pub.applied.Load())
	if commit <= a.hard.GetCommit() {
		return nil
	}
	a.hard.Commit = new(commit)
	if err := a.storage.SetHardState(proto.Clone(&a.hard).(*raftpb.HardState)); err != nil {
		return fmt.Errorf("keep commit index %d: %w", commit, err)
	}
	return nil
}

// applier carries out MsgStorageApply. Not safe for concurrent use.
type applier struct {
	cfg       *Config
	confIndex uint64 // membership changes up to here are in force already
	pub       *published
	// change puts a membership change in force on the loop; an error means that the node has stopped. Set
	// before the first use.
	change func(raftpb.ConfChangeI) (*raftpb.ConfState, error)
}

func newApplier(cfg *Config, st *start, pub *published) *applier {
	return &applier{cfg: cfg, confIndex: st.confIndex, pub: pub}
}

// process delivers committed entries. A membership change is put in force and persisted first, then delivered, so that
// a delivered index never lies beyond the membership on disk.
func (a *applier) process(m *raftpb.Message) error {
	ents := m.GetEntries()
	for len(ents) > 0 {
		n := 1
		if ents[0].GetType() == raftpb.EntryNormal {
			for n < len(ents) && ents[n].GetType() == raftpb.EntryNormal {
				n++
			}
		} else if err := a.applyChange(ents[0]); err != nil {
			return err
		}
		failpoint.Hit("raft.before-apply")
		if err := a.cfg.OnCommitted(ents[:n:n]); err != nil {
			return err // none of it counts as applied: the next life gets it again
		}
		failpoint.Hit("raft.after-apply")
		a.pub.applied.Store(ents[n-1].GetIndex())
		ents = ents[n:]
	}
	return nil
}

func (a *applier) applyChange(e *raftpb.Entry) error {
	if e.GetIndex() <= a.confIndex {
		return nil
	}
	cc, err := decodeChange(e)
	if err != nil {
		return err
	}
	cs, err := a.change(cc)
	if err != nil {
		return err
	}
	failpoint.Hit("conf.after-apply")
	if err := a.cfg.Storage.SetConfState(cs, e.GetIndex()); err != nil {
		return fmt.Errorf("persist the membership of entry %d: %w", e.GetIndex(), err)
	}
	failpoint.Hit("conf.after-persist")
	a.confIndex = e.GetIndex()
	a.cfg.Logger.Info("membership changed", "index", e.GetIndex(), "term", e.GetTerm(), "voters", cs.GetVoters(),
		"outgoing", cs.GetVotersOutgoing(), "learners", cs.GetLearners(), "learners_next", cs.GetLearnersNext())
	return nil
}

func decodeChange(e *raftpb.Entry) (raftpb.ConfChangeI, error) {
	var cc interface {
		raftpb.ConfChangeI
		proto.Message
	} = &raftpb.ConfChangeV2{}
	if e.GetType() == raftpb.EntryConfChange {
		cc = &raftpb.ConfChange{}
	}
	if err := proto.Unmarshal(e.GetData(), cc); err != nil {
		return nil, fmt.Errorf("%w: membership change %d cannot be decoded: %w", ErrInvariant, e.GetIndex(), err)
	}
	return cc, nil
}

// snapshot reports that the log was replaced.
func (a *applier) snapshot(snap *raftpb.Snapshot) error {
	index := snap.GetMetadata().GetIndex()
	a.confIndex = max(a.confIndex, index)
	if err := a.cfg.OnSnapshot(snap); err != nil {
		return err
	}
	a.pub.applied.Store(index)
	return nil
}
