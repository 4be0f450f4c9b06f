// Package report draws a document of text, tables and charts: as one self-contained HTML page (styles and SVG charts
// inside, no script, nothing fetched), and as Markdown, where charts become links to the page. It knows nothing of what
// is measured.
//
// Only Text and List know markup; every other string is shown as it stands, whatever is in it. A document that breaks a
// rule written here (IDs, lengths of rows) is refused with an error that names the place, before anything is written.
//
// Charts that follow one another stand side by side. A name of a series has the same colour in every chart of a
// document. The n-th chart of a section has the anchor "<section>-chart-<n>", one before the first section "chart-<n>".
package report

// Document is a report.
type Document struct {
	Title    string
	Blocks   []Block // before the first section
	Sections []Section
}

// Section of a document.
type Section struct {
	ID       string // of links to it: lower-case letters, digits, hyphens; unique in the document
	Title    string
	Blocks   []Block
	Sections []Section
}

// Block is Text, List, Table, Facts or Chart.
type Block interface{ block() }

// Text is a paragraph. `code`, **bold** and [links](address) mean what they mean in Markdown; an address is relative,
// or http or https.
type Text string

// List is of paragraphs with bullets.
type List []string

// Facts are names and values: a machine, settings.
type Facts struct {
	Title string // in HTML they are folded under it; empty: shown
	Rows  [][2]string
}

// Table of cells. Rows are as long as Columns.
type Table struct {
	Caption string
	Columns []Column
	Rows    [][]Cell
}

// Column of a table; numbers are aligned right.
type Column struct {
	Title  string
	Number bool
}

// Cell of a table.
type Cell struct {
	Text string
	Note string // a tooltip in HTML; not in Markdown
	Mark Mark
}

// Mark says what a cell is among its neighbours.
type Mark int

// Marks. Markdown shows Best as **bold**, Worse as it is, Wide with a trailing "~", Absent in italics.
const (
	Plain  Mark = iota
	Best        // of its row or group
	Better      // than what it is compared with
	Worse       // than what it is compared with
	Wide        // its runs differ too much to be believed
	Absent      // not run; the text says why
)

// Chart is lines over X. A point that is NaN or infinite, or not positive on a logarithmic axis, is a gap. A linear Y
// axis always contains zero.
type Chart struct {
	Title  string
	X, Y   string // what the axes show, with the unit
	LogX   bool   // logarithmic, such as numbers of threads
	LogY   bool
	Series []Series
	Events []Event // of a time line
}

// Series is one line.
type Series struct {
	Name   string
	Ours   bool // drawn so that it stands out
	Points []Point
}

// Point with the spread of its runs; Low and High are 0 if the spread is unknown.
type Point struct{ X, Y, Low, High float64 }

// Event is a vertical mark at X.
type Event struct {
	X    float64
	Text string
}

func (Text) block()  {}
func (List) block()  {}
func (Facts) block() {}
func (Table) block() {}
func (Chart) block() {}
