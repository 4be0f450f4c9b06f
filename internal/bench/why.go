package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"trireme/internal/lab"
	"trireme/internal/report"
)

// Comparison is a figure in which Trireme is compared with every rival, cell by cell.
type Comparison struct{ Metric string }

// loss is a cell in which Trireme is behind a rival.
type loss struct {
	suite  string
	key    Key // of the rival
	metric metric
	ratio  float64 // Trireme's figure divided by the rival's
	ours   stat
	theirs stat
}

// noise is how far figures may differ before one system is called slower.
const noise = 0.02

// losses of a suite, the worst first.
func (s Suite) losses(r *Results) []loss {
	all := r.summaries()
	if d := decisive(all); d != "" {
		all = best(all, d)
	}
	_, _, cells := spread(all)
	var out []loss
	for _, c := range s.Compare {
		m := metricOf(c.Metric)
		for _, x := range all {
			own, ok := cells[x.row()][ours]
			theirs := x.Values[m.Name]
			if !ok || isOurs(x.System) || !own.has(m.Name) || !x.has(m.Name) || theirs.Median == 0 {
				continue
			}
			l := loss{suite: s.Name, key: x.Key, metric: m, ratio: own.Values[m.Name].Median / theirs.Median, ours: own.Values[m.Name], theirs: theirs}
			if l.behind() > noise {
				out = append(out, l)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b loss) int { return cmp.Compare(b.behind(), a.behind()) })
	return out
}

// safe reports whether the rival promises what Trireme does.
func (l loss) safe() bool {
	s, err := lab.Find(l.key.System)
	return err == nil && s.Safe
}

// slower is the section that lists losses: first to systems that promise the same.
func slower(list []loss) report.Section {
	s := report.Section{ID: "slower", Title: "Where Trireme is slower, and why", Blocks: []report.Block{report.Text(fmt.Sprintf(
		"Every cell in which Trireme is more than %.0f %% behind a rival's best variant, the worst first. `~`: the runs lie too far apart to be sure.", 100*noise))}}
	for _, g := range []struct {
		title string
		safe  bool
	}{{"Rivals that promise to lose nothing that was acknowledged", true}, {"Rivals that promise less", false}} {
		var of []loss
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

// behind is by which part Trireme is worse: 0.3 is 30 %.
func (l loss) behind() float64 {
	if l.metric.Lower {
		if l.ratio == 0 {
			return 0
		}
		return 1 - 1/l.ratio
	}
	return 1 - l.ratio
}

// lossTable lists them.
func lossTable(list []loss) report.Table {
	t := report.Table{Columns: []report.Column{{Title: "suite"}, {Title: "where"}, {Title: "figure"}, {Title: "rival"}, {Title: "Trireme", Number: true},
		{Title: "rival", Number: true}, {Title: "ratio", Number: true}, {Title: "why"}}}
	for _, l := range list {
		where := l.key
		where.System, where.Variant = "", ""
		ratio := report.Cell{Text: strconv.FormatFloat(l.ratio, 'f', 2, 64), Mark: report.Worse}
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
	metric, rival, suite string
	maxThreads           int
	text                 string
}

// reasons in the order in which they are tried.
var reasons = []reason{
	{rival: "standalone", text: "One server, one copy: nothing is sent, nobody else applies it, and all CPUs are its own. A lost disk loses everything."},
	{rival: "async", metric: valTPS, text: "It does not wait for anybody: what its source was told is committed is lost with the source. Its replicas fall behind; see sustained TPS."},
	{metric: valDaemonRSS, text: "A rival has no daemon."},
	{rival: "async", text: "It does not wait for anybody: what its source was told is committed is lost with the source."},
	{rival: "mgr-eventual", text: "It answers before a majority has the transaction on disk: members certify from memory, and a power loss of all loses what was acknowledged."},
	{maxThreads: 4, text: "With few sessions what counts is each step between the commit's write and the acknowledgement. The daemon adds two hand-overs between processes (mysqld to daemon, daemon to network) to semi-sync's one; on a small machine waking a process costs more than its work."},
	{text: "On this machine all hosts share the CPUs, and the daemon's share of CPU is taken from mysqld's."},
}

func (l loss) why() string {
	for _, r := range reasons {
		if (r.metric == "" || r.metric == l.metric.Name) && (r.rival == "" || r.rival == l.key.System) && (r.suite == "" || r.suite == l.suite) &&
			(r.maxThreads == 0 || l.key.Threads <= r.maxThreads) {
			return r.text
		}
	}
	return ""
}
