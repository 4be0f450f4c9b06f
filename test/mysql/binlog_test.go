package mysql_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trireme/lab/testkit"
)

const binlogSamples = "../../internal/mysql/binlog/testdata"

var update = flag.Bool("update", false, "write the samples of internal/mysql/binlog")

// TestUpdateBinlogSamples writes the samples that package binlog is tested with, when it is asked to:
//
//	go test ./test/mysql -run TestUpdateBinlogSamples -update && go test ./internal/mysql/binlog -run TestGolden -update
//
// It runs testdata/scripts/*.sql there on a server, each from RESET BINARY LOGS AND GTIDS on. For every binary log file
// of a script it keeps the file as SCRIPT-N.binlog, and what SHOW BINLOG EVENTS says about it as SCRIPT-N.events.
func TestUpdateBinlogSamples(t *testing.T) {
	if !*update {
		t.Skip("only with -update")
	}
	s := testkit.StartServer(t, "--server-id=7")
	for _, pattern := range []string{"*.binlog", "*.events", "*.golden"} {
		old, _ := filepath.Glob(filepath.Join(binlogSamples, pattern))
		for _, file := range old {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	scripts, err := filepath.Glob(filepath.Join(binlogSamples, "scripts", "*.sql"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("scripts: %d files, %v", len(scripts), err)
	}
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		s.Script("DROP DATABASE IF EXISTS app; RESET BINARY LOGS AND GTIDS;")
		s.Script(string(text))
		keepBinlogs(t, s, strings.TrimSuffix(filepath.Base(script), ".sql"))
	}
}

func keepBinlogs(t *testing.T, s *testkit.Server, name string) {
	for line := range strings.Lines(s.Script("SHOW BINARY LOGS")) {
		file, _, _ := strings.Cut(line, "\t")
		data, err := os.ReadFile(filepath.Join(s.DataDir(), file))
		if err != nil {
			t.Fatal(err)
		}
		var events strings.Builder
		for row := range strings.Lines(s.Script("SHOW BINLOG EVENTS IN '" + file + "'")) {
			column := strings.SplitN(row, "\t", 6) // file, position, type, server id, end, text
			events.WriteString(strings.Join([]string{column[1], column[2], column[4], column[5]}, "\t"))
		}
		base := filepath.Join(binlogSamples, name+"-"+strings.TrimLeft(filepath.Ext(file), ".0"))
		for ext, content := range map[string][]byte{".binlog": data, ".events": []byte(events.String())} {
			if err := os.WriteFile(base+ext, content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
