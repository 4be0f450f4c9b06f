package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// size of a chart's picture, in the units of the page's pixels.
type size struct{ width, plotHeight float64 }

var (
	third = size{370, 210}  // three stand side by side
	small = size{540, 250}  // two do
	alone = size{860, 320}  // between paragraphs
	wide  = size{1080, 300} // time lines
)

// wide charts take the page's width: time lines.
func (c Chart) wide() bool {
	return len(c.Events) > 0 || slices.ContainsFunc(c.Series, func(s Series) bool { return len(s.Points) > 60 })
}

// drawing is a chart being laid out.
type drawing struct {
	canvas
	chart                    Chart
	styles                   map[string]style
	size                     size
	series                   []Series // with something to draw, ours last
	x, y                     axis
	left, right, top, bottom float64 // the plot
	height                   float64 // of the picture
	direct                   bool    // names stand at the ends of the lines
	keyed                    bool    // names stand outside of the figure
}

// figure returns a chart as HTML. It needs no legend if it is keyed, which means that there is one for several charts.
func (c Chart) figure(id string, styles map[string]style, size size, keyed bool) string {
	d := &drawing{chart: c, styles: styles, size: size, keyed: keyed}
	var empty []string
	for _, s := range c.Series {
		if d.drawable(s) {
			d.series = append(d.series, s)
		} else {
			empty = append(empty, s.Name)
		}
	}
	slices.SortStableFunc(d.series, func(a, b Series) int { return rank(b.Ours) - rank(a.Ours) })
	d.y = valueAxis(d.values(), c.LogY)
	d.lines()
	var b strings.Builder
	class := "chart"
	if size == wide {
		class += " wide"
	} else if size == alone {
		class += " alone"
	}
	fmt.Fprintf(&b, "<figure class=\"%s\" id=\"%s\"><figcaption>%s</figcaption>\n", class, id, escape(c.Title))
	if !d.direct && !d.keyed {
		b.WriteString(d.legend())
	}
	fmt.Fprintf(&b, "<div class=\"scroll\"><svg viewBox=\"0 0 %s %s\" role=\"img\" aria-labelledby=\"%s-t %s-d\">",
		px(size.width), px(d.height), id, id)
	fmt.Fprintf(&b, "<title id=\"%s-t\">%s</title><desc id=\"%s-d\">%s</desc>", id, escape(c.Title), id,
		escape(d.description()))
	b.WriteString(d.String())
	b.WriteString("</svg></div>\n")
	if len(empty) > 0 && len(d.series) > 0 {
		fmt.Fprintf(&b, "<p class=\"key\">No data: %s</p>\n", escape(strings.Join(empty, ", ")))
	}
	b.WriteString("</figure>\n")
	return b.String()
}

// usable reports whether a point of the chart can be drawn.
func (c Chart) usable(p Point) bool {
	return usable(p.Y, c.LogY) && usable(p.X, c.LogX)
}

func (d *drawing) drawable(s Series) bool { return slices.ContainsFunc(s.Points, d.chart.usable) }

// spread returns the ends of a point's error bar.
func (c Chart) spread(p Point) (low, high float64, ok bool) {
	ok = (p.Low != 0 || p.High != 0) && usable(p.Low, false) && usable(p.High, false)
	return p.Low, p.High, ok
}

// values that the Y axis has to show.
func (d *drawing) values() []float64 {
	var out []float64
	add := func(v float64) {
		if usable(v, d.chart.LogY) {
			out = append(out, v)
		}
	}
	for _, s := range d.series {
		for _, p := range s.Points {
			if !d.chart.usable(p) {
				continue
			}
			add(p.Y)
			if low, high, ok := d.chart.spread(p); ok {
				add(low)
				add(high)
			}
		}
	}
	return out
}

