package report

import (
	_ "embed"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// longFact is from how many characters a fact is a text rather than a value.
const longFact = 60

//go:embed style.css
var css string

// HTML writes the document as one page that needs nothing else.
func (d Document) HTML(w io.Writer) error {
	if err := d.check(); err != nil {
		return err
	}
	p := page{styles: styles(d.charts())}
	// The policy makes the browser hold the page to its promise: no script, nothing fetched.
	fmt.Fprintf(&p, `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<link rel="icon" href="data:,"/>
<title>%s</title>
<style>
%s</style>
</head>
<body>
`, escape(d.Title), css)
	if len(d.Sections) > 0 {
		p.contents(d.Sections)
	}
	fmt.Fprintf(&p, "<main>\n<h1>%s</h1>\n", escape(d.Title))
	p.blocks("", d.Blocks)
	p.sections(2, d.Sections)
	p.WriteString("</main>\n</body>\n</html>\n")
	_, err := io.WriteString(w, p.String())
	return err
}

type page struct {
	strings.Builder
	styles map[string]style
}

// contents appears next to the text on wide screens, and folded above it on narrow ones; the style chooses.
func (p *page) contents(sections []Section) {
	p.WriteString("<nav class=\"side\" aria-label=\"Contents\">\n<p>Contents</p>\n")
	p.links(sections)
	p.WriteString("</nav>\n<details class=\"folded-contents\"><summary>Contents</summary>\n")
	p.links(sections)
	p.WriteString("</details>\n")
}

func (p *page) links(sections []Section) {
	p.WriteString("<ol>\n")
	for _, s := range sections {
		fmt.Fprintf(p, "<li><a href=\"#%s\">%s</a>", s.ID, escape(s.Title))
		if len(s.Sections) > 0 {
			p.links(s.Sections)
		}
		p.WriteString("</li>\n")
	}
	p.WriteString("</ol>\n")
}

func (p *page) sections(level int, sections []Section) {
	for _, s := range sections {
		h := min(level, 6)
		fmt.Fprintf(p,
			"<section id=\"%s\">\n<h%d>%s<a class=\"anchor\" href=\"#%s\" aria-label=\"Link to this section\">#</a></h%d>\n",
			s.ID, h, escape(s.Title), s.ID, h)
		p.blocks(s.ID, s.Blocks)
		p.sections(level+1, s.Sections)
		p.WriteString("</section>\n")
	}
}

func (p *page) blocks(section string, blocks []Block) {
	charts := 0
	for i := 0; i < len(blocks); i++ {
		switch b := blocks[i].(type) {
		case Text:
			fmt.Fprintf(p, "<p>%s</p>\n", inlineHTML(string(b)))
		case List:
			p.WriteString("<ul>\n")
			for _, item := range b {
				fmt.Fprintf(p, "<li>%s</li>\n", inlineHTML(item))
			}
			p.WriteString("</ul>\n")
		case Facts:
			p.facts(b)
		case Table:
			p.table(b)
		case Chart:
			row := chartRow(blocks[i:])
			p.charts(section, charts, row)
			charts += len(row)
			i += len(row) - 1
		}
	}
}

// chartRow returns the charts that blocks start with.
func chartRow(blocks []Block) []Chart {
	var row []Chart
	for _, b := range blocks {
		c, ok := b.(Chart)
		if !ok {
			break
		}
		row = append(row, c)
	}
	return row
}

// charts writes charts side by side; those before them in the section are counted in done. If they show the same
// series, one legend does.
func (p *page) charts(section string, done int, row []Chart) {
	narrow := 0
	for _, c := range row {
		if !c.wide() {
			narrow++
		}
	}
	size, class := small, "charts"
	if narrow == 1 {
		size = alone
	} else if narrow%3 == 0 {
		size, class = third, "charts thirds"
	}
	common := commonLegend(row, p.styles)
	fmt.Fprintf(p, "<div class=\"%s\">\n%s", class, common)
	for i, c := range row {
		size := size
		if c.wide() {
			size = wide
		}
		p.WriteString(c.figure(chartID(section, done+i+1), p.styles, size, common != ""))
	}
	p.WriteString("</div>\n")
}

func (p *page) facts(f Facts) {
	if f.Title != "" {
		fmt.Fprintf(p, "<details class=\"facts\"><summary>%s <span class=\"count\">%d</span></summary>\n", escape(f.Title),
			len(f.Rows))
	}
	class := ""
	if slices.ContainsFunc(f.Rows, func(row [2]string) bool { return utf8.RuneCountInString(row[1]) > longFact }) {
		class = ` class="long"`
	}
	fmt.Fprintf(p, "<dl%s>\n", class)
	for _, row := range f.Rows {
		fmt.Fprintf(p, "<div><dt>%s</dt><dd>%s</dd></div>\n", escape(row[0]), escape(row[1]))
	}
	p.WriteString("</dl>\n")
	if f.Title != "" {
		p.WriteString("</details>\n")
	}
}

func inlineHTML(text string) string {
	var b strings.Builder
	bold := false
	for _, s := range append(inline(clean(text)), span{}) {
		if s.bold && !bold {
			b.WriteString("<strong>")
		} else if bold && !s.bold {
			b.WriteString("</strong>")
		}
		bold = s.bold
		text := html.EscapeString(s.text)
		switch {
		case s.code:
			text = "<code>" + text + "</code>"
		case s.link != "":
			text = fmt.Sprintf(`<a href="%s">%s</a>`, html.EscapeString(s.link), text)
		}
		b.WriteString(text)
	}
	return b.String()
}
