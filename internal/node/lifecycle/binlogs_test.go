package lifecycle

import (
	"os"
	"path/filepath"
	"testing"

	"trireme/internal/mysql/binlog"
	"trireme/lab/heap"
)

// TestTornBinlogTail: a torn binary log can announce an event of 1 GiB. Reading what a dead incarnation wrote allocates
// no such buffer.
func TestTornBinlogTail(t *testing.T) {
	for _, typ := range []binlog.EventType{binlog.TypeGTID, binlog.TypeGTIDTagged} {
		dir := t.TempDir()
		b := []byte("\xfebin")
		b = binlog.Header{Type: typ, EventSize: binlog.MaxEventSize}.Append(b)
		b = append(b, make([]byte, 64)...)
		if err := os.WriteFile(filepath.Join(dir, "binlog.000001"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		heap.Within(t, 1<<20, func() {
			if gtids := loggedGTIDs(dir); !gtids.Empty() {
				t.Errorf("GTIDs %s", gtids)
			}
		})
	}
}
