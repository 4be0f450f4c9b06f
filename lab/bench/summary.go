package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"trireme/lab/report"
	"trireme/lab/rivals"
)

// stat is a value over the rounds.
type stat struct{ Median, Low, High float64 }

// wideSpread is how far runs may lie apart, as a part of their median, before a figure is marked.
const wideSpread = 0.25

func (s stat) wide() bool { return s.Median != 0 && math.Abs((s.High-s.Low)/s.Median) > wideSpread }

func statOf(values []float64) stat {
	return stat{median(values), slices.Min(values), slices.Max(values)}
}

// summary is a cell over its rounds.
type summary struct {
	Key    // Round and Repeat are 0
	Runs   int
	Values map[string]stat
	NotRun string   // of the last round that was not run, where none was
	Failed []string // what became of those that were run and failed
	Notes  []string
}

func (s summary) has(metric string) bool { _, ok := s.Values[metric]; return ok }

// summaries of all cells in the order of their first round.
func (r *Results) summaries() []summary {
	var order []Key
	cells := map[Key][]Record{}
	for _, rec := range r.Records {
		k := rec.Key.cell()
		if cells[k] == nil {
			order = append(order, k)
		}
		cells[k] = append(cells[k], rec)
	}
	var out []summary
	for _, k := range order {
		out = append(out, summarise(k, cells[k]))
	}
	return out
}

func summarise(k Key, cells []Record) summary {
	s := summary{Key: k, Values: map[string]stat{}}
	values := map[string][]float64{}
	for _, c := range cells {
		if c.NotRun != "" {
			s.NotRun = c.NotRun
			continue
		}
		if c.Failed != "" {
			s.Failed = append(s.Failed, c.Failed)
		} else {
			s.Runs++
		}
		for name, v := range c.Values {
			values[name] = append(values[name], v)
		}
		if share, ok := workDone(c.Values); ok {
			values[valShare] = append(values[valShare], share)
		}
		if c.Note != "" && !slices.Contains(s.Notes, c.Note) {
			s.Notes = append(s.Notes, c.Note)
		}
	}
	for name, v := range values {
		s.Values[name] = statOf(v)
	}
	if s.Runs > 0 {
		s.NotRun = ""
	}
	return s
}

// workDone is throughput in a unit that does not depend on how fast the machine is at the moment: sustained TPS times
// the load generator's CPU time per transaction, percent of a CPU. On a shared machine that time differs by half from
// one start to the next, and TPS with it, in the other direction.
func workDone(v map[string]float64) (share float64, ok bool) {
	client, ok := v[valClientUS]
	return v[valSustained] * client / 1e4, ok && v[valSustained] > 0
}

// spreads is how far the rounds of each system lie apart.
func spreads(all []summary, names ...string) report.Table {
	out := slices.Clone(all)
	for i, s := range all {
		out[i].Values = map[string]stat{}
		for _, name := range names {
			if v := s.Values[name]; s.Runs > 1 && v.Median != 0 {
				d := 100 * (v.High - v.Low) / v.Median
				out[i].Values[name] = stat{d, d, d}
			}
		}
	}
	return lines(out, "How far the rounds lie apart, in percent of the median", names)
}

// best keeps of each system's variants the one with the best median of the metric in each cell.
func best(all []summary, metric string) []summary {
	m := metricOf(metric)
	var out []summary
	at := map[Key]int{}
	for _, s := range all {
		k := s.Key
		k.Variant = ""
		i, ok := at[k]
		if !ok {
			at[k] = len(out)
			out = append(out, s)
			continue
		}
		a, b := s.Values[metric].Median, out[i].Values[metric].Median
		if out[i].Runs == 0 || s.Runs > 0 && (a > b) != m.Lower {
			out[i] = s
		}
	}
	return out
}

// decisive is the metric by which the best variant of a cell is chosen.
func decisive(all []summary) string {
	for _, name := range []string{valSustained, valTPS, valGap} {
		if slices.ContainsFunc(all, func(s summary) bool { return s.has(name) }) {
			return name
		}
	}
	return ""
}

