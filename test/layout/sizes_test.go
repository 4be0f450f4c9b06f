package layout

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What one reader can hold in mind, tests left out: lines of a package, a file and a function, fields of a struct.
const (
	packageLimit  = 5000
	fileLimit     = 500
	functionLimit = 70
	fieldLimit    = 25
)

// larger are those beyond the limits, each with the reason why it stays or what will become of it. A number may only
// shrink, and a line goes once its limit is kept.
var larger = map[string]struct {
	size int
	why  string
}{
	"cmd/trireme":            {5930, "one file for each verb; none is large"},
	"internal/ops/backup":    {5960, "to be divided: stores, archive of the log, copies, restoring"},
	"internal/mysql/mysqld":  {6320, "to be divided: files on disk, the process, questions to the server"},
	"internal/access/router": {7850, "to be divided: protocol, sessions, splitting"},
	"lab/bench":              {7190, "fourteen suites, one or two files each, and a measure without the drift of the machine"},
	"lab/sim":                {7500, "faults, checks, and the hosts of the organs that it runs"},
	"lab/verify":             {6300, "thirteen workloads with their checkers"},

	"internal/ops/backup/restore.go":    {560, "see the package"},
	"internal/ops/backup/s3.go":         {510, "see the package"},
	"internal/ops/backup/take.go":       {635, "see the package"},
	"internal/ops/demo/cluster.go":      {640, "to be divided: making, running, asking"},
	"internal/core/ha/ha.go":            {790, "the policy of a node in one place, pure; its types are a third of it"},
	"internal/node/run.go":              {535, "see the package"},
	"internal/access/router/carry.go":   {655, "to be divided: what was lost, how it goes on, what is said"},
	"internal/access/router/session.go": {675, "see the package"},
	"internal/access/router/split.go":   {550, "see the package"},
	"lab/campaign/campaign.go":          {560, "to be divided"},
	"lab/campaign/run.go":               {530, "to be divided"},

	"internal/base/config/validate.go checkRouter": {75, "a list of checks"},
	"internal/node/lifecycle/judge.go judge":       {85, "one judgement, in order (S5)"},
	"internal/node/metrics.go newMetrics":          {135, "a list of metrics"},
	"internal/node/run.go startParts":              {80, "the order in which the parts start"},
	"lab/bench/run.go Run":                         {75, "one run, in order"},
	"lab/bench/run.go runGroup":                    {75, "one group of runs, in order"},
	"lab/sim/model/text.go text":                   {80, "a list of texts"},

	"cmd/trireme/main.go commands":              {45, "a field for each verb, as kong wants them"},
	"internal/ops/adopt/facts.go facts":         {30, "what is read of a server, at once"},
	"internal/base/config/cluster.go Cluster":   {31, "a format on disk"},
	"internal/node/gossip/status.go Status":     {27, "a format on the wire"},
	"internal/node/node.go Node":                {54, "the organs of a member, and what is left of its facts"},
	"internal/core/raftlog/log.go Log":          {37, "its positions are to become three values of one type"},
	"internal/access/router/router.go Router":   {35, "see the package"},
	"internal/access/router/session.go session": {28, "see the package"},
	"internal/access/router/view.go Config":     {28, "settings and what the node answers"},
	"lab/campaign/state.go Part":                {26, "a line of a file"},
	"lab/sim/member.go member":                  {35, "a machine, its mysqld, and the hosts of the organs"},
}

// TestSizes: nothing is larger than a reader can hold in mind but what the list says, and nothing on it grows.
func TestSizes(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := map[string]bool{}
	is := func(what string, size, limit int) {
		t.Helper()
		most := limit
		if l, listed := larger[what]; listed {
			most, seen[what] = l.size, size > limit
		}
		if size > most {
			t.Errorf("%s: %d, and %d is the limit: divide it, or say in this test why not", what, size, most)
		}
	}
	packages := map[string]int{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(name, ".") && name != "." || d.Name() == "testdata" || name == "bin" ||
			name == "test"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines := bytes.Count(src, []byte("\n"))
		packages[filepath.Dir(name)] += lines
		is(name, lines, fileLimit)
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, name, src, 0)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				is(name+" "+d.Name.Name, set.Position(d.End()).Line-set.Position(d.Pos()).Line, functionLimit)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if typ, ok := s.(*ast.TypeSpec); ok {
						if st, ok := typ.Type.(*ast.StructType); ok {
							is(name+" "+typ.Name.Name, st.Fields.NumFields(), fieldLimit)
						}
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, lines := range packages {
		is(name, lines, packageLimit)
	}
	for what := range larger {
		if !seen[what] {
			t.Errorf("%s is within its limit: take it off the list", what)
		}
	}
}
