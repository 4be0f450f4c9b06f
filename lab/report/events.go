package report

import (
	"cmp"
	"math"
	"slices"
)

// placed is an event with the place of its label: rows count upwards from the plot.
type placed struct {
	text     string
	x        float64 // of the mark
	from, to float64 // of the label
	row      int
}

// placeEvents finds places where no label covers another or is crossed by another event's mark, which reaches from its
// label's row down to the plot. at maps an event's X, and tells whether it is on the axis.
//
// Labels stand right of their marks, placed from the right: so a mark that reaches higher crosses no label of an event
// right of it. Towards the right edge they stand left of their marks, placed from the left. Where the sides change is
// found by trying.
func placeEvents(events []Event, at func(float64) (float64, bool), width float64) []placed {
	var todo []placed
	for _, e := range events {
		if x, ok := at(e.X); ok {
			todo = append(todo, placed{text: shorten(clean(e.Text), eventSize, width/2-8), x: x})
		}
	}
	slices.SortStableFunc(todo, func(a, b placed) int { return cmp.Compare(a.x, b.x) })
	var best []placed
	cost := math.MaxInt
	for split := len(todo); split >= 0; split-- {
		if out, c := placeSplit(todo, split, width); c < cost {
			best, cost = out, c
		}
	}
	return best
}

// placeSplit places the labels of the events up to split right of their marks, the others left of them. The cost is the
// number of rows and, far above that, of crossings that could not be avoided.
func placeSplit(events []placed, split int, width float64) (out []placed, cost int) {
	const gap, crossing = 5, 1000
	put := func(e placed) {
		free := func(row int, collides func(placed, placed) bool) bool {
			e.row = row
			return !slices.ContainsFunc(out, func(o placed) bool { return collides(e, o) })
		}
		if e.from < 0 || e.to > width {
			cost += crossing
		}
		row := 0
		for row <= len(out) && !free(row, placed.collides) {
			row++
		}
		if row > len(out) {
			cost += crossing
			for row = 0; !free(row, placed.covers); {
				row++
			}
		}
		out = append(out, e)
		cost = max(cost, cost/crossing*crossing+row)
	}
	for _, e := range slices.Backward(events[:split]) {
		e.from, e.to = e.x+gap, e.x+gap+textWidth(e.text, eventSize)
		put(e)
	}
	for _, e := range events[split:] {
		e.from, e.to = e.x-gap-textWidth(e.text, eventSize), e.x-gap
		put(e)
	}
	return out, cost
}

// covers reports whether the labels stand on one another.
func (e placed) covers(o placed) bool {
	const gap = 6
	return e.row == o.row && e.from < o.to+gap && o.from < e.to+gap
}

// collides reports whether the labels are in each other's way, or a mark in that of a label.
func (e placed) collides(o placed) bool {
	return e.covers(o) || o.row >= e.row && o.x > e.from-2 && o.x < e.to+2 || e.row >= o.row && e.x > o.from-2 &&
		e.x < o.to+2
}

func (d *drawing) drawEvents(events []placed) {
	for _, e := range events {
		base := d.top - 8 - float64(e.row)*labelStep
		d.line("event", e.x, base-8, e.x, d.bottom)
	}
	for _, e := range events {
		base := d.top - 8 - float64(e.row)*labelStep
		if e.from > e.x {
			d.text("event", "start", e.from, base, e.text)
		} else {
			d.text("event", "end", e.to, base, e.text)
		}
	}
}
