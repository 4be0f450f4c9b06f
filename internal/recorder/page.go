package recorder

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/report"
)

// Report is a period of a whole cluster.
type Report struct {
	Cluster string           `json:"cluster"`
	From    time.Time        `json:"from"`
	To      time.Time        `json:"to"`
	Nodes   []api.PeriodView `json:"nodes"`  // in the order of the cluster's settings; one that did not answer has a problem and nothing else
	Events  []api.Event      `json:"events"` // of the history, in the period
}

// Rows of tables.
const (
	shownStatements = 40
	shownSessions   = 30
	shownFiles      = 20
	shownEvents     = 200
	shownMarks      = 12 // events in a chart
	shownText       = 240
)

// HTML writes the report as one page that needs nothing else. Times are UTC.
func (r Report) HTML(w io.Writer) error { return r.document().HTML(w) }

func (r Report) document() report.Document {
	d := report.Document{Title: "Cluster " + r.Cluster + ": load of a period", Blocks: r.summary()}
	for _, s := range []struct {
		id, title string
		blocks    []report.Block
	}{
		{"load", "Load", r.loadBlocks()},
		{"commits", "What a commit waits for", r.commitBlocks()},
		{"sessions", "Active sessions", r.sessionBlocks()},
		{"statements", "Statements", r.statementBlocks()},
		{"files", "Files of mysqld", r.fileBlocks()},
		{"lag", "Lag", r.lagBlocks()},
		{"events", "Elections and other events", r.eventBlocks()},
		{"coverage", "What was recorded", r.coverageBlocks()},
	} {
		d.Sections = append(d.Sections, report.Section{ID: s.id, Title: s.title, Blocks: s.blocks})
	}
	return d
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// total of a node.
func total(n api.PeriodView) (sum api.Interval) {
	for _, b := range n.Buckets {
		sum.Add(b)
	}
	return sum
}

// cluster adds up all nodes in one.
func (r Report) cluster() (sum api.Interval) {
	for _, n := range r.Nodes {
		sum.Add(total(n))
	}
	return sum
}

// most is what the node with the most has seen committed: every node sees all, while it is up.
func (r Report) most() (trx, bytes uint64) {
	for _, n := range r.Nodes {
		t := total(n)
		trx, bytes = max(trx, t.Transactions), max(bytes, t.Bytes)
	}
	return trx, bytes
}

// series is a line for each node that has something to show.
func (r Report) series(value func(b api.Interval) float64) []report.Series {
	var out []report.Series
	for _, n := range r.Nodes {
		out = append(out, report.Series{Name: n.Node, Points: points(n, value)})
	}
	return out
}

// points are the buckets of a node in order, with a gap where nothing was recorded.
func points(n api.PeriodView, value func(b api.Interval) float64) []report.Point {
	var out []report.Point
	for i, b := range n.Buckets {
		x := float64(b.At.UnixMilli()) / 1000
		if i > 0 && b.At.Sub(n.Buckets[i-1].At).Seconds() > 1.5*n.StepS {
			out = append(out, report.Point{X: x - n.StepS/2, Y: math.NaN()})
		}
		out = append(out, report.Point{X: x, Y: value(b)})
	}
	return out
}

// rate is so much in a second; NaN of no time at all.
func rate(n, seconds float64) float64 {
	if seconds <= 0 {
		return math.NaN()
	}
	return n / seconds
}

// chart of a value over the period.
func (r Report) chart(title, y string, series []report.Series, marked bool) report.Chart {
	c := report.Chart{Title: title, X: "time of day, UTC", Y: y, Clock: true, Series: series}
	if marked {
		for _, e := range r.Events {
			if e.To != "" && len(c.Events) < shownMarks {
				c.Events = append(c.Events, report.Event{X: float64(e.Time.UnixMilli()) / 1000, Text: e.Kind + ": " + e.To + " leads"})
			}
		}
	}
	return c
}

func (r Report) summary() []report.Block {
	sum := r.cluster()
	trx, bytes := r.most()
	var gap float64
	changes := 0
	for _, e := range r.Events {
		if gap += e.GapMS; e.To != "" {
			changes++
		}
	}
	var leaders []string
	lag := 0.0
	for _, n := range r.Nodes {
		t := total(n)
		if t.LeaderS > 0 {
			leaders = append(leaders, fmt.Sprintf("%s for %s", n.Node, duration(t.LeaderS)))
		}
		lag = max(lag, t.LagS)
	}
	peak, per := 0.0, 0.0
	for _, n := range r.Nodes {
		for _, b := range n.Buckets {
			if b.Seconds >= n.StepS/2 {
				peak = max(peak, float64(b.Transactions)/b.Seconds)
			}
		}
		if t := total(n); t.Seconds > 0 {
			per = max(per, float64(t.Transactions)/t.Seconds)
		}
	}
	commits := sum.Commits[api.StageTotal]
	rows := [][2]string{
		{"Period", fmt.Sprintf("%s to %s (%s)", stamp(r.From), stamp(r.To), duration(r.To.Sub(r.From).Seconds()))},
		{"Took writes", cmp.Or(strings.Join(leaders, ", "), "nobody, as far as it was recorded")},
		{"Transactions", fmt.Sprintf("%s, %s a second, at most %s; %s of log", whole(float64(trx)), decimal(per), decimal(peak), bytesText(float64(bytes)))},
		{"Statements", fmt.Sprintf("%s on all nodes, %s slow", whole(float64(sum.MySQL["Queries"])), whole(float64(sum.MySQL["Slow_queries"])))},
		{"A commit", latency(commits)},
		{"Active sessions", fmt.Sprintf("%s on average on all nodes", decimal(r.averageActive()))},
		{"Largest lag", duration(lag)},
		{"Changes of the leader", fmt.Sprintf("%d; %s without writes", changes, duration(gap/1000))},
	}
	blocks := []report.Block{report.Facts{Rows: rows}}
	for _, n := range r.Nodes {
		if n.Problem != "" {
			blocks = append(blocks, report.Text(fmt.Sprintf("**%s is missing:** %s", n.Node, plainText(n.Problem))))
		}
	}
	return blocks
}

// plainText takes what would be markup out of a text.
func plainText(s string) string {
	return strings.NewReplacer("`", "'", "*", "", "[", "(", "]", ")").Replace(s)
}

func latency(h api.Histogram) string {
	if h.Count == 0 {
		return "none was measured"
	}
	return fmt.Sprintf("%s on average, median %s, 95 %% within %s, 99 %% within %s", seconds(h.Mean()), seconds(h.Quantile(0.5)), seconds(h.Quantile(0.95)), seconds(h.Quantile(0.99)))
}

// averageActive is the mean number of active sessions of all nodes together.
func (r Report) averageActive() (sum float64) {
	for _, n := range r.Nodes {
		t := total(n)
		seen := 0
		for _, c := range t.Active {
			seen += c
		}
		if t.Looks > 0 {
			sum += float64(seen) / float64(t.Looks)
		}
	}
	return sum
}

func (r Report) loadBlocks() []report.Block {
	per := func(name string) []report.Series {
		return r.series(func(b api.Interval) float64 { return rate(float64(b.MySQL[name]), b.MySQLSeconds) })
	}
	blocks := []report.Block{
		r.chart("Transactions committed, as each node saw them", "per second", r.series(func(b api.Interval) float64 { return rate(float64(b.Transactions), b.Seconds) }), true),
		r.chart("Statements", "per second", per("Queries"), false),
		r.chart("Connections to mysqld", "highest number", r.series(func(b api.Interval) float64 {
			if b.MySQLSeconds == 0 {
				return math.NaN()
			}
			return float64(b.Connections)
		}), false),
		r.chart("Log written", "MiB per second", r.series(func(b api.Interval) float64 { return rate(float64(b.Bytes)/(1<<20), b.Seconds) }), false),
	}
	t := report.Table{Caption: "Counters of mysqld, per second of the period that each node recorded", Columns: []report.Column{{Title: "Status variable"}}}
	var names []string
	for _, n := range r.Nodes {
		t.Columns = append(t.Columns, report.Column{Title: n.Node, Number: true})
	}
	for _, name := range Status {
		row, some := []report.Cell{{Text: name}}, false
		for _, n := range r.Nodes {
			sum := total(n)
			some = some || sum.MySQL[name] > 0
			row = append(row, report.Cell{Text: decimal(rate(float64(sum.MySQL[name]), sum.MySQLSeconds)), Note: whole(float64(sum.MySQL[name])) + " in all"})
		}
		if some {
			t.Rows = append(t.Rows, row)
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		blocks = append(blocks, t)
	}
	return blocks
}

// stageTitles say what a stage is.
var stageTitles = map[string]string{
	api.StageMySQL: "mysqld: until the daemon has read it", api.StageLog: "log: fsync of the leader's own log",
	api.StageMajority: "network and majority: until it is committed", api.StageAck: "ACK: until mysqld goes on", api.StageTotal: "all stages",
}

func (r Report) commitBlocks() []report.Block {
	sum := r.cluster()
	all := sum.Commits[api.StageTotal]
	if all.Count == 0 {
		return []report.Block{report.Text("No commit was measured in the period.")}
	}
	t := report.Table{Caption: fmt.Sprintf("Stages of a commit on the leader, of %s commits that were measured", whole(float64(all.Count))), Columns: []report.Column{{Title: "Stage"},
		{Title: "Mean", Number: true}, {Title: "Share", Number: true}, {Title: "Median", Number: true}, {Title: "95 %", Number: true}, {Title: "99 %", Number: true}}}
	stages := append(slices.Clone(api.Stages), api.StageTotal)
	for _, stage := range stages {
		h := sum.Commits[stage]
		t.Rows = append(t.Rows, []report.Cell{{Text: stageTitles[stage]}, {Text: seconds(h.Mean())}, {Text: percent(rate(h.SumS, all.SumS))}, {Text: seconds(h.Quantile(0.5))},
			{Text: seconds(h.Quantile(0.95))}, {Text: seconds(h.Quantile(0.99))}})
	}
	merged := r.merged()
	var lines []report.Series
	for _, stage := range stages {
		lines = append(lines, report.Series{Name: stage, Ours: stage == api.StageTotal, Points: points(merged, func(b api.Interval) float64 {
			if b.Commits[stage].Count == 0 {
				return math.NaN()
			}
			return b.Commits[stage].Mean() * 1000
		})})
	}
	return []report.Block{t, r.chart("Stages of a commit", "mean, ms", lines, true),
		r.chart("Writes to the raft log, each with its fsync", "99th percentile, ms", r.series(func(b api.Interval) float64 {
			if b.LogWrites.Count == 0 {
				return math.NaN()
			}
			return b.LogWrites.Quantile(0.99) * 1000
		}), false),
		r.chart("Way to another node and back", "99th percentile of two minutes, ms", r.linkSeries(), false)}
}

// merged has the buckets of all nodes as those of one.
func (r Report) merged() (m api.PeriodView) {
	for _, n := range r.Nodes {
		m.StepS = max(m.StepS, n.StepS)
		for _, b := range n.Buckets {
			at, found := slices.BinarySearchFunc(m.Buckets, b.At, func(a api.Interval, t time.Time) int { return a.At.Compare(t) })
			if !found {
				m.Buckets = slices.Insert(m.Buckets, at, api.Interval{At: b.At})
			}
			m.Buckets[at].Add(b)
		}
	}
	return m
}

// linkSeries is a line for each link, as its first node measures it.
func (r Report) linkSeries() (out []report.Series) {
	for _, n := range r.Nodes {
		var to []string
		for _, l := range total(n).Links {
			to = append(to, l.To)
		}
		slices.Sort(to)
		for _, other := range to {
			out = append(out, report.Series{Name: n.Node + " to " + other, Points: points(n, func(b api.Interval) float64 {
				for _, l := range b.Links {
					if l.To == other {
						return l.P99MS
					}
				}
				return math.NaN()
			})})
		}
	}
	return out
}

func (r Report) sessionBlocks() []report.Block {
	merged := r.merged()
	sum := r.cluster()
	seen := 0
	for _, n := range sum.Active {
		seen += n
	}
	if seen == 0 {
		return []report.Block{report.Text("No session was seen active in the period.")}
	}
	var lines []report.Series
	table := report.Table{Caption: "What active sessions were seen at, one look a second", Columns: []report.Column{{Title: "Wait"}, {Title: "Seen", Number: true}, {Title: "Share", Number: true}}}
	for _, wait := range Waits {
		if sum.Active[wait] == 0 {
			continue
		}
		lines = append(lines, report.Series{Name: wait, Points: points(merged, func(b api.Interval) float64 { return rate(float64(b.Active[wait]), b.MySQLSeconds/r.nodesAt(b)) })})
		table.Rows = append(table.Rows, []report.Cell{{Text: wait}, {Text: whole(float64(sum.Active[wait]))}, {Text: percent(float64(sum.Active[wait]) / float64(seen))}})
	}
	slices.SortStableFunc(table.Rows, func(a, b []report.Cell) int {
		return cmp.Compare(sum.Active[b[0].Text], sum.Active[a[0].Text])
	})
	what := report.Table{Caption: "The same, by statement", Columns: []report.Column{{Title: "Statement"}, {Title: "Node"}, {Title: "Wait"}, {Title: "State in mysqld"}, {Title: "User"},
		{Title: "Seen", Number: true}, {Title: "Share", Number: true}}}
	type at struct {
		node string
		s    api.SessionLoad
	}
	var all []at
	for _, n := range r.Nodes {
		for _, s := range n.Sessions {
			all = append(all, at{n.Node, s})
		}
	}
	slices.SortStableFunc(all, func(a, b at) int { return cmp.Compare(b.s.Seen, a.s.Seen) })
	for _, a := range all[:min(len(all), shownSessions)] {
		what.Rows = append(what.Rows, []report.Cell{statementCell(cmp.Or(a.s.Text, a.s.Digest, "not known")), {Text: a.node}, {Text: a.s.Wait}, {Text: a.s.State}, {Text: a.s.User},
			{Text: whole(float64(a.s.Seen))}, {Text: percent(float64(a.s.Seen) / float64(seen))}})
	}
	return []report.Block{r.chart("Active sessions, by what they wait for", "average number, all nodes", lines, true), table, what}
}

// nodesAt is how many nodes had a mysqld in a merged bucket, so that its seconds are the time that passed.
func (r Report) nodesAt(merged api.Interval) float64 {
	most := 0.0
	for _, n := range r.Nodes {
		for _, b := range n.Buckets {
			if b.At.Equal(merged.At) {
				most = max(most, b.MySQLSeconds)
			}
		}
	}
	return merged.MySQLSeconds / most
}

// statementCell shows a statement, shortened, with the whole of it under the pointer.
func statementCell(text string) report.Cell {
	runes := []rune(text)
	if len(runes) <= shownText {
		return report.Cell{Text: text}
	}
	return report.Cell{Text: string(runes[:shownText]) + " …", Note: text}
}

func (r Report) statementBlocks() []report.Block {
	type row struct {
		api.StatementLoad
		nodes map[string]float64 // seconds
	}
	rows := map[[2]string]*row{}
	var allS float64
	var others api.StatementLoad
	for _, n := range r.Nodes {
		for _, s := range n.Statements {
			key := [2]string{s.Schema, s.Digest}
			if rows[key] == nil {
				rows[key] = &row{StatementLoad: api.StatementLoad{Schema: s.Schema, Digest: s.Digest}, nodes: map[string]float64{}}
			}
			rows[key].Add(s)
			rows[key].nodes[n.Node] += s.TimeS
			allS += s.TimeS
		}
		others.Add(n.Others)
	}
	if allS += others.TimeS; len(rows) == 0 {
		return []report.Block{report.Text("No statements were counted in the period: mysqld is asked for them once a minute, and performance_schema must be on.")}
	}
	var list []*row
	for _, s := range rows {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *row) int { return byTime(a.StatementLoad, b.StatementLoad) })
	for _, s := range list[min(len(list), shownStatements):] {
		others.Add(s.StatementLoad)
	}
	list = list[:min(len(list), shownStatements)]
	t := report.Table{Caption: "Statements by the time that they took, all nodes; without their values", Columns: []report.Column{{Title: "Statement"}, {Title: "Schema"}, {Title: "Nodes"},
		{Title: "Time", Number: true}, {Title: "Share", Number: true}, {Title: "Calls", Number: true}, {Title: "Mean", Number: true}, {Title: "Rows examined a call", Number: true},
		{Title: "Rows sent a call", Number: true}, {Title: "Rows changed a call", Number: true}, {Title: "Errors", Number: true}, {Title: "Without index", Number: true}}}
	line := func(what report.Cell, schema, nodes string, s api.StatementLoad) []report.Cell {
		calls := float64(s.Count)
		return []report.Cell{what, {Text: schema}, {Text: nodes}, {Text: duration(s.TimeS)}, {Text: percent(rate(s.TimeS, allS))}, {Text: whole(calls)}, {Text: seconds(rate(s.TimeS, calls))},
			{Text: decimal(rate(float64(s.Examined), calls))}, {Text: decimal(rate(float64(s.Sent), calls))}, {Text: decimal(rate(float64(s.Affected), calls))},
			{Text: whole(float64(s.Errors))}, {Text: whole(float64(s.NoIndex))}}
	}
	for _, s := range list {
		text := cmp.Or(s.Text, s.Digest, "all for which performance_schema had no room")
		t.Rows = append(t.Rows, line(statementCell(text), s.Schema, shares(r.Nodes, s.nodes), s.StatementLoad))
	}
	if others.Count > 0 {
		t.Rows = append(t.Rows, line(report.Cell{Text: "all the others"}, "", "", others))
	}
	return []report.Block{report.Text("Differences of `performance_schema.events_statements_summary_by_digest`, read once a minute. A statement counts when it has ended."), t}
}

// shares says on which nodes it was, those with the most first.
func shares(nodes []api.PeriodView, by map[string]float64) string {
	var sum float64
	var names []string
	for _, n := range nodes {
		if s, there := by[n.Node]; there {
			names = append(names, n.Node)
			sum += s
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(by[b], by[a]) })
	if len(names) > 1 && sum > 0 {
		for i, n := range names {
			names[i] = fmt.Sprintf("%s %s", n, percent(by[n]/sum))
		}
	}
	return strings.Join(names, ", ")
}

func (r Report) fileBlocks() []report.Block {
	type row struct {
		node string
		f    api.FileWait
	}
	var all []row
	for _, n := range r.Nodes {
		for _, f := range n.FileWaits {
			all = append(all, row{n.Node, f})
		}
	}
	if len(all) == 0 {
		return []report.Block{report.Text("Nothing was counted in the period.")}
	}
	slices.SortStableFunc(all, func(a, b row) int { return cmp.Compare(b.f.TimeS, a.f.TimeS) })
	t := report.Table{Caption: "Time that threads of mysqld spent in files", Columns: []report.Column{{Title: "File, operation"}, {Title: "Node"}, {Title: "Time", Number: true}, {Title: "Calls", Number: true}, {Title: "Mean", Number: true}}}
	for _, x := range all[:min(len(all), shownFiles)] {
		t.Rows = append(t.Rows, []report.Cell{{Text: x.f.Event}, {Text: x.node}, {Text: duration(x.f.TimeS)}, {Text: whole(float64(x.f.Count))}, {Text: seconds(rate(x.f.TimeS, float64(x.f.Count)))}})
	}
	return []report.Block{t}
}

func (r Report) lagBlocks() []report.Block {
	return []report.Block{
		r.chart("Committed and not yet applied, in time", "highest, s", r.series(func(b api.Interval) float64 { return b.LagS }), true),
		r.chart("Committed and not yet applied, in bytes", "highest, MiB", r.series(func(b api.Interval) float64 { return float64(b.LagBytes) / (1 << 20) }), false),
	}
}

func (r Report) eventBlocks() []report.Block {
	if len(r.Events) == 0 {
		return []report.Block{report.Text("The history has nothing in the period.")}
	}
	t := report.Table{Caption: "History of the cluster in the period", Columns: []report.Column{{Title: "Time"}, {Title: "Node"}, {Title: "Kind"}, {Title: "Term", Number: true}, {Title: "Without writes", Number: true}, {Title: "What"}}}
	for _, e := range r.Events[max(0, len(r.Events)-shownEvents):] {
		gap := ""
		if e.GapMS > 0 {
			gap = seconds(e.GapMS / 1000)
		}
		t.Rows = append(t.Rows, []report.Cell{{Text: e.Time.UTC().Format("2006-01-02 15:04:05.000")}, {Text: e.Node}, {Text: e.Kind}, {Text: fmt.Sprint(e.Term)}, {Text: gap}, {Text: e.Message}})
	}
	blocks := []report.Block{t}
	if more := len(r.Events) - shownEvents; more > 0 {
		blocks = append(blocks, report.Text(fmt.Sprintf("%d older ones are left out.", more)))
	}
	return blocks
}

func (r Report) coverageBlocks() []report.Block {
	t := report.Table{Caption: "Of the period", Columns: []report.Column{{Title: "Node"}, {Title: "Recorded", Number: true}, {Title: "Of it with mysqld", Number: true}, {Title: "Took writes", Number: true},
		{Title: "Looks at sessions", Number: true}, {Title: "Oldest sample"}, {Title: "Problem"}}}
	for _, n := range r.Nodes {
		sum, oldest := total(n), "none"
		if n.Oldest != nil {
			oldest = stamp(*n.Oldest)
		}
		t.Rows = append(t.Rows, []report.Cell{{Text: n.Node}, {Text: percent(rate(sum.Seconds, r.To.Sub(r.From).Seconds()))}, {Text: duration(sum.MySQLSeconds)}, {Text: duration(sum.LeaderS)},
			{Text: whole(float64(sum.Looks))}, {Text: oldest}, {Text: n.Problem}})
	}
	return []report.Block{t, report.List{
		"Active sessions are looked at once a second, counters are read every 10 s, statements and files once a minute. What a node did between its last sample and its end is missing.",
		"Stages are of a sample of the commits. \"Network and majority\" begins when the leader's own log has the transaction, so it is short where another node is faster.",
		"Sessions, statements and connections of Trireme itself are left out, those of routers are not.",
	}}
}

// Words for numbers.

// whole writes a number without decimals.
func whole(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// decimal writes a number with about three digits.
func decimal(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return ""
	case v == 0 || v >= 100:
		return whole(v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v < 0.005:
		return "< 0.01"
	}
	return fmt.Sprintf("%.2f", v)
}

func percent(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return ""
	case v > 0 && v < 0.001:
		return "< 0.1 %"
	}
	return fmt.Sprintf("%.1f %%", 100*v)
}

// seconds writes a short time.
func seconds(s float64) string {
	switch {
	case math.IsNaN(s) || math.IsInf(s, 0):
		return ""
	case s < 1e-3:
		return fmt.Sprintf("%.0f µs", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.2f ms", s*1e3)
	}
	return fmt.Sprintf("%.2f s", s)
}

// duration writes a long time.
func duration(s float64) string {
	switch {
	case s < 60:
		return seconds(s)
	case s < 3600:
		return fmt.Sprintf("%.1f min", s/60)
	}
	return fmt.Sprintf("%.1f h", s/3600)
}

func bytesText(b float64) string {
	for _, unit := range []string{"bytes", "KiB", "MiB", "GiB"} {
		if b < 1024 {
			return strings.TrimSuffix(decimal(b), ".00") + " " + unit
		}
		b /= 1024
	}
	return decimal(b) + " TiB"
}
