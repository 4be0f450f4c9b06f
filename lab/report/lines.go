package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const (
	labelStep = 15.0 // between the lines of text
	endGap    = 18.0 // between the plot and the names at its right
	swatchW   = 22.0
	maxMarked = 16   // points of a line that get markers
	bolder    = 1.14 // times as wide is bold text
	nameShare = 0.27 // of the width may be the names'
)

// marked reports whether the points have markers: where they are few.
func (d *drawing) marked() bool {
	return !slices.ContainsFunc(d.chart.Series, func(s Series) bool { return len(s.Points) > maxMarked })
}

// lines lays the chart out as lines over X.
func (d *drawing) lines() {
	var xs []float64
	for _, s := range d.series {
		for _, p := range s.Points {
			if d.chart.usable(p) {
				xs = append(xs, p.X)
			}
		}
	}
	d.x = positionAxis(xs, d.chart.LogX)
	right := d.nameRoom()
	events := placeEvents(d.chart.Events, func(v float64) (float64, bool) {
		// The margin at the left follows from the labels of the Y axis, and the events' rows do not change it.
		probe := drawing{chart: d.chart, size: d.size, y: d.y, x: d.x}
		probe.frame(0, right, 0)
		probe.spanX(d.marked())
		return probe.x.at(v), usable(v, d.chart.LogX) && v >= d.x.lo && v <= d.x.hi
	}, d.size.width)
	rows := 0
	for _, e := range events {
		rows = max(rows, e.row+1)
	}
	d.frame(float64(rows)*labelStep, right, 44)
	d.spanX(d.marked())
	d.axisX()
	d.drawEvents(events)
	for _, s := range d.series {
		d.curve(s)
	}
	if d.direct {
		d.names()
	}
}

// spanX puts the X axis below the plot; markers keep off its ends.
func (d *drawing) spanX(marked bool) {
	inset := 0.0
	if marked {
		inset = 12
	}
	d.x.from, d.x.to = d.left+inset, d.right-inset
}

// axisX draws labels where they have room, and the title.
func (d *drawing) axisX() {
	if !d.chart.LogY {
		d.line("axis", d.left, d.bottom, d.right, d.bottom)
	}
	free := 0.0
	for i, v := range d.x.ticks {
		x, half := d.x.at(v), textWidth(d.x.labels[i], fontSize)/2
		d.line("axis", x, d.bottom, x, d.bottom+4)
		if x-half < free {
			continue
		}
		d.text("tick", "middle", x, d.bottom+18, d.x.labels[i])
		free = x + half + 8
	}
	d.text("title", "middle", (d.left+d.right)/2, d.bottom+37, d.chart.X)
}

// curve draws one line with its points and their spread.
func (d *drawing) curve(s Series) {
	points := slices.DeleteFunc(slices.Clone(s.Points), func(p Point) bool { return !usable(p.X, d.chart.LogX) })
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
	st := d.group(s)
	for _, p := range points {
		if d.chart.usable(p) {
			d.errorBar(p, d.x.at(p.X))
		}
	}
	var path strings.Builder
	pen := "M"
	for i, p := range points {
		if !d.chart.usable(p) {
			pen = "M"
			continue
		}
		fmt.Fprintf(&path, "%s%s %s", pen, px(d.x.at(p.X)), px(d.y.at(p.Y)))
		if pen == "M" && (i+1 == len(points) || !d.chart.usable(points[i+1])) {
			path.WriteString("h0.01") // a point between gaps: the line's round end shows it
		}
		pen = "L"
	}
	fmt.Fprintf(d, `<path class="curve"%s d="%s"/>`, dashAttribute(st), path.String())
	if d.marked() {
		for _, p := range points {
			if d.chart.usable(p) {
				d.marker(st, d.x.at(p.X), d.y.at(p.Y), d.tip(s.Name, number(p.X), p))
			}
		}
	}
	d.WriteString("</g>\n")
}

// nameRoom decides whether the names fit at the ends of the lines, and returns the margin at the right.
func (d *drawing) nameRoom() float64 {
	room := 0.0
	for _, s := range d.series {
		width := textWidth(s.Name, fontSize)
		if s.Ours {
			width *= bolder
		}
		room = max(room, endGap+swatchW+6+width)
	}
	d.direct = !d.keyed && len(d.series) > 0 && room <= d.size.width*nameShare &&
		float64(len(d.series))*labelStep <= d.size.plotHeight
	if !d.direct {
		return 14
	}
	return room
}

// names writes the name of each line at its end. Where ends are close together it moves the names apart.
func (d *drawing) names() {
	type end struct {
		s       Series
		x, y    float64 // of the last point
		reaches bool    // the right end of the axis
	}
	var ends []end
	for _, s := range d.series {
		var last *Point
		for i, p := range s.Points {
			if d.chart.usable(p) && (last == nil || p.X >= last.X) {
				last = &s.Points[i]
			}
		}
		ends = append(ends, end{s, d.x.at(last.X), d.y.at(last.Y), last.X == d.x.hi})
	}
	slices.SortStableFunc(ends, func(a, b end) int { return cmp.Compare(a.y, b.y) })
	wanted := make([]float64, len(ends))
	for i, e := range ends {
		wanted[i] = e.y
	}
	for i, y := range spreadOut(wanted, labelStep, d.top, d.bottom) {
		e := ends[i]
		st := d.group(e.s)
		x := d.right + endGap
		if e.reaches {
			fmt.Fprintf(d, `<path class="leader" d="M%s %sL%s %s"/>`, px(e.x+6), px(e.y), px(x-1), px(y))
		}
		d.swatch(st, x, y, d.marked())
		d.text("name", "start", x+swatchW+4, y+4, e.s.Name)
		d.WriteString("</g>\n")
	}
}

// spreadOut moves sorted positions as little as is simple so that they are step apart, between lo and hi if there is
// room.
func spreadOut(wanted []float64, step, lo, hi float64) []float64 {
	out := slices.Clone(wanted)
	floor := lo
	for i := range out {
		out[i] = max(out[i], floor)
		floor = out[i] + step
	}
	ceiling := hi
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = min(out[i], ceiling)
		ceiling = out[i] - step
	}
	return out
}
