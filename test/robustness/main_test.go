// Package robustness runs real clusters of real mysqlds under real faults: kill -9 of servers and daemons, of
// everything at once, and the traps of MySQL's own recovery.
//
// TRIREME_ROUNDS sets the number of rounds of the kill tests; TRIREME_SOAK=1 makes them long; TRIREME_BINARY names a
// trireme to test instead of a new build; TRIREME_KEEP a directory for the logs of failed tests. -short skips
// everything.
package robustness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
	"trireme/lab/child"
	"trireme/lab/faultfs"
	"trireme/lab/needs"
	"trireme/lab/testkit"
	"trireme/lab/verify"
	"trireme/lab/wan"
)

const (
	healLimit  = 90 * time.Second // until every member is healthy again
	checkLimit = 3 * time.Minute
	createTime = 4 * time.Minute // of one node

	slowNode = "n4" // of those that tests add; is seeded slowly
)

var (
	scratch string // of everything in this run

	kit testkit.Clusters
	// Three data nodes each: released of the program as it is released, withPoints of the one with failpoints.
	released = testkit.Pool{Start: func(t testing.TB) *demo.Cluster {
		return kit.Start(t,
			demo.Options{Nodes: 3,
				Tune: func(n *config.Node) { n.Router.ConsistencyTimeout = config.Duration(3 * time.Second) }})
	}}
	withPoints = testkit.Pool{Start: func(t testing.TB) *demo.Cluster {
		return kit.Start(t, demo.Options{Nodes: 3, Binary: testkit.Program(t, testkit.Failpoints),
			Tune: func(n *config.Node) { n.MySQL.SeedRate = 24 * config.MiB }}) // a copy takes some looks
	}}
)

func TestMain(m *testing.M) {
	child.Main(wan.Forwarder, faultfs.Server)
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() {
		return m.Run()
	}
	var err error
	if scratch, err = os.MkdirTemp("", "trireme-robustness-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	kit.Name, kit.Dir = "robustness", scratch
	kit.Tune = func(n *config.Node) {
		n.Raft.LogSegment, n.Raft.LogMax = config.MiB, 2*config.MiB // purged all the time
		if n.Name == slowNode {
			n.MySQL.SeedRate = 8 * config.MiB
		}
	}
	defer withPoints.Close()
	defer released.Close()
	return testkit.Run(m)
}

// soak says whether the long runs were asked for.
func soak() bool { return os.Getenv("TRIREME_SOAK") != "" }

// rounds of a kill test.
func rounds(t *testing.T, short, long int) int {
	if s := os.Getenv("TRIREME_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("TRIREME_ROUNDS=%q is not a number of rounds", s)
		}
		return n
	}
	if soak() {
		return long
	}
	return short
}

// needMySQL skips a test where there is no mysqld, unless it is required.
func needMySQL(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("real clusters take long")
	}
	needs.MySQL(t)
}

// cannot ends a test that this machine cannot run. Where servers are required, root has what it takes to run all: what
// is skipped in a long run would be taken for tested. Without root, tests of disks are skipped, but never in a soak.
func cannot(t *testing.T, why any) {
	t.Helper()
	if os.Getenv("TRIREME_REQUIRE_MYSQL") != "" && (os.Geteuid() == 0 || soak()) {
		t.Fatalf("this machine cannot run the test: %v", why)
	}
	t.Skip(why)
}

// cluster is a running cluster and the test that uses it.
type cluster struct {
	*demo.Cluster
	t     *testing.T
	hosts *wan.Hosts // nil: all nodes are on the loopback address
}

// Network between the nodes, for faults.
func (c *cluster) Network() *wan.Net { return c.hosts.Network() }

// Endpoints are direct connections to all data nodes.
func (c *cluster) Endpoints() ([]verify.Endpoint, error) { return verify.Endpoints(c) }

// create makes a cluster of its own for a test, ended with it.
func create(t *testing.T, nodes, loggers int) *cluster {
	t.Helper()
	return createShape(t, shape{nodes: nodes, loggers: loggers})
}

// shape is what a cluster is made of.
type shape struct {
	nodes, loggers, learners int
	tune                     func(*config.Node) // after what all clusters of these tests have; nil: nothing
	binary                   string             // trireme to run; empty: the one that was built as it is released
	wan                      *wan.Topology      // each node on an emulated host; nil: all on the loopback address
	// each data node on a file system that can fail; nil: in an ordinary directory
	disks *disks
}

func createShape(t *testing.T, s shape) *cluster {
	t.Helper()
	needMySQL(t)
	o := demo.Options{Nodes: s.nodes, Loggers: s.loggers, Learners: s.learners, Dir: kit.NewDir(), Binary: s.binary,
		Tune: s.tune}
	var hosts *wan.Hosts
	if s.wan != nil {
		hosts = &wan.Hosts{Cluster: filepath.Base(o.Dir), Topology: s.wan}
		o.Hosts = hosts
	}
	if s.disks != nil {
		s.disks.insert(t, o.Dir, s.nodes)
		o.MySQLOptions = s.disks.mysql
	}
	c := &cluster{Cluster: kit.Start(t, o), t: t, hosts: hosts}
	t.Cleanup(func() {
		testkit.ShowLogs(t, c.Cluster)
		c.Kill()
	})
	return c
}

// lease gives a test three data nodes, which it gives back whole, with all nodes equal: testkit.Pool.
func lease(t *testing.T) *cluster {
	t.Helper()
	needMySQL(t)
	return &cluster{Cluster: released.Lease(t), t: t}
}

// leaseTagged is lease, of nodes with failpoints.
func leaseTagged(t *testing.T) *cluster {
	t.Helper()
	needMySQL(t)
	return &cluster{Cluster: withPoints.Lease(t), t: t}
}

