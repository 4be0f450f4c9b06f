package consensus

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// A leader whose own disk is slower than the others' may be out of the membership when it has written.
func TestLeaderIsRemovedWhileItsDiskWrites(t *testing.T) {
	e := newEnv(t)
	for _, id := range []uint64{1, 2, 3} {
		if err := e.start(id, newMemStore(1, 2, 3), nil); err != nil {
			t.Fatal(err)
		}
	}
	leader := e.members[1]
	leader.core.campaign()
	e.settle()
	leader.diskHeld = true
	p, err := newChangeProposal(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{
		{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(1))},
	}})
	if err != nil {
		t.Fatal(err)
	}
	leader.core.props.waiting = append(leader.core.props.waiting, p)
	e.settle()
	leader.diskHeld = false
	leader.disk() // it has the change on disk, and can apply it
	leader.diskHeld = true
	leader.core.props.waiting = append(leader.core.props.waiting, &proposal{entry: &raftpb.Entry{Data: []byte("x")}, done: make(chan struct{})})
	e.settle()
	if s := leader.pub.state.Load(); len(s.Voters) != 2 {
		t.Fatalf("the leader is not removed while its disk is held: voters %v", s.Voters)
	}
	leader.diskHeld = false
	e.settle() // fails the test when the leader refuses its own answer
}

// A Stepper that is alone elects itself, commits, reads and ends as a Node does.
func TestStepper(t *testing.T) {
	now := int64(time.Hour)
	var delivered int
	cfg := Config{ID: 1, Storage: newMemStore(1), Send: func([]*raftpb.Message) {}, Clock: func() int64 { return now },
		OnCommitted: func(ents []*raftpb.Entry) { delivered += len(ents) }}
	s, err := OpenStepper(cfg, nil, StepperOptions{Life: 1, Jitter: func(uint64, int) int { return 0 }, After: func(time.Duration, func()) {}})
	if err != nil {
		t.Fatal(err)
	}
	step := func(ticks int) {
		t.Helper()
		for range ticks {
			now += int64(50 * time.Millisecond)
			s.Tick()
			for !s.Idle() || s.WantsAppend() || s.WantsApply() {
				if err := s.Turn(); err != nil {
					t.Fatal(err)
				}
				if s.WantsAppend() {
					if err := s.BeginAppend(); err != nil {
						t.Fatal(err)
					}
					if s.WantsAppend() {
						t.Fatal("two batches at once")
					}
					if err := s.EndAppend(); err != nil {
						t.Fatal(err)
					}
				}
				if err := s.Apply(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	step(40)
	if st := s.Status(); st.Role != Leader || !s.HoldsLease() {
		t.Fatalf("%v of term %d, lease %v", st.Role, st.Term, s.HoldsLease())
	}
	var index, read uint64
	s.Propose(0, []byte("x"), func(i, _ uint64, err error) {
		if index = i; err != nil {
			t.Error(err)
		}
		s.ReadIndex(func(i uint64) { read = i }) // a callback may ask for more
	})
	var transferred, changed bool
	s.TransferLeadership(1, func(err error) { transferred = err == nil })
	s.ProposeConfChange(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{
		{Type: raftpb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(2))},
	}}, func(err error) { changed = err == nil })
	step(5)
	if index == 0 || read < index || !transferred || !changed || s.Status().Applied < index || delivered == 0 {
		t.Errorf("proposed %d, read %d, transferred %v, changed %v, applied %d", index, read, transferred, changed, s.Status().Applied)
	}
	s.Stop()
	if s.HoldsLease() || s.Turn() == nil || s.Failed() != nil {
		t.Error("it goes on after Stop")
	}
}

// The next life may begin behind what the persisted commit index covers, so it covers nothing that was not delivered: a membership change
// that was committed, and never put in force, would be skipped.
func TestCommitIndexIsKeptForWhatWasDelivered(t *testing.T) {
	store := newMemStore(1, 2, 3)
	m := &member{store: store, cfg: Config{ID: 1, Storage: store, Send: func([]*raftpb.Message) {}}}
	if err := m.cfg.setDefaults(); err != nil {
		t.Fatal(err)
	}
	st, err := recoverState(store, 0)
	if err != nil {
		t.Fatal(err)
	}
	a := newAppender(&m.cfg, st, &m.pub)
	for _, applied := range []uint64{0, 2, 5} {
		m.pub.applied.Store(applied)
		for a.last <= applied {
			at := a.last + 1
			if _, err := a.process([]*raftpb.Message{{Type: raftpb.MsgStorageAppend.Enum(), Term: new(uint64(1)), Vote: new(uint64(0)),
				Commit: new(applied + 1), Entries: []*raftpb.Entry{{Index: &at, Term: new(uint64(1))}}}}); err != nil {
				t.Fatal(err)
			}
		}
		if got := a.hard.GetCommit(); got != applied {
			t.Errorf("%d entries are on disk and committed, %d were delivered: commit index %d was kept", a.last, applied, got)
		}
	}
}
