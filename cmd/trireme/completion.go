package main

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"trireme/internal/config"
)

// completionCmd is `trireme completion`.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// The scripts know nothing but how to ask completeCmd, so that what they offer is what this binary takes.
var (
	//go:embed completion/trireme.bash
	bashCompletion string
	//go:embed completion/trireme.zsh
	zshCompletion string
	//go:embed completion/trireme.fish
	fishCompletion string
)

// Run prints the script.
func (c *completionCmd) Run(e *env) error {
	_, err := io.WriteString(e.out, map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}[c.Shell])
	return err
}

// completeCmd is what the scripts ask: the words behind the program's name, the last of which is to be completed, perhaps empty.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

const (
	completeFiles = ":files" // in place of candidates: the shell is to complete a path
	namesPatience = time.Second
)

// Run prints a candidate and what it is on each line.
func (c *completeCmd) Run(e *env) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	w := bufio.NewWriter(e.out)
	for _, cand := range candidates(e.app, words, func(r remote) []string { return memberNames(e.ctx, r) }) {
		fmt.Fprintf(w, "%s\t%s\n", cand.text, cand.help)
	}
	return w.Flush()
}

// candidate is one word that fits, and the first sentence of its help.
type candidate struct{ text, help string }

// typedLine is a command line as far as it was typed.
type typedLine struct {
	node    *kong.Node
	given   map[string]bool // flags
	flag    *kong.Flag      // waits for its value; nil: none does
	args    int             // positional ones given
	remote  remote
	partial string
}

// candidates are the words that may stand in place of the last one. names asks the cluster for its nodes.
func candidates(app *kong.Application, words []string, names func(remote) []string) []candidate {
	l := readLine(app, words)
	name, value, assigned := strings.Cut(l.partial, "=")
	switch {
	case l.flag != nil:
		return fitting(l.partial, "", valuesOf(l.flag.Value, l.remote, names))
	case assigned && strings.HasPrefix(name, "--"):
		if f := findFlag(l.node, name); f != nil {
			return fitting(value, name+"=", valuesOf(f.Value, l.remote, names))
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
			all = append(all, valuesOf(args[at], l.remote, names)...)
		}
	}
	return fitting(l.partial, "", all)
}

// readLine walks the words before the last. A shell that breaks words at "=" gives that as a word of its own.
func readLine(app *kong.Application, words []string) typedLine {
	l := typedLine{node: app.Node, given: map[string]bool{}}
	if len(words) == 0 {
		return l
	}
	l.partial = words[len(words)-1]
	for _, word := range words[:len(words)-1] {
		name, value, assigned := strings.Cut(word, "=")
		switch f := findFlag(l.node, name); {
		case word == "=":
		case l.flag != nil:
			l.note(l.flag, word)
			l.flag = nil
		case f != nil && assigned:
			l.given[f.Name] = true
			l.note(f, value)
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

// note keeps what is needed to ask the cluster.
func (l *typedLine) note(f *kong.Flag, value string) {
	switch f.Name {
	case "api":
		l.remote.API = value
	case "cluster":
		l.remote.Cluster = value
	}
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
func valuesOf(v *kong.Value, r remote, names func(remote) []string) []candidate {
	var all []candidate
	switch {
	case v.Enum != "":
		for _, text := range v.EnumSlice() {
			all = append(all, candidate{text, ""})
		}
	case takesNode(v):
		for _, name := range names(r) {
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

// memberNames asks the cluster, or the settings that the last joining left here; nobody waits long for a completion.
func memberNames(ctx context.Context, r remote) []string {
	ctx, cancel := context.WithTimeout(ctx, namesPatience)
	defer cancel()
	client, err := r.client(ctx, false)
	if err == nil {
		defer client.Close()
		if view, err := client.Cluster(ctx); err == nil {
			return namesOf(view)
		}
	}
	n, err := config.Load(defaultConfigFile())
	if err != nil {
		return nil
	}
	c, err := config.LoadCluster(n.Dir)
	if err != nil {
		return nil
	}
	return c.Names()
}
