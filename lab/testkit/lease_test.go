package testkit

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/verify"
)

func TestMain(m *testing.M) { os.Exit(Run(m)) }

// borrower is a test that leases a cluster, as far as the pool knows it.
type borrower struct {
	testing.TB
	failed  bool
	lines   int // logged
	cleanup func()
}

func (b *borrower) Logf(format string, args ...any) {
	b.lines++
	b.TB.Logf(format, args...)
}

func (b *borrower) Errorf(format string, args ...any) {
	b.failed = true
	b.Logf("as it should: "+format, args...)
}

func (b *borrower) Failed() bool     { return b.failed }
func (b *borrower) Cleanup(f func()) { b.cleanup = f }

// TestLease: what a test leaves in a cluster is taken away, and the next one gets the same cluster; one that leaves it
// changed in a way that others would notice fails, and the cluster is given to no other. Its cluster takes most of its
// 20 s.
func TestLease(t *testing.T) {
	needs.MySQL(t)
	kit := Clusters{Name: "lease", Dir: t.TempDir()}
	made := 0
	var say func(string, ...any)
	pool := Pool{Start: func(t testing.TB) *demo.Cluster {
		made++
		say = t.Logf
		return kit.Start(t, demo.Options{Nodes: 2, Loggers: 1})
	}}
	defer pool.Close()
	b := &borrower{TB: t}
	c := pool.Lease(b)
	leader, err := c.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run(t, c, leader, "CREATE DATABASE left_here", "CREATE TABLE left_here.t (id INT PRIMARY KEY)",
		"CREATE USER left_here")
	b.cleanup()
	l := pool.idle[0]
	if b.failed || l.Cluster != c {
		t.Fatal("a cluster that is whole was not taken back")
	}
	err = l.onLeader(t.Context(), func(db *sql.DB) error {
		left, err := column(t.Context(), db, "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA "+
			"WHERE SCHEMA_NAME = 'left_here' UNION SELECT User FROM mysql.user WHERE User = 'left_here'")
		if err == nil && len(left) > 0 {
			t.Errorf("a schema or an account is left: %v", left)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ended, b := b, &borrower{TB: t}
	before := ended.lines
	say("a cluster that no test has")
	if pool.Lease(b) != c || made != 1 {
		t.Fatal("the next one got another cluster")
	}
	if say("a cluster that the next test has"); ended.lines != before || b.lines != 1 {
		t.Errorf("%d lines went to the log of a test that has ended, %d to its successor's", ended.lines-before, b.lines)
	}

	ctx := context.Background()
	broken := func(want string) {
		t.Helper()
		if err := l.restore(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	cl := c.Client(leader)
	defer cl.Close()
	set := func(value string) {
		t.Helper()
		if _, err := api.ChangeConfig.Ask(ctx, cl, api.ConfigChange{Set: map[string]string{"failback_after": value}}); err != nil {
			t.Fatal(err)
		}
	}
	set("77s")
	broken("settings")
	set("60s")
	run(t, c, leader, "CREATE DATABASE xa", "CREATE TABLE xa.t (id INT PRIMARY KEY)",
		"XA START 'left'", "INSERT INTO xa.t VALUES (1)", "XA END 'left'", "XA PREPARE 'left'")
	broken("prepared")
	run(t, c, leader, "XA COMMIT 'left'")
	if err := l.restore(); err != nil {
		t.Fatal(err)
	}
	applySlowly(t, c, leader, l)
	run(t, c, leader, "CREATE DATABASE differs", "CREATE TABLE differs.t (id INT PRIMARY KEY)",
		"SET sql_log_bin = 0", "INSERT INTO differs.t VALUES (1)")
	broken("differs")
	b.cleanup()
	if !b.failed || len(pool.idle) > 0 || leader.DaemonPID() != 0 {
		t.Error("a cluster whose nodes differ was taken back")
	}
}

// applySlowly has a follower take longer to apply a transaction than anything local to a node takes to show as that.
func applySlowly(t *testing.T, c *demo.Cluster, leader *demo.Node, l *leased) {
	t.Helper()
	run(t, c, leader, "CREATE DATABASE slow", "CREATE TABLE slow.t (id INT PRIMARY KEY)", "INSERT INTO slow.t VALUES (1)")
	if err := l.equal(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.DataNodes() {
		if n == leader {
			continue
		}
		db, err := c.Admin(n)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec("SELECT id FROM slow.t"); err != nil {
			t.Fatal(err)
		}
		run(t, c, leader, "ALTER TABLE slow.t ADD v INT") // waits for the end of that transaction there
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := l.equal(ctx); !errors.Is(err, verify.ErrNotEqual) {
			t.Errorf("while %s applies a transaction: %v", n.Name, err)
		}
	}
}

// run statements in one session of a node's administrator.
func run(t *testing.T, c *demo.Cluster, n *demo.Node, statements ...string) {
	t.Helper()
	db, err := c.Admin(n)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, s := range statements {
		if _, err := conn.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}
