package node

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
)

// TestSnapshotIsItsOwnBoundary: the ledger goes on after the snapshot that it is told of, although the log was
// replaced once more by then.
func TestSnapshotIsItsOwnBoundary(t *testing.T) {
	first, second := testSnapshots(t)
	n := newTestNode(t, as(2))
	openTestLog(t, n)
	for _, s := range []*raftpb.Snapshot{first, second} {
		if err := n.rlog.ResetTo(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*raftpb.Snapshot{first, second} {
		if err := n.onSnapshot(s); err != nil {
			t.Fatal(err)
		}
		if got := n.led.Index(); got != s.GetMetadata().GetIndex() {
			t.Fatalf("the ledger goes on after %d, the snapshot ends at %d", got, s.GetMetadata().GetIndex())
		}
		e := trxEntry(s.GetMetadata().GetIndex() + 1)
		if err := n.acks.OnCommitted([]*raftpb.Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.onSnapshot(&raftpb.Snapshot{Data: []byte("torn")}); err == nil {
		t.Error("a snapshot that cannot be read is passed over")
	}
}

// testSnapshots are two of one log.
func testSnapshots(t *testing.T) (first, second *raftpb.Snapshot) {
	t.Helper()
	l, err := raftlog.Open(raftlog.Options{Dir: t.TempDir(), Cluster: 5, NodeID: 1, SegmentBytes: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	next := uint64(1)
	commit := func() {
		if err := l.SetHardState(&raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(1)), Commit: new(next - 1)}); err != nil {
			t.Fatal(err)
		}
	}
	commit()
	snapshot := func() *raftpb.Snapshot {
		for range 100 {
			e := trxEntry(next)
			if err := errors.Join(l.Append([]*raftpb.Entry{e}), l.Sync()); err != nil {
				t.Fatal(err)
			}
			next++
		}
		commit()
		if _, err := l.Purge(next-1, 0); err != nil {
			t.Fatal(err)
		}
		s, err := l.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return snapshot(), snapshot()
}

// trxEntry is a small transaction in a log whose first entry is a barrier.
func trxEntry(index uint64) *raftpb.Entry {
	m := raftlog.Meta{Kind: raftlog.Trx, Node: 1, Incarnation: 1, Start: raftlog.Pos{File: 1, Off: 4 + 100*(index-1)},
		End: raftlog.Pos{File: 1, Off: 4 + 100*index}}
	m.GTIDs = []gtid.Range{{SID: gtid.SID{UUID: gtid.IncarnationUUID(5, 1, 1)}, First: int64(index), Last: int64(index)}}
	if index == 1 {
		m = raftlog.Meta{Kind: raftlog.Barrier, Node: 1, Incarnation: 1, Start: raftlog.Pos{File: 1, Off: 4},
			End: raftlog.Pos{File: 1, Off: 104}}
	}
	data := append(raftlog.AppendMeta(nil, &m), fmt.Sprintf("%100d", index)...)
	return &raftpb.Entry{Index: &index, Term: new(uint64(1)), Data: data}
}
