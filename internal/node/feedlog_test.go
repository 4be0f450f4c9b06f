package node

import (
	"testing"
	"time"

	"trireme/internal/gtid"
)

// TestFeedGivesOnlyCommitted: what the log holds beyond the commit index is not shown to this node's mysqld, whatever it asks for (S3).
func TestFeedGivesOnlyCommitted(t *testing.T) {
	n := atRest(t, 1, 1, 1, 1, 1)
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
	f.reader.Close()
	_, all := n.led.Snapshot()
	if next, _, err := f.SeekGTID(all); err != nil || next != committed+1 {
		t.Errorf("with %s executed the feed begins at %d, %v; want %d", all.String(), next, err, committed+1)
	}
	if next, _, err := f.SeekGTID(gtid.Set{}); err != nil || next != committed {
		t.Errorf("with nothing executed the feed begins at %d, %v; want %d", next, err, committed)
	}
}
