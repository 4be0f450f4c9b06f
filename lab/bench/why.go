package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"trireme/lab/report"
	"trireme/lab/rivals"
)

// Comparison is a figure in which Trireme is compared with every rival, cell by cell.
type Comparison struct{ Metric string }

// duel compares Trireme's figure of a cell with a rival's.
type duel struct {
	suite  string
	key    Key // of the rival
	metric metric
	ratio  float64 // Trireme's figure divided by the rival's
	ours   stat
	theirs stat
	// costlier: Trireme's leader host used more CPU per transaction.
	costlier bool
}

const (
	// noise is how far figures may differ before a cell is listed as one where Trireme is slower.
	noise = 0.02
	// unresolved is how far they must differ to be counted as better or worse.
	unresolved = 0.1
)

// duels of a suite: every cell in which both Trireme and a rival have the figure.
func (s Suite) duels(r *Results) []duel {
	var out []duel
	variants := r.summaries()
	for _, c := range s.Compare {
		m := metricOf(c.Metric)
		all := best(variants, cmp.Or(decisive(variants), m.Name))
		_, _, cells := spread(all)
		for _, x := range all {
			own, ok := cells[x.row()][ours]
			theirs := x.Values[m.Name]
			if !ok || isOurs(x.System) || !own.has(m.Name) || !x.has(m.Name) {
				continue
			}
			d := duel{suite: s.Name, key: x.Key, metric: m, ratio: own.Values[m.Name].Median / theirs.Median, ours: own.Values[m.Name], theirs: theirs}
			d.costlier = own.Values[valCPULeader].Median > x.Values[valCPULeader].Median*(1+noise)
			if math.IsNaN(d.ratio) {
				d.ratio = 1 // both are nothing
			}
			out = append(out, d)
		}
	}
	return out
}

// losses among duels, the worst first.
func losses(all []duel) []duel {
	var out []duel
	for _, d := range all {
		if d.behind() > noise {
			out = append(out, d)
		}
	}
	slices.SortStableFunc(out, func(a, b duel) int { return cmp.Compare(b.behind(), a.behind()) })
	return out
}

// glance sums duels up: how often Trireme is better than a rival in a figure, and by how much.
func glance(all []duel) report.Section {
	t := report.Table{Columns: []report.Column{{Title: "suite"}, {Title: "figure"}, {Title: "rival"}, {Title: "cells", Number: true}, {Title: "Trireme better", Number: true},
		{Title: "worse", Number: true}, {Title: "equal or not sure", Number: true}, {Title: "mean ratio", Number: true}, {Title: "lowest", Number: true}, {Title: "highest", Number: true}}}
	type group struct{ suite, metric, rival string }
	var order []group
	of := map[group][]duel{}
	for _, d := range all {
		g := group{d.suite, d.metric.Name, d.key.System}
		if of[g] == nil {
			order = append(order, g)
		}
		of[g] = append(of[g], d)
	}
	for _, g := range order {
		var logs float64
		better, worse, ratios, m := 0, 0, []float64(nil), metricOf(g.metric)
		for _, d := range of[g] {
			switch sure := !d.ours.wide() && !d.theirs.wide(); {
			case sure && d.behind() < -unresolved:
				better++
			case sure && d.behind() > unresolved:
				worse++
			}
			if d.ratio > 0 && !math.IsInf(d.ratio, 0) { // of nothing no mean can be formed
				logs, ratios = logs+math.Log(d.ratio), append(ratios, d.ratio)
			}
		}
		line := []report.Cell{{Text: g.suite}, {Text: m.Title}, {Text: shortName(g.rival)}, {Text: strconv.Itoa(len(of[g]))}, {Text: strconv.Itoa(better)}, {Text: strconv.Itoa(worse)},
			{Text: strconv.Itoa(len(of[g]) - better - worse)}, {Text: "–"}, {Text: "–"}, {Text: "–"}}
		if len(ratios) > 0 {
			mean := math.Exp(logs / float64(len(ratios)))
			line[7] = report.Cell{Text: ratioText(mean), Mark: report.Better}
			if (mean < 1) != m.Lower {
				line[7].Mark = report.Worse
			}
			line[8].Text, line[9].Text = ratioText(slices.Min(ratios)), ratioText(slices.Max(ratios))
		}
		t.Rows = append(t.Rows, line)
	}
	return report.Section{ID: "glance", Title: "At a glance", Blocks: []report.Block{
		report.Text(fmt.Sprintf("Trireme's figure divided by each rival's best variant, over all cells of a suite; the mean is the geometric one. Better and worse are counted from %.0f %% on, and where the runs agree. "+
			"That a rival's best variant of each cell is taken favours rivals with many. More", 100*unresolved) + " is better for TPS and rows per second, less for everything else."), t}}
}

