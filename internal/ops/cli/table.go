package cli

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// MaxColumns is how wide output for people is at most, MinColumns what a terminal is taken to have at least.
const (
	MaxColumns = 100
	MinColumns = 60
)

// WidthOf is how wide lines for w may be: a terminal's width within those bounds, else MaxColumns.
func WidthOf(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return MaxColumns
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return MaxColumns
	}
	return min(max(int(size.Col), MinColumns), MaxColumns)
}

// PrintTable aligns columns, two spaces apart. The last one is wrapped where it would be too wide.
func PrintTable(w io.Writer, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	width, most := widths(rows), WidthOf(w)
	before := 0
	for _, n := range width[:len(width)-1] {
		before += n + 2
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row[:len(row)-1] {
			b.WriteString(cell)
			b.WriteString(strings.Repeat(" ", width[i]-Columns(cell)+2))
		}
		for _, line := range Wrap(row[len(row)-1], max(most-before, most/4)) {
			fmt.Fprintln(w, strings.TrimRight(b.String()+line, " "))
			b.Reset()
			b.WriteString(strings.Repeat(" ", before))
		}
	}
}

// widths are those of the columns.
func widths(rows [][]string) []int {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], Columns(cell))
		}
	}
	return width
}

// Narrowed leaves out columns, in the order given, until the table is at most that wide: names and addresses may be
// long. --json has them all.
func Narrowed(rows [][]string, most int, spare ...string) [][]string {
	for _, name := range spare {
		total := 0
		for _, n := range widths(rows) {
			total += n + 2
		}
		at := slices.Index(rows[0], name)
		if total-2 <= most || at < 0 {
			continue
		}
		for i := range rows {
			rows[i] = slices.Delete(rows[i], at, at+1)
		}
	}
	return rows
}

// Wrap breaks text at spaces, but a command in backquotes only where it does not fit into a line; a word longer than
// width stays whole.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	for words := strings.Fields(text); len(words) > 0; {
		n := quoted(words)
		word := strings.Join(words[:n], " ")
		if Columns(word) > width {
			n, word = 1, words[0]
		}
		words = words[n:]
		if line != "" && Columns(line)+1+Columns(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// quoted is how many words a command in backquotes has that begins with the first one; 1: none does.
func quoted(words []string) int {
	open := 0
	for i, word := range words {
		open += strings.Count(word, "`")
		if open%2 == 0 {
			return i + 1
		}
	}
	return 1
}

// Escapes are the sequences by which a terminal changes colours.
var Escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// Columns is how wide a text is shown.
func Columns(text string) int {
	if strings.ContainsRune(text, '\x1b') {
		text = Escapes.ReplaceAllString(text, "")
	}
	return utf8.RuneCountInString(text)
}
