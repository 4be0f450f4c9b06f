package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"trireme/lab/report"
)

// quantile of values by the nearest-rank method; 0 of none.
func quantile[T cmp.Ordered](values []T, q float64) (_ T) {
	if len(values) == 0 {
		return
	}
	v := slices.Sorted(slices.Values(values))
	return v[max(0, int(math.Ceil(q*float64(len(v))))-1)]
}

// meanWithin is the mean of values and half the width of its 95 % interval (normal approximation).
func meanWithin(values []float64) (mean, half float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	if n < 2 {
		return mean, math.Inf(1)
	}
	var squares float64
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	return mean, studentT(len(values)-1) * math.Sqrt(squares/(n-1)/n)
}

// studentT is the 97.5 % quantile of Student's distribution, within 1 % (Abramowitz and Stegun, Handbook of
// Mathematical Functions, 26.7.5).
func studentT(freedom int) float64 {
	exact := []float64{12.706, 4.303, 3.182, 2.776}
	if freedom <= len(exact) {
		return exact[freedom-1]
	}
	const x = 1.959964
	n := float64(freedom)
	return x + (x*x*x+x)/(4*n) + (5*math.Pow(x, 5)+16*x*x*x+3*x)/(96*n*n)
}

// faultRow is one kind of fault on one system.
type faultRow struct {
	Key     // Round and Repeat are 0
	kind    faultKind
	records []Record
}

// faultRows by kind, then by system; without what was not run.
func (r *Results) faultRows() []faultRow {
	var out []faultRow
	for _, kind := range faultKinds {
		at := map[Key]int{}
		for _, rec := range r.Records {
			if rec.Case != kind.name || rec.NotRun != "" {
				continue
			}
			k := rec.Key.cell()
			i, ok := at[k]
			if !ok {
				i = len(out)
				at[k] = i
				out = append(out, faultRow{Key: k, kind: kind})
			}
			out[i].records = append(out[i].records, rec)
		}
	}
	return out
}

// of the records that have the value.
func (row faultRow) of(name string) []float64 {
	var out []float64
	for _, rec := range row.records {
		if v, ok := rec.Values[name]; ok {
			out = append(out, v)
		}
	}
	return out
}

func (row faultRow) sum(name string) (sum float64) {
	for _, v := range row.of(name) {
		sum += v
	}
	return sum
}

func (row faultRow) longest(name string) float64 { return quantile(row.of(name), 1) }

// paused counts the faults for which the writers had to pause.
func (row faultRow) paused() (n int) {
	for _, rec := range row.records {
		if slices.ContainsFunc(rec.Events, func(e Event) bool { return e.Text == eventPause }) {
			n++
		}
	}
	return n
}

// missed says which targets a row of Trireme's misses.
func (row faultRow) missed() (out []string) {
	t := row.kind.target
	gaps := row.of(valGap)
	if p := quantile(gaps, 0.5); t.p50MS > 0 && p > t.p50MS {
		out = append(out, fmt.Sprintf("p50 %.0f ms, wanted %.0f", p, t.p50MS))
	}
	if p := quantile(gaps, 0.99); t.p99MS > 0 && p > t.p99MS {
		out = append(out, fmt.Sprintf("p99 %.0f ms, wanted %.0f", p, t.p99MS))
	}
	if mean, half := meanWithin(row.of(valDip)); t.dip > 0 && mean-half > t.dip { // a dip within the error does not count
		out = append(out, fmt.Sprintf("dip %.0f %%, wanted %.0f", mean, t.dip))
	}
	if p := row.longest(valBack); p > backSeconds {
		out = append(out, fmt.Sprintf("back after %.1f s, wanted %d", p, backSeconds))
	}
	if slices.ContainsFunc(row.records, func(rec Record) bool { return rec.Broken != "" }) {
		out = append(out, "promise broken")
	}
	return out
}

// wanted is the targets of a kind in words.
func (t target) wanted() string {
	var parts []string
	if t.p50MS > 0 {
		parts = append(parts, fmt.Sprintf("p50 %.0f", t.p50MS))
	}
	if t.p99MS > 0 {
		parts = append(parts, fmt.Sprintf("p99 %.0f", t.p99MS))
	}
	if t.dip > 0 {
		parts = append(parts, fmt.Sprintf("dip %.0f %%", t.dip))
	}
	return cmp.Or(strings.Join(parts, ", "), "–")
}

// verdict on a row of Trireme's own; empty for others, and where there is no target.
func (row faultRow) verdict() report.Cell {
	switch m := row.missed(); {
	case row.System != ours:
		return report.Cell{}
	case len(m) > 0:
		return report.Cell{Text: "missed: " + strings.Join(m, "; "), Mark: report.Worse}
	case row.kind.target == target{}:
		return report.Cell{}
	}
	if n := len(row.records); n < faultsForVerdict {
		return report.Cell{Text: fmt.Sprintf("met, with %d of the %d faults that it takes", n, faultsForVerdict)}
	}
	return report.Cell{Text: "met", Mark: report.Better}
}

// faultsForVerdict is how many faults of a kind it takes to say that a target is met.
const faultsForVerdict = 50

// head are the first cells of a row.
func (row faultRow) head() []report.Cell {
	return []report.Cell{{Text: row.Topology}, {Text: row.kind.name}, {Text: shortName(row.System)}, {Text: row.Variant},
		{Text: fmt.Sprint(len(row.records))}}
}

var faultColumns = []report.Column{{Title: "topology"}, {Title: "fault"}, {Title: "system"}, {Title: "variant"},
	{Title: "number", Number: true}}

// numbers are columns and cells of numbers.
func numbers(titles ...string) (out []report.Column) {
	for _, t := range titles {
		out = append(out, report.Column{Title: t, Number: true})
	}
	return out
}

