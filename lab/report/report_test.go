package report

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// example has one of everything, small enough to be read.
func example() Document {
	return Document{
		Title: "Example",
		Blocks: []Block{Text("A **bold `x|y`** word, 2 * 3 ** 4, `code`."),
			Chart{Title: "Line", X: "s", Y: "ms",
				Series: []Series{{Name: "one", Points: []Point{{X: 1, Y: 1}, {X: 2, Y: -2}}}}}},
		Sections: []Section{{ID: "first", Title: "First", Blocks: []Block{
			List{"one", "+ two", "__init__ and innodb_x"},
			Facts{Rows: [][2]string{{"CPU", "a|b"}}},
			Facts{Title: "Settings", Rows: [][2]string{{"sync_binlog", "1"}}},
			Table{Caption: "Marks", Columns: []Column{{Title: "System"}, {Title: "TPS", Number: true}}, Rows: [][]Cell{
				{{Text: "a|b"}, {Text: "1", Mark: Best, Note: "three rounds"}},
				{{Text: "c\nd"}, {Text: "2", Mark: Better}},
				{{Text: "~e~"}, {Text: "3", Mark: Worse}},
				{{Text: "*f*"}, {Text: "4", Mark: Wide}},
				{{Text: "g"}, {Text: "not run: no package", Mark: Absent}},
				{{Text: ""}, {Text: "", Mark: Best}},
			}},
			Chart{Title: "Lines", X: "threads", Y: "TPS", LogX: true,
				Series: []Series{{Name: "us", Ours: true, Points: []Point{{1, 10, 8, 12}, {4, 40, 0, 0}}},
					{Name: "them", Points: []Point{{1, 5, 0, 0}, {4, 6, 0, 0}}}}},
		},
			Sections: []Section{{ID: "first-inner", Title: "Inner <1>",
				Blocks: []Block{Text("# no heading, [a link](other.md)")}}}}},
	}
}

func TestGolden(t *testing.T) {
	var page, text strings.Builder
	if err := example().HTML(&page); err != nil {
		t.Fatal(err)
	}
	if err := example().Markdown(&text, "the report.html"); err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(page.String(), "</style>") // the style is in a file of its own already
	for name, got := range map[string]string{"example.html": strings.TrimSpace(body) + "\n", "example.md": text.String()} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs (go test -update writes it):\n%s", path, got)
		}
	}
}

// TestMarkdownLinks follows the links of the Markdown to the page.
func TestMarkdownLinks(t *testing.T) {
	var page, text strings.Builder
	if err := errors.Join(sample().HTML(&page), sample().Markdown(&text, "r.html")); err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`\]\(r\.html#([^)]*)\)`).FindAllStringSubmatch(text.String(), -1)
	if len(links) != len(sample().charts()) {
		t.Errorf("%d links to %d charts", len(links), len(sample().charts()))
	}
	for _, l := range links {
		if strings.Count(page.String(), ` id="`+l[1]+`"`) != 1 {
			t.Errorf("the page has no chart %s", l[1])
		}
	}
}

const hostile = "</title></style></svg><script>alert('x')</script>\"onload=\"x\" & `a` **b** | \x00\x1b[31m\xff <img src=x onerror=y> -->]]>"

func hostileDocument() Document {
	line := []Series{{Name: hostile, Points: []Point{{1, 2, 1, 3}, {2, 3, 0, 0}}}, {Name: "none " + hostile}}
	blocks := []Block{
		Text(hostile), List{hostile}, Facts{Rows: [][2]string{{hostile, hostile}}},
		Facts{Title: hostile, Rows: [][2]string{{hostile, hostile}}},
		Table{Caption: hostile, Columns: []Column{{Title: hostile}, {Title: hostile, Number: true}},
			Rows: [][]Cell{{{Text: hostile, Note: hostile}, {Text: hostile, Note: hostile, Mark: Best}}}},
		Chart{Title: hostile, X: hostile, Y: hostile, Series: line, Events: []Event{{1, hostile}, {1.5, hostile}}},
		Chart{Title: hostile, X: hostile, Y: hostile, Series: line},
	}
	return Document{Title: hostile, Blocks: blocks, Sections: []Section{{ID: "a", Title: hostile, Blocks: blocks}}}
}

func TestHostileText(t *testing.T) {
	var page, text strings.Builder
	d := hostileDocument()
	if err := errors.Join(d.HTML(&page), d.Markdown(&text, "r.html")); err != nil {
		t.Fatal(err)
	}
	for name, out := range map[string]string{"HTML": page.String(), "Markdown": text.String()} {
		for _, bad := range []string{"<script", "<img", "\x00", "\x1b", "\xff", "onload=\"x"} {
			if strings.Contains(out, bad) && !(name == "Markdown" && strings.HasPrefix(bad, "onload")) {
				t.Errorf("%s contains %q", name, bad)
			}
		}
	}
	if n := strings.Count(page.String(), "</style>"); n != 1 {
		t.Errorf("%d styles end", n)
	}
	checkWellFormed(t, page.String())
	for _, line := range strings.Split(text.String(), "\n") {
		if cells := len(regexp.MustCompile(`(^|[^\\])\|`).FindAllString(line, -1)); strings.HasPrefix(line, "|") &&
			cells != 3 {
			t.Errorf("not two cells: %s", line)
		}
	}
}

