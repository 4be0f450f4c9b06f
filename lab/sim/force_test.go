package sim

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/node/recovery"
)

// TestForceCampaign: every run tries to take the majority away, and an operator makes a new generation.
func TestForceCampaign(t *testing.T) {
	o := CampaignOptions{From: *seedFrom, Seeds: *seedCount / 4, Jobs: runtime.GOMAXPROCS(0), MaxFailures: *failures,
		Options: Options{Top: SQLTop(""), force: true}}
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
	for _, what := range []string{"majorities_lost", "force_quorums", "left_behind", "given_up_entries"} {
		if total.Counts[what] == 0 && total.Seeds >= 40 {
			t.Errorf("in %d seeds there was nothing of this: %s", total.Seeds, what)
		}
	}
}

// TestForceSeeds are single seeds that were found to fail.
func TestForceSeeds(t *testing.T) {
	for seed, what := range map[uint64]string{
		25:   "a loss of power took generation.json back, whose name was not durable when the node went by it",
		1774: "the source lost power with the takeover in its log, and took the settings in it for delivered",
	} {
		r, err := Run(context.Background(), seed, Options{Top: SQLTop(""), force: true})
		if err != nil {
			t.Fatal(err)
		}
		if r.Violation != nil {
			t.Errorf("seed %d (%s): %v", seed, what, r.Violation)
		}
	}
}

// scenario is a cluster under writes to which only happens what a test does.
type scenario struct {
	*World
	t *testing.T
}

func newScenario(t *testing.T, nodes int) *scenario {
	t.Helper()
	s := &scenario{newWorld(plan{seed: 7, nodes: nodes, length: time.Minute}, Options{Top: SQLTop(""), Trace: true}), t}
	t.Cleanup(s.end)
	s.sql.logger = 0
	s.until("it takes writes", func() bool { return s.sql.counts.acked > 20 && s.sql.counts.opens > 0 })
	return s
}

// until lets time pass until something is so.
func (s *scenario) until(what string, is func() bool) {
	s.t.Helper()
	for end := s.now + int64(time.Minute); !is(); {
		s.runUntil(s.now + int64(10*time.Millisecond))
		if s.done || s.now > end {
			s.t.Fatalf("not seen that %s: %v, %s\n%s", what, s.violation, s.illness(), s.traceText())
		}
	}
}

// cutOff cuts a node off until heal is called.
func (s *scenario) cutOff(n *Node) (heal func()) {
	cut := func(by int) {
		for _, m := range s.nodes {
			if m != n {
				s.net.addCut(s.now, n.ID, m.ID, by)
				s.net.addCut(s.now, m.ID, n.ID, by)
			}
		}
	}
	cut(1)
	return func() { cut(-1) }
}

// followers of the leader, by id.
func (s *scenario) followers() (all []*Node) {
	for _, n := range s.nodes {
		if n != s.Leader() {
			all = append(all, n)
		}
	}
	return all
}

func (s *scenario) switchOff(nodes ...*Node) {
	for _, n := range nodes {
		n.powerOff()
	}
}

func (s *scenario) decided(number uint64) func() bool {
	return func() bool { return s.generation == number }
}

// works reports whether writes are acknowledged in the newest generation.
func (s *scenario) works() bool {
	before := s.sql.counts.acked
	s.runUntil(s.now + int64(time.Second))
	return s.sql.writable() != nil && s.sql.counts.acked > before
}

// left is what a node that was given up says of itself, and it does not start any more.
func (s *scenario) left(n *Node) *recovery.Left {
	s.t.Helper()
	s.until("it is given up", func() bool { return n.lost })
	st, err := recovery.Load(n.fs, nodeDir)
	if err != nil || st.Left == nil || n.lostWhy != "given up" {
		s.t.Fatalf("node %d: %v, %v, lost: %s", n.ID, st, err, n.lostWhy)
	}
	return st.Left
}

// TestForceOfThree: two of three are gone, and the third one, which does not have all, goes on. They come back, and are
// given up with what they have more.
func TestForceOfThree(t *testing.T) {
	s := newScenario(t, 3)
	leader, survivor, other := s.Leader(), s.followers()[0], s.followers()[1]
	heal := s.cutOff(survivor)
	behind := s.sql.counts.acked
	s.until("the others go on", func() bool { return s.sql.counts.acked > behind+10 })
	s.switchOff(leader, other)
	heal()
	acked := s.sql.executed.Count()
	s.sql.force.watch()
	s.until("a generation is made", s.decided(2))
	if now := s.sql.executed.Count(); now+5 > acked {
		t.Errorf("%d transactions of %d are kept, and the survivor did not have all", now, acked)
	}
	s.until("writes are open", s.works)
	for _, n := range []*Node{other, leader} {
		n.powerOn()
		if l := s.left(n); l.Have == "" || l.Last < l.From {
			t.Errorf("node %d has nothing beyond: %+v", n.ID, l)
		}
	}
	s.until("writes are open", s.works)
	if s.peace(); s.violation != nil {
		t.Error(s.violation)
	}
}

