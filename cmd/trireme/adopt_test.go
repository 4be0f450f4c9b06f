package main

import (
	"strings"
	"testing"

	"trireme/internal/ops/adopt"
	"trireme/internal/ops/cli"
)

// TestPlanIsNarrow: long paths and lists of a server's settings do not make the table wide, and what matters of them is
// there.
func TestPlanIsNarrow(t *testing.T) {
	var out strings.Builder
	path := "/usr/share/" + strings.Repeat("deep/", 20)
	printPlan(&env{out: &out},
		&adopt.Plan{Checks: []adopt.Check{{Name: "data directory", Found: strings.Repeat("it can be renamed ", 10),
			Do: "-> do this"}},
			Settings: []adopt.OptionChange{{Name: "character_sets_dir", Old: path + "charsets/",
				Why: "it belongs to the installation"},
				{Name: "log_bin", Old: "ON", New: path + "binlog", Why: "its place is given by the node's directory"},
				{Name: "disabled_storage_engines", New: "MyISAM,MRG_MYISAM,MEMORY,CSV,ARCHIVE,BLACKHOLE,FEDERATED,EXAMPLE",
					Why: "tables without transactions cannot be rolled back after a crash"},
				{Name: "max_connections", Old: "500", Kept: true}}})
	for line := range strings.Lines(out.String()) {
		if n := cli.Columns(strings.TrimSuffix(line, "\n")); n > cli.MaxColumns {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, want := range []string{"…", "deep/charsets/", "deep/binlog:", "MyISAM,MRG_MYISAM,MEMORY,",
		"kept, in mysql.options", "500"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
