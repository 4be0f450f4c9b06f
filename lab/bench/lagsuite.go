package bench

import (
	"slices"
	"strings"
	"time"

	"trireme/lab/report"
	"trireme/lab/rivals"
)

// Cases of the suite lag.
const (
	caseSteady  = "steady"
	caseFull    = "full"
	caseStopped = "stopped"
)

var lagCases = []string{caseSteady, caseFull, caseStopped}

// Names of values of the suite lag. Those of one replica have its name in front (ofReplica).
const (
	valLeaderTPS  = "leader_tps"
	valDrainRatio = "drain_ratio"
	valHeldMS     = "held_ms"
	valSeen99     = "seen_p99_ms"
	valSeenMax    = "seen_max_ms"
	valSaid50     = "said_p50_ms"
	valSaid99     = "said_p99_ms"
	valSaidMax    = "said_max_ms"
	valSaidKiB    = "said_max_kib"
	valTooLow     = "said_too_low_ms"
	valTooHigh    = "said_too_high_ms"
)

// Series of the suite lag.
const (
	seriesSeen = "seen_s"
	seriesSaid = "said_s"
)

var lagMetrics = []metric{
	{Name: valLeaderTPS, Title: "leader's TPS meanwhile"},
	{Name: valDrainRatio, Title: "applied / leader's TPS", Digits: 2},
	{Name: valHeldMS, Title: "held up ms", Lower: true},
	{Name: valSeen99, Title: "seen p99 ms", Lower: true, Digits: 1},
	{Name: valSeenMax, Title: "seen max ms", Lower: true, Digits: 1},
	{Name: valSaid50, Title: "said p50 ms", Lower: true, Digits: 1},
	{Name: valSaid99, Title: "said p99 ms", Lower: true, Digits: 1},
	{Name: valSaidMax, Title: "said max ms", Lower: true, Digits: 1},
	{Name: valSaidKiB, Title: "said max KiB", Lower: true},
	{Name: valTooLow, Title: "too low by, p99 ms", Lower: true, Digits: 1},
	{Name: valTooHigh, Title: "too high by, p99 ms", Lower: true, Digits: 1},
}

// ofReplica is the name of a value that is one replica's.
func ofReplica(host, name string) string { return host + " " + name }

var lagSuite = Suite{
	Name: "lag", Title: "How old is what a replica in another region shows",
	About: "50 writers run oltp_write_only while a session writes numbered heartbeats, each a transaction. Every 5 ms each replica is asked for the newest one. **Lag** of a heartbeat is the time from the OK of the leader's client until a replica's answer shows it, " +
		"by the one clock of this machine; 0 if the replica showed it before. It is measured on every replica in the same way for every system; the figures are those of the replica with the longest p99. " +
		"Round trips are those that ping would show: on `30ms` both replicas are 30 ms from the leader, on `two-regions` one is 1 ms and the other 30 ms away. `steady`: 60 % of the full speed that the system had just before. `full`: as fast as the writers can, and the time from their end until the lag stays below 0.1 s. " +
		"`stopped`: at 60 %, a session on the last replica holds FLUSH TABLES WITH READ LOCK for 10 s, which stops every system's applier in the same way. Then it releases the lock while writing continues; the rate is measured until a tenth of the backlog is left. " +
		"Semi-synchronous and asynchronous replicas show what they received, committed or not. So they may show a transaction before its client has its OK, and also what is then lost with the source. " +
		"A follower of Trireme shows only what is committed. It learns that half a round trip (15 of 30 ms) after the leader's daemon; meanwhile the leader commits it and answers its client. " +
		"**What it reports** is read every 250 ms and compared with what a client saw at that moment: for how long the oldest heartbeat that the replica did not show had been acknowledged. Trireme's is what `trireme status` shows, MySQL's `Seconds_Behind_Source`.",
	Defaults: func(quick bool) Settings {
		s := oltpDefaults(quick)
		s.Topologies, s.Threads, s.Cases, s.AllVariants = []string{"lan", "30ms", "two-regions"}, []int{50}, lagCases, false
		s.Systems, s.Seconds = []string{"async", "semisync", "mgr-eventual", "trireme"}, 60
		if quick {
			s.Topologies, s.Seconds = s.Topologies[1:], 20
		}
		return s
	},
	Check: func(s Settings) error {
		if err := knownCases(s.Cases, lagCases); err != nil {
			return err
		}
		return s.oneLoad()
	},
	Plan:    lagPlan,
	Compare: []Comparison{{valLag99}, {valLagBack}},
	Blocks: func(r *Results) []report.Block {
		all := r.summaries()
		steady, full, stopped := ofCase(all, caseSteady), ofCase(all, caseFull), ofCase(all, caseStopped)
		return filled(
			pivot(best(slices.Concat(steady, full), valLag99), valLag99, "Lag, p99 ms"),
			lines(steady, "At a steady load", []string{valLoadTPS, valLag50, valLag99, valLagMax}),
			lines(full, "As fast as the writers can", []string{valLoadTPS, valLag50, valLag99, valLagMax, valLagBack}),
			lines(stopped, "A replica that was stopped", []string{valHeldMS, valBacklog, valLagMax, valLagBack, valApplyTPS,
				valLeaderTPS, valDrainRatio}),
			replicaTable(all),
			saidTable(all),
			r.seriesChart(best(full, valLag99), seriesSeen, "Longest lag in each second, full speed", "lag s", 0),
			r.seriesChart(best(stopped, valLagBack), seriesSeen, "Lag of the replica that was stopped, as clients see it",
				"lag s", 0),
			r.seriesChart(best(stopped, valLagBack), seriesSaid, "The same, as the system says", "lag s", 0),
		)
	},
}

