// Package drivers runs the clients that applications use against a cluster of real servers, through every way in: the
// router's ports, HAProxy and mysqld itself, with a switchover and a failover in the middle.
//
// TRIREME_SOAK=1: a driver that is not installed is a failure; TRIREME_DRIVERS names the folder that scripts/drivers.sh
// has filled; TRIREME_BINARY a trireme to test instead of a new build. -short skips everything.
package drivers

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/testkit"
)

const (
	healLimit = 90 * time.Second

	clientLimit = 30 * time.Minute // of a client program, which is ended by its test

	// After a failover a statement waits for the next leader and for its own outcome, for router.hold_timeout each.
	dialLimit      = 30 * time.Second
	statementLimit = 40 * time.Second
)

var (
	scratch string

	kit  testkit.Clusters
	pool = testkit.Pool{Start: build}
)

func TestMain(m *testing.M) {
	if name := os.Getenv("DRIVERS_CLIENT"); name != "" {
		os.Exit(clientMain(name, os.Args[1:]))
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() {
		return m.Run()
	}
	var err error
	if scratch, err = os.MkdirTemp("", "trireme-drivers-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	kit = testkit.Clusters{Name: "drivers", Dir: scratch,
		MySQLOptions: map[string]string{"innodb_buffer_pool_size": "128M",
			"innodb_redo_log_capacity": "256M", "local_infile": "ON", "max_connections": "300"}}
	defer pool.Close()
	return testkit.Run(m)
}

func soak() bool { return os.Getenv("TRIREME_SOAK") != "" }

// required says whether what is missing on this machine is a failure. In a soak, and where CI says that it is one,
// everything must run.
func required() bool { return soak() || os.Getenv("CI") != "" }

// cannot skips what this machine lacks, or fails.
func cannot(t *testing.T, format string, args ...any) {
	t.Helper()
	if required() {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// cluster is the running cluster and the test that uses it.
type cluster struct {
	*demo.Cluster
	t *testing.T
}

// lease gives a test three data nodes, which it gives back whole, with all nodes equal: testkit.Pool.
func lease(t *testing.T) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("real clusters take long")
	}
	needs.MySQL(t)
	return &cluster{Cluster: pool.Lease(t), t: t}
}

func build(t testing.TB) *demo.Cluster {
	t.Helper()
	o := demo.Options{Nodes: 3, Tune: func(n *config.Node) {
		if n.Name == "n1" { // the others' routers follow their sessions: cluster.carriers
			n.Router.Sessions = config.SessionsPass
		}
		if n.Name == "n3" && hasIPv6() {
			n.Router.Bind = "::" // and over IPv4
		}
	}}
	if soak() {
		o.MySQLOptions = map[string]string{"max_connections": strconv.Itoa(idleSessions + 300)}
	}
	return kit.Start(t, o)
}

// healthy waits until every member is, and returns the leader.
func (c *cluster) healthy() *demo.Node {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), healLimit)
	defer cancel()
	v, err := c.WaitHealthy(ctx)
	must(c.t, err)
	return c.Node(v.Leader)
}

// failover kills the leader's mysqld and returns who leads then.
func (c *cluster) failover() *demo.Node {
	c.t.Helper()
	return c.changed(func(leader *demo.Node) error {
		c.KillMySQL(leader)
		return nil
	})
}

// switchover moves leadership as planned and returns who leads then.
func (c *cluster) switchover() *demo.Node {
	c.t.Helper()
	return c.changed(func(*demo.Node) error {
		ctx, cancel := context.WithTimeout(c.t.Context(), healLimit)
		defer cancel()
		for {
			_, err := c.Switchover(ctx, "")
			if err == nil || ctx.Err() != nil {
				return err
			}
			c.t.Logf("leadership does not move yet: %v", err) // followers may lag on a busy machine
			<-time.After(200 * time.Millisecond)
		}
	})
}

func (c *cluster) changed(how func(leader *demo.Node) error) *demo.Node {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), healLimit)
	defer cancel()
	leader := c.healthy()
	before := c.view(ctx).Term
	must(c.t, how(leader))
	v, err := c.WaitTerm(ctx, before)
	must(c.t, err)
	return c.Node(v.Leader)
}

func (c *cluster) view(ctx context.Context) api.ClusterView {
	c.t.Helper()
	v, err := c.View(ctx)
	must(c.t, err)
	return v
}

// sql carries out statements on the leader as Trireme's own administrator.
func (c *cluster) sql(statements ...string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), healLimit)
	defer cancel()
	db := c.admin()
	defer db.Close()
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			c.t.Fatalf("%s: %v", s, err)
		}
	}
}

func (c *cluster) admin() *sql.DB {
	c.t.Helper()
	db, err := c.Admin(c.healthy())
	must(c.t, err)
	return db
}

// eventually polls f until it returns nil, and fails the test with its last error at the limit.
func eventually(t *testing.T, limit time.Duration, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