func numberCells(format string, values ...float64) (out []report.Cell) {
	for _, v := range values {
		out = append(out, report.Cell{Text: fmt.Sprintf(format, v)})
	}
	return out
}

// gapTable tells of the gaps, and whether the targets are met.
func gapTable(rows []faultRow) report.Table {
	t := report.Table{Caption: "Write gaps in ms; with fewer than 100 faults p99 is the longest",
		Columns: slices.Concat(faultColumns, numbers("p50", "p90", "p99", "lost"),
			[]report.Column{{Title: "wanted"}, {Title: "Trireme"}})}
	for _, row := range rows {
		gaps := row.of(valGap)
		line := slices.Concat(row.head(), []report.Cell{{Text: "–"}, {Text: "–"}, {Text: "–"}})
		if len(gaps) > 0 {
			line = slices.Concat(row.head(), numberCells("%.0f", quantile(gaps, 0.5), quantile(gaps, 0.9), quantile(gaps, 0.99)))
		}
		line = append(line, numberCells("%.0f", row.sum(valLost))...)
		wanted := ""
		if row.System == ours {
			wanted = row.kind.target.wanted()
		}
		t.Rows = append(t.Rows, append(line, report.Cell{Text: wanted}, row.verdict()))
	}
	return t
}

// writersTable tells what the writers saw.
func writersTable(rows []faultRow) report.Table {
	t :=
		report.Table{Caption: "The writers: rate before, longest pause in ms before, attempts that failed; of the acknowledged writes, how many are lost or doubled",
			Columns: slices.Concat(faultColumns, numbers("writes/s", "pause", "failed, median", "dip %", "acknowledged", "lost",
				"doubled"))}
	for _, row := range rows {
		line := slices.Concat(row.head(), numberCells("%.0f", median(row.of(valRate)), row.longest(valSteadyGap),
			median(row.of(valFailed))))
		line = append(line, report.Cell{Text: dipText(meanWithin(row.of(valDip)))})
		t.Rows = append(t.Rows,
			append(line, numberCells("%.0f", row.sum(valAcked), row.sum(valLost), row.sum(valDoubled))...))
	}
	return t
}

// backTable tells of the way back.
func backTable(rows []faultRow) report.Table {
	t := report.Table{Caption: "Recovery, in seconds",
		Columns: slices.Concat(faultColumns, numbers("whole again, median", "longest", "back, median", "longest", "paused"),
			[]report.Column{{Title: "expected of Trireme"}})}
	for _, row := range rows {
		line := slices.Concat(row.head(), numberCells("%.1f", median(row.of(valHealthy)), row.longest(valHealthy)))
		if len(row.of(valBack)) > 0 {
			line = append(line, numberCells("%.1f", median(row.of(valBack)), row.longest(valBack))...)
		} else {
			line = append(line, report.Cell{Text: "–"}, report.Cell{Text: "–"})
		}
		expect := ""
		if isOurs(row.System) {
			expect = row.kind.expect
		}
		t.Rows = append(t.Rows, append(line, report.Cell{Text: fmt.Sprint(row.paused())}, report.Cell{Text: expect}))
	}
	return t
}

// tablesText says how to read them.
func tablesText() report.List {
	return report.List{
		fmt.Sprintf("**whole again**: from the fault until every node is healthy. **back**: the same from the start of the node's first process, or from its release; at most %d s wanted.", backSeconds),
		"**paused**: how often the writers had to pause, because the node did not catch up under their load.",
		"**dip**: percent of the rate lost in the second after the fault, mean with its 95 % interval. All nodes share this machine: a dead node leaves its CPU to the others, unless each has a budget.",
	}
}

func dipText(mean, half float64) string {
	if math.IsInf(half, 1) {
		return fmt.Sprintf("%.0f", mean)
	}
	return fmt.Sprintf("%.1f ± %.1f", mean, half)
}

// failoverSections have a time line for each kind of fault.
func failoverSections(r *Results) (out []report.Section) {
	each(r.summaries(), func(k Key) string { return k.Topology + "\x00" + k.Case }, func(_ string, of []summary) {
		k := of[0].Key
		chart := report.Chart{Title: "Acknowledged writes in each second around the fault: " + k.Case + " on " + k.Topology,
			X: "seconds after the fault", Y: "writes per second"}
		for _, s := range of {
			r.addTimeLine(&chart, s)
		}
		if len(chart.Series) > 0 {
			chart.Events = append([]report.Event{{X: 0, Text: k.Case}}, chart.Events...)
			out = append(out, report.Section{ID: slug("failover", k.Topology, k.Case), Title: k.Case + " on " + k.Topology,
				Blocks: []report.Block{chart}})
		}
	})
	return out
}

// addTimeLine draws the first fault of a summary, second 0 being that of the fault.
func (r *Results) addTimeLine(c *report.Chart, s summary) {
	for _, rec := range r.Records {
		if rec.Key.cell() != s.Key || len(rec.Series[valTPS]) == 0 || len(rec.Events) == 0 {
			continue
		}
		name := shortName(s.System)
		if strings.HasSuffix(s.Variant, "expel 0") {
			name += ", expel 0"
		}
		line := report.Series{Name: name, Ours: isOurs(s.System)}
		at := rec.Events[0].Second
		for i, v := range rec.Series[valTPS] {
			line.Points = append(line.Points, report.Point{X: float64(i) + 0.5 - at, Y: v})
		}
		c.Series = append(c.Series, line)
		for _, e := range rec.Events[1:] {
			if e.Text == eventWhole {
				c.Events = append(c.Events, report.Event{X: e.Second - at, Text: name + ": " + e.Text})
			}
		}
		return
	}
}
