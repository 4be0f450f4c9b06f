package consensus

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/confchange"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"
)

// Takeover makes one survivor of a lost majority the beginning of a new cluster: everything that its log holds, and
// then Entries, count as committed because an operator says so, without a quorum. PlanTakeover makes it from a log at
// rest, the caller records it, and CarryOut puts it into the log; CarryOut can be repeated.
//
// The other survivors can safely follow by ordinary Raft, without any change of their own logs, if
//   - none of them has a log that is more up to date than this one (so what they have beyond it was never committed, as
//     far as they can know),
//   - Term is higher than the term of any entry that any of them holds, and
//   - those of them that were voters were no majority, so that they cannot elect a leader before they have got Entries.
type Takeover struct {
	Term  uint64 // of Entries
	Base  uint64 // last index of the log before them
	BTerm uint64 // term of the entry at Base
	// Entries follow Base: the entries that the caller gave, then the changes from the old membership to Conf.
	Entries []ForcedEntry
	Conf    ForcedConf
}

// ForcedEntry is one entry of a Takeover.
type ForcedEntry struct {
	Change bool   `json:"change,omitempty"` // a membership change (raftpb.ConfChangeV2)
	Data   []byte `json:"data"`
}

// ForcedConf is a membership without a joint half.
type ForcedConf struct {
	Voters   []uint64 `json:"voters"`
	Learners []uint64 `json:"learners,omitempty"`
}

// End is the index of the last entry.
func (t *Takeover) End() uint64 { return t.Base + uint64(len(t.Entries)) }

// PlanTakeover reads a log whose Node is stopped and that had applied everything up to an index. data are the caller's
// entries, conf is the final membership.
func PlanTakeover(st Storage, applied, term uint64, data [][]byte, conf ForcedConf) (*Takeover, error) {
	now, base, err := FinalConf(st, applied)
	if err != nil {
		return nil, err
	}
	t := &Takeover{Term: term, Base: base, Conf: conf}
	if t.BTerm, err = st.Term(base); err != nil {
		return nil, err
	}
	if t.BTerm >= term {
		return nil, fmt.Errorf("%w: a takeover in term %d of a log that ends in term %d", ErrInvariant, term, t.BTerm)
	}
	for _, d := range data {
		t.Entries = append(t.Entries, ForcedEntry{Data: d})
	}
	changes := []*raftpb.ConfChangeV2{changeTo(now, conf), {}} // into the joint configuration and out of it
	if len(now.GetVotersOutgoing()) > 0 {
		changes = append([]*raftpb.ConfChangeV2{{}}, changes...)
	}
	for _, cc := range changes {
		b, err := proto.Marshal(cc)
		if err != nil {
			return nil, err
		}
		t.Entries = append(t.Entries, ForcedEntry{Change: true, Data: b})
	}
	// This proves that every survivor can apply it.
	ch, err := changer(now, base)
	for _, cc := range changes {
		if err == nil {
			err = ch.apply(cc)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidConfChange, err)
	}
	got := ch.Tracker.ConfState()
	slices.Sort(t.Conf.Voters)
	slices.Sort(t.Conf.Learners)
	if !slices.Equal(got.GetVoters(), t.Conf.Voters) || !slices.Equal(got.GetLearners(), t.Conf.Learners) ||
		len(got.GetVotersOutgoing()) > 0 {
		return nil, fmt.Errorf("%w: planned %+v, came to %v", ErrInvariant, t.Conf, got)
	}
	return t, nil
}

// FinalConf is the membership once everything in the log is committed, and the log's last index. applied is an index up
// to which the changes are in force already.
func FinalConf(st Storage, applied uint64) (*raftpb.ConfState, uint64, error) {
	_, cs, err := st.InitialState()
	if err != nil {
		return nil, 0, err
	}
	last, err := st.LastIndex()
	if err != nil {
		return nil, 0, err
	}
	first, err := st.FirstIndex()
	if err != nil {
		return nil, 0, err
	}
	ch, err := changer(cs, last)
	if err != nil {
		return nil, 0, err
	}
	for lo := max(first, st.ConfStateIndex()+1, applied+1); lo <= last; {
		ents, err := st.Entries(lo, last+1, forceRead)
		if err != nil {
			return nil, 0, err
		}
		for _, e := range ents {
			if e.GetType() == raftpb.EntryNormal {
				continue
			}
			cc, err := decodeChange(e)
			if err == nil {
				err = ch.apply(cc.AsV2())
			}
			if err != nil {
				return nil, 0, fmt.Errorf("membership change %d: %w", e.GetIndex(), err)
			}
		}
		lo += uint64(len(ents))
	}
	return ch.Tracker.ConfState(), last, nil
}

// forceRead is how much of the log is read at once, in bytes.
const forceRead = 4 << 20

// confChanger applies membership changes as raft does, without a raft.
type confChanger struct{ confchange.Changer }

func changer(cs *raftpb.ConfState, last uint64) (*confChanger, error) {
	c := &confChanger{confchange.Changer{Tracker: tracker.MakeProgressTracker(1, 0), LastIndex: last}}
	cfg, prs, err := confchange.Restore(c.Changer, cs)
	c.Tracker.Config, c.Tracker.Progress = cfg, prs
	return c, err
}

