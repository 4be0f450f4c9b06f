package consensus

import (
	"fmt"
	"slices"
	"strings"
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
	leader.core.props.waiting = append(leader.core.props.waiting, newProposal(0, []byte("x")))
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
		OnCommitted: func(ents []*raftpb.Entry) error { delivered += len(ents); return nil }}
	s, err := OpenStepper(cfg, nil, StepperOptions{Life: 1, Jitter: func(uint64, int) int { return 0 },
		After: func(time.Duration, func()) {}})
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
		t.Errorf("proposed %d, read %d, transferred %v, changed %v, applied %d", index, read, transferred, changed,
			s.Status().Applied)
	}
	s.Stop()
	if s.HoldsLease() || s.Turn() == nil {
		t.Error("it goes on after Stop")
	}
}

// appenderOf is the appender of a new member.
func appenderOf(t *testing.T) (*member, *appender) {
	t.Helper()
	store := newMemStore(1, 2, 3)
	m := &member{store: store, cfg: Config{ID: 1, Storage: store, Send: func([]*raftpb.Message) {}}}
	if err := m.cfg.setDefaults(); err != nil {
		t.Fatal(err)
	}
	st, err := recoverState(store, 0)
	if err != nil {
		t.Fatal(err)
	}
	return m, newAppender(&m.cfg, st, &m.pub)
}

// The next life may begin after what the persisted commit index covers, so the index covers nothing that was not
// delivered. Otherwise a membership change that was committed, and never put in force, would be skipped.
func TestCommitIndexIsKeptForWhatWasDelivered(t *testing.T) {
	m, a := appenderOf(t)
	for _, applied := range []uint64{0, 2, 5} {
		m.pub.applied.Store(applied)
		for a.last <= applied {
			at := a.last + 1
			if _, err := a.process([]*raftpb.Message{{Type: raftpb.MsgStorageAppend.Enum(), Term: new(uint64(1)),
				Vote:   new(uint64(0)),
				Commit: new(applied + 1), Entries: []*raftpb.Entry{{Index: &at, Term: new(uint64(1))}}}}); err != nil {
				t.Fatal(err)
			}
		}
		if got := a.hard.GetCommit(); got != applied {
			t.Errorf("%d entries are on disk and committed, %d were delivered: commit index %d was kept", a.last, applied, got)
		}
	}
}

// What has queued up while the disk was busy is written at once, and answered once: the last answer covers all. An
// answer that says something else, a refusal, or an answer to another leader stays, and keeps its place.
func TestQueuedAppendsAreOneWriteAndOneAnswer(t *testing.T) {
	_, a := appenderOf(t)
	counted := &countedAppends{Storage: a.storage}
	a.storage = counted
	first := a.last + 1
	message := func(index, term uint64, n int, responses ...*raftpb.Message) *raftpb.Message {
		m := &raftpb.Message{Type: raftpb.MsgStorageAppend.Enum(), Term: new(term), Vote: new(uint64(0)),
			Commit: new(uint64(0)), Responses: responses}
		for i := range uint64(n) {
			m.Entries = append(m.Entries, &raftpb.Entry{Index: new(index + i), Term: new(term)})
		}
		return m
	}
	answer := func(to, term, index uint64, reject bool) *raftpb.Message {
		return &raftpb.Message{Type: raftpb.MsgAppResp.Enum(), To: new(to), Term: new(term), Index: new(index),
			Reject: new(reject)}
	}
	own := &raftpb.Message{Type: raftpb.MsgStorageAppendResp.Enum(), To: new(uint64(1))}
	got, err := a.process([]*raftpb.Message{
		message(first, 1, 2, answer(2, 1, first+1, false), own),
		message(first+2, 1, 1, answer(2, 1, first+2, false), own),
		message(first+3, 1, 3, answer(2, 1, first+5, false), own),
		message(0, 1, 0, answer(2, 1, first+9, true)),
		message(first+6, 1, 1, answer(2, 1, first+6, false), own),
	})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, r := range got {
		said = append(said, fmt.Sprintf("%s to %d, %d, %t", r.GetType(), r.GetTo(), r.GetIndex()-first, r.GetReject()))
	}
	none := -first
	want := []string{
		fmt.Sprintf("MsgStorageAppendResp to 1, %d, false", none),
		fmt.Sprintf("MsgStorageAppendResp to 1, %d, false", none),
		"MsgAppResp to 2, 5, false",
		fmt.Sprintf("MsgStorageAppendResp to 1, %d, false", none),
		"MsgAppResp to 2, 9, true",
		"MsgAppResp to 2, 6, false",
		fmt.Sprintf("MsgStorageAppendResp to 1, %d, false", none),
	}
	if !slices.Equal(said, want) {
		t.Errorf("answers:\n%s\nwant:\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
	if want := []string{fmt.Sprintf("%d+7", first), "sync"}; !slices.Equal(counted.calls, want) {
		t.Errorf("writes %v, want %v", counted.calls, want)
	}

	counted.calls = nil // entries that are replaced are not in the same write as those that replace them
	if _, err := a.process([]*raftpb.Message{message(first+7, 1, 2), message(first+8, 2, 1), message(first+9, 2, 1)}); err != nil {
		t.Fatal(err)
	}
	if want := []string{fmt.Sprintf("%d+2", first+7), fmt.Sprintf("%d+2", first+8), "sync"}; !slices.Equal(counted.calls, want) {
		t.Errorf("writes %v, want %v", counted.calls, want)
	}
}

// countedAppends notes each write (its first index and its number of entries) and each sync.
type countedAppends struct {
	Storage
	calls []string
}

func (c *countedAppends) Append(ents []*raftpb.Entry) error {
	c.calls = append(c.calls, fmt.Sprintf("%d+%d", ents[0].GetIndex(), len(ents)))
	return c.Storage.Append(ents)
}

func (c *countedAppends) Sync() error {
	c.calls = append(c.calls, "sync")
	return c.Storage.Sync()
}
