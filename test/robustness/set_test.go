package robustness

import (
	"context"
	"testing"
	"time"

	"trireme/internal/demo"
	"trireme/internal/verify"
)

// TestAllWorkloads runs every workload of the safety kit at once, kills the leader's mysqld and a follower's daemon meanwhile, and has
// every checker judge what clients saw and what the nodes hold; then again from the files that were kept.
func TestAllWorkloads(t *testing.T) {
	c := share(t)
	dir := t.TempDir()
	s, err := verify.NewSet(verify.SetConfig{Login: c.Routed(), Nodes: c.DirectAll, Database: "workloads", Seed: 6, Dir: dir})
	must(t, err)
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), healLimit)
	defer cancel()
	must(t, s.Prepare(ctx))
	s.Start(context.WithoutCancel(t.Context()))
	t.Cleanup(func() { _ = s.Stop() })

	work := func(d time.Duration) {
		t.Helper()
		begin := time.Now()
		eventually(t, healLimit, "work goes on", func() error {
			if left := d - time.Since(begin); left > 0 || !s.Meter().AckedSince(begin) {
				return context.DeadlineExceeded
			}
			return nil
		})
	}
	work(8 * time.Second)
	leader := c.healthy()
	before := c.view()
	c.crash(leader)
	c.failedOver(before.Term)
	work(5 * time.Second)
	follower := c.others(c.healthy())[0]
	c.KillDaemon(follower)
	c.start(follower)
	work(5 * time.Second)
	must(t, s.Stop())
	c.healthy()

	for name, n := range s.Counts() {
		if n.Acked == 0 {
			t.Errorf("%s: nothing was acknowledged: %+v", name, n)
		}
	}
	check, cancel := context.WithTimeout(t.Context(), checkLimit)
	defer cancel()
	nodes, err := c.Endpoints()
	must(t, err)
	defer demo.CloseEndpoints(nodes)
	r, err := s.Check(check, nodes)
	must(t, err)
	t.Logf("%s", r)
	if !r.OK() {
		t.Error("there are problems")
	}
	again, err := verify.Recheck(dir)
	must(t, err)
	if len(again.Parts) != len(verify.Workloads) || !again.OK() || again.Counts != r.Counts {
		t.Errorf("judged again from the files: %s", again)
	}
}
