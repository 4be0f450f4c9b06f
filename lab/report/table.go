package report

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// shortText is up to how many characters a cell's text is kept on one line.
const shortText = 18

// marks says how each mark is shown: a class for the colour, and a sign for those who do not see it.
var marks = map[Mark]struct{ class, sign, meaning string }{
	Best:   {"best", "★", "best"},
	Better: {"better", "▲", "better"},
	Worse:  {"worse", "▼", "worse"},
	Wide:   {"loose", "~", "runs differ too much to be believed"},
	Absent: {"absent", "⊘", "not run"},
}

func (p *page) table(t Table) {
	p.WriteString("<figure class=\"table\">")
	if t.Caption != "" {
		fmt.Fprintf(p, "<figcaption>%s</figcaption>", escape(t.Caption))
	}
	p.WriteString("\n<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>")
	for _, c := range t.Columns {
		fmt.Fprintf(p, "<th scope=\"col\"%s>%s</th>", numberClass(c), escape(c.Title))
	}
	p.WriteString("</tr></thead>\n<tbody>\n")
	grouped := t.grouped()
	for i, row := range t.Rows {
		if grouped && i > 0 && row[0].Text != t.Rows[i-1][0].Text {
			p.WriteString("<tr class=\"first\">")
		} else {
			p.WriteString("<tr>")
		}
		for k, c := range row {
			p.cell(c, t.Columns[k], k == 0)
		}
		p.WriteString("</tr>\n")
	}
	p.WriteString("</tbody></table></div>\n")
	p.key(t)
	p.WriteString("</figure>\n")
}

// grouped reports whether neighbouring rows begin alike: then a rule parts those that do not.
func (t Table) grouped() bool {
	for i := 1; i < len(t.Rows); i++ {
		if len(t.Columns) > 1 && t.Rows[i][0].Text == t.Rows[i-1][0].Text {
			return true
		}
	}
	return false
}

func numberClass(c Column) string {
	if c.Number {
		return ` class="number"`
	}
	return ""
}

func (p *page) cell(c Cell, column Column, head bool) {
	tag, attributes := "td", ""
	if head {
		tag, attributes = "th", ` scope="row"`
	}
	var classes []string
	if column.Number {
		classes = append(classes, "number")
	} else if utf8.RuneCountInString(c.Text) <= shortText {
		classes = append(classes, "short")
	} else {
		classes = append(classes, "long")
	}
	mark, marked := marks[c.Mark]
	if marked {
		classes = append(classes, mark.class)
	}
	if len(classes) > 0 {
		attributes += fmt.Sprintf(` class="%s"`, strings.Join(classes, " "))
	}
	if c.Note != "" {
		attributes += fmt.Sprintf(` title="%s"`, escape(c.Note))
	}
	fmt.Fprintf(p, "<%s%s>", tag, attributes)
	if marked {
		fmt.Fprintf(p, "<span class=\"sign\" role=\"img\" aria-label=\"%s\">%s</span>", mark.meaning, mark.sign)
	}
	fmt.Fprintf(p, "%s</%s>", escape(c.Text), tag)
}

// key explains the signs that the table has.
func (p *page) key(t Table) {
	has := map[Mark]bool{}
	for _, row := range t.Rows {
		for _, c := range row {
			has[c.Mark] = true
		}
	}
	var items []string
	for m := Best; m <= Absent; m++ {
		if has[m] {
			items = append(items, fmt.Sprintf("<span class=\"%s\"><span class=\"sign\">%s</span> %s</span>", marks[m].class,
				marks[m].sign, marks[m].meaning))
		}
	}
	if len(items) > 0 {
		fmt.Fprintf(p, "<p class=\"key\">%s</p>\n", strings.Join(items, " "))
	}
}
