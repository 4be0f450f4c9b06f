package sim

import (
	"context"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/consensus"
)

// TestBrokenIsNoticed: nodes that break a promise are found out, by the rule that names it.
func TestBrokenIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name  string
		b     broken
		rules string // any of these; others may be noticed first on some seeds
	}{
		{"syncs that do nothing", broken{sync: true}, "S2"},
		{"answers that claim more than was written", broken{acks: true}, "S2"},
		{"votes that are forgotten", broken{vote: true}, "S2"},
		{"two votes in one term", broken{twice: true}, "election safety"},
		{"votes for a shorter log", broken{blind: true}, "leader completeness"},
		{"other bytes on one disk", broken{entries: true}, "log matching"},
		{"other bytes given to one node", broken{deliver: true}, "state-machine safety"},
		{"old read indexes", broken{reads: true}, "linearizable reads"},
		{"clocks that run at any speed", broken{clock: 0.8}, "S10"},
		{"bytes that change under way", broken{frames: true}, "framing"},
		{"cuts that stay", broken{heal: true}, "liveness"},
		{"reports of deaths that did not happen", broken{gone: true}, "S10"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			found := map[string]int{}
			for seed := range uint64(200) {
				r, err := Run(context.Background(), seed, Options{broken: c.b})
				if err != nil {
					t.Fatal(err)
				}
				if r.Violation == nil {
					continue
				}
				if r.Violation.Rule == c.rules {
					return
				}
				found[r.Violation.Rule]++
			}
			t.Errorf("no violation of %s in 200 seeds, but of %v", c.rules, found)
		})
	}
}

// TestFalseDeath: those who are told again and again that a leader is dead which is not may read what is old there,
// until its lease ends (docs/GUARANTEES.md). That is all: nothing acknowledged is lost, nothing is there twice, and all
// end equal.
func TestFalseDeath(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() {
		seeds = 30
	}
	for name, top := range map[string]func(*Node) Top{"consensus": nil, "nodes": SQLTop("")} {
		for seed := range seeds {
			r, err := Run(context.Background(), seed, Options{Top: top, broken: broken{gone: true, leases: true}})
			if err != nil {
				t.Fatal(err)
			}
			if r.Violation != nil {
				t.Errorf("%s, seed %d: %v", name, seed, r.Violation)
			}
		}
	}
}

// TestChecks: what no lie on the wire or on a disk leads to.
func TestChecks(t *testing.T) {
	for _, c := range []struct {
		name, rule string
		do         func(w *World, n *Node)
	}{
		{"a commit index that falls", "commit index", func(w *World, n *Node) {
			n.status.Commit--
			w.check.node(n)
		}},
		{"a lease without leadership", "S10", func(w *World, n *Node) {
			n.status.Role = consensus.Follower
			w.check.node(n)
		}},
		{"a match index that was never synced", "S2", func(w *World, n *Node) {
			n.status.Members[2] = consensus.Progress{Match: n.status.LastIndex + 1}
			w.check.node(n)
		}},
		{"a commit on a minority's disks", "S2", func(w *World, n *Node) {
			for _, l := range w.check.logs[1:] {
				clear(l.synced)
			}
			w.check.commit--
			w.check.node(n)
		}},
		{"a commit of what others had synced, cut off and written again", "S2", func(w *World, n *Node) {
			rewritten(w, n)
			w.check.node(n)
		}},
		{"a match index of what a follower had synced, cut off and written again", "S2", func(w *World, n *Node) {
			rewritten(w, n)
			w.check.commit = n.status.Commit // nothing new is committed
			n.status.Members = map[uint64]consensus.Progress{1 + n.ID%3: {Match: n.status.Commit}}
			w.check.node(n)
		}},
		{"memberships that differ", "membership", func(w *World, n *Node) {
			w.check.confs[0].voters = []uint64{1, 2, 4}
			w.check.membership(n, w.check.confs[0].index)
		}},
		{"disjoint majorities", "membership", func(w *World, n *Node) {
			w.check.confs[0].voters = []uint64{4}
			w.check.membership(n, w.check.confs[0].index+1)
		}},
		{"an acknowledged entry that is not there", "acknowledged entries", func(w *World, n *Node) {
			w.load.acked = append(w.load.acked, n.status.Applied+1)
			w.finish()
		}},
		{"a daemon that gives up without a reason", "S13", func(w *World, n *Node) { n.fatal(consensus.ErrInvariant) }},
	} {
		w := newWorld(plan{nodes: 3}, Options{})
		w.runUntil(int64(quiet))
		l := w.Leader()
		// One look at a leader that is in order finds nothing.
		if l != nil {
			w.check.node(l)
		}
		if l == nil || w.violation != nil || !l.HoldsLease() {
			t.Fatalf("no leader to begin with: %v", w.violation)
		}
		c.do(w, l)
		if w.violation == nil || w.violation.Rule != c.rule {
			t.Errorf("%s: want a violation of %s, got %v", c.name, c.rule, w.violation)
		}
	}
}

// rewritten makes node n the leader of a later term that commits the last entry that all had synced, in a new form
// which it alone has synced.
func rewritten(w *World, n *Node) {
	n.status.Term++
	w.check.commit = n.status.Commit - 1
	entry := []*raftpb.Entry{{Index: new(n.status.Commit), Term: new(n.status.Term)}}
	for _, m := range w.nodes {
		if !w.check.log(m).had(n.status.Commit, n.status.Term-1) {
			panic("not everybody has synced what is committed")
		}
		w.check.appending(m, entry)
		w.check.appended(m, entry)
	}
	w.check.synced(n)
}

// TestShrink: what fails is shown with fewer faults than it was found with.
func TestShrink(t *testing.T) {
	o := Options{broken: broken{sync: true}}
	for seed := range uint64(50) {
		r, err := Run(context.Background(), seed, o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Violation == nil || len(drawPlan(seed, &o).faults) < 6 {
			continue
		}
		text := Shrink(context.Background(), seed, o)
		if !strings.Contains(text, "and 1 faults") || !strings.Contains(text, "VIOLATION of S2") ||
			!strings.Contains(text, "loses power") {
			t.Fatalf("seed %d: %.2000s", seed, text)
		}
		return
	}
	t.Fatal("no seed fails on disks that do not sync")
}
