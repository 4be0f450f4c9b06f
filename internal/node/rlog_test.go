package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"trireme/internal/core/raftlog"
	"trireme/internal/node/memory"
)

// TestRestartBeforeTheFirstEntry: a node that joined and is started again before its first entry arrived has an empty
// log, which is not a lost one; if the log's directory is gone, or its files are, the node refuses (S2).
func TestRestartBeforeTheFirstEntry(t *testing.T) {
	dir := t.TempDir()
	opts := raftlog.Options{Dir: filepath.Join(dir, "raft"), Cluster: 1, NodeID: 4}
	start := func() error {
		local, err := memory.Open(raftlog.OSFS{}, dir)
		if err != nil {
			t.Fatal(err)
		}
		l, err := openRaftLog(opts, local)
		if err != nil {
			return final(err)
		}
		return l.Close()
	}
	for range 3 {
		if err := start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(opts.Dir); err != nil {
		t.Fatal(err)
	}
	for range 2 { // refusing makes no log that the next start would take for the old one
		if err := start(); !errors.Is(err, raftlog.ErrGone) || !errors.Is(err, ErrFinal) {
			t.Fatalf("a lost log: %v", err)
		}
	}
}
