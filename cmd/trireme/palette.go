package main

import (
	"io"
	"os"
	"strings"
)

// palette colours what is shown; false leaves it as it is.
type palette bool

// paletteFor has colours on a terminal that has them, unless NO_COLOR says no (https://no-color.org).
func paletteFor(out io.Writer) palette {
	return palette(isTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

func (p palette) paint(code, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p palette) strong(text string) string { return p.paint("1", text) }
func (p palette) good(text string) string   { return p.paint("32", text) }
func (p palette) odd(text string) string    { return p.paint("33", text) }
func (p palette) bad(text string) string    { return p.paint("31;1", text) }

// warnings are words in capitals that a line of the status may begin with or hold.
func (p palette) warnings(line string) string {
	for _, word := range []string{"NO LEADER KNOWN:", "NO LEADER:", "WARNING:", "UNKNOWN:", "DISK FULL:", "SUSPENDED",
		"COMMITS WAIT", "NOT POSSIBLE"} {
		line = strings.Replace(line, word, p.bad(word), 1)
	}
	return line
}
