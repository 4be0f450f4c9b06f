package sim

import (
	"testing"
	"time"

	"trireme/internal/core/consensus"
)

// TestCommitShownByAFollower: an entry that one node alone has on its disk is not committed, also where the first to
// say so does not lead.
func TestCommitShownByAFollower(t *testing.T) {
	for _, c := range []struct {
		name     string
		role     consensus.Role
		synced   int // nodes that have the entry on their disks
		change   bool
		violated bool
	}{
		{"a leader, one disk", consensus.Leader, 1, false, true},
		{"a leader, two disks", consensus.Leader, 2, false, false},
		{"a follower, one disk", consensus.Follower, 1, false, true},
		{"a follower, two disks", consensus.Follower, 2, false, false},
		{"a candidate, one disk", consensus.Candidate, 1, false, true},
		{"a follower, and the membership may be another one", consensus.Follower, 1, true, false},
	} {
		w := newWorld(plan{seed: 1, nodes: 3, length: time.Second}, Options{})
		voters := []uint64{1, 2, 3}
		for i, n := range w.nodes {
			n.status.Voters, n.status.Applied = voters, 3
			l := w.check.log(n)
			*l = logModel{terms: []uint64{1, 1, 1, 1}, synced: map[entryID]bool{}}
			l.syncedTo(3)
			if i < c.synced {
				l.syncedTo(4)
			}
		}
		w.check.commit, w.check.lastChange = 3, 3
		if c.change {
			w.check.lastChange = 4
		}
		n := w.nodes[2]
		n.status.Role, n.status.Term, n.status.Commit = c.role, 1, 4
		w.check.newCommit(n)
		if got := w.violation != nil && w.violation.Rule == "S2"; got != c.violated {
			t.Errorf("%s: %v", c.name, w.violation)
		}
	}
}
