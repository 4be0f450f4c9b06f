package sim

import (
	"context"
	"flag"
	"testing"
)

var (
	seedCount = flag.Int("sim.seeds", 500, "seeds for TestCampaign")
	seedFrom  = flag.Uint64("sim.from", 0, "first seed for TestCampaign")
)

func TestCampaign(t *testing.T) {
	o := CampaignOptions{From: *seedFrom, Seeds: *seedCount, MaxFailures: 3}
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

// TestTruncationCutShort: power is lost while entries of an older term are removed, segment by segment. Those that are left are no loss.
func TestTruncationCutShort(t *testing.T) {
	total, err := Campaign(context.Background(), CampaignOptions{From: 1795318324408, Seeds: 1, MaxFailures: 1})
	for _, f := range total.Failures {
		t.Errorf("seed %d: %s: %s", f.Seed, f.Rule, f.Text)
	}
	if err != nil {
		t.Fatal(err)
	}
}
