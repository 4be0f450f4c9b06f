package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Packages that the simulation of whole nodes (lab/sim) runs as they ship let time pass through internal/base/run only:
// it has one goroutine, and a time of its own.
var simulated = []string{"node/ackpath", "node/controlloop", "node/gossip", "node/leadership", "node/lifecycle",
	"node/memory", "node/recovery", "node/seeding"}

// These functions of them may wait all the same, for the reason given.
var waits = map[string]string{}

// waiting is what lets time pass, or asks for it, in packages of the standard library.
var waiting = map[string][]string{
	"time":    {"After", "AfterFunc", "NewTicker", "NewTimer", "Sleep", "Tick"}, // for the time of day see TestClock
	"context": {"AfterFunc", "Background", "TODO", "WithCancel", "WithCancelCause", "WithDeadline", "WithTimeout"},
}

// TestWaits: nothing of what is simulated waits, begins a goroutine or reads a clock on its own.
func TestWaits(t *testing.T) {
	root := strings.TrimSpace(goTool(t, "", "list", "-m", "-f", "{{.Dir}}"))
	used := map[string]bool{}
	for _, dir := range simulated {
		files, err := filepath.Glob(filepath.Join(root, "internal", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, path := range files {
			if !strings.HasSuffix(path, "_test.go") {
				for _, problem := range findWaits(t, path, nil, used) {
					t.Error(problem)
				}
			}
		}
	}
	for name := range waits {
		if !used[name] {
			t.Errorf("%s does not wait on its own any more: take it from the list", name)
		}
	}
}

// findWaits says where a file waits on its own, and notes which exceptions it used. src is the file's text, or nil.
func findWaits(t *testing.T, path string, src any, used map[string]bool) (problems []string) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range f.Imports {
		if name, _ := strconv.Unquote(i.Path.Value); name == module+"internal/base/poll" {
			problems = append(problems, set.Position(i.Pos()).String()+": base/poll waits in real time")
		}
	}
	for _, d := range f.Decls {
		name := f.Name.Name
		if fn, ok := d.(*ast.FuncDecl); ok {
			name += "." + fn.Name.Name
		}
		polled := map[ast.Node]bool{} // receives of a select that does not wait
		ast.Inspect(d, func(n ast.Node) bool {
			what := waitOf(n, polled)
			switch {
			case what == "":
			case waits[name] != "":
				used[name] = true
			default:
				problems = append(problems, set.Position(n.Pos()).String()+": "+what+": run.Exec is for that")
			}
			return true
		})
	}
	return problems
}

// waitOf names what a node of the syntax tree does that takes time; empty: nothing.
func waitOf(n ast.Node, polled map[ast.Node]bool) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "a goroutine"
	case *ast.SelectStmt:
		what := "select"
		for _, c := range n.Body.List {
			if comm := c.(*ast.CommClause).Comm; comm == nil {
				what = "" // it has a default
			} else if x, ok := comm.(*ast.ExprStmt); ok {
				polled[x.X] = true
			}
		}
		return what
	case *ast.UnaryExpr:
		if n.Op == token.ARROW && !polled[n] {
			return "a receive"
		}
	case *ast.SelectorExpr:
		if pkg, ok := n.X.(*ast.Ident); ok && slices.Contains(waiting[pkg.Name], n.Sel.Name) {
			return pkg.Name + "." + n.Sel.Name
		}
	}
	return ""
}

// TestWaitsCheck shows that each kind is found.
func TestWaitsCheck(t *testing.T) {
	for src, want := range map[string]string{
		"import \"trireme/internal/base/poll\"\nvar _ = poll.Pause": "base/poll waits",
		"func f() { go f() }":                                        "a goroutine",
		"func f(c chan int) { select { case <-c: } }":                "select",
		"func f(c chan int) { <-c }":                                 "a receive",
		"func f(c chan int) { select { case <-c: default: } }":       "",
		"import \"time\"\nfunc f() { time.Sleep(1) }":                "time.Sleep",
		"import \"context\"\nvar x, _ = context.WithTimeout(nil, 1)": "context.WithTimeout",
		"import \"time\"\nvar x = time.Second":                       "",
	} {
		got := strings.Join(findWaits(t, "x.go", "package x\n"+src, map[string]bool{}), "\n")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", src, got, want)
		}
	}
}
