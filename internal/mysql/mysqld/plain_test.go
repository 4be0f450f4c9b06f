package mysqld

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlainOptions: without Trireme each commit is flushed, replicas are read-only and log what they apply, and nothing
// of the cluster is left.
func TestPlainOptions(t *testing.T) {
	c := Config{Dir: "/srv/x", Port: 3307, ServerID: 2, Durability: DurabilityLog,
		Extra: map[string]string{"max-connections": "500", "skip_show_database": ""}}
	for _, source := range []bool{true, false} {
		text := c.plainOptions(source)
		readOnly := "ON"
		if source {
			readOnly = "OFF"
		}
		for _, want := range []string{`datadir="/srv/x/data"`, `port="3307"`, `server_id="2"`, `max_connections="500"`,
			"skip_show_database", `log_replica_updates="ON"`,
			`sync_binlog="1"`, `innodb_flush_log_at_trx_commit="1"`, `gtid_mode="ON"`, `log_bin="/srv/x/binlog-plain/binlog"`,
			`partial_revokes="ON"`, `super_read_only="` + readOnly + `"`} {
			if strings.Count(text, "\n"+strings.TrimSpace(want)+"\n") != 1 {
				t.Errorf("source %t: %q is not there once:\n%s", source, want, text)
			}
		}
		for _, not := range []string{"semi", "skip_replica_start", "persisted_globals_load", "disabled_storage_engines",
			"replicate_same_server_id", "/srv/x/binlog/"} {
			if strings.Contains(text, not) {
				t.Errorf("source %t: %q is there", source, not)
			}
		}
	}
}

// TestWritePlain: the plain server gets a server_uuid of its own, and an empty folder for its binary log.
func TestWritePlain(t *testing.T) {
	c := Config{Dir: t.TempDir(), Port: 3307, ServerID: 2, Durability: DurabilityLog}
	auto, stale := filepath.Join(c.DataDir(), "auto.cnf"), filepath.Join(c.PlainBinlogDir(), "binlog.000001")
	for _, f := range []string{auto, stale} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(f), 0o700), os.WriteFile(f, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := c.WritePlain(true); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{auto, stale} {
			if _, err := os.Stat(f); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is there: %v", f, err)
			}
		}
	}
	if _, err := os.Stat(c.PlainFile()); err != nil {
		t.Error(err)
	}
}