// eventually polls f until it returns nil, and fails the test with its last error at the limit. Most f ask daemons over
// new connections, so it asks less often when it waits long.
func eventually(t *testing.T, limit time.Duration, what string, f func() error) {
	t.Helper()
	for began := time.Now(); ; {
		err := f()
		if err == nil {
			return
		}
		waited := time.Since(began)
		if waited > limit {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		<-time.After(min(max(waited/10, 20*time.Millisecond), 100*time.Millisecond))
	}
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
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

// leader waits for a node that takes writes.
func (c *cluster) leader() *demo.Node {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), healLimit)
	defer cancel()
	n, err := c.Leader(ctx)
	must(c.t, err)
	return n
}

// view of the cluster now.
func (c *cluster) view() api.ClusterView {
	c.t.Helper()
	v, err := c.View(c.t.Context())
	must(c.t, err)
	return v
}

// crash kills a node's mysqld and waits until its daemon has noticed, so that no view from before is taken for one from
// after.
func (c *cluster) crash(n *demo.Node) {
	c.t.Helper()
	pid := c.KillMySQL(n)
	if pid == 0 {
		c.t.Fatalf("%s has no mysqld to kill", n.Name)
	}
	eventually(c.t, healLimit, n.Name+" notices that its mysqld was killed", func() error {
		v, err := c.View(c.t.Context())
		for _, m := range v.Members {
			if m.Name == n.Name && m.MySQL != nil && m.MySQL.PID == pid {
				err = fmt.Errorf("it shows process %d", pid)
			}
		}
		return err
	})
}

// failedOver waits until a node leads and takes writes in a later term, and returns it.
func (c *cluster) failedOver(term uint64) *demo.Node {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), healLimit)
	defer cancel()
	v, err := c.WaitTerm(ctx, term)
	must(c.t, err)
	return c.Node(v.Leader)
}

// writesAfter waits for acknowledged writes in a later term.
func (c *cluster) writesAfter(w *verify.Workload, term uint64) {
	c.t.Helper()
	leader := c.failedOver(term)
	open := time.Now()
	eventually(c.t, healLimit, "writes on "+leader.Name, func() error {
		if !w.Meter().AckedSince(open) {
			return errors.New("no acknowledged write")
		}
		return nil
	})
}

// others are the data nodes but one.
func (c *cluster) others(but *demo.Node) []*demo.Node {
	var out []*demo.Node
	for _, n := range c.DataNodes() {
		if n != but {
			out = append(out, n)
		}
	}
	return out
}

// start starts nodes' daemons again, once those before have ended: a killed process outlives its connections.
func (c *cluster) start(nodes ...*demo.Node) {
	c.t.Helper()
	for _, n := range nodes {
		eventually(c.t, healLimit, "the end of the daemon that ran before", func() error {
			if pid := n.DaemonPID(); pid != 0 {
				return fmt.Errorf("%s still runs as process %d", n.Name, pid)
			}
			return nil
		})
		must(c.t, c.Start(n))
	}
}

// equal waits until the data nodes are equal and compares everything.
func (c *cluster) equal() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), checkLimit)
	defer cancel()
	nodes, err := c.Endpoints()
	must(c.t, err)
	defer verify.CloseEndpoints(nodes)
	_, local, err := verify.WaitEqual(ctx, nodes)
	must(c.t, err)
	problems, tables, err := verify.Compare(ctx, nodes)
	must(c.t, err)
	for _, p := range problems {
		c.t.Error(p)
	}
	c.t.Logf("%d tables, definitions, accounts, prepared transactions and gtid_executed are compared on %d nodes: %d problems, local GTIDs %v", tables, len(nodes), len(problems), local)
}

// check stops a workload and judges it.
func (c *cluster) check(w *verify.Workload) verify.Report {
	c.t.Helper()
	must(c.t, w.Stop())
	c.healthy()
	ctx, cancel := context.WithTimeout(c.t.Context(), checkLimit)
	defer cancel()
	nodes, err := c.Endpoints()
	must(c.t, err)
	defer verify.CloseEndpoints(nodes)
	r, err := w.Check(ctx, nodes)
	must(c.t, err)
	if !r.OK() {
		c.t.Errorf("%s", r)
	}
	return r
}

// steady is the rate of writers that are there so that there is load, and not as much as can be: of a load that no
// machine keeps up with a slow machine has the longest queues, and clusters side by side have more than one machine's
// load. In a soak there is no limit.
func steady() float64 {
	if soak() {
		return 0
	}
	return 10 // a second, of each
}

// load starts a workload through the router. It must be ended by check.
func (c *cluster) load(cfg verify.Config) *verify.Workload {
	c.t.Helper()
	cfg.Login = c.Routed()
	if cfg.Database == "" {
		cfg.Database = "workload"
	}
	if dir := os.Getenv("TRIREME_KEEP"); dir != "" {
		cfg.Dir = filepath.Join(dir, c.t.Name()+"-"+cfg.Database)
	}
	w, err := verify.New(cfg)
	must(c.t, err)
	ctx, cancel := context.WithTimeout(c.t.Context(), healLimit)
	defer cancel()
	must(c.t, w.Prepare(ctx))
	w.Start(context.WithoutCancel(c.t.Context()))
	c.t.Cleanup(func() { _ = w.Stop() })
	return w
}

// writesMore waits until n more writes have been acknowledged.
func (c *cluster) writesMore(w *verify.Workload, n int64) {
	c.t.Helper()
	before := w.Log().Counts().Acked
	eventually(c.t, healLimit, "writes go on", func() error {
		if got := w.Log().Counts().Acked - before; got < n {
			return fmt.Errorf("%d of %d more writes acknowledged", got, n)
		}
		return nil
	})
}