func (c *confChanger) apply(cc *raftpb.ConfChangeV2) error {
	var cfg tracker.Config
	var prs tracker.ProgressMap
	var err error
	if cc.LeaveJoint() {
		cfg, prs, err = c.LeaveJoint()
	} else if autoLeave, joint := cc.EnterJoint(); joint {
		cfg, prs, err = c.EnterJoint(autoLeave, cc.GetChanges()...)
	} else {
		cfg, prs, err = c.Simple(cc.GetChanges()...)
	}
	if err == nil {
		c.Tracker.Config, c.Tracker.Progress = cfg, prs
	}
	return err
}

// changeTo is the change from a membership to another one, in one joint step that the next change leaves.
func changeTo(from *raftpb.ConfState, to ForcedConf) *raftpb.ConfChangeV2 {
	cc := &raftpb.ConfChangeV2{Transition: raftpb.ConfChangeTransitionJointExplicit.Enum()}
	add := func(t raftpb.ConfChangeType, id uint64) {
		cc.Changes = append(cc.Changes, &raftpb.ConfChangeSingle{Type: t.Enum(), NodeId: new(id)})
	}
	for _, id := range to.Voters {
		add(raftpb.ConfChangeAddNode, id)
	}
	for _, id := range to.Learners {
		add(raftpb.ConfChangeAddLearnerNode, id)
	}
	for _, id := range slices.Concat(from.GetVoters(), from.GetLearners(), from.GetLearnersNext()) {
		if !slices.Contains(to.Voters, id) && !slices.Contains(to.Learners, id) {
			add(raftpb.ConfChangeRemoveNode, id)
		}
	}
	return cc
}

// CarryOut puts a takeover into the log of member id. The process may die at any moment: a repeated call continues.
// After it has returned nil once, it does nothing. No Node may run on the log.
//
// The order is: term and vote, entries, sync, and last the membership at the end of the entries. An entry never has a
// term that the vote file does not know. The vote refuses other candidates in a term for which this member made
// entries. The membership makes the entries committed (recoverState takes its index for committed).
func (t *Takeover) CarryOut(st Storage, id uint64) error {
	if st.ConfStateIndex() >= t.End() {
		return nil
	}
	hs, _, err := st.InitialState()
	if err != nil {
		return err
	}
	if err := t.fits(st, hs); err != nil {
		return err
	}
	if hs.GetTerm() < t.Term {
		err := st.SetHardState(&raftpb.HardState{Term: new(t.Term), Vote: new(id), Commit: new(hs.GetCommit())})
		if err != nil {
			return fmt.Errorf("persist term %d: %w", t.Term, err)
		}
	}
	if err := st.Append(t.entries()); err != nil {
		return fmt.Errorf("append entries %d to %d: %w", t.Base+1, t.End(), err)
	}
	if err := st.Sync(); err != nil {
		return fmt.Errorf("sync the log up to entry %d: %w", t.End(), err)
	}
	cs := &raftpb.ConfState{Voters: t.Conf.Voters, Learners: t.Conf.Learners}
	if err := st.SetConfState(cs, t.End()); err != nil {
		return fmt.Errorf("persist the membership of entry %d: %w", t.End(), err)
	}
	return nil
}

// fits checks that the log is the one that the takeover was planned for, with none, some or all of the entries.
func (t *Takeover) fits(st Storage, hs *raftpb.HardState) error {
	last, err := st.LastIndex()
	if err != nil {
		return err
	}
	term, err := st.Term(t.Base)
	switch {
	case err != nil && !errors.Is(err, raft.ErrUnavailable):
		return err
	case err != nil || term != t.BTerm:
		return fmt.Errorf("%w: the takeover begins after entry %d of term %d; the log has term %d there and ends at %d",
			ErrStorageInconsistent, t.Base, t.BTerm, term, last)
	case hs.GetTerm() > t.Term || last > t.End():
		return fmt.Errorf(
			"%w: the takeover of term %d up to entry %d was not finished, but the log is in term %d and ends at %d",
			ErrStorageInconsistent, t.Term, t.End(), hs.GetTerm(), last)
	}
	for i := t.Base + 1; i <= last; i++ {
		if term, err := st.Term(i); err != nil || term != t.Term {
			return errors.Join(err, fmt.Errorf("%w: entry %d has term %d, the takeover begins after %d", ErrStorageInconsistent,
				i, term, t.Base))
		}
	}
	return nil
}

func (t *Takeover) entries() []*raftpb.Entry {
	out := make([]*raftpb.Entry, len(t.Entries))
	for i, e := range t.Entries {
		out[i] = &raftpb.Entry{Index: new(t.Base + 1 + uint64(i)), Term: new(t.Term), Data: e.Data}
		if e.Change {
			out[i].Type = raftpb.EntryConfChangeV2.Enum()
		}
	}
	return out
}

// Quorum reports whether some members can commit in a membership: they must be a majority of each of its halves.
func Quorum(cs *raftpb.ConfState, live func(id uint64) bool) bool {
	return halfQuorum(cs.GetVoters(), live) &&
		(len(cs.GetVotersOutgoing()) == 0 || halfQuorum(cs.GetVotersOutgoing(), live))
}

func halfQuorum(voters []uint64, live func(uint64) bool) bool {
	n := 0
	for _, id := range voters {
		if live(id) {
			n++
		}
	}
	return n > len(voters)/2
}

// CommittedWithin reports whether everything that was committed in a membership is certainly in the log of one of some
// members: the others cannot have committed anything without them.
func CommittedWithin(cs *raftpb.ConfState, live func(id uint64) bool) bool {
	return !Quorum(cs, func(id uint64) bool { return !live(id) })
}
