package bench

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/lab/rivals"
)

// TestLagOfHeartbeats: from the acknowledgement to the first answer that shows a heartbeat or a later one.
func TestLagOfHeartbeats(t *testing.T) {
	base := time.Now()
	at := func(ms int) time.Time { return base.Add(time.Duration(ms) * time.Millisecond) }
	var h heartbeats
	for _, ms := range []int{50, 100, 150, 200, 250} {
		h.add(at(ms))
	}
	// the first before its acknowledgement, the second never, the fifth not yet
	sights := []sight{{1, at(40)}, {3, at(190)}, {4, at(205)}}
	got := h.delays(sights, base, at(1000), at(1250))
	want := []time.Duration{0, 90 * time.Millisecond, 40 * time.Millisecond, 5 * time.Millisecond, time.Second}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := h.delays(sights, at(100), at(200), at(1250)); !slices.Equal(got, want[1:3]) {
		t.Errorf("in a window: %v, want %v", got, want[1:3])
	}
}

// TestLagSaid: what a system says is held against what was seen at that moment, in both directions, for the replica
// that counts alone.
func TestLagSaid(t *testing.T) {
	base := time.Now()
	at := func(ms int) time.Time { return base.Add(time.Duration(ms) * time.Millisecond) }
	m := lagMeasure{rec: Record{Values: map[string]float64{ofReplica("n3", valLag99): 7}}}
	var samples []lagSample
	for ms := 0; ms < 2000; ms += 5 {
		s := lagSample{at: at(ms), host: "n3"}
		if ms >= 1000 {
			s.lag = 400 * time.Millisecond
		}
		samples = append(samples, s, lagSample{at(ms), time.Minute, "n2"})
	}
	words := []said{{at(500), "n3", rivals.Lag{Time: 150 * time.Millisecond, Bytes: 2048}}, {at(600), "n2", rivals.Lag{}},
		{at(1500), "n3", rivals.Lag{Time: 100 * time.Millisecond, Bytes: 4096}},
		{at(9000), "n3", rivals.Lag{Time: time.Hour}}} // after the load
	m.of("n3", samples, words, base, at(2000), at(1500))
	v := m.rec.Values
	want := map[string]float64{valLag99: 7, valSeen99: 400, valSeenMax: 400, valSaid99: 150, valSaidMax: 150,
		valTooLow: 300, valTooHigh: 150, valSaidKiB: 4}
	for name, w := range want {
		if v[name] != w {
			t.Errorf("%s: %v, want %v", name, v[name], w)
		}
	}
	if v[valLagBack] < 0.49 || v[valLagBack] > 0.5 {
		t.Errorf("back after %v s", v[valLagBack])
	}
	if _, ok := near(samples, at(5000)); ok {
		t.Error("a lag was seen where nothing was sampled")
	}
}

func TestStoppedReplica(t *testing.T) {
	base := time.Now()
	s := stopped{host: "n3", held: base.Add(5 * time.Second), let: base.Add(15 * time.Second), backlog: 3000,
		race: []leg{{base.Add(15 * time.Second), 10000, 7000}, {base.Add(17 * time.Second), 10600, 9000},
			{base.Add(19 * time.Second), 11200, 11000}}}
	rec := Record{Values: map[string]float64{}, Events: []Event{{1, "load begins"}, {40, "load ends"}}}
	s.values(&rec, base)
	if v := rec.Values; v[valHeldMS] != 10000 || v[valBacklog] != 3000 || v[valApplyTPS] != 1000 ||
		v[valLeaderTPS] != 300 || v[valDrainRatio] < 3.3 {
		t.Errorf("%v", v)
	}
	if e := rec.Events; len(e) != 4 || e[1].Text != "n3 is stopped" || e[2].Second != 16 || e[3].Text != "load ends" {
		t.Errorf("%v", e)
	}
}

