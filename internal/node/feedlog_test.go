package node

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
)

// TestFeedGivesOnlyCommitted: what the log holds beyond the commit index is not shown to this node's mysqld, whatever
// it asks for (S3).
func TestFeedGivesOnlyCommitted(t *testing.T) {
	n := withEntries(t, 4)
	const committed = 2
	entries, err := n.rlog.Entries(1, committed+1, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, _, err := n.led.Add(e.GetIndex(), e.GetTerm(), e.GetData(), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	f := &feedLog{n: n}
	if got := f.Committed(); got != committed {
		t.Errorf("the feed takes entry %d for committed, %d is", got, committed)
	}
	got, err := f.Read(t.Context(), 1, 4, 1<<20)
	if err != nil || len(got) != committed {
		t.Errorf("%d entries, %v; want %d", len(got), err, committed)
	}
	_, all := n.led.Snapshot()
	if next, _, err := f.SeekGTID(all); err != nil || next != committed+1 {
		t.Errorf("with %s executed the feed begins at %d, %v; want %d", all.String(), next, err, committed+1)
	}
	if next, _, err := f.SeekGTID(gtid.Set{}); err != nil || next != committed {
		t.Errorf("with nothing executed the feed begins at %d, %v; want %d", next, err, committed)
	}
}

// withEntries is a node whose log has a barrier, and transactions after it.
func withEntries(t *testing.T, count uint64) *Node {
	t.Helper()
	n := newTestNode(t)
	openTestLog(t, n)
	var ents []*raftpb.Entry
	for i := range count {
		m := raftlog.Meta{Kind: raftlog.Barrier, Node: 1, Incarnation: 1, Start: raftlog.Pos{File: 1, Off: 4},
			End: raftlog.Pos{File: 1, Off: 4}}
		if i > 0 {
			m.Kind, m.Start.Off, m.End.Off = raftlog.Trx, 100*i-96, 100*i+4
			m.AddGTID(gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(5, 1, 1)}, GNO: int64(i + 1)})
		}
		ents = append(ents, &raftpb.Entry{Index: new(i + 1), Term: new(uint64(1)),
			Data: append(raftlog.AppendMeta(nil, &m), make([]byte, 100)...)})
	}
	if err := errors.Join(n.rlog.SetHardState(&raftpb.HardState{Term: new(uint64(1))}), n.rlog.Append(ents),
		n.rlog.Sync()); err != nil {
		t.Fatal(err)
	}
	return n
}
