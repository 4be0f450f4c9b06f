package robustness

import (
	"os"
	"path/filepath"
	"testing"

	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/testkit"
	"trireme/lab/verify"
)

// TestMixedVersions: a cluster of the last release becomes one of this build, node by node, and goes back. In between
// either kind leads and follows the other, is elected, and reads the data directories, logs and settings that the
// other has written. It takes minutes: six restarts, two of them of leaders, and four failovers, each with all nodes
// healthy after it.
func TestMixedVersions(t *testing.T) {
	needs.Long(t)
	t.Parallel()
	needMySQL(t)
	before, release := testkit.Previous(t)
	now := testkit.Program(t, testkit.Next)
	installed := filepath.Join(t.TempDir(), "trireme")
	must(t, os.Symlink(before, installed))
	c := createShape(t, shape{nodes: 3, binary: installed})
	c.healthy()
	w := c.load(verify.Config{Writers: 4, Rate: 20, Mixed: true})
	c.writesMore(w, 50)
	programs := map[*demo.Node]string{}
	start := func(n *demo.Node) {
		t.Helper()
		must(t, os.Remove(installed))
		must(t, os.Symlink(programs[n], installed))
		c.start(n)
		c.healthy()
	}
	install := func(n *demo.Node, program, version string) {
		t.Helper()
		t.Logf("%s gets %s", n.Name, version)
		if !c.StopDaemon(n) {
			t.Fatalf("the daemon of %s does not end", n.Name)
		}
		programs[n] = program
		start(n)
		for _, m := range c.view().Members {
			if m.Name == n.Name && m.Daemon.Version != version {
				t.Errorf("%s runs %s, not %s", n.Name, m.Daemon.Version, version)
			}
		}
		c.writesMore(w, 50)
	}
	// leads makes a node the leader, which changes a setting and loses its daemon: the others elect one of theirs.
	leads := func(n *demo.Node, limit string) {
		t.Helper()
		c.lead(n)
		t.Logf("%s leads", n.Name)
		c.writesMore(w, 50)
		c.says(n, 0, "config edit transaction_warn="+limit, limit)
		was := c.view().Term
		c.KillDaemon(n)
		c.failedOver(was)
		c.writesMore(w, 50)
		start(n)
	}
	for _, n := range c.Nodes() {
		programs[n] = before
	}
	n1, n2, n3 := c.Nodes()[0], c.Nodes()[1], c.Nodes()[2]
	install(n1, now, testkit.NextVersion)
	leads(n1, "10MiB") // the new one, with followers from before
	leads(n2, "20MiB") // the other way round
	install(n2, now, testkit.NextVersion)
	install(n3, now, testkit.NextVersion)
	leads(n3, "30MiB")
	for _, n := range c.Nodes() {
		install(n, before, release.Name)
	}
	leads(n1, "40MiB")
	c.check(w)
}
