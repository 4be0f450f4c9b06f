package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"trireme/lab/needs"
)

// event is a line of go test -json (go doc test2json), or the last line of a file, which we write ourselves.
type event struct {
	Action      string
	Package     string  `json:",omitempty"`
	ImportPath  string  `json:",omitempty"` // of a build
	Test        string  `json:",omitempty"`
	Elapsed     float64 `json:",omitempty"` // seconds
	Output      string  `json:",omitempty"`
	FailedBuild string  `json:",omitempty"`
	CPU         float64 `json:",omitempty"` // of the whole run, seconds
}

// ended is the action of the last line of a file. Its Output says why the command failed, if it did.
const ended = "trireme-ended"

func writeLine(w io.Writer, e event) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// phase is one run of go test.
type phase struct {
	name     string
	out      io.Writer
	packages []*pkg // in the order in which they began
	byPath   map[string]*pkg
	other    []string // what no package said: complaints of the compiler, output of a command that is not go test
	end      *event   // nil: the run was interrupted
}

type pkg struct {
	path    string
	seconds float64
	result  string // "pass", "fail", "skip", or "" as long as it runs
	tests   []*test
	byName  map[string]*test
	output  []string // of no test
}

// test is one of the top level, with all that is below it.
type test struct {
	pkg, name string
	seconds   float64
	result    string
	output    []string
	skips     []string // why it, or a test below it, was skipped
	deferred  string   // the phase that it, or a test below it, was left to
}

func newPhase(name string, out io.Writer) *phase {
	return &phase{name: name, out: out, byPath: map[string]*pkg{}}
}

func (p *phase) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				p.says(string(line))
			} else {
				p.add(e)
			}
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (p *phase) add(e event) {
	switch {
	case e.Action == ended:
		p.end = &e
	case e.Action == "build-output":
		p.says(e.Output)
	case e.Package == "":
	case e.Test == "":
		p.addPackage(p.pkg(e.Package), e)
	default:
		p.addTest(p.pkg(e.Package), e)
	}
}

func (p *phase) says(line string) {
	p.print(line)
	p.other = append(p.other, line)
}

func (p *phase) pkg(path string) *pkg {
	k := p.byPath[path]
	if k == nil {
		k = &pkg{path: path, byName: map[string]*test{}}
		p.byPath[path] = k
		p.packages = append(p.packages, k)
	}
	return k
}

// addPackage takes a line of a package's own. go test's closing line is printed, and all that was said if the package
// failed.
func (p *phase) addPackage(k *pkg, e event) {
	switch e.Action {
	case "output":
		k.output = append(k.output, e.Output)
	case "pass", "fail", "skip":
		k.seconds, k.result = e.Elapsed, e.Action
		if e.Action == "fail" {
			for _, t := range k.tests {
				if t.result == "" { // the process died in it
					t.result = "fail"
					p.print(t.output...)
				}
			}
			p.print(k.output...)
		} else if n := len(k.output); n > 0 {
			p.print(k.output[n-1])
		}
	}
}

func (p *phase) addTest(k *pkg, e event) {
	top, _, below := strings.Cut(e.Test, "/")
	t := k.byName[top]
	if t == nil {
		t = &test{pkg: k.path, name: top}
		k.byName[top] = t
		k.tests = append(k.tests, t)
	}
	switch e.Action {
	case "output":
		if !noise(e.Output) {
			t.output = append(t.output, e.Output)
		}
	case "skip":
		why := t.reason()
		if what, ok := strings.CutPrefix(why, needs.Deferred); ok {
			t.deferred = what
		} else {
			t.skips = append(t.skips, e.Test+": "+why)
		}
	}
	if below || e.Action != "pass" && e.Action != "fail" && e.Action != "skip" {
		return
	}
	t.seconds, t.result = e.Elapsed, e.Action
	if t.result == "fail" {
		p.print(t.output...)
	} else {
		t.output = nil
	}
}

// noise is what go test says only with -v.
func noise(line string) bool {
	for _, prefix := range []string{"=== RUN ", "=== PAUSE ", "=== CONT ", "=== NAME ", "--- PASS: "} {
		if strings.HasPrefix(strings.TrimLeft(line, " "), prefix) {
			return true
		}
	}
	return false
}

// reason is what a test said last before it ended: "    file_test.go:12: why".
func (t *test) reason() string {
	for i := len(t.output) - 1; i >= 0; i-- {
		line := strings.TrimSpace(t.output[i])
		if strings.HasPrefix(line, "--- ") || line == "" {
			continue
		}
		if _, why, ok := strings.Cut(line, ": "); ok && strings.Contains(line, ".go:") {
			return why
		}
		return line
	}
	return "it does not say why"
}

func (p *phase) print(lines ...string) {
	for _, line := range lines {
		if _, err := io.WriteString(p.out, line); err != nil {
			fmt.Fprintln(os.Stderr, "summary:", err)
			os.Exit(1)
		}
	}
}

// failed: something is not as it should be.
func (p *phase) failed() bool {
	if p.end == nil || p.end.Output != "" {
		return true
	}
	for _, k := range p.packages {
		if k.failed() {
			return true
		}
	}
	return false
}

func (k *pkg) failed() bool { return k.result != "pass" && k.result != "skip" }

func (t *test) failed() bool { return t.result != "pass" && t.result != "skip" }