func ratioText(v float64) string {
	if math.IsInf(v, 0) {
		return "∞"
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// safe reports whether the rival promises what Trireme does.
func (l duel) safe() bool {
	s, err := rivals.Find(l.key.System)
	return err == nil && s.Safe
}

// slower is the section that lists losses: first to systems that promise the same.
func slower(list []duel) report.Section {
	s := report.Section{ID: "slower", Title: "Where Trireme is slower, and why", Blocks: []report.Block{report.Text(fmt.Sprintf(
		"Every cell in which Trireme is more than %.0f %% slower than a rival's best variant, the worst first. `~`: the runs differ too much to be sure.", 100*noise))}}
	for _, g := range []struct {
		title string
		safe  bool
	}{{"Rivals that promise to lose nothing that was acknowledged", true}, {"Rivals that promise less", false}} {
		var of []duel
		for _, l := range list {
			if l.safe() == g.safe {
				of = append(of, l)
			}
		}
		if len(of) == 0 {
			s.Blocks = append(s.Blocks, report.Text("**"+g.title+"**: nowhere in these results."))
			continue
		}
		t := lossTable(of)
		t.Caption = g.title
		s.Blocks = append(s.Blocks, t)
	}
	return s
}

// behind is the fraction by which Trireme is worse: 0.3 is 30 %.
func (l duel) behind() float64 {
	if l.metric.Lower {
		if l.ratio == 0 {
			return -1
		}
		return 1 - 1/l.ratio // 1 where the rival has nothing
	}
	return max(-1, 1-l.ratio)
}

// lossTable lists them.
func lossTable(list []duel) report.Table {
	t := report.Table{Columns: []report.Column{{Title: "suite"}, {Title: "where"}, {Title: "figure"}, {Title: "rival"}, {Title: "Trireme", Number: true},
		{Title: "rival", Number: true}, {Title: "ratio", Number: true}, {Title: "why"}}}
	for _, l := range list {
		where := l.key
		where.System, where.Variant = "", ""
		ratio := report.Cell{Text: ratioText(l.ratio), Mark: report.Worse}
		if l.ours.wide() || l.theirs.wide() {
			ratio.Mark = report.Wide
		}
		t.Rows = append(t.Rows, []report.Cell{{Text: l.suite}, {Text: where.String()}, {Text: l.metric.Title},
			{Text: fmt.Sprintf("%s (%s)", shortName(l.key.System), l.key.Variant)}, {Text: l.metric.number(l.ours.Median)}, {Text: l.metric.number(l.theirs.Median)}, ratio, {Text: l.why()}})
	}
	return t
}

// reason explains losses. Empty fields fit all.
type reason struct {
	metric, rival, suite, workload string
	maxThreads                     int
	costlier                       bool // only where it is so
	text                           string
}

const showsUncommitted = "Its replicas show what they have received, committed or not: half a round trip before the client has its OK. So they also show what is then lost with the source. A follower of Trireme shows only what is committed, which it learns half a round trip after the leader."

// reasons in the order in which they are tried.
var reasons = []reason{
	{metric: valGap, text: "Not examined yet."},
	{workload: "oltp_read_only", text: "Not examined yet: nothing is replicated here."},
	{suite: "jitter", text: "A host that has used its share of CPU stops until its next share, and a commit waits for two hosts. A single server waits only for itself."},
	{metric: valLagBack, text: "The time ends at the last late heartbeat. On a machine that does the work of all hosts, a single late heartbeat long after the backlog counts as if the backlog had lasted until then. The chart by second shows when the backlog was gone."},
	{suite: "replay", metric: valDrainAll, text: "The node of Trireme was shut down: its mysqld starts first, and the backlog comes from the other nodes. A rival's server kept running, and with semi-sync and asynchronous replication the backlog was on its own disk."},
	{suite: "replay", metric: valLag99, text: "Lag is measured in steps: a heartbeat every 50 ms, checked every 37 ms. A difference of one or two steps has not been examined."},
	{suite: "lag", metric: valLag99, rival: "async", text: showsUncommitted},
	{suite: "lag", metric: valLag99, rival: "semisync", text: showsUncommitted},
	{suite: "backup", metric: valCopyMiBs, text: "`trireme backup` compresses the copy, checks it and archives the log after it, all with the CPU of the follower's host. The others' copies are larger and come without a log."},
	{suite: "backup", metric: valRestoreMB, text: "A restoration decompresses and checks the copy, and applies the log after it. The others end at the moment of the copy."},
	{suite: "backup", metric: valRPO99, text: "Every 2 s a segment of the archive is stored completely, compressed and fsynced. mysqlbinlog appends each event to a file, and loses with its host what the kernel has not written."},
	{suite: "trx-size", text: "Commits have one order, so all of them wait for a large one: while mysqld writes it to its binary log, and while the daemon reads it from there and a majority makes it durable. Daemon and mysqld share one CPU budget."},
	{rival: "standalone", text: "One server with one copy: it sends nothing, no other server applies anything, and it has all CPUs. If its disk is lost, everything is."},
	{rival: "async", metric: valTPS, text: "Its commits wait for no other server: what was answered OK is lost with the source. Its replicas lag; see sustained TPS."},
	{metric: valDaemonRSS, text: "A rival has no daemon."},
	{rival: "async", text: "Its commits wait for no other server: what was answered OK is lost with the source."},
	{rival: "mgr-eventual", text: "It answers before a majority has the transaction on disk. Members certify in memory, so a power loss of all members loses acknowledged transactions."},
	{maxThreads: 4, costlier: true, text: "With few sessions every step between the commit's write and the acknowledgement counts. The daemon adds two steps between processes (mysqld to daemon, daemon to network) to semi-sync's one. On a small machine, waking a process costs more than its work."},
	{costlier: true, text: "The leader's mysqld and daemon together use more CPU per transaction than the rival's mysqld (see CPU, leader's host), with the same budget or machine. A profile is in what-we-tried.md."},
	{text: "Not examined yet."},
}

func (l duel) why() string {
	for _, r := range reasons {
		if (r.metric == "" || r.metric == l.metric.Name) && (r.rival == "" || r.rival == l.key.System) && (r.suite == "" || r.suite == l.suite) &&
			(r.workload == "" || r.workload == l.key.Workload) && (r.maxThreads == 0 || l.key.Threads <= r.maxThreads) && (!r.costlier || l.costlier) {
			return r.text
		}
	}
	return ""
}
