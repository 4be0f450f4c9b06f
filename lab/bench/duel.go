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
			d := duel{suite: s.Name, key: x.Key, metric: m, ratio: own.Values[m.Name].Median / theirs.Median,
				ours: own.Values[m.Name], theirs: theirs}
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
		if d.deficit() > noise {
			out = append(out, d)
		}
	}
	slices.SortStableFunc(out, func(a, b duel) int { return cmp.Compare(b.deficit(), a.deficit()) })
	return out
}

// glance sums duels up: how often Trireme is better than a rival in a figure, and by how much.
func glance(all []duel) report.Section {
	t := report.Table{Columns: []report.Column{{Title: "suite"}, {Title: "figure"}, {Title: "rival"},
		{Title: "cells", Number: true}, {Title: "Trireme better", Number: true}, {Title: "worse", Number: true},
		{Title: "equal or not sure", Number: true}, {Title: "mean ratio", Number: true}, {Title: "lowest", Number: true},
		{Title: "highest", Number: true}}}
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
			case sure && d.deficit() < -unresolved:
				better++
			case sure && d.deficit() > unresolved:
				worse++
			}
			if d.ratio > 0 && !math.IsInf(d.ratio, 0) { // of nothing no mean can be formed
				logs, ratios = logs+math.Log(d.ratio), append(ratios, d.ratio)
			}
		}
		line := []report.Cell{{Text: g.suite}, {Text: m.Title}, {Text: shortName(g.rival)}, {Text: strconv.Itoa(len(of[g]))},
			{Text: strconv.Itoa(better)}, {Text: strconv.Itoa(worse)}, {Text: strconv.Itoa(len(of[g]) - better - worse)},
			{Text: "–"}, {Text: "–"}, {Text: "–"}}
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
		report.Text(
			fmt.Sprintf("Trireme's figure divided by each rival's best variant, over all cells of a suite; the mean is the geometric one. Better and worse are counted from %.0f %% on, and where the runs agree. "+
				"That a rival's best variant of each cell is taken favours rivals with many. More", 100*unresolved) +
				" is better for TPS and rows per second, less for everything else."), t}}
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
	s := report.Section{ID: "slower", Title: "Where Trireme is slower", Blocks: []report.Block{report.Text(fmt.Sprintf(
		"Every cell in which Trireme is more than %.0f %% slower than a rival's best variant, the worst first. `~`: the runs differ too much to be sure. [Why it is slower](README.md#why-trireme-is-slower).", 100*noise))}}
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

// deficit is the fraction by which Trireme is worse: 0.3 is 30 %.
func (l duel) deficit() float64 {
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
	t := report.Table{Columns: []report.Column{{Title: "suite"}, {Title: "where"}, {Title: "figure"}, {Title: "rival"},
		{Title: "Trireme", Number: true}, {Title: "rival", Number: true}, {Title: "ratio", Number: true}}}
	for _, l := range list {
		where := l.key
		where.System, where.Variant = "", ""
		ratio := report.Cell{Text: ratioText(l.ratio), Mark: report.Worse}
		if l.ours.wide() || l.theirs.wide() {
			ratio.Mark = report.Wide
		}
		t.Rows = append(t.Rows, []report.Cell{{Text: l.suite}, {Text: where.String()}, {Text: l.metric.Title},
			{Text: fmt.Sprintf("%s (%s)", shortName(l.key.System), l.key.Variant)}, {Text: l.metric.number(l.ours.Median)},
			{Text: l.metric.number(l.theirs.Median)}, ratio})
	}
	return t
}