func TestLagPlan(t *testing.T) {
	withSysbench(t)
	s := lagSuite.Defaults(false)
	groups, err := lagPlan(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(groups) != 3*4 || len(groups[0].Cells) != 3 || groups[0].Shape.Topology.Name != "lan" ||
		groups[0].Cells[0].Key.Threads != 50 {
		t.Errorf("%d starts: %+v", len(groups), groups[0].Cells)
	}
	s.AllVariants = true
	if groups, err = lagPlan(s); err != nil || len(groups) != 3*(2+3+5+1) {
		t.Errorf("with all variants %d starts, %v", len(groups), err)
	}
	s.Cases = []string{"flood"}
	if err := lagSuite.Check(s); err == nil || !strings.Contains(err.Error(), "there are: steady, full, stopped") {
		t.Error(err)
	}
}

// TestLagReport draws every table from known records: who lags, by replica, and whose word is not to be trusted.
func TestLagReport(t *testing.T) {
	rec := func(system, c string, round int, lag, low, high float64) Record {
		r := Record{Key: Key{Topology: "30ms", System: system, Variant: "default", Case: c, Workload: "oltp_write_only",
			Threads: 50, Round: round},
			Values: map[string]float64{valLoadTPS: 300, valLag50: lag / 2, valLag99: lag, valLagMax: 2 * lag, valLagBack: 0.5,
				ofReplica("n2", valLag50): 1, ofReplica("n2", valLag99): lag / 4, ofReplica("n2", valLagMax): 9,
				ofReplica("n3", valLag50): lag / 2, ofReplica("n3", valLag99): lag, ofReplica("n3", valLagMax): 2 * lag},
			Series: map[string][]float64{seriesSeen: {0, 0.1}}}
		if low >= 0 {
			r.Values[valSeen99], r.Values[valSaid99], r.Values[valTooLow], r.Values[valTooHigh] = lag, lag, low, high
			r.Series[seriesSaid] = []float64{0, 0.2}
		}
		if c == caseStopped {
			r.Values[valBacklog], r.Values[valApplyTPS], r.Values[valLeaderTPS], r.Values[valDrainRatio] = 3000, 900, 300, 3
		}
		return r
	}
	r := Results{Header: Header{Settings: Settings{Suite: "lag", Quick: true}}, Records: []Record{
		rec("semisync", caseSteady, 1, 200, 950, 10), rec("mgr-eventual", caseSteady, 1, 80, -1, 0),
		rec("trireme", caseSteady, 1, 40, 20, 180), rec("semisync", caseStopped, 1, 11000, 950, 990),
		rec("trireme", caseStopped, 1, 10500, 50, 30),
	}}
	text := draw(t, lagSuite, &r)
	for _, want := range []string{"Quick run: indicative only",
		"| 30ms | steady | semi-sync | default | n2 | 1.0 | 50.0 | 9.0 |",
		"| 30ms | steady | Trireme | default | n3 | 20.0 | 40.0 | 80.0 |", "| 3000 |", "| 900 | 300 | 3.00 |", "| too low |",
		"| never too low, at times too high |", "| as clients see it |", "| too low and too high |"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Count(text, "MGR_1") == 0 || strings.Contains(text, "| MGR_1 | default | too low") {
		t.Errorf("a system that says nothing is judged:\n%s", text)
	}
}

// TestLag measures the lag of semi-sync's replicas, with one that is stopped: what was seen, drained and said must fit
// each other.
func TestLag(t *testing.T) {
	needServers(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out := t.TempDir()
	err := Run(ctx, RunOptions{Suites: []string{"lag"}, Quick: true, Out: out, Dir: t.TempDir(), Say: testWriter{t},
		Settings: Settings{Systems: []string{"standalone", "semisync"},
			Topologies: []string{noTopology}, Cases: []string{caseFull, caseStopped}, Threads: []int{8}, Rounds: 1,
			WarmupSeconds: 1, Seconds: 2, CPUs: 0, Tables: 2, Rows: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := readResults(resultsPath(out, "lag"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Records) != 4 || r.Records[0].NotRun == "" || r.Records[2].NotRun != "" || r.Records[3].NotRun != "" {
		t.Fatalf("%+v", r.Records)
	}
	v := r.Records[2].Values
	if v[valLoadTPS] <= 0 || v[valLag50] > v[valLag99] || v[valLag99] > v[valLagMax] ||
		v[ofReplica("n2", valLag99)] > v[valLag99] {
		t.Errorf("full: figures make no sense: %v", v)
	}
	v = r.Records[3].Values
	if v[valHeldMS] < milliseconds(stopFor) || v[valLagMax] < 0.9*v[valHeldMS] || v[valBacklog] < 10 ||
		v[valDrainRatio] <= 1 || v[valLagBack] <= 0 || v[valSeenMax] < 0.9*v[valHeldMS] {
		t.Errorf("stopped: figures make no sense: %v", v)
	}
	if len(r.Records[3].Series[seriesSaid]) < 10 || len(r.Records[3].Events) != 4 {
		t.Errorf("stopped: %+v", r.Records[3])
	}
}
