package report

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// Markdown writes the document as GitHub reads it. Charts are links to the page that HTML wrote, whose address,
// relative to the text, is page.
func (d Document) Markdown(w io.Writer, page string) error {
	if err := d.check(); err != nil {
		return err
	}
	m := markdown{page: linkTarget.Replace(page)}
	m.heading(1, d.Title)
	m.blocks("", d.Blocks)
	m.sections(2, d.Sections)
	_, err := io.WriteString(w, strings.TrimSuffix(m.String(), "\n"))
	return err
}

type markdown struct {
	strings.Builder
	page string
}

func (m *markdown) heading(level int, title string) {
	fmt.Fprintf(m, "%s %s\n\n", strings.Repeat("#", min(level, 6)), literal(title))
}

func (m *markdown) sections(level int, sections []Section) {
	for _, s := range sections {
		m.heading(level, s.Title)
		m.blocks(s.ID, s.Blocks)
		m.sections(level+1, s.Sections)
	}
}

func (m *markdown) blocks(section string, blocks []Block) {
	charts := 0
	for _, b := range blocks {
		switch b := b.(type) {
		case Text:
			fmt.Fprintf(m, "%s\n\n", paragraph(string(b)))
		case List:
			for _, item := range b {
				fmt.Fprintf(m, "* %s\n", paragraph(item))
			}
			m.WriteString("\n")
		case Facts:
			m.facts(b)
		case Table:
			m.table(b)
		case Chart:
			charts++
			fmt.Fprintf(m, "[Chart: %s](%s#%s)\n\n", literal(b.Title), m.page, chartID(section, charts))
		}
	}
}

func (m *markdown) facts(f Facts) {
	if f.Title != "" {
		fmt.Fprintf(m, "<details><summary>%s</summary>\n\n", escape(f.Title))
	}
	m.WriteString("| | |\n|-|-|\n")
	for _, row := range f.Rows {
		fmt.Fprintf(m, "| %s | %s |\n", literal(row[0]), literal(row[1]))
	}
	if f.Title != "" {
		m.WriteString("\n</details>\n")
	}
	m.WriteString("\n")
}

func (m *markdown) table(t Table) {
	if t.Caption != "" {
		fmt.Fprintf(m, "**%s**\n\n", literal(t.Caption))
	}
	if len(t.Columns) == 0 {
		return
	}
	rule := "|"
	for _, c := range t.Columns {
		fmt.Fprintf(m, "| %s ", literal(c.Title))
		if c.Number {
			rule += "-:|"
		} else {
			rule += "-|"
		}
	}
	fmt.Fprintf(m, "|\n%s\n", rule)
	for _, row := range t.Rows {
		for _, c := range row {
			fmt.Fprintf(m, "| %s ", c.markdown())
		}
		m.WriteString("|\n")
	}
	m.WriteString("\n")
}

func (c Cell) markdown() string {
	text := literal(c.Text)
	switch {
	case text == "":
	case c.Mark == Best:
		return "**" + text + "**"
	case c.Mark == Wide:
		return text + "~"
	case c.Mark == Absent:
		return "*" + text + "*"
	}
	return text
}

var (
	// linkTarget escapes what would end the address of a link.
	linkTarget = strings.NewReplacer(" ", "%20", "(", "%28", ")", "%29", "<", "%3C", ">", "%3E", "\n", "")
	// special escapes what Markdown reads as markup inside a line.
	special = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "[", `\[`, "]", `\]`, "<", "&lt;", ">", "&gt;", "&",
		"&amp;", "|", `\|`, "~", `\~`)
	// underscores are markup only at the edges of words.
	underscores = regexp.MustCompile(`^_+|_+$|[^\pL\pN_]_+|_+[^\pL\pN_]`)
	// lineStart is what makes a paragraph something else.
	lineStart = regexp.MustCompile(`^(?:[-+=#:]|\d+[.)])`)
)

// literal escapes text so that it is shown as it stands.
func literal(text string) string {
	return underscores.ReplaceAllStringFunc(special.Replace(clean(text)),
		func(edge string) string { return strings.ReplaceAll(edge, "_", `\_`) })
}

// paragraph keeps the markup of a Text and escapes everything else.
func paragraph(text string) string {
	var b strings.Builder
	bold := false
	for _, s := range append(inline(clean(text)), span{}) {
		if s.bold != bold {
			b.WriteString("**")
			bold = s.bold
		}
		switch {
		case s.code:
			b.WriteString("`" + s.text + "`")
		case s.link != "":
			fmt.Fprintf(&b, "[%s](%s)", literal(s.text), s.link)
		default:
			b.WriteString(literalPart(s.text))
		}
	}
	out := b.String()
	if start := lineStart.FindString(out); start != "" {
		last := len(start) - 1
		out = out[:last] + `\` + out[last:]
	}
	return out
}

// literalPart is literal, and keeps spaces at the ends.
func literalPart(text string) string {
	left := len(text) - len(strings.TrimLeft(text, " "))
	right := len(strings.TrimRight(text, " "))
	if right <= left {
		return text
	}
	return text[:left] + literal(text) + text[right:]
}