// row is what the cells in a row of a table have in common: everything but the system.
func (s summary) row() Key {
	k := s.Key
	k.System, k.Variant = "", ""
	return k
}

// dims are the fields of keys that differ among cells, and are worth a column.
var dims = []struct {
	title string
	of    func(Key) string
}{
	{"topology", func(k Key) string { return k.Topology }},
	{"case", func(k Key) string { return k.Case }},
	{"workload", func(k Key) string { return strings.TrimPrefix(k.Workload, "oltp_") }},
	{"threads", func(k Key) string {
		if k.Threads == 0 {
			return ""
		}
		return strconv.Itoa(k.Threads)
	}},
}

// heads are the first columns of a table with these rows, a column for each field that some row has, and the cells of a
// row in them.
func heads(rows []Key) (columns []report.Column, cells func(Key) []report.Cell) {
	var used []int
	for i, d := range dims {
		if slices.ContainsFunc(rows, func(k Key) bool { return d.of(k) != "" }) {
			used = append(used, i)
			columns = append(columns, report.Column{Title: d.title, Number: d.title == "threads"})
		}
	}
	return columns, func(k Key) (line []report.Cell) {
		for _, i := range used {
			line = append(line, report.Cell{Text: dims[i].of(k)})
		}
		return line
	}
}

// pivot is a table with a row for each cell and a column for each system. Of each row the best figure is marked, and
// figures of runs that lie too far apart.
func pivot(all []summary, metric, caption string) report.Table {
	m := metricOf(metric)
	rows, systems, cells := spread(all)
	columns, head := heads(rows)
	t := report.Table{Caption: caption, Columns: columns}
	for _, s := range systems {
		t.Columns = append(t.Columns, report.Column{Title: shortName(s), Number: true})
	}
	for _, k := range rows {
		line := head(k)
		top := bestOf(cells[k], metric, m.Lower)
		for _, name := range systems {
			s, ok := cells[k][name]
			line = append(line, m.cell(s, ok, metric, name == top))
		}
		t.Rows = append(t.Rows, line)
	}
	return t
}

func (m metric) cell(s summary, ok bool, metric string, top bool) report.Cell {
	v, has := s.Values[metric]
	if !ok || !has {
		c := report.Cell{Text: "–", Mark: report.Absent}
		switch {
		case len(s.Failed) > 0:
			c = report.Cell{Text: "failed", Note: s.Failed[0], Mark: report.Absent}
		case s.NotRun != "":
			c = report.Cell{Text: "not run", Note: s.NotRun, Mark: report.Absent}
		}
		return c
	}
	c := report.Cell{Text: m.number(v.Median), Note: s.Variant}
	if s.Runs > 1 {
		c.Note = fmt.Sprintf("%s; %d runs, %s to %s", s.Variant, s.Runs, m.number(v.Low), m.number(v.High))
	}
	if n := len(s.Failed); n > 0 {
		c.Note += fmt.Sprintf("; %d of %d runs failed", n, n+s.Runs)
	}
	switch {
	case v.wide():
		c.Mark = report.Wide
	case top:
		c.Mark = report.Best
	}
	return c
}

// spread arranges summaries by row and system.
func spread(all []summary) (rows []Key, systems []string, cells map[Key]map[string]summary) {
	cells = map[Key]map[string]summary{}
	for _, s := range all {
		k := s.row()
		if cells[k] == nil {
			cells[k] = map[string]summary{}
			rows = append(rows, k)
		}
		cells[k][s.System] = s
		if !slices.Contains(systems, s.System) {
			systems = append(systems, s.System)
		}
	}
	slices.SortStableFunc(systems, func(a, b string) int { return cmp.Compare(systemIndex(a), systemIndex(b)) })
	return rows, systems, cells
}

