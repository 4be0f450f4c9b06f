package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Decisions about leadership, leases and fences are made on CLOCK_BOOTTIME, which goes on while the machine sleeps and
// is never set: a jump of the time of day changes none of them (S10). These files of the packages that decide may ask
// for it all the same, for the reason given.
var wallClock = map[string]string{
	"node/ackpath/ackpath.go":         "how old an entry is when it arrives, for the lag",
	"node/ackpath/rules.go":           "shows since when a rule is suspended",
	"node/controlloop/controlloop.go": "a pause ends at a time of day that an operator gave",
	"node/certs/audit.go":             "the audit log says when",
	"node/certs/ca.go":                "certificates begin and end by the time of day",
	"node/certs/certs.go":             "certificates expire by the time of day",
	"node/certs/revoke.go":            "a revocation says when",
	"node/certs/server.go":            "certificates expire by the time of day",
	"node/certs/tokens.go":            "tokens expire by the time of day",
	"node/gossip/backup.go":           "shows how old the backup is",
	"node/leave/commit.go":            "the record of the end says when",
	"node/recovery/force.go":          "the record of a generation says when",
	"node/delay/delay.go":             "a delay counts from when the leader's mysqld committed, by its time of day; only a learner, which decides nothing, has one",
	"node/recovery/generation.go":     "the record of a generation says when",
	"node/gossip/open.go":             "remembers over restarts when writes were last taken, for the history",
	"node/gossip/peer.go":             "measures how the clocks of two members differ",
	"node/seeding/heal.go":            "remembers over restarts when it was seeded, and shows since when the applier stands; a clock that is set changes a pause",
	"node/history/history.go":         "events are shown with the time of day",
	"node/lag.go":                     "shows how far mysqld lags",
	"node/lifecycle/judge.go":         "shows how far mysqld lags",
	"node/load/load.go":               "times commits, by differences, and compares mysqld's time stamp with the same clock",
	"node/membership/config.go":       "a pause ends at a time of day that an operator gave",
	"node/membership/join.go":         "join tokens and certificates expire by the time of day",
	"node/membership/settings.go":     "a change of the settings says when",
	"node/metrics.go":                 "shows whether a pause is over",
	"node/record.go":                  "samples are shown with the time of day",
	"node/seeding/seed.go":            "tells how long seeding took",
	"node/history/sight.go":           "tells how long a member was not heard of, between two events",
	"node/status.go":                  "shows how far mysqld lags",
	"node/seeding/decision.go":        "the record of a decision says when",
	"node/upkeep.go":                  "how far mysqld lags, by a difference, which Go takes from the monotonic clock",
}

func TestClock(t *testing.T) {
	root := strings.TrimSpace(goTool(t, "", "list", "-m", "-f", "{{.Dir}}"))
	used := map[string]bool{}
	for _, dir := range deciding(t, root) {
		files, err := filepath.Glob(filepath.Join(root, "internal", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			name := dir + "/" + filepath.Base(path)
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				pkg, ok := sel.X.(*ast.Ident)
				ofTime := ok && pkg.Name == "time" && slices.Contains([]string{"Now", "Since", "Until"}, sel.Sel.Name)
				if !ofTime && sel.Sel.Name != "Wall" { // run.Clock's
					return true
				}
				used[name] = true
				if wallClock[name] == "" {
					t.Errorf("%s: %s: decisions use CLOCK_BOOTTIME", fset.Position(sel.Pos()), sel.Sel.Name)
				}
				return true
			})
		}
	}
	for name := range wallClock {
		if !used[name] {
			t.Errorf("%s does not ask for the time of day any more: take it from the list", name)
		}
	}
}

// deciding are the packages whose decisions follow CLOCK_BOOTTIME: those of a member, and what they stand on.
func deciding(t *testing.T, root string) []string {
	t.Helper()
	dirs := []string{"core/consensus", "core/ha", "core/guard", "node"}
	files, err := filepath.Glob(filepath.Join(root, "internal/node/*/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		dirs = append(dirs, "node/"+filepath.Base(filepath.Dir(path)))
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	return dirs
}
