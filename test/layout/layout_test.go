// Package layout checks that the code keeps to the package table of docs/ARCHITECTURE.md.
package layout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const module = "trireme/"

// row is the place of a package in the table.
type row struct {
	line int // a package imports only those of lower rows, or of its own
	pure bool
}

// impureImports must not be imported by a pure package, nor what lies below them.
var impureImports = []string{
	"os", "net", "syscall", "log", "io/fs", "io/ioutil", "math/rand", "crypto/rand", "database/sql", "plugin", "runtime",
	"testing", "golang.org/x/sys", "unsafe",
}

// clock lists what makes package time impure; durations and points in time that are passed in are not.
var clock = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true, "AfterFunc": true, "Tick": true,
	"NewTimer": true, "NewTicker": true,
}

// pureForeign lists the packages of other modules that pure packages may import, with the reason why that is pure.
var pureForeign = map[string]string{
	"github.com/klauspost/compress/zstd": "decoding with concurrency 1 runs in the caller",
}

type pkg struct {
	ImportPath, Dir  string
	GoFiles, Imports []string
}

func TestLayout(t *testing.T) {
	root := goTool(t, "", "list", "-m", "-f", "{{.Dir}}")
	root = strings.TrimSpace(root)
	doc, err := os.ReadFile(filepath.Join(root, "docs", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	table, err := parseTable(string(doc))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, p := range packages(t, root) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if strings.HasPrefix(name, "test/") || len(p.GoFiles) == 0 {
			continue // tests may import anything
		}
		found[name] = true
		for _, problem := range check(p, table) {
			t.Error(problem)
		}
	}
	for name := range table {
		if !found[name] {
			t.Errorf("docs/ARCHITECTURE.md lists %s, which does not exist", name)
		}
	}
}

var cellPackage = regexp.MustCompile(`^((?:cmd|internal|lab)/[a-z0-9/-]+)( P)?$`)

// TestJobs: the table of jobs has each one that a node does once per interval, and no other.
func TestJobs(t *testing.T) {
	root := strings.TrimSpace(goTool(t, "", "list", "-m", "-f", "{{.Dir}}"))
	doc, err := os.ReadFile(filepath.Join(root, "docs", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	_, section, _ := strings.Cut(string(doc), "\n| job | every |")
	section, _, _ = strings.Cut(section, "\n\n")
	for _, m := range regexp.MustCompile(`(?m)^\| (.*?) \|`).FindAllStringSubmatch(section, -1) {
		for _, name := range strings.Split(m[1], ", ") {
			told[strings.Trim(name, "`")] = true
		}
	}
	files, err := filepath.Glob(filepath.Join(root, "internal", "node", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	job := regexp.MustCompile(`n\.every\([^,]+, n\.(?:certs\.|history\.|links\.|members\.|room\.|seeding\.)?(\w+)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range job.FindAllStringSubmatch(string(text), -1) {
			if !told[m[1]] {
				t.Errorf("docs/ARCHITECTURE.md does not tell of the job %s", m[1])
			}
			delete(told, m[1])
		}
	}
	for name := range told {
		t.Errorf("docs/ARCHITECTURE.md tells of the job %q, which there is not", name)
	}
}

// parseTable reads the table below the heading "## Packages". A row may name several packages, separated by commas.
func parseTable(doc string) (map[string]row, error) {
	_, section, ok := strings.Cut(doc, "\n## Packages\n")
	if !ok {
		return nil, errors.New("docs/ARCHITECTURE.md has no section Packages")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	table := map[string]row{}
	for i, line := range strings.Split(section, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || !strings.Contains(cells[1], "/") {
			continue
		}
		for _, cell := range strings.Split(cells[1], ",") {
			m := cellPackage.FindStringSubmatch(strings.TrimSpace(cell))
			if m == nil {
				return nil, fmt.Errorf("docs/ARCHITECTURE.md: %q is no package", strings.TrimSpace(cell))
			}
			if _, twice := table[m[1]]; twice {
				return nil, fmt.Errorf("docs/ARCHITECTURE.md lists %s twice", m[1])
			}
			table[m[1]] = row{line: i, pure: m[2] != ""}
		}
	}
	if len(table) == 0 {
		return nil, errors.New("docs/ARCHITECTURE.md: the table of packages is empty")
	}
	return table, nil
}

// find returns the row of a package. A package below a listed one belongs to that one's row.
func find(table map[string]row, name string) (row, bool) {
	for name != "." {
		if r, ok := table[name]; ok {
			return r, true
		}
		name = path.Dir(name)
	}
	return row{}, false
}

// check returns what is wrong with a package, one sentence each.
func check(p pkg, table map[string]row) (problems []string) {
	name := strings.TrimPrefix(p.ImportPath, module)
	own, listed := find(table, name)
	if !listed {
		return []string{name + " is not in the table of docs/ARCHITECTURE.md"}
	}
	for _, imported := range p.Imports {
		other, ours := strings.CutPrefix(imported, module)
		switch target, known := find(table, other); {
		case ours && !known:
			problems = append(problems, fmt.Sprintf("%s imports %s, which is not in the table", name, other))
		case ours && target.line < own.line:
			problems = append(problems, fmt.Sprintf("%s imports %s, which stands above it: imports go down only", name, other))
		case ours && own.pure && !target.pure:
			problems = append(problems, fmt.Sprintf("%s is pure and imports %s, which is not", name, other))
		case !ours && own.pure && impureImport(imported):
			problems = append(problems, fmt.Sprintf("%s is pure and imports %s", name, imported))
		}
	}
	if own.pure {
		for _, file := range p.GoFiles {
			problems = append(problems, checkSource(name, filepath.Join(p.Dir, file))...)
		}
	}
	return problems
}

func impureImport(imported string) bool {
	for _, bad := range impureImports {
		if imported == bad || strings.HasPrefix(imported, bad+"/") {
			return true
		}
	}
	foreign := strings.Contains(strings.SplitN(imported, "/", 2)[0], ".")
	return foreign && pureForeign[imported] == ""
}

// checkSource looks for goroutines and the clock in a file of a pure package.
func checkSource(name, source string) (problems []string) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, source, nil, parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	timeName := ""
	for _, spec := range file.Imports {
		if imported, _ := strconv.Unquote(spec.Path.Value); imported == "time" {
			timeName = "time"
			if spec.Name != nil {
				timeName = spec.Name.Name
			}
		}
	}
	report := func(n ast.Node, what string) {
		at := fset.Position(n.Pos())
		problems = append(problems, fmt.Sprintf("%s is pure and %s (%s:%d)", name, what, filepath.Base(at.Filename), at.Line))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n, "starts a goroutine")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && timeName != "" && x.Name == timeName && clock[n.Sel.Name] {
				report(n, "uses time."+n.Sel.Name)
			}
		}
		return true
	})
	return problems
}

func packages(t *testing.T, root string) []pkg {
	dec := json.NewDecoder(strings.NewReader(goTool(t, root, "list", "-json=ImportPath,Dir,GoFiles,Imports", "./...")))
	var out []pkg
	for {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
}

func goTool(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// TestCheck shows that each rule can fail.
func TestCheck(t *testing.T) {
	table, err :=
		parseTable("x\n## Packages\n\n| package | what |\n|-|-|\n| cmd/c | top |\n| internal/a | |\n| internal/p P, internal/q P | |\n\n## Next\n| internal/z | |\n")
	if err != nil || len(table) != 4 || !table["internal/q"].pure || table["internal/a"].pure {
		t.Fatal(table, err)
	}
	for _, doc := range []string{"", "\n## Packages\n", "\n## Packages\n| internal/A | |",
		"\n## Packages\n| internal/a | |\n| internal/a | |"} {
		if _, err := parseTable(doc); err == nil {
			t.Errorf("%q is taken for a table", doc)
		}
	}
	dir := t.TempDir()
	source := "package p\nimport clock \"time\"\nvar D clock.Duration\nfunc f() { go f(); clock.Sleep(D) }\n"
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		p    pkg
		want []string
	}{
		{pkg{ImportPath: module + "internal/new"}, []string{"internal/new is not in the table"}},
		{pkg{ImportPath: module + "cmd/c", Imports: []string{"os", module + "internal/a", module + "internal/p"}}, nil},
		{pkg{ImportPath: module + "internal/a/sub", Imports: []string{"os", module + "internal/a"}}, nil},
		{pkg{ImportPath: module + "internal/p/sub", Imports: []string{"os", module + "internal/a"}},
			[]string{"imports os", "imports internal/a, which stands above"}},
		{pkg{ImportPath: module + "internal/a", Imports: []string{module + "cmd/c", module + "internal/new"}},
			[]string{"imports cmd/c, which stands above", "internal/new, which is not in the table"}},
		{pkg{ImportPath: module + "internal/p", Imports: []string{module + "internal/q", "fmt", "time",
			"github.com/klauspost/compress/zstd"}}, nil},
		{pkg{ImportPath: module + "internal/p", Imports: []string{"os", "net/http", "math/rand/v2", "example.com/x"}},
			[]string{"imports os", "imports net/http", "imports math/rand/v2", "imports example.com/x"}},
		{pkg{ImportPath: module + "internal/q", Dir: dir, GoFiles: []string{"p.go"}},
			[]string{"starts a goroutine (p.go:4)", "uses time.Sleep (p.go:4)"}},
	} {
		got := check(test.p, table)
		if len(got) != len(test.want) {
			t.Errorf("%s: %q, want %q", test.p.ImportPath, got, test.want)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], test.want[i]) {
				t.Errorf("%s: %q, want %q", test.p.ImportPath, got[i], test.want[i])
			}
		}
	}
}