func bestOf(cells map[string]summary, metric string, lower bool) (name string) {
	for s, c := range cells {
		v, ok := c.Values[metric]
		if s == "standalone" || !ok { // it promises nothing
			continue
		}
		if name == "" || (v.Median > cells[name].Values[metric].Median) != lower {
			name = s
		}
	}
	return name
}

func systemIndex(name string) int {
	return slices.IndexFunc(rivals.Systems(), func(s rivals.System) bool { return s.Name == name })
}

func shortName(system string) string {
	if s, err := rivals.Find(system); err == nil {
		return s.Short
	}
	return system
}

func isOurs(system string) bool {
	s, err := rivals.Find(system)
	return err == nil && s.Ours
}

// relative is a table of Trireme's figures divided by each other system's.
func relative(all []summary, metric, caption string) report.Table {
	m := metricOf(metric)
	rows, systems, cells := spread(all)
	systems = slices.DeleteFunc(systems, func(s string) bool { return s == ours })
	columns, head := heads(rows)
	t := report.Table{Caption: caption, Columns: columns}
	for _, s := range systems {
		t.Columns = append(t.Columns, report.Column{Title: "/ " + shortName(s), Number: true})
	}
	for _, k := range rows {
		own, ok := cells[k][ours]
		if !ok || !own.has(metric) {
			continue
		}
		line := head(k)
		for _, name := range systems {
			c := report.Cell{Text: "–", Mark: report.Absent}
			if s, ok := cells[k][name]; ok && s.Values[metric].Median != 0 {
				ratio := own.Values[metric].Median / s.Values[metric].Median
				c = report.Cell{Text: ratioText(ratio), Note: s.Variant, Mark: report.Better}
				if (ratio < 1) != m.Lower {
					c.Mark = report.Worse
				}
				if own.Values[metric].wide() || s.Values[metric].wide() {
					c.Mark = report.Wide
				}
			}
			line = append(line, c)
		}
		t.Rows = append(t.Rows, line)
	}
	return t
}

// ours is the system that is compared with all others.
const ours = "trireme"

// byThreads is a chart of a metric over threads.
func byThreads(all []summary, metric, title string) report.Chart {
	c := report.Chart{Title: title, X: "threads", Y: metricOf(metric).Title, LogX: true}
	c.Series = curves(all, metric, func(k Key) (float64, error) { return float64(k.Threads), nil })
	return c
}

// curves are lines of a metric over x, one for each system. Summaries that have no x are left out.
func curves(all []summary, metric string, x func(Key) (float64, error)) (out []report.Series) {
	at := map[string]int{}
	for _, s := range all {
		v, ok := s.Values[metric]
		place, err := x(s.Key)
		if !ok || err != nil {
			continue
		}
		i, ok := at[s.System]
		if !ok {
			i = len(out)
			at[s.System] = i
			out = append(out, report.Series{Name: shortName(s.System), Ours: isOurs(s.System)})
		}
		out[i].Points = append(out[i].Points, report.Point{X: place, Y: v.Median, Low: v.Low, High: v.High})
	}
	for _, s := range out {
		slices.SortFunc(s.Points, func(a, b report.Point) int { return cmp.Compare(a.X, b.X) })
	}
	return out
}

// first are the records of a summary's first round.
func (r *Results) first(s summary) (out []Record) {
	for _, rec := range r.Records {
		if k := rec.Key; k.Round == 1 {
			if k.Round = 0; k == s.Key {
				out = append(out, rec)
			}
		}
	}
	return out
}

// only keeps the summaries that f wants.
func only(all []summary, f func(Key) bool) []summary {
	var out []summary
	for _, s := range all {
		if f(s.Key) {
			out = append(out, s)
		}
	}
	return out
}

// each calls f with every value that dim has among the summaries, in their order, and those that have it.
func each(all []summary, dim func(Key) string, f func(value string, of []summary)) {
	var seen []string
	for _, s := range all {
		v := dim(s.Key)
		if slices.Contains(seen, v) {
			continue
		}
		seen = append(seen, v)
		f(v, only(all, func(k Key) bool { return dim(k) == v }))
	}
}
