package memory

import (
	"errors"
	"math/rand/v2"
	"testing"

	"trireme/internal/core/raftlog/memfs"
)

// TestUpdateIsWhole: wherever the disk fails or the power goes in the course of a change, the file holds what it held
// or the change, and what was said to be on disk is there. A change that failed is not shown.
func TestUpdateIsWhole(t *testing.T) {
	for at := 1; ; at++ {
		reached := false
		for seed := range uint64(20) {
			reached = step(t, at, seed, seed%2 == 0)
		}
		if !reached {
			if at < 5 {
				t.Fatalf("a change is %d operations of the file system", at-1)
			}
			return
		}
	}
}

// step makes operation number at of a change fail, and with power all later ones too. It returns false if the change
// has fewer operations.
func step(t *testing.T, at int, seed uint64, power bool) (reached bool) {
	t.Helper()
	fsys, ops := memfs.New(), 0
	if err := fsys.MkdirAll("/"); err != nil {
		t.Fatal(err)
	}
	m, err := Open(fsys, "/")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Update(func(s *State) { s.Incarnation = 1 }); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("the disk fails")
	fsys.Hook = func(memfs.Op, string) error {
		if ops++; ops == at || power && ops > at {
			reached = true
			return failed
		}
		return nil
	}
	err = m.Update(func(s *State) { s.Incarnation = 2 })
	if reached == (err == nil) || err != nil && !errors.Is(err, failed) {
		t.Fatalf("operation %d fails: %v", at, err)
	}
	shown := m.Get().Incarnation
	if (err == nil) != (shown == 2) {
		t.Fatalf("operation %d fails: %v, and %d is shown", at, err, shown)
	}
	fsys.Hook = nil
	if err == nil {
		fsys.Crash(nil)
	} else {
		fsys.Crash(rand.New(rand.NewPCG(seed, 1)))
	}
	again, err := Open(fsys, "/")
	if err != nil {
		t.Fatalf("operation %d fails: %v", at, err)
	}
	if got := again.Get().Incarnation; got != 1 && got != 2 || got < shown {
		t.Fatalf("operation %d fails: %d is read, and %d was said to be on disk", at, got, shown)
	}
	return reached
}
