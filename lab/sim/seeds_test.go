package sim

import (
	"context"
	"flag"
	"runtime"
	"testing"
)

var (
	seedCount = flag.Int("sim.seeds", 500, "seeds for TestCampaign")
	failures  = flag.Int("sim.failures", 3, "broken promises after which TestSQLCampaign ends")
	seedFrom  = flag.Uint64("sim.from", 0, "first seed for TestCampaign")
)

func TestCampaign(t *testing.T) {
	o := CampaignOptions{From: *seedFrom, Seeds: *seedCount, Jobs: runtime.GOMAXPROCS(0), MaxFailures: 3}
	if testing.Short() {
		o.Seeds = min(o.Seeds, 60)
	}
	total, err := Campaign(context.Background(), o)
	for _, f := range total.Failures {
		t.Errorf("seed %d: %s: %s\n%s", f.Seed, f.Rule, f.Text, f.Trace)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d seeds in %v, %v simulated: %v", total.Seeds, total.Took, total.Simulated, total.Counts)
}

// TestSeeds are single seeds that were found to fail.
func TestSeeds(t *testing.T) {
	for seed, what := range map[uint64]string{
		1795318324408: "power is lost while entries of an older term are removed, segment by segment: those that are left are no loss",
		88:            "the order to take over waits at a stopped process until the leader has a lease again",
		102624:        "the last entry rots after a start that nothing was written in: it looked like a torn write",
	} {
		r, err := Run(context.Background(), seed, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Violation != nil {
			t.Errorf("seed %d (%s): %v", seed, what, r.Violation)
		}
	}
}
