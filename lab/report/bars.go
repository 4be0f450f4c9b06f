package report

import (
	"fmt"
	"strings"
)

// bars lays the chart out as groups of bars.
func (d *drawing) bars() {
	c := d.chart
	probe := drawing{chart: c, size: d.size, y: d.y}
	probe.frame(0, 14, 0)
	slot := (probe.right - probe.left) / float64(len(c.Categories))
	labels, tilted := categoryLabels(c.Categories, slot-8)
	if tilted {
		for i, lines := range labels {
			d.minLeft = max(d.minLeft, textWidth(lines[0], fontSize)*0.87-(float64(i)+0.5)*slot)
		}
	}
	below := 26.0
	if tilted {
		for _, lines := range labels {
			below = max(below, 18+textWidth(lines[0], fontSize)*0.5)
		}
	} else {
		for _, lines := range labels {
			below = max(below, 12+float64(len(lines))*labelStep)
		}
	}
	if c.X != "" {
		below += 20
	}
	gap := 0.0
	if d.y.lo < 0 {
		gap = 10 // for values below bars
	}
	d.frame(0, 14, below+gap)
	slot = (d.right - d.left) / float64(len(c.Categories))
	for i, lines := range labels {
		d.category(lines, d.left+(float64(i)+0.5)*slot, d.bottom+gap, tilted)
	}
	if c.X != "" {
		d.text("title", "middle", (d.left+d.right)/2, d.height-4, c.X)
	}
	d.barGroups(slot)
	d.line("zero", d.left, d.base(), d.right, d.base())
}

// base is where bars begin.
func (d *drawing) base() float64 {
	if d.chart.LogY {
		return d.bottom
	}
	return d.y.at(0)
}

// barGroups draws the bars in the order that the series were given in.
func (d *drawing) barGroups(slot float64) {
	order := d.chart.Series
	inner := slot * 0.82
	if len(d.chart.Categories) == 1 {
		inner = min(inner, 70*float64(len(order)))
	}
	each := min(inner/float64(max(1, len(order))), 60)
	valued := d.valuesFit(each)
	for k, s := range order {
		st := d.group(s)
		for i, p := range s.Points {
			if !d.chart.usable(p) {
				continue
			}
			middle := d.left + (float64(i)+0.5)*slot + (float64(k)-float64(len(order)-1)/2)*each
			half := max(0.5, each/2-min(1, each*0.08))
			d.bar(st, middle-half, d.base(), middle+half, d.y.at(p.Y), d.tip(s.Name, clean(d.chart.Categories[i]), p))
			d.errorBar(p, middle)
			if valued {
				d.barValue(p, middle)
			}
		}
		d.WriteString("</g>\n")
	}
}

// valuesFit reports whether a number fits above each bar.
func (d *drawing) valuesFit(each float64) bool {
	for _, s := range d.series {
		for _, p := range s.Points {
			if d.chart.usable(p) && textWidth(number(p.Y), eventSize)+5 > each {
				return false
			}
		}
	}
	return true
}

func (d *drawing) barValue(p Point, x float64) {
	low, high, ok := d.chart.spread(p)
	if !ok {
		low, high = p.Y, p.Y
	}
	if p.Y < 0 {
		d.text("value", "middle", x, d.y.at(d.y.clamp(min(p.Y, low)))+12, number(p.Y))
		return
	}
	d.text("value", "middle", x, d.y.at(d.y.clamp(max(p.Y, high)))-4, number(p.Y))
}

// bar is a rectangle; where colours are used up, it is paler with an edge.
func (d *drawing) bar(st style, x1, y1, x2, y2 float64, tip string) {
	class := "bar"
	if st.round > 0 {
		class = "bar pale"
	}
	d.rect(class, x1, y1, x2, y2)
	d.WriteString(dashAttribute(st))
	if tip == "" {
		d.WriteString("/>")
		return
	}
	fmt.Fprintf(d, "><title>%s</title></rect>", escape(tip))
}

// category writes the label of a group.
func (d *drawing) category(lines []string, x, below float64, tilted bool) {
	if tilted {
		fmt.Fprintf(d, `<text class="tick" text-anchor="end" transform="translate(%s %s) rotate(-30)">%s</text>`, px(x+4), px(below+16), escape(lines[0]))
		return
	}
	for i, line := range lines {
		d.text("tick", "middle", x, below+18+float64(i)*labelStep, line)
	}
}

// categoryLabels breaks labels into lines that fit into width. If a label takes more than three lines, all labels are
// tilted.
func categoryLabels(categories []string, width float64) (labels [][]string, tilted bool) {
	for _, c := range categories {
		lines := []string{""}
		for _, word := range strings.Fields(clean(c)) {
			last := &lines[len(lines)-1]
			switch longer := strings.TrimSpace(*last + " " + word); {
			case textWidth(longer, fontSize) <= width:
				*last = longer
			case *last == "":
				*last = word
			default:
				lines = append(lines, word)
			}
			tilted = tilted || textWidth(word, fontSize) > width
		}
		tilted = tilted || len(lines) > 3
		labels = append(labels, lines)
	}
	if !tilted {
		return labels, false
	}
	for i, c := range categories {
		labels[i] = []string{shorten(clean(c), fontSize, 150)}
	}
	return labels, true
}
