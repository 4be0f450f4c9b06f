package layout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// floor is a level of the product: a folder below internal, or one package. "node/" is what is below node.
type floor struct{ folder, what string }

// floors from the bottom up. A package imports those of floors below its own.
var floors = []floor{
	{"base/failpoint", "where tests stop a program"},
	{"base/durable", "files that are whole after a crash"},
	{"base/poll", "waits for what can only be asked for again and again"},
	{"base/nbio", "sockets without the scheduler's bookkeeping"},
	{"base", "leaves"},
	{"mysql", "all that knows MySQL and nothing of the cluster"},
	{"core", "what safety hangs on"},
	{"api", "what members, people and programs say to each other"},
	{"node/gossip", "what members know of each other"},
	{"node/", "organs of a member"},
	{"node/room", "what a member does about room"},
	{"node/seeding", "how a member comes to its data"},
	{"node/memory", "what a member remembers over a restart"},
	{"node/controlloop", "what a member does next"},
	{"node/leave", "how a cluster ends"},
	{"control", "how people and programs see and steer a cluster"},
	{"access", "how clients reach data"},
	{"node/routing", "where a member's router leads"},
	{"node/addresses", "which virtual addresses a member holds"},
	{"node", "one member"},
	{"ops", "what one verb does"},
}

// exceptions are imports between packages of one floor, and those that go up. The list may only shrink.
var exceptions = []string{
	"access/standalone access/router",
	"core/dump core/raftlog",
	"core/ledger core/raftlog",
	"core/raftlog/memfs core/raftlog",
	"mysql/binlog mysql/gtid",
	"mysql/binlog mysql/sqlkind",
	"mysql/mysqld mysql/mysqlwire",
	"ops/adopt ops/setup",
	"ops/advise ops/check",
	"ops/demo ops/setup",
}

// floorOf a package of the product; -1: it has none.
func floorOf(name string) int {
	folder, _, _ := strings.Cut(name, "/")
	for _, is := range []string{name, folder + "/", folder} {
		if at := slices.IndexFunc(floors, func(f floor) bool { return f.folder == is }); at >= 0 {
			return at
		}
	}
	return -1
}

// TestFloors: the product's packages import down only, and nothing of lab/, which proves it.
func TestFloors(t *testing.T) {
	root := strings.TrimSpace(goTool(t, "", "list", "-m", "-f", "{{.Dir}}"))
	used := map[string]bool{}
	for _, p := range packages(t, root) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if name != "cmd/trireme" && !strings.HasPrefix(name, "internal/") {
			continue
		}
		for _, problem := range checkFloors(p, used) {
			t.Error(problem)
		}
	}
	for _, pair := range exceptions {
		if !used[pair] {
			t.Errorf("%s: there is no such import any more: take it from the list", pair)
		}
	}
}

// checkFloors returns what is wrong with the imports of a package, and notes which exceptions it used.
func checkFloors(p pkg, used map[string]bool) (problems []string) {
	name, product := strings.CutPrefix(strings.TrimPrefix(p.ImportPath, module), "internal/")
	own := floorOf(name)
	switch {
	case !product:
		own = len(floors) // the program
	case own < 0:
		return []string{name + " is on no floor"}
	}
	for _, imported := range p.Imports {
		other, ours := strings.CutPrefix(imported, module)
		if !ours {
			continue
		}
		if strings.HasPrefix(other, "lab/") {
			problems = append(problems, fmt.Sprintf("%s imports %s: the product links nothing of lab", name, other))
			continue
		}
		other = strings.TrimPrefix(other, "internal/")
		switch at, pair := floorOf(other), name+" "+other; {
		case at < 0:
			problems = append(problems, fmt.Sprintf("%s imports %s, which is on no floor", name, other))
		case at >= own && slices.Contains(exceptions, pair):
			used[pair] = true
		case at > own:
			problems = append(problems, fmt.Sprintf("%s imports %s, which is on a floor above it (%s)", name, other,
				floors[at].what))
		case at == own:
			problems = append(problems, fmt.Sprintf("%s imports %s, which is on the same floor (%s)", name, other,
				floors[at].what))
		}
	}
	return problems
}

// TestFloorsCheck shows that each rule can fail.
func TestFloorsCheck(t *testing.T) {
	for _, c := range []struct {
		name, imported, want string
	}{
		{"cmd/trireme", "internal/node", ""},
		{"cmd/trireme", "lab/wan", "nothing of lab"},
		{"internal/node", "internal/mysql/gtid", ""},
		{"internal/node", "lab/needs", "nothing of lab"},
		{"internal/node", "internal/node/organ", ""},
		{"internal/node/organ", "internal/core/any", ""},
		{"internal/node/organ", "internal/node", "on a floor above"},
		{"internal/node/organ", "internal/node/other", "on the same floor"},
		{"internal/node/seeding", "internal/node/organ", ""},
		{"internal/node/organ", "internal/node/seeding", "on a floor above"},
		{"internal/mysql/gtid", "internal/node", "on a floor above"},
		{"internal/mysql/gtid", "internal/mysql/mysqlwire", "on the same floor"},
		{"internal/core/dump", "internal/core/raftlog", ""},
		{"internal/new", "internal/mysql/gtid", "new is on no floor"},
		{"internal/node", "internal/new", "new, which is on no floor"},
	} {
		got := strings.Join(checkFloors(pkg{ImportPath: module + c.name, Imports: []string{"os", module + c.imported}},
			map[string]bool{}), "\n")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s imports %s: %q, want %q", c.name, c.imported, got, c.want)
		}
	}
}

// TestNoInit: nothing in a program runs before main does, so that none of its packages can take a process over. The
// product links nothing of lab/.
func TestNoInit(t *testing.T) {
	for _, program := range []string{"trireme", "trireme-lab"} {
		t.Run(program, func(t *testing.T) { noInit(t, program) })
	}
}

func noInit(t *testing.T, program string) {
	root := strings.TrimSpace(goTool(t, "", "list", "-m", "-f", "{{.Dir}}"))
	seen := 0
	for _, line := range strings.Split(strings.TrimSpace(goTool(t, root, "list", "-deps", "-f",
		"{{.ImportPath}} {{.Dir}} {{join .GoFiles \" \"}}", "./cmd/"+program)), "\n") {
		f := strings.Fields(line)
		if !strings.HasPrefix(f[0], module) {
			continue
		}
		if program == "trireme" && strings.HasPrefix(f[0], module+"lab/") {
			t.Errorf("trireme links %s", f[0])
		}
		for _, name := range f[2:] {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join(f[1], name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			seen++
			for _, d := range file.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
					t.Errorf("%s: an init function", fset.Position(fn.Pos()))
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d files were looked at", seen)
	}
}