// frame places the plot between the margins and draws the Y axis: its title, its lines, its labels.
func (d *drawing) frame(above, right, below float64) {
	d.left = 14
	for _, label := range d.y.labels {
		d.left = max(d.left, textWidth(label, fontSize)+12)
	}
	d.right = d.size.width - right
	d.top = 26 + above
	d.bottom = d.top + d.size.plotHeight
	d.height = d.bottom + below
	d.y.from, d.y.to = d.bottom, d.top
	d.text("title", "start", 0, 12, d.chart.Y)
	for i, v := range d.y.ticks {
		y := d.y.at(v)
		class := "grid"
		if v == 0 || i == 0 && d.chart.LogY {
			class = "zero"
		}
		d.line(class, d.left, y, d.right, y)
		if len(d.series) > 0 {
			d.text("tick", "end", d.left-8, y+4, d.y.labels[i])
		}
	}
	if len(d.series) == 0 {
		d.text("none", "middle", (d.left+d.right)/2, (d.top+d.bottom)/2, "No data")
	}
}

// group opens the group of a series' shapes.
func (d *drawing) group(s Series) style {
	st := d.styles[s.Name]
	class := fmt.Sprintf("c%d", st.colour)
	if s.Ours {
		class += " ours"
	}
	fmt.Fprintf(d, `<g class="%s">`, class)
	return st
}

// errorBar draws the spread of a point that stands at x.
func (d *drawing) errorBar(p Point, x float64) {
	low, high, ok := d.chart.spread(p)
	if !ok {
		return
	}
	from, to := d.y.at(d.y.clamp(low)), d.y.at(d.y.clamp(high))
	path := fmt.Sprintf("M%s %sV%sM%s %sH%sM%s %sH%s", px(x), px(from), px(to), px(x-3), px(from), px(x+3), px(x-3),
		px(to), px(x+3))
	fmt.Fprintf(d, `<path class="spread" d="%s"/>`, path)
}

// tip says in words what a point shows.
func (d *drawing) tip(name, at string, p Point) string {
	tip := fmt.Sprintf("%s, %s: %s", name, at, number(p.Y))
	if low, high, ok := d.chart.spread(p); ok {
		tip += fmt.Sprintf(" (%s to %s)", number(low), number(high))
	}
	return tip
}

// legend lists the series in the order that they were given in.
func (d *drawing) legend() string {
	var b strings.Builder
	for _, s := range d.chart.Series {
		if !d.drawable(s) {
			continue
		}
		item := drawing{chart: d.chart, styles: d.styles}
		st := item.group(s)
		item.swatch(st, 0, 7, d.marked())
		item.WriteString("</g>")
		class := ""
		if s.Ours {
			class = ` class="ours"`
		}
		fmt.Fprintf(&b, `<li%s><svg width="22" height="14" aria-hidden="true">%s</svg>%s</li>`, class, item.String(),
			escape(s.Name))
	}
	if b.Len() == 0 {
		return ""
	}
	return "<ul class=\"legend\">" + b.String() + "</ul>\n"
}

// commonLegend is the legend of charts that draw the same series in the same way; empty if they do not.
func commonLegend(row []Chart, styles map[string]style) string {
	common := ""
	for i, c := range row {
		d := drawing{chart: c, styles: styles}
		switch legend := d.legend(); {
		case i == 0:
			common = legend
		case legend != common:
			return ""
		}
	}
	if len(row) < 2 {
		return ""
	}
	return common
}

// swatch is a short piece of a line.
func (d *drawing) swatch(st style, x, y float64, marked bool) {
	fmt.Fprintf(d, `<path class="curve"%s d="M%s %sh20"/>`, dashAttribute(st), px(x+1), px(y))
	if marked {
		d.marker(st, x+11, y, "")
	}
}

func dashAttribute(st style) string {
	if st.dash() == "" {
		return ""
	}
	return fmt.Sprintf(` stroke-dasharray="%s"`, st.dash())
}

// description says what can be seen, for those who cannot.
func (d *drawing) description() string {
	c := d.chart
	var b strings.Builder
	fmt.Fprintf(&b, "Lines of %s over %s.", c.Y, c.X)
	for _, s := range d.series {
		lowest, highest := math.Inf(1), math.Inf(-1)
		for _, p := range s.Points {
			if c.usable(p) {
				lowest, highest = min(lowest, p.Y), max(highest, p.Y)
			}
		}
		fmt.Fprintf(&b, " %s: %s to %s.", s.Name, number(lowest), number(highest))
	}
	for _, e := range c.Events {
		fmt.Fprintf(&b, " At %s: %s.", number(e.X), e.Text)
	}
	return b.String()
}
