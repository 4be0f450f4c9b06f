package bench

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestScratchOfKilledRuns: what a killed run left is removed by the next one; what is in use, or was left in order, is
// not.
func TestScratchOfKilledRuns(t *testing.T) {
	dir := t.TempDir()
	scratch := func() string {
		d, err := newScratch(dir, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	mark := func(d string) func() {
		unmark, err := markRunning(d)
		if err != nil {
			t.Fatal(err)
		}
		return unmark
	}
	killed, failed, running := scratch(), scratch(), scratch()
	mark(killed)
	mark(failed)()
	mark(running)
	unlock, err := lockDir(running)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := os.WriteFile(filepath.Join(killed, "data"), make([]byte, 100), 0o644); err != nil {
		t.Fatal(err)
	}
	next := scratch()
	for d, want := range map[string]bool{killed: false, failed: true, running: true, next: true} {
		if _, err := os.Stat(d); (err == nil) != want {
			t.Errorf("%s: there %v, wanted %v", d, err == nil, want)
		}
	}
}
