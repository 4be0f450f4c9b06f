package report

import (
	"cmp"
	"slices"
)

// placed is an event with the place of its label: rows count upwards from the plot.
type placed struct {
	text     string
	x        float64 // of the mark
	from, to float64 // of the label
	row      int
}

const maxEventRows = 12

// placeEvents finds places where no label covers another or is crossed by another event's mark, which reaches from its label's row down to
// the plot. at maps an event's X, and tells whether it is on the axis.
func placeEvents(events []Event, at func(float64) (float64, bool), width float64) []placed {
	var todo []placed
	for _, e := range events {
		if x, ok := at(e.X); ok {
			text := shorten(clean(e.Text), eventSize, width/2-8)
			todo = append(todo, placed{text: text, x: x, to: textWidth(text, eventSize)})
		}
	}
	// From the right: a label stands right of its mark, and so a mark that reaches higher crosses no label of an event right of it.
	slices.SortStableFunc(todo, func(a, b placed) int { return cmp.Compare(b.x, a.x) })
	var out, left []placed
	for _, e := range todo {
		length := e.to
		e.from, e.to = e.x+5, e.x+5+length
		if e.to > width {
			e.from, e.to = e.x-5-length, e.x-5
			left = append(left, e)
			continue
		}
		out = append(out, e.lowest(out))
	}
	// Labels left of their marks: the same from the other side.
	slices.Reverse(left)
	for _, e := range left {
		out = append(out, e.lowest(out))
	}
	return out
}

// lowest puts an event into the lowest row where it is in nobody's way.
func (e placed) lowest(others []placed) placed {
	for e.row = 0; e.row < maxEventRows; e.row++ {
		if !slices.ContainsFunc(others, e.collides) {
			return e
		}
	}
	return e
}

func (e placed) collides(o placed) bool {
	const gap = 6
	return e.row == o.row && e.from < o.to+gap && o.from < e.to+gap ||
		o.row > e.row && o.x > e.from-2 && o.x < e.to+2 || // its mark crosses this label
		e.row > o.row && e.x > o.from-2 && e.x < o.to+2
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
