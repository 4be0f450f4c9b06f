package dashboard

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
)

// Previous compares a period with the time of the same length that ends where it begins.
const Previous = "previous"

// comparisons are the earlier periods that the page offers to compare with, and what it calls them.
var comparisons = [][2]string{{"", "nothing"}, {Previous, "the time before"}, {"24h", "a day earlier"},
	{"168h", "a week earlier"}}

// earlierBy reads how much earlier the other period begins that one of some length is compared with; 0: no comparison.
func earlierBy(text string, length time.Duration) (time.Duration, error) {
	switch text {
	case "":
		return 0, nil
	case Previous:
		return length, nil
	}
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%q is not a time before", text)
	}
	return d, err
}

// comparisonsWith are those, and what somebody has asked for.
func comparisonsWith(asked string) [][2]string {
	if slices.ContainsFunc(comparisons, func(c [2]string) bool { return c[0] == asked }) {
		return comparisons
	}
	return append(slices.Clip(comparisons), [2]string{asked, asked + " earlier"})
}

// compareWith adds an earlier report of the same length: its lines and columns are shown next to those of this one.
func (p *period) compareWith(r api.Report) {
	nodes := make([]api.PeriodView, len(p.Nodes)) // in the order of this one's: lines find their node by its place
	all := &period{Report: r}
	for i, n := range p.Nodes {
		nodes[i] = all.of(n.Node)
		nodes[i].Node = n.Node
	}
	r.Nodes = nodes
	p.earlier = newPeriod(r)
	if p.earlier.step != p.step { // nothing was recorded in one of them
		p.earlier.slots = nil
	}
}

// inBoth collects names that occur in this period, or in the one that it is compared with.
func (p *period) inBoth(names func(q *period) []string) []string {
	set := map[string]bool{}
	for _, q := range []*period{p, p.earlier} {
		if q != nil {
			for _, name := range names(q) {
				set[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// add draws a line, unless nothing is known of it.
func (f *figure) add(l line, slots [][]*api.Interval) {
	known := false
	cells := make([]string, len(f.Rows))
	for i, slot := range slots[:min(len(slots), len(cells))] {
		cells[i] = plain(l.of(slot))
		known = known || cells[i] != ""
	}
	if !known {
		return
	}
	f.Lines = append(f.Lines, l)
	for i := range cells {
		f.Rows[i].Cells = append(f.Rows[i].Cells, cells[i])
	}
}

// earlierPage is what the page says of the period that it compares with.
type earlierPage struct {
	From, To string
	None     bool   // nothing was recorded in it
	Lacks    string // nodes that have recorded in this period and not in that one
}

func (p *period) earlierPage() *earlierPage {
	if p.earlier == nil {
		return nil
	}
	e := &earlierPage{From: clock(p.earlier.From), To: clock(p.earlier.To), None: p.earlier.all.Seconds == 0}
	var lacks []string
	for i, n := range p.earlier.Nodes {
		if p.nodes[i].Seconds > 0 && p.earlier.nodes[i].Seconds == 0 && n.Problem == "" {
			lacks = append(lacks, n.Node)
		}
	}
	e.Lacks = strings.Join(lacks, ", ")
	return e
}

// missing are nodes that did not answer, each with its reason; one that never does is told once.
func (p *period) missing() (out []fact) {
	for i, n := range p.Nodes {
		if n.Problem != "" {
			out = append(out, fact{n.Node, n.Problem})
		} else if p.earlier != nil && p.earlier.Nodes[i].Problem != "" {
			out = append(out, fact{n.Node + " of the earlier period", p.earlier.Nodes[i].Problem})
		}
	}
	return out
}

// columns adds columns at the end of a table's head, if there is a period to compare with.
func (p *period) columns(g *grid, heads ...string) {
	if p.earlier != nil {
		g.Head = append(g.Head, heads...)
	}
}

// cells adds what belongs in those columns to a row; of is asked only if there is such a period.
func (p *period) cells(row []string, of func(q *period) []string) []string {
	if p.earlier == nil {
		return row
	}
	return append(row, of(p.earlier)...)
}

// of is what a node has recorded.
func (p *period) of(node string) (v api.PeriodView) {
	if at := slices.IndexFunc(p.Nodes, func(n api.PeriodView) bool { return n.Node == node }); at >= 0 {
		v = p.Nodes[at]
	}
	return v
}
