package binlog

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trireme/internal/needs"
)

// run gives a program a minute and fails the test when it fails.
func run(t *testing.T, stdin string, name string, args ...string) string {
	t.Helper()
	out, err := tryRun(stdin, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// tryRun is run for a program that is meant to fail.
func tryRun(stdin string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out), err
}

// testServer is a mysqld that lives as long as the test.
type testServer struct {
	t           *testing.T
	dir, client string
}

// serverForUpdate initialises and starts a mysqld on a socket of its own, without network.
func serverForUpdate(t *testing.T) *testServer {
	mysqld := needs.MySQL(t).Path
	dir, err := os.MkdirTemp("", "binlog") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &testServer{t: t, dir: dir, client: needs.Tool(t, "mysql")}
	common := []string{"--no-defaults", "--datadir=" + dir + "/data", "--log-error=" + dir + "/err"}
	if os.Getuid() == 0 {
		common = append(common, "--user=root")
	}
	run(t, "", mysqld, append(common, "--initialize-insecure")...)
	cmd := exec.Command(mysqld, append(common, "--socket="+dir+"/s", "--skip-networking", "--mysqlx=OFF",
		"--secure-file-priv=NULL", "--server-id=7", "--log-bin="+dir+"/data/binlog", "--gtid-mode=ON",
		"--enforce-gtid-consistency=ON", "--binlog-format=ROW")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s.waitUntilUp()
	return s
}

func (s *testServer) waitUntilUp() {
	for deadline := time.Now().Add(time.Minute); ; {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := exec.CommandContext(ctx, s.client, "--no-defaults", "-uroot", "-S", s.dir+"/s", "-e", "SELECT 1").Run()
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(s.dir + "/err")
			s.t.Fatalf("mysqld does not answer: %v\n%s", err, log)
		}
	}
}

// sql runs statements and returns their rows, tab-separated.
func (s *testServer) sql(text string) string {
	s.t.Helper()
	return run(s.t, text, s.client, "--no-defaults", "-uroot", "-S", s.dir+"/s", "--batch",
		"--skip-column-names", "--comments", "--local-infile=1")
}

// updateBinlogs runs every script and keeps its binary log files as testdata/SCRIPT-N.binlog and .events.
func updateBinlogs(t *testing.T) {
	s := serverForUpdate(t)
	for _, pattern := range []string{"testdata/*.binlog", "testdata/*.events", "testdata/*.golden"} {
		old, _ := filepath.Glob(pattern)
		for _, file := range old {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	scripts, err := filepath.Glob("testdata/scripts/*.sql")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("testdata/scripts/*.sql: %d files, %v", len(scripts), err)
	}
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		s.sql("DROP DATABASE IF EXISTS app; RESET BINARY LOGS AND GTIDS;")
		s.sql(string(text))
		s.keepBinlogs(strings.TrimSuffix(filepath.Base(script), ".sql"))
	}
}

func (s *testServer) keepBinlogs(name string) {
	for line := range strings.Lines(s.sql("SHOW BINARY LOGS")) {
		file, _, _ := strings.Cut(line, "\t")
		data, err := os.ReadFile(filepath.Join(s.dir, "data", file))
		if err != nil {
			s.t.Fatal(err)
		}
		var events strings.Builder
		for row := range strings.Lines(s.sql("SHOW BINLOG EVENTS IN '" + file + "'")) {
			column := strings.SplitN(row, "\t", 6) // file, position, type, server id, end, text
			events.WriteString(strings.Join([]string{column[1], column[2], column[4], column[5]}, "\t"))
		}
		base := filepath.Join("testdata", name+"-"+strings.TrimLeft(filepath.Ext(file), ".0"))
		for ext, content := range map[string][]byte{".binlog": data, ".events": []byte(events.String())} {
			if err := os.WriteFile(base+ext, content, 0o644); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}
