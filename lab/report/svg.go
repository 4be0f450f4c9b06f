package report

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

const (
	fontSize  = 12.0 // of the text in charts, as style.css has it
	eventSize = 11.0
)

// canvas collects the elements of an SVG picture.
type canvas struct{ strings.Builder }

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(c, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, px(x1), px(y1), px(x2), px(y2))
}

// text writes at the baseline y; anchor is start, middle or end.
func (c *canvas) text(class, anchor string, x, y float64, text string) {
	fmt.Fprintf(c, `<text class="%s" text-anchor="%s" x="%s" y="%s">%s</text>`, class, anchor, px(x), px(y), escape(text))
}

// marker draws the sign of a style, which tells series apart where colours do not. tip, if any, is shown under the
// pointer.
func (c *canvas) marker(s style, x, y float64, tip string) {
	r := 3.2
	if s.ours {
		r = 4.2
	}
	at := func(dx, dy float64) string { return px(x+dx*r) + " " + px(y+dy*r) }
	shape := ""
	switch (s.colour + s.round) % 7 {
	case 0:
		shape = fmt.Sprintf(`<circle cx="%s" cy="%s" r="%s"`, px(x), px(y), px(r))
	case 1:
		shape = fmt.Sprintf(`<rect x="%s" y="%s" width="%s" height="%s"`, px(x-0.9*r), px(y-0.9*r), px(1.8*r), px(1.8*r))
	case 2:
		shape = fmt.Sprintf(`<path d="M%sL%sL%sZ"`, at(0, -1.25), at(1.15, 0.85), at(-1.15, 0.85))
	case 3:
		shape = fmt.Sprintf(`<path d="M%sL%sL%sL%sZ"`, at(0, -1.3), at(1.3, 0), at(0, 1.3), at(-1.3, 0))
	case 4:
		shape = fmt.Sprintf(`<path d="M%sL%sL%sZ"`, at(0, 1.25), at(1.15, -0.85), at(-1.15, -0.85))
	case 5:
		shape = fmt.Sprintf(`<path class="cross" d="M%sL%sM%sL%s"`, at(-1, -1), at(1, 1), at(-1, 1), at(1, -1))
	case 6:
		shape = fmt.Sprintf(`<path class="cross" d="M%sL%sM%sL%s"`, at(0, -1.2), at(0, 1.2), at(-1.2, 0), at(1.2, 0))
	}
	c.WriteString(shape)
	if tip == "" {
		c.WriteString("/>")
		return
	}
	fmt.Fprintf(c, "><title>%s</title>%s", escape(tip), closing(shape))
}

func closing(shape string) string {
	name, _, _ := strings.Cut(shape[1:], " ")
	return "</" + name + ">"
}

// px writes a coordinate.
func px(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10+0, 'f', -1, 64) }

// escape makes text safe in HTML, between tags and in quoted attributes.
func escape(text string) string { return html.EscapeString(clean(text)) }

// textWidth estimates, rather too high, how wide text is drawn in a sans-serif font.
func textWidth(text string, size float64) float64 {
	width := 0.0
	for _, r := range text {
		switch {
		case strings.ContainsRune("il.,:;|'!()[]tfjrI ", r):
			width += 0.38
		case strings.ContainsRune("mwMW@%—", r):
			width += 0.92
		case r >= 'A' && r <= 'Z':
			width += 0.72
		case r >= 0x2e80:
			width++
		default:
			width += 0.62
		}
	}
	return width * size
}

// shorten cuts text to a width.
func shorten(text string, size, width float64) string {
	if textWidth(text, size) <= width {
		return text
	}
	runes := []rune(text)
	for len(runes) > 1 && textWidth(string(runes), size)+size > width {
		runes = runes[:len(runes)-1]
	}
	return strings.TrimSpace(string(runes)) + "…"
}
