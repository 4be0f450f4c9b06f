package stream_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"trireme/internal/ops/demo"
	"trireme/lab/stream"
	"trireme/lab/testkit"
	"trireme/lab/verify"
)

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

// TestFollow reads what a cluster commits, through the death of a leader's daemon.
func TestFollow(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real servers")
	}
	kit := testkit.Clusters{Name: "follow", Dir: t.TempDir()}
	c := kit.Start(t, demo.Options{Nodes: 3})
	defer c.Kill()
	db, err := c.Routed().Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec := func(stmt string) {
		t.Helper()
		end := time.Now().Add(time.Minute)
		_, err := db.ExecContext(t.Context(), stmt)
		for ; err != nil && time.Now().Before(end); _, err = db.ExecContext(t.Context(), stmt) {
		}
		if err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
	leader, err := c.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	admin, err := c.Admin(leader)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.Exec("GRANT REPLICATION SLAVE ON *.* TO '" + c.State().User + "'@'%'"); err != nil {
		t.Fatal(err)
	}
	f := stream.Follow(c.Routed(), c.Stream(), "db")
	defer f.Stop()
	if err := f.Started(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec("CREATE DATABASE IF NOT EXISTS db")
	exec("CREATE TABLE IF NOT EXISTS db.counters (k BIGINT PRIMARY KEY, v BIGINT NOT NULL)")
	exec("REPLACE INTO db.counters VALUES (1, 10)")
	c.KillDaemon(leader)
	exec("REPLACE INTO db.counters VALUES (1, 11)")
	var executed string
	if err := db.QueryRow("SELECT @@GLOBAL.gtid_executed").Scan(&executed); err != nil {
		t.Fatal(err)
	}
	got := f.Ends(t.Context(), executed, func() int64 { return 7 })
	rows := got.Rows["counters"]
	if got.Why != "" || len(rows) < 2 || strings.Join(rows[0].Values, " ") != "1 10" ||
		strings.Join(rows[len(rows)-1].Values, " ") != "1 11" || got.End != 7 {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(strings.Join(got.Statements, "; "), "CREATE TABLE IF NOT EXISTS db.counters") {
		t.Errorf("%q", got.Statements)
	}
	var _ verify.Follower = f
}
