package node

import (
	"strings"
	"testing"
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
		if p := n.srv.problem; strings.Count(p, "no healthy data node") != 1 || strings.Count(p, "the data is too old") != 1 {
			t.Errorf("%q", p)
		}
	}
}
