// Package smoke is what `make check` runs on real servers: one cluster, for each edit. test/robustness has the rest.
package smoke

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/testkit"
	"trireme/lab/verify"
)

const limit = 90 * time.Second // of each step; all of them together take half a minute

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

// TestSmoke: three nodes are written to; the leader's mysqld is killed; leadership is moved. Writes go on each time,
// and in the end every write that was acknowledged is there once, and all nodes are equal.
func TestSmoke(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster of real servers takes half a minute")
	}
	needs.MySQL(t)
	c := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*limit)
	defer cancel()
	w, err := verify.New(verify.Config{Login: c.Routed(), Database: "smoke", Writers: 8, Rate: 20, Mixed: true})
	must(t, err)
	t.Cleanup(func() { _ = w.Stop() })
	must(t, w.Prepare(ctx))
	w.Start(context.WithoutCancel(ctx))
	goesOn(t, w, "at first")

	v, err := c.WaitHealthy(ctx)
	must(t, err)
	if c.KillMySQL(c.Node(v.Leader)) == 0 {
		t.Fatalf("%s has no mysqld to kill", v.Leader)
	}
	_, err = c.WaitTerm(ctx, v.Term)
	must(t, err)
	goesOn(t, w, "after a kill of the leader's mysqld")

	v, err = c.WaitHealthy(ctx)
	must(t, err)
	poll(t, "a switchover", func() error { // a node that was just away may have to catch up first
		_, err := c.Switchover(ctx, "")
		return err
	})
	now, err := c.WaitTerm(ctx, v.Term)
	must(t, err)
	if now.Leader == v.Leader {
		t.Errorf("%s leads before and after a switchover", v.Leader)
	}
	goesOn(t, w, "after a switchover")

	must(t, w.Stop())
	v, err = c.WaitHealthy(ctx)
	must(t, err)
	out, err := exec.CommandContext(ctx, testkit.Program(t, testkit.Trireme), "mysql", "--config",
		filepath.Join(c.Node(v.Leader).Dir, config.NodeFileName), "--", "--batch", "--skip-column-names", "-e",
		"CREATE USER first; SELECT CURRENT_USER()").CombinedOutput()
	if err != nil || string(out) != "trireme_admin@localhost\n" {
		t.Errorf("the first account: %v: %s", err, out)
	}
	nodes, err := verify.Endpoints(c)
	must(t, err)
	defer verify.CloseEndpoints(nodes)
	r, err := w.Check(ctx, nodes)
	must(t, err)
	if t.Logf("%s", r); !r.OK() {
		t.Error("there are problems")
	}
}

func start(t *testing.T) *demo.Cluster {
	t.Helper()
	kit := testkit.Clusters{Name: "smoke", Dir: t.TempDir(),
		Tune: func(n *config.Node) { n.Raft.LogSegment, n.Raft.LogMax = config.MiB, 2*config.MiB }}
	c := kit.Start(t, demo.Options{Nodes: 3})
	t.Cleanup(func() {
		testkit.ShowLogs(t, c)
		c.Kill()
	})
	return c
}

// goesOn waits until more writes have been acknowledged.
func goesOn(t *testing.T, w *verify.Workload, when string) {
	t.Helper()
	const more = 100
	before := w.Log().Counts().Acked
	poll(t, "writes "+when, func() error {
		if n := w.Log().Counts().Acked - before; n < more {
			return fmt.Errorf("%d of %d are acknowledged", n, more)
		}
		return nil
	})
}

// poll calls f until it returns nil.
func poll(t *testing.T, what string, f func() error) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; <-time.After(20 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
