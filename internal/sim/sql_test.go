package sim

import (
	"context"
	"testing"
)

func TestSQLSameSeedSameTrace(t *testing.T) {
	for seed := range uint64(4) {
		a, _ := Run(context.Background(), seed, Options{Top: SQLTop(""), Trace: true})
		b, _ := Run(context.Background(), seed, Options{Top: SQLTop(""), Trace: true})
		if a.Hash != b.Hash || a.Trace != b.Trace {
			t.Fatalf("seed %d gave two runs: %x and %x", seed, a.Hash, b.Hash)
		}
	}
}

// TestSQLCampaign runs whole nodes, with mysqld: nothing acknowledged is lost, nothing is there twice, all end equal.
func TestSQLCampaign(t *testing.T) {
	o := CampaignOptions{From: *seedFrom, Seeds: *seedCount, MaxFailures: 3, Options: Options{Top: SQLTop("")}}
	if testing.Short() {
		o.Seeds = min(o.Seeds, 40)
	}
	total, err := Campaign(context.Background(), o)
	for _, f := range total.Failures {
		t.Errorf("seed %d: %s: %s\n%s", f.Seed, f.Rule, f.Text, f.Trace)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d seeds in %v, %v simulated: %v", total.Seeds, total.Took, total.Simulated, total.Counts)
	// A simulation in which nothing happens finds nothing.
	for _, what := range []string{"acked", "unknown", "refused", "sql_reads", "opens", "retires", "guard_kills", "mysqld killed", "mysqld hangs",
		"dump connection lost", "binary log rotated", "switchover", "data directory lost", "leadership to and fro", "power_losses", "purges", "plugged", "refed", "seeds",
		"daemon stopped politely", "data tampered with"} {
		if total.Counts[what] == 0 {
			t.Errorf("in %d seeds there was nothing of this: %s", total.Seeds, what)
		}
	}
}

// TestSQLFindsBrokenRules: a node that breaks a rule is caught by one of 500 seeds. Two take rare coincidences: the search begins shortly before.
func TestSQLFindsBrokenRules(t *testing.T) {
	for _, rule := range []string{"S1", "S3", "S4", "S4stop", "S5", "S5judge", "S5plug", "S6", "S7", "S8", "S8xa", "S12"} {
		t.Run(rule, func(t *testing.T) {
			from := map[string]uint64{"S4stop": 200, "S8xa": 270}[rule]
			for i := range uint64(500) {
				seed := (from + i) % 500
				r, err := Run(context.Background(), seed, Options{Top: SQLTop(rule)})
				if err != nil {
					t.Fatal(err)
				}
				if v := r.Violation; v != nil && v.Rule != "liveness" {
					t.Logf("seed %d: %.300v", seed, v)
					return
				}
			}
			t.Error("500 seeds found nothing")
		})
	}
}
