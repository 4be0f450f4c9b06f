package bench

import (
	"context"
	"strings"
	"testing"
	"time"

	"trireme/internal/verify"
)

// TestGapsMGR runs Group Replication through a failover and a switchover: its clients find the new primary, nothing is lost, and the figures
// make sense.
func TestGapsMGR(t *testing.T) {
	needServers(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	kinds, err := kindsOf([]string{"mysqld killed", "switchover"})
	if err != nil {
		t.Fatal(err)
	}
	o, err := GapOptions{Dir: t.TempDir(), Faults: 1, Rivals: []string{"mgr"}, Writers: 4, Data: 4 << 20, Say: testWriter{t}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEnvironment(ctx, "", "", o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	p := o.plans(kinds)[1]
	p.series = func(c contender) []series { // without time-outs that only cost time here
		return []series{{name: "MGR", kinds: kinds, takes: func(faultKind) time.Duration { return 0 }, set: func(ctx context.Context) error {
			return c.(*mgr).set(ctx, "group_replication_member_expel_timeout", "0")
		}}}
	}
	s, err := o.runPlan(ctx, e, p, time.Time{})
	if err != nil || s.Problem != "" {
		t.Fatal(err, s.Problem)
	}
	if len(s.Faults) != 2 || s.SteadyTPS <= 0 || s.Report.Tables != 5 || s.Report.Counts.Acked == 0 {
		t.Fatalf("%+v", s)
	}
	killed, moved := s.Faults[0], s.Faults[1]
	if killed.GapMS < 1000 || killed.Failed == 0 || killed.HealthySecs*1000 < killed.GapMS || killed.BackSecs > killed.HealthySecs {
		t.Errorf("primary killed: %+v", killed)
	}
	if moved.GapMS >= killed.GapMS {
		t.Errorf("switchover: %+v", moved)
	}
}

// TestGapReport makes the report of known figures: the quantiles, what is filed where, which targets are missed.
func TestGapReport(t *testing.T) {
	r := GapResult{Started: time.Unix(0, 0).UTC(), Writers: 64, Data: 1 << 30, Systems: []GapSystem{{Name: "Trireme"}, {Name: "Group Replication", Settings: mgrOptions()}}}
	for i := range 50 {
		f := Fault{Series: "Trireme", Kind: "mysqld killed", GapMS: float64(10 * (i + 1)), BackSecs: 3, TPSBefore: 1000, TPSNext: 500}
		r.Systems[0].Faults = append(r.Systems[0].Faults, f)
		f.Kind, f.GapMS = "daemon killed", float64(30*(i+1)) // p50 750, p99 1500
		r.Systems[0].Faults = append(r.Systems[0].Faults, f)
		f.Kind, f.GapMS, f.TPSNext = "follower's mysqld killed", 10, 1000-float64(i%2) // no dip
		r.Systems[0].Faults = append(r.Systems[0].Faults, f)
	}
	r.Systems[0].Faults = append(r.Systems[0].Faults, Fault{Series: "Trireme", Kind: "switchover", GapMS: 1, BackSecs: 11})
	r.Systems[1].Faults = []Fault{{Series: "MGR", Kind: "mysqld killed", GapMS: 22000, BackSecs: 40, Paused: true, Lost: 2}}
	text := r.markdown()
	for _, want := range []string{
		"| mysqld killed | Trireme | 50 | 250 | 450 | 500 | 500 | 0 | 0 | p50 500, p99 1000 | met |",
		"| mysqld killed | MGR | 1 | 22000 | 22000 | 22000 | 22000 | 2 | 0 |  |  |",
		"| daemon killed | Trireme | 50 | 750 | 1350 | 1500 | 1500 | 0 | 0 | p50 500, p99 1000 | **missed:** p50 750 ms, wanted 500; p99 1500 ms, wanted 1000 |",
		"**missed:** back after 11.0 s, wanted 10",
		"| follower's mysqld killed | Trireme | 50 | 10 | 10 | 10 | 10 | 0 | 0 | – | met |",
		"| follower's mysqld killed | Trireme | 50 | -0.1 ± 0.0 |",
		"40.0 | 1 of 1 |",
		"1024 MiB of data",
		"group_replication_consistency=BEFORE_ON_PRIMARY_FAILOVER",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}

// TestDipMustBeResolved: a mean dip of 10 % that may as well be none is not called a miss, a certain one is.
func TestDipMustBeResolved(t *testing.T) {
	k, err := kindsOf([]string{"follower's mysqld killed"})
	if err != nil {
		t.Fatal(err)
	}
	row := func(next ...float64) gapRow {
		out := gapRow{kind: k[0], ours: true}
		for _, n := range next {
			out.faults = append(out.faults, Fault{TPSBefore: 100, TPSNext: n})
		}
		return out
	}
	if m := row(40, 150, 80, 90).missed(); len(m) != 0 {
		t.Errorf("unresolved dip: %v", m)
	}
	if m := row(88, 90, 92, 90).missed(); len(m) != 1 {
		t.Errorf("dip of 10 %% for sure: %v", m)
	}
}

func TestFaultOfAttempt(t *testing.T) {
	m := &gapRun{begun: [][]int64{{10, 0}, {20, 5}}}
	for _, c := range []struct {
		a    verify.Attempt
		want int
	}{
		{verify.Attempt{Writer: 0, Seq: 9}, -1}, {verify.Attempt{Writer: 0, Seq: 10}, 0}, {verify.Attempt{Writer: 0, Seq: 19}, 0},
		{verify.Attempt{Writer: 0, Seq: 20}, 1}, {verify.Attempt{Writer: 1, Seq: 4}, 0}, {verify.Attempt{Writer: 1, Seq: 6}, 1}, {verify.Attempt{}, -1},
	} {
		if got := m.faultOf(c.a); got != c.want {
			t.Errorf("%+v is filed under fault %d, want %d", c.a, got, c.want)
		}
	}
}

func TestGapOptions(t *testing.T) {
	for _, o := range []GapOptions{{Rivals: []string{"galera"}}, {Faults: -1}, {Data: -1}, {Limit: -time.Second}} {
		if _, err := o.withDefaults(); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if _, err := kindsOf([]string{"mysqld killed", "earthquake"}); err == nil {
		t.Error("an unknown kind was accepted")
	}
	o, err := GapOptions{Faults: 50, Rivals: []string{"mgr"}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	p := o.plans(faultKinds)
	if len(p) != 2 || p[0].faults != 50 || p[1].faults != 15 || p[0].estimate < 10*time.Minute || p[0].estimate > time.Hour {
		t.Errorf("plans: %+v", p)
	}
	if n := len(p[1].series(nil)[0].kinds); n != 4 {
		t.Errorf("%d kinds for Group Replication, want 4", n)
	}
}