// checkWellFormed checks that each tag of the page is closed in order.
func checkWellFormed(t *testing.T, page string) {
	t.Helper()
	dec := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(page, "<!DOCTYPE html>")))
	ids := map[string]bool{}
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Error(err)
			return
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		for _, a := range start.Attr {
			switch {
			case a.Name.Local == "id" && ids[a.Value]:
				t.Errorf("two elements have the ID %q", a.Value)
			case a.Name.Local == "id":
				ids[a.Value] = true
			case a.Name.Local == "src", start.Name.Local == "link" && a.Name.Local == "href" && a.Value != "data:,",
				strings.HasPrefix(a.Name.Local, "on"):
				t.Errorf("%s has %s=%q", start.Name.Local, a.Name.Local, a.Value)
			}
			if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
				t.Errorf("%s has %s=%q", start.Name.Local, a.Name.Local, a.Value)
			}
		}
	}
}

// TestSelfContained checks that nothing is fetched or run, and that tags close.
func TestSelfContained(t *testing.T) {
	var page strings.Builder
	if err := sample().HTML(&page); err != nil {
		t.Fatal(err)
	}
	checkWellFormed(t, page.String())
	for _, bad := range []string{"<script", "url(", "@import", "http:", "https:"} {
		if strings.Contains(page.String(), bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
}

func TestRefused(t *testing.T) {
	two := []Column{{Title: "a"}, {Title: "b"}}
	in := func(blocks ...Block) Document {
		return Document{Title: "T", Sections: []Section{{ID: "s", Title: "S", Blocks: blocks}}}
	}
	for _, c := range []struct {
		d    Document
		want string
	}{
		{in(Table{}, Table{Caption: "speeds", Columns: two, Rows: [][]Cell{{{}, {}}, {{}}}}),
			`report "T": table 2 "speeds" in section "S": row 2 has 1 cells for 2 columns`},
		{Document{Title: "T", Blocks: []Block{Table{Columns: two, Rows: [][]Cell{{{}, {}, {}}}}}},
			`report "T": table 1 "" in the document's start: row 1 has 3 cells for 2 columns`},
		{Document{Title: "T", Sections: []Section{{ID: "a", Title: "A", Sections: []Section{{ID: "a", Title: "B"}}}}},
			`report "T": section "A" and section "B" have the same ID "a"`},
		{Document{Title: "T", Sections: []Section{{ID: "a", Title: "A", Blocks: []Block{Chart{Title: "C"}}},
			{ID: "a-chart-1", Title: "B"}}},
			`report "T": chart 1 "C" in section "A" and section "B" have the same ID "a-chart-1"`},
		{Document{Title: "T", Sections: []Section{{ID: "A b", Title: "A"}}},
			`report "T": section "A" has the ID "A b": it takes lower-case letters, digits and single hyphens`},
		{in(&Table{}),
			`report "T": section "S" has a block of type *report.Table: it takes Text, List, Facts, Table and Chart, no pointers`},
		{in(nil),
			`report "T": section "S" has a block of type <nil>: it takes Text, List, Facts, Table and Chart, no pointers`},
	} {
		var b strings.Builder
		for _, err := range []error{c.d.HTML(&b), c.d.Markdown(&b, "")} {
			if err == nil || err.Error() != c.want || b.Len() > 0 {
				t.Errorf("%v, %d bytes written; want %s", err, b.Len(), c.want)
			}
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteFails(t *testing.T) {
	if err := example().HTML(broken{}); err == nil {
		t.Error("HTML")
	}
	if err := example().Markdown(broken{}, ""); err == nil {
		t.Error("Markdown")
	}
}

func TestInline(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                 "plain",
		"a **b** c":             "a <strong>b</strong> c",
		"`a**b` **c**":          "<code>a**b</code> <strong>c</strong>",
		"**a `b` c**":           "<strong>a <code>b</code> c</strong>",
		"open ** and ` too":     "open ** and ` too",
		"**not closed":          "**not closed",
		"2 ** 3 ** 4":           "2 ** 3 ** 4",
		"**`a**`":               "**<code>a**</code>",
		"**`a`**":               "<strong><code>a</code></strong>",
		"see [a_b](c-d.md#e)":   `see <a href="c-d.md#e">a_b</a>`,
		"**[a](b)**":            `<strong><a href="b">a</a></strong>`,
		"[a](https://b/?c=d&e)": `<a href="https://b/?c=d&amp;e">a</a>`,
		"[a](javascript:b)":     "[a](javascript:b)",
		"[a](b\"c) [d](//e)":    "[a](b&#34;c) [d](//e)",
		"``":                    "``",
		"<b>&amp;":              "&lt;b&gt;&amp;amp;",
		"oltp_* and **é**":      "oltp_* and <strong>é</strong>",
		" line\nbreak\x07 \t":   "line break",
	} {
		if got := inlineHTML(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
