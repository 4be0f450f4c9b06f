package cli

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// The scripts know nothing but how to ask the hidden verb complete, so that what they offer is what this binary takes.
var (
	//go:embed completion/trireme.bash
	bashCompletion string
	//go:embed completion/trireme.zsh
	zshCompletion string
	//go:embed completion/trireme.fish
	fishCompletion string
)

// Script is what a shell reads to complete the command line of a program.
func Script(program, shell string) string {
	script := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[shell]
	return strings.ReplaceAll(script, "trireme", program)
}

// completeFiles stands in place of candidates: the shell is to complete a path.
const completeFiles = ":files"

// Names asks for the nodes of a cluster. It gets the flags that were given, which say of which one.
type Names func(flags map[string]string) []string

// Complete answers the scripts: the words after the program's name; the last one is completed and may be empty. It
// prints a candidate and what it is on each line.
func Complete(out io.Writer, app *kong.Application, words []string, names Names) error {
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	w := bufio.NewWriter(out)
	for _, cand := range candidates(app, words, names) {
		fmt.Fprintf(w, "%s\t%s\n", cand.text, cand.help)
	}
	return w.Flush()
}

// candidate is one word that fits, and the first sentence of its help.
type candidate struct{ text, help string }

// typedLine is a command line as far as it was typed.
type typedLine struct {
	node    *kong.Node
	given   map[string]bool   // flags
	values  map[string]string // of those that have one
	flag    *kong.Flag        // waits for its value; nil: none does
	args    int               // positional ones given
	partial string
}

// candidates are the words that may stand in place of the last one. names asks the cluster for its nodes.
func candidates(app *kong.Application, words []string, names Names) []candidate {
	l := readLine(app, words)
	name, value, assigned := strings.Cut(l.partial, "=")
	switch {
	case l.flag != nil:
		return fitting(l.partial, "", valuesOf(l.flag.Value, l.values, names))
	case assigned && strings.HasPrefix(name, "--"):
		if f := findFlag(l.node, name); f != nil {
			return fitting(value, name+"=", valuesOf(f.Value, l.values, names))
		}
		return nil
	case strings.HasPrefix(l.partial, "-"):
		return fitting(l.partial, "", flagsOf(l))
	}
	var all []candidate
	for _, verb := range l.node.Children {
		if !verb.Hidden && l.args == 0 {
			all = append(all, candidate{verb.Name, sentence(verb.Help)})
		}
	}
	if args := l.node.Positional; len(args) > 0 {
		if at := min(l.args, len(args)-1); at == l.args || args[at].IsCumulative() {
			all = append(all, valuesOf(args[at], l.values, names)...)
		}
	}
	return fitting(l.partial, "", all)
}

// readLine walks the words before the last. A shell that breaks words at "=" gives that as a word of its own.
func readLine(app *kong.Application, words []string) typedLine {
	l := typedLine{node: app.Node, given: map[string]bool{}, values: map[string]string{}}
	if len(words) == 0 {
		return l
	}
	l.partial = words[len(words)-1]
	for _, word := range words[:len(words)-1] {
		name, value, assigned := strings.Cut(word, "=")
		switch f := findFlag(l.node, name); {
		case word == "=":
		case l.flag != nil:
			l.values[l.flag.Name] = word
			l.flag = nil
		case f != nil && assigned:
			l.given[f.Name] = true
			l.values[f.Name] = value
		case f != nil:
			l.given[f.Name] = true
			if !f.IsBool() {
				l.flag = f
			}
		case strings.HasPrefix(word, "-"):
		default:
			l.descend(word)
		}
	}
	if l.partial == "=" && l.flag != nil {
		l.partial = ""
	}
	return l
}

// descend goes to a verb, or counts an argument.
func (l *typedLine) descend(word string) {
	for _, verb := range l.node.Children {
		if verb.Name == word {
			l.node, l.args = verb, 0
			return
		}
	}
	l.args++
}

func findFlag(node *kong.Node, name string) *kong.Flag {
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

// flagsOf are those that were not given yet.
func flagsOf(l typedLine) []candidate {
	var all []candidate
	for _, group := range l.node.AllFlags(true) {
		for _, f := range group {
			if !l.given[f.Name] || f.IsCumulative() {
				all = append(all, candidate{"--" + f.Name, sentence(f.Help)})
			}
		}
	}
	return all
}

// valuesOf are those of an enumeration, the cluster's nodes, or paths.
func valuesOf(v *kong.Value, given map[string]string, names Names) []candidate {
	var all []candidate
	switch {
	case v.Enum != "":
		for _, text := range v.EnumSlice() {
			all = append(all, candidate{text, ""})
		}
	case takesNode(v):
		for _, name := range names(given) {
			all = append(all, candidate{name, "node"})
		}
	case v.Tag.Type == "path" || v.Tag.PlaceHolder == "FILE":
		all = []candidate{{completeFiles, ""}}
	}
	return all
}

// takesNode: names of nodes that are there. Those of init, join and add are new ones.
func takesNode(v *kong.Value) bool {
	return strings.HasPrefix(v.Tag.PlaceHolder, "NODE") || v.Flag == nil && v.Name == "node"
}

func fitting(partial, before string, all []candidate) []candidate {
	var fit []candidate
	for _, c := range all {
		if c.text == completeFiles {
			fit = append(fit, c)
		} else if strings.HasPrefix(c.text, partial) {
			fit = append(fit, candidate{before + c.text, c.help})
		}
	}
	return fit
}

// sentence is the first one of a help text.
func sentence(help string) string {
	first, _, _ := strings.Cut(help, ". ")
	return strings.TrimSuffix(first, ".")
}
