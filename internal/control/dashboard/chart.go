package dashboard

import (
	"fmt"
	"html/template"
	"strings"
)

// chart is a line over the last minutes. Its coordinates go from 0 to chartWidth and from 0, at the top, to
// chartHeight.
type chart struct {
	Title string
	Lines []string // points of each unbroken stretch
	Top   string   // the highest value
	Text  string   // the same in words
}

const (
	chartWidth  = 240
	chartHeight = 48
)

// chartOf draws points from left to right, the newest at the right edge; stretches of which nothing is known are left
// out.
func chartOf(list []point, title string, text func(float64) string) *chart {
	c := &chart{Title: title}
	top, low, known := 0.0, 0.0, 0
	for _, p := range list {
		if !p.known {
			continue
		}
		if known == 0 || p.value < low {
			low = p.value
		}
		top = max(top, p.value)
		known++
	}
	if known < 2 {
		return nil
	}
	last := list[len(list)-1].at
	scale := top
	if scale == 0 {
		scale = 1
	}
	var line []string
	end := func() {
		if len(line) > 1 {
			c.Lines = append(c.Lines, strings.Join(line, " "))
		}
		line = nil
	}
	for _, p := range list {
		if !p.known {
			end()
			continue
		}
		x := chartWidth * (1 - last.Sub(p.at).Seconds()/chartSpan.Seconds())
		y := chartHeight - 2 - (chartHeight-4)*p.value/scale
		line = append(line, fmt.Sprintf("%.1f,%.1f", x, y))
	}
	end()
	c.Top = text(top)
	c.Text = fmt.Sprintf("%s in the last two minutes: from %s to %s", title, text(low), text(top))
	return c
}

// signs of levels: a colour must not be all that tells them apart.
var signs = map[string]string{levelGood: "●", levelWarn: "▲", levelBad: "✕", levelLoud: "✕"}

// text shows what stands between two backticks, as in a message of the command line, as code.
func text(s string) template.HTML {
	var b strings.Builder
	for {
		before, rest, _ := strings.Cut(s, "`")
		code, after, paired := strings.Cut(rest, "`")
		if !paired {
			return template.HTML(b.String() + template.HTMLEscapeString(s))
		}
		b.WriteString(template.HTMLEscapeString(before) + "<code>" + template.HTMLEscapeString(code) + "</code>")
		s = after
	}
}

// funcs of the templates.
var funcs = template.FuncMap{
	"sign":    func(level string) string { return signs[level] },
	"text":    text,
	"stamp":   clock,
	"seconds": func(s *float64) string { return seconds(*s) },
	"dash": func(s string) string {
		if s == "" {
			return waiting
		}
		return s
	},
}
