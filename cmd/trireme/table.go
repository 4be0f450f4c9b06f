package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxColumns is how wide output for people is at most, minColumns what a terminal is taken to have at least.
const (
	maxColumns = 100
	minColumns = 60
)

// widthOf is how wide lines for w may be: a terminal's width within those bounds, else maxColumns.
func widthOf(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return maxColumns
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return maxColumns
	}
	return min(max(int(size.Col), minColumns), maxColumns)
}

// printTable aligns columns, two spaces apart. The last one is wrapped where it would be too wide.
func printTable(w io.Writer, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	width, most := widths(rows), widthOf(w)
	before := 0
	for _, n := range width[:len(width)-1] {
		before += n + 2
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row[:len(row)-1] {
			b.WriteString(cell)
			b.WriteString(strings.Repeat(" ", width[i]-columns(cell)+2))
		}
		for _, line := range wrap(row[len(row)-1], max(most-before, most/4)) {
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
			width[i] = max(width[i], columns(cell))
		}
	}
	return width
}

// narrowed leaves out columns, in the order given, until the table is at most that wide: names and addresses may be
// long. --json has them all.
func narrowed(rows [][]string, most int, spare ...string) [][]string {
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

// wrap breaks text at spaces, but a command in backquotes only where it does not fit into a line; a word longer than
// width stays whole.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for words := strings.Fields(text); len(words) > 0; {
		n := quoted(words)
		word := strings.Join(words[:n], " ")
		if columns(word) > width {
			n, word = 1, words[0]
		}
		words = words[n:]
		if line != "" && columns(line)+1+columns(word) > width {
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
