package lifecycle

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
)

// TestFeedGivesOnlyCommitted: what the log holds beyond the commit index is not shown to this node's mysqld, whatever
// it asks for (S3).
func TestFeedGivesOnlyCommitted(t *testing.T) {
	log, led := logWithEntries(t, 4), ledger.New(raftlog.Boundary{})
	const committed = 2
	entries, err := log.Entries(1, committed+1, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, _, err := led.Add(e.GetIndex(), e.GetTerm(), e.GetData(), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	f := NewFeedLog(log, led)
	if got := f.Committed(); got != committed {
		t.Errorf("the feed takes entry %d for committed, %d is", got, committed)
	}
	got, err := f.Read(t.Context(), 1, 4, 1<<20)
	if err != nil || len(got) != committed {
		t.Errorf("%d entries, %v; want %d", len(got), err, committed)
	}
	_, all := led.Snapshot()
	if next, _, err := f.SeekGTID(all); err != nil || next != committed+1 {
		t.Errorf("with %s executed the feed begins at %d, %v; want %d", all.String(), next, err, committed+1)
	}
	if next, _, err := f.SeekGTID(gtid.Set{}); err != nil || next != committed {
		t.Errorf("with nothing executed the feed begins at %d, %v; want %d", next, err, committed)
	}
}

// logWithEntries is one with a barrier, and transactions after it.
func logWithEntries(t *testing.T, count uint64) *raftlog.Log {
	t.Helper()
	log, err := raftlog.Open(raftlog.Options{Dir: t.TempDir(), Cluster: 5, NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
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
	if err := errors.Join(log.SetHardState(&raftpb.HardState{Term: new(uint64(1))}), log.Append(ents),
		log.Sync()); err != nil {
		t.Fatal(err)
	}
	return log
}
