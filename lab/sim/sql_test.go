package sim

import (
	"context"
	"runtime"
	"testing"
	"time"
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

// TestSQLRepeats looks at a part of TestSQLCampaign's seeds for what does not come from the seed, such as the order of
// a map.
func TestSQLRepeats(t *testing.T) {
	for i := 0; i < *seedCount && !(testing.Short() && i > 0); i += 25 {
		seed := *seedFrom + uint64(i)
		a, _ := Run(context.Background(), seed, Options{Top: SQLTop("")})
		b, _ := Run(context.Background(), seed, Options{Top: SQLTop("")})
		if a.Hash != b.Hash {
			t.Errorf("seed %d gave two runs: %x and %x", seed, a.Hash, b.Hash)
		}
	}
}

// TestSQLCampaign runs whole nodes, with mysqld: nothing acknowledged is lost, nothing is there twice, all end equal.
func TestSQLCampaign(t *testing.T) {
	o := CampaignOptions{From: *seedFrom, Seeds: *seedCount, Jobs: runtime.GOMAXPROCS(0), MaxFailures: *failures,
		Options: Options{Top: SQLTop("")}}
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
	if none := total.Counts.Missing(); len(none) > 0 {
		t.Errorf("in %d seeds there was nothing of this: %v", total.Seeds, none)
	}
}

// TestSQLSeeds are single seeds that were found to fail. What a seed draws changes with the model: an old one may be
// another run by now.
func TestSQLSeeds(t *testing.T) {
	for seed, what := range map[uint64]string{
		1809:   "the only voter with data is asked to give up its vote: the daemon refuses that, and so must the simulation",
		7801:   "the same, of two votes at once",
		100077: "a node that is elected before its own disk has its log counts for itself what is not synced: raft does, and commits nothing by it",
		100295: "a node was copied from a donor that had not applied what its new log no longer has",
		74:     "a client's local statement in the last moment of a polite stop was released by the shutdown",
		10174:  "a node whose log had rotted was elected, and waited for ever for what its feed could not read",
		11559:  "a leader that had adopted XA transactions waited for what its life before had proposed in the same term, with its feed paused",
		100313: "a power loss that only a judgement had met went unnoticed",
		5570:   "a leader that had just heard of its successor passed a question on in the asker's name",
		1749:   "the death of a follower ended the leader's lease for a moment, and its guard, told so, killed its mysqld",

		1796200000300: "a generation counted as made whose file a failed sync had left, and a power loss took away",
	} {
		r, err := Run(context.Background(), seed, Options{Top: SQLTop("")})
		if err != nil {
			t.Fatal(err)
		}
		if r.Violation != nil {
			t.Errorf("seed %d (%s): %v", seed, what, r.Violation)
		}
	}
}

// TestSQLFindsBrokenRules: a node that breaks a rule is caught by one of 500 seeds. Some take a rare coincidence: the
// search begins shortly before.
func TestSQLFindsBrokenRules(t *testing.T) {
	for _, rule := range []string{"S1", "S3", "S4", "S4stop", "S4watch", "S5", "S5judge", "S5plug", "S6", "S7", "S8",
		"S8xa", "S10look", "S12", "rules", "locks", "forgets"} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			from := map[string]uint64{"S4stop": 1000, "S7": 1080, "S8xa": 140, "S10look": 1740, "forgets": 120}[rule]
			for i := range uint64(500) {
				seed := from + i
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

// TestNothingIsLeft: a run ends its tasks: each that waits still would keep all that the run has made.
func TestNothingIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	for seed := range uint64(3) {
		if _, err := Run(context.Background(), seed, Options{Top: SQLTop("")}); err != nil {
			t.Fatal(err)
		}
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines are left", after-before)
	}
}

// TestSwitchoverReopens: the target of a switchover is cut off once writes are closed for it. The leader opens them again,
// in its own term.
func TestSwitchoverReopens(t *testing.T) {
	s := newScenario(t, 3)
	leader, target := s.sql.writable(), s.followers()[0]
	s.until("the target can take over", func() bool {
		_, err := leader.lead.ChooseTarget(leader.control.View(), name(target.ID))
		return err == nil
	})
	leader.switchover(name(target.ID))
	for at, end := s.now, s.now+int64(time.Minute); s.sql.writable() != nil; at += int64(50 * time.Microsecond) {
		if s.runUntil(at); at > end {
			t.Fatalf("writes are not closed\n%s", s.traceText())
		}
	}
	term, heal := leader.n.status.Term, s.cutOff(target)
	s.until("writes are open again", func() bool { return s.sql.writable() != nil })
	if s.sql.writable() != leader || leader.n.status.Term != term || s.sql.counts.switched != 0 {
		t.Errorf("node %d takes writes in term %d, it was %d in %d", s.sql.writable().n.ID, leader.n.status.Term, leader.n.ID, term)
	}
	heal()
	if s.peace(); s.violation != nil {
		t.Error(s.violation)
	}
}
