package consensus

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// TestCommittedChange: a member that has lost its commit index knows from a second membership change that the first one
// is committed, and does not write that to disk before it has applied it.
func TestCommittedChange(t *testing.T) {
	store := newMemStore(1, 2, 3)
	var ents []*raftpb.Entry
	for i, typ := range []raftpb.EntryType{raftpb.EntryNormal, raftpb.EntryConfChangeV2, raftpb.EntryNormal,
		raftpb.EntryConfChangeV2, raftpb.EntryNormal} {
		ents = append(ents, &raftpb.Entry{Index: new(uint64(i + 1)), Term: new(uint64(1)), Type: typ.Enum()})
	}
	for n, want := range []uint64{0, 0, 0, 0, 2, 2} {
		store.MemoryStorage = raft.NewMemoryStorage()
		if n > 0 {
			if err := errors.Join(store.Append(ents[:n]), store.Sync()); err != nil {
				t.Fatal(err)
			}
		}
		store.hard = &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(1)), Commit: new(uint64(0))}
		st, err := recoverState(store, 0)
		if err != nil {
			t.Fatal(err)
		}
		if last := []uint64{0, 0, 2, 2, 4, 4}[n]; st.change != last {
			t.Errorf("%d entries: the last change is entry %d, not %d", n, st.change, last)
		}
		a := newAppender(&Config{}, st, &published{})
		if st.commit != want || a.settled != want || a.hard.GetCommit() != 0 {
			t.Errorf("%d entries: commit index %d, settled %d, on disk %d; want %d, and 0 on disk", n, st.commit, a.settled,
				a.hard.GetCommit(), want)
		}
	}
}
