package node

import (
	"strings"
	"testing"

	"trireme/internal/core/consensus"
	"trireme/internal/node/lifecycle"
)

// TestReasonOnce: a node that gives its data up for an entry that it cannot apply says so once.
func TestReasonOnce(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	for applier, want := range map[string]int{"it cannot apply an entry": 1, "": 1} {
		n.seeding.NoteApplier(nil, applier)
		n.mu.Lock()
		n.control.ReplaceDataLocked("it cannot apply an entry")
		r := n.selfViewLocked(&consensus.Status{}).Reason
		n.mu.Unlock()
		if strings.Count(r, "it cannot apply an entry") != want {
			t.Errorf("%q", r)
		}
	}
}

// TestSeedingChanges: what seeding changes is changed with the node's lock held, and others are told of it.
func TestSeedingChanges(t *testing.T) {
	n := newTestNode(t)
	n.srv.backlog.Applied = 7
	n.gossip.Due() // it has been told
	h := seedServer{n}
	h.Change(func(*lifecycle.Status, uint64) bool { return false })
	if n.gossip.Due() {
		t.Error("others are told of nothing")
	}
	h.Change(func(s *lifecycle.Status, applied uint64) bool {
		if applied != 7 || n.mu.TryLock() {
			t.Errorf("it has applied up to %d, or its lock is free", applied)
		}
		s.Behind("why")
		return true
	})
	if s, _ := h.Now(); s.Problem() != "why" || !n.gossip.Due() {
		t.Error("it is not changed, or not told")
	}
}