// lagPlan: one start for each topology, system and variant, on which the cases follow one another.
func lagPlan(s Settings) ([]Group, error) {
	if err := lookSysbench(); err != nil {
		return nil, err
	}
	cases := s.Cases
	s.Cases = nil
	return s.groups(func(g *Group, base Key) error {
		g.Prepare = prepareTables
		base.Workload, base.Threads = "oltp_write_only", s.Threads[0]
		for _, c := range cases {
			k := base
			k.Case = c
			takes := s.takes() + 4*time.Second
			if c == caseStopped {
				takes += stopBefore + stopFor
			}
			g.Cells = append(g.Cells, Cell{Key: k, Takes: takes, Measure: lagCell(k)})
		}
		return nil
	})
}

// replicaTable has the lag of each replica.
func replicaTable(all []summary) report.Table {
	t := report.Table{Caption: "By replica", Columns: []report.Column{{Title: "topology"}, {Title: "case"},
		{Title: "system"}, {Title: "variant"}, {Title: "replica"}, {Title: "lag p50 ms", Number: true},
		{Title: "p99", Number: true}, {Title: "longest", Number: true}}}
	for _, s := range all {
		for _, host := range replicasIn(s) {
			line := []report.Cell{{Text: s.Topology}, {Text: s.Case}, {Text: shortName(s.System)}, {Text: s.Variant},
				{Text: host}}
			for _, name := range []string{valLag50, valLag99, valLagMax} {
				line = append(line, metricOf(name).cell(s, true, ofReplica(host, name), false))
			}
			t.Rows = append(t.Rows, line)
		}
	}
	return t
}

// replicasIn a summary's values.
func replicasIn(s summary) (hosts []string) {
	for name := range s.Values {
		if host, ok := strings.CutSuffix(name, " "+valLag99); ok {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// saidDoubt is how far what is said may be off without being wrong: heartbeats are so far apart, and questions take
// their time.
const saidDoubt = 2 * beatEvery

// saidTable holds what systems say against what clients saw.
func saidTable(all []summary) report.Table {
	t := report.Table{Caption: "What it reports, compared with what clients saw",
		Columns: []report.Column{{Title: "topology"}, {Title: "case"}, {Title: "system"}, {Title: "variant"}}}
	names := []string{valSeen99, valSeenMax, valSaid50, valSaid99, valSaidMax, valSaidKiB, valTooLow, valTooHigh}
	for _, name := range names {
		t.Columns = append(t.Columns, report.Column{Title: metricOf(name).Title, Number: true})
	}
	t.Columns = append(t.Columns, report.Column{Title: "verdict"})
	for _, s := range all {
		if !s.has(valTooLow) {
			continue
		}
		line := []report.Cell{{Text: s.Topology}, {Text: s.Case}, {Text: shortName(s.System)}, {Text: s.Variant}}
		for _, name := range names {
			line = append(line, metricOf(name).cell(s, true, name, false))
		}
		t.Rows = append(t.Rows, append(line, saidVerdict(s)))
	}
	return t
}

// saidVerdict: too low is a lie, too high is a caution.
func saidVerdict(s summary) report.Cell {
	doubt := milliseconds(saidDoubt)
	low, high := s.Values[valTooLow].Median > doubt, s.Values[valTooHigh].Median > doubt
	switch {
	case low && high:
		return report.Cell{Text: "too low and too high", Mark: report.Worse}
	case low:
		return report.Cell{Text: "too low", Mark: report.Worse}
	case high:
		return report.Cell{Text: "never too low, at times too high"}
	}
	return report.Cell{Text: "as clients see it", Mark: report.Better}
}

// reporter of a system; nil: it says nothing.
func reporter(b *Bed) rivals.Reporter {
	r, ok := b.Running.(rivals.Reporter)
	if !ok || len(replicasOf(b)) == 0 {
		return nil
	}
	return r
}
