package failpoint

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// calls finds every point in the code: its name, and where.
func calls(t *testing.T, root string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); !ok || pkg.Name != "failpoint" || sel.Sel.Name != "Hit" && sel.Sel.Name != "Err" {
				return true
			}
			at := fset.Position(call.Pos()).String()
			lit, ok := call.Args[0].(*ast.BasicLit)
			if !ok {
				t.Errorf("%s: the name of a point is a literal", at)
				return true
			}
			name, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(at, err)
			}
			found[name] = append(found[name], at)
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestPoints: every point in the code is in the list, and the reverse.
func TestPoints(t *testing.T) {
	found := calls(t, "../../..")
	form := regexp.MustCompile(`^[a-z]+\.[a-z]+(-[a-z]+)*$`)
	listed := map[string]bool{}
	for _, p := range Points {
		if listed[p.Name] {
			t.Errorf("%s is in the list twice", p.Name)
		}
		listed[p.Name] = true
		if !form.MatchString(p.Name) || p.What == "" {
			t.Errorf("point %q %q: the name is PART.STEP, and it says what is done there", p.Name, p.What)
		}
		if len(found[p.Name]) == 0 {
			t.Errorf("%s is in the list and not in the code", p.Name)
		}
	}
	for name, at := range found {
		if !listed[name] {
			t.Errorf("%s: %s is not in the list", at[0], name)
		}
	}
	t.Logf("%d points", len(Points))
}

// programs are the tags that a program is built with, and its name in the folder of make programs.
var programs = map[string]string{"": "trireme", "failpoints": "trireme-failpoints"}

// program is one of them, from the folder that TRIREME_PROGRAMS names, or built here.
func program(t *testing.T, tags string) string {
	t.Helper()
	if dir := os.Getenv("TRIREME_PROGRAMS"); dir != "" {
		return filepath.Join(dir, programs[tags])
	}
	bin := filepath.Join(t.TempDir(), programs[tags])
	if out, err := exec.Command("go", "build", "-tags", tags, "-o", bin, "trireme/cmd/trireme").CombinedOutput(); err != nil {
		t.Fatalf("build with tags %q: %v\n%s", tags, err, out)
	}
	return bin
}

// TestRelease: a released program has no trace of the points; one with the tag has them, so that this test can fail.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program twice")
	}
	symbol := regexp.MustCompile(`trireme/internal/base/failpoint\.`)
	name := []byte("source.before-propose")
	for tags := range programs {
		bin := program(t, tags)
		symbols, err := exec.Command("go", "tool", "nm", bin).Output()
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(bin)
		if err != nil {
			t.Fatal(err)
		}
		n := len(symbol.FindAll(symbols, -1))
		has := bytes.Contains(b, name)
		t.Logf("tags %q: %d symbols of the package, the name of a point occurs: %v", tags, n, has)
		if want := tags != ""; n > 0 != want || has != want {
			t.Errorf("tags %q: %d symbols of the package, the name of a point occurs: %v", tags, n, has)
		}
	}
}

// TestTagged runs the tests of the other half of this package.
func TestTagged(t *testing.T) {
	if Enabled {
		t.Skip("this is it")
	}
	out, err := exec.Command("go", "test", "-tags", "failpoints", "-run", "TestArm|TestActions|TestSocket|TestClock", "-v",
		".").CombinedOutput()
	if err != nil || bytes.Count(out, []byte("\n--- PASS")) < 4 {
		t.Errorf("%v\n%s", err, out)
	}
}