// answered waits until one of the survivors has said, to be confirmed, what it has, and holds still.
func (s *scenario) answered() (survivor *Node) {
	s.t.Helper()
	s.until("a survivor holds still", func() bool {
		for _, g := range s.sql.members {
			if g.said != 0 {
				survivor = g.n
			}
		}
		return survivor != nil
	})
	return survivor
}

// TestForceOfFive: one of two survivors is down when the other one decides. It follows when it is back, and one of the
// three that are given up with the same log does not.
func TestForceOfFive(t *testing.T) {
	s := newScenario(t, 5)
	gone := append(s.followers()[:2:2], s.Leader())
	s.switchOff(gone...)
	s.sql.force.watch()
	second := s.answered()
	s.switchOff(second)
	s.until("a generation is made", s.decided(2))
	if now := s.sql.force.now; now.Source == second.ID || !slices.Contains(now.Members, second.ID) {
		t.Fatalf("%+v", now)
	}
	gone[0].powerOn()
	if l := s.left(gone[0]); l.Why != "it was given up" {
		t.Errorf("%+v", l)
	}
	second.powerOn()
	s.until("it follows, and writes are open", func() bool { return second.generation.Number == 2 && s.works() })
	if s.peace(); s.violation != nil {
		t.Error(s.violation)
	}
}

// TestForceBeyond: a survivor that has gone on with those that were given up does not follow. What they have committed
// then counts for nothing, and a second force-quorum makes a cluster of the source alone.
func TestForceBeyond(t *testing.T) {
	s := newScenario(t, 5)
	gone := append(s.followers()[:2:2], s.Leader())
	s.switchOff(gone...)
	s.sql.force.watch()
	second := s.answered()
	heal := s.cutOff(second)
	s.until("a generation is made", s.decided(2))
	source := s.Node(s.sql.force.now.Source)
	heal()
	heal = s.cutOff(source)
	for _, n := range gone {
		n.powerOn()
	}
	s.until("those of the first generation take writes, and the survivor has them", func() bool {
		return s.extra["served_in_the_past"] > 20 && second.status.LastIndex > s.sql.force.now.Base
	})
	heal()
	for _, n := range append(gone, second) {
		s.left(n)
	}
	if l := s.left(second); l.Have == "" || !strings.Contains(l.Why, "goes beyond") {
		t.Errorf("%+v", l)
	}
	s.until("another generation is made", s.decided(3))
	s.until("writes are open", s.works)
	if s.peace(); s.violation != nil {
		t.Error(s.violation)
	}
}

// TestForceFindsBrokenRules: what must never be after a force-quorum is noticed.
func TestForceFindsBrokenRules(t *testing.T) {
	for rule, want := range map[string]string{ // and a part of what is said of it; empty: whatever is broken
		"generations mix":    "",
		"served after":       "ends for another generation, mysqld runs: true",
		"never ends":         "was told of a newer generation",
		"starts again":       "was given up and starts again",
		"survivor given up":  "has nothing beyond it, and was given up",
		"follows beyond":     "is not of them or goes beyond",
		"shorter log":        "makes a generation that keeps what is committed to",
		"certain":            "the report says all",
		"both sides":         "of another parent",
		"forgets generation": "was of generation",
	} {
		t.Run(strings.ReplaceAll(rule, " ", "_"), func(t *testing.T) {
			t.Parallel()
			found := map[string]int{}
			for seed := range uint64(300) {
				r, err := Run(context.Background(), seed, Options{Top: SQLTop(rule), force: true})
				if err != nil {
					t.Fatal(err)
				}
				switch v := r.Violation; {
				case v == nil:
				case strings.Contains(v.Text, want) && (v.Rule == "generations" || want == ""):
					t.Logf("seed %d: %.300v, after %d others", seed, v, len(found))
					return
				default:
					found[v.String()]++
				}
			}
			t.Errorf("300 seeds found nothing but %.2000v", found)
		})
	}
}
