package node

import (
	"strings"
	"testing"

	"trireme/internal/consensus"
)

// TestSeedingTellsWhy: while there is nothing to copy from, a node still says why its data has to be replaced.
func TestSeedingTellsWhy(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	n.mu.Lock()
	n.replaceDataLocked("the data is too old")
	n.mu.Unlock()
	for range 2 {
		n.seedServer(t.Context())
		s := n.lives.Status()
		if p := s.Problem(); strings.Count(p, "no healthy data node") != 1 || strings.Count(p, "the data is too old") != 1 {
			t.Errorf("%q", p)
		}
	}
}

// TestReasonOnce: a node that gives its data up for an entry that it cannot apply says so once.
func TestReasonOnce(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	n.mu.Lock()
	defer n.mu.Unlock()
	for applier, want := range map[string]int{"it cannot apply an entry": 1, "": 1} {
		n.replaceDataLocked("it cannot apply an entry")
		n.srv.applier = applier
		if r := n.selfViewLocked(&consensus.Status{}).Reason; strings.Count(r, "it cannot apply an entry") != want {
			t.Errorf("%q", r)
		}
	}
}
