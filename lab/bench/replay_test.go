package bench

import (
	"context"
	"testing"
	"time"

	"trireme/lab/rivals"
)

// TestReplay measures a small backlog: rows and transactions must fit each other.
func TestReplay(t *testing.T) {
	needServers(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out := t.TempDir()
	const n = 1000
	err := Run(ctx, RunOptions{Suites: []string{"replay"}, Quick: true, Out: out, Dir: t.TempDir(), Say: testWriter{t},
		Settings: Settings{Systems: []string{"semisync"},
			Topologies: []string{noTopology}, Workers: []int{2}, Threads: []int{8}, Rounds: 1, WarmupSeconds: 1, Seconds: 2,
			CPUs: -1, Tables: 2, Rows: 1000, Transactions: n}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := readResults(resultsPath(out, "replay"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Records) != 1 || r.Records[0].NotRun != "" {
		t.Fatalf("%+v", r.Records)
	}
	v := r.Records[0].Values
	perTrx := v[valApplyRows] / v[valApplyTPS]
	if v[valBacklog] != n || v[valWorkers] != 2 || perTrx < 3.5 || perTrx > 4.5 || v[valDrain] <= 0 ||
		v[valApplyTPS]*v[valDrainAll] < 0.8*n || v[valApplyUS] <= 0 {
		t.Errorf("backlog: figures make no sense: %v", v)
	}
}

// TestReplayPlan: every number of workers, replicas without a log of their own only where they can be, quick runs with
// less.
func TestReplayPlan(t *testing.T) {
	withSysbench(t)
	s := replaySuite.Defaults(false)
	s.Systems = []string{"async", "semisync", "trireme"}
	groups, err := replayPlan(s)
	if err != nil {
		t.Fatal(err)
	}
	cells := map[string]int{}
	for _, g := range groups {
		cells[g.System.Name+"/"+g.Shape.Options["log_replica_updates"]] += len(g.Cells)
	}
	want := map[string]int{"async/": 4, "async/OFF": 4, "semisync/": 4, "trireme/": 1 + 4}
	if len(cells) != len(want) {
		t.Errorf("%v", cells)
	}
	for k, n := range want {
		if cells[k] != n {
			t.Errorf("%s: %d cells, want %d", k, cells[k], n)
		}
	}
	s.Quick = true
	if groups, err = replayPlan(s); err != nil || len(groups[1].Cells) != 4 || len(groups) != 4 {
		t.Errorf("quick: %d cells, %d starts, %v", len(groups[1].Cells), len(groups), err)
	}
}

// TestNotPausable: a system without replicas has neither backlog nor lag.
func TestNotPausable(t *testing.T) {
	stopped := 0
	b := &Bed{Running: fake{&stopped}, System: rivals.System{Name: "fake"}}
	if _, err := pausable(b); err == nil {
		t.Error("a system without replicas can be held up")
	}
}
