package robustness

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/verify"
)

// TestLogLimit: a data node that is away makes the logs of the others grow up to raft.log_limit. With two data nodes
// and a logger S8 needs all of it: writes are refused, loudly, and go on by themselves when the node is back. In the
// long form there is a third data node: the one that is away is given up, writes go on, and it is seeded when it comes
// back. The short form takes half a minute: 24 MiB have to be written, slowly.
func TestLogLimit(t *testing.T) {
	t.Parallel()
	c := createShape(t, shape{nodes: 2, loggers: 1, tune: func(n *config.Node) {
		n.Raft.LogLimit = 24 * config.MiB
		n.Router.HoldTimeout = config.Duration(time.Second)
	}})
	w := c.load(verify.Config{Writers: 2, Rate: steady()})
	c.notWhole()
	leader, other := c.pair()
	logger := c.loggers()[0]

	c.KillDaemon(other)
	grown, err := c.grow(logger, 60)
	if err == nil {
		t.Fatal("60 MiB were written, the limit is 24 MiB")
	}
	t.Logf("refused after %d MiB: %v", grown, err)
	eventually(t, steerLimit, "status says why", func() error {
		code, out := c.trireme(leader, "status")
		for _, want := range []string{"raft.log_limit", "24MiB", other.Name} {
			if code != 3 || !strings.Contains(out, want) {
				return fmt.Errorf("exit code %d, no %q: %s", code, want, out)
			}
		}
		for _, m := range c.view().Members {
			if m.Name == leader.Name && strings.Contains(m.Raft.LogPinned, other.Name) {
				return nil
			}
		}
		return errors.New("no node's log is pinned")
	})
	if err := c.pingRouter(logger); !refusesWrites(err) {
		t.Errorf("the router says: %v", err)
	}
	for _, n := range []*demo.Node{leader, logger} {
		if got := c.shows(leader, n.Name, "has a log", func(api.MemberView) bool { return true }).Raft.LogBytes; got > 30<<20 {
			t.Errorf("the log of %s has %d MiB", n.Name, got>>20)
		}
	}
	c.start(other)
	c.leader()
	c.writesMore(w, 20)
	c.healthy()
	if c.copies(other) != 0 {
		t.Errorf("%s was seeded although the log was kept for it", other.Name)
	}

	t.Run("third data node", func(t *testing.T) {
		needs.Long(t)
		(&cluster{Cluster: c.Cluster, t: t}).givesUp(logger)
	})
	t.Logf("%s", c.check(w))
}

// givesUp adds a third data node, which is given up when it is away, and seeded.
func (c *cluster) givesUp(logger *demo.Node) {
	t := c.t
	t.Helper()
	third, err := c.Add(t.Context(), "n3", config.RoleVoter)
	must(t, err)
	c.joined(third)
	c.healthy()
	before := c.copies(third)
	c.KillDaemon(third)
	if _, err := c.grow(logger, 40); err != nil {
		t.Fatalf("with three data nodes: %v", err)
	}
	eventually(t, steerLimit, "it is told who was given up", func() error {
		return c.tells(c.leader(), "data nodes that are away are given up and will be seeded")
	})
	c.start(third)
	c.joined(third)
	if got := c.copies(third) - before; got != 1 {
		t.Errorf("%s was seeded %d times", third.Name, got)
	}
}

// growPause: a load of 3 MiB/s at most. The bound is looked at once a second, so a log is beyond it by what is written
// in that time. What a recovery may still need follows the load by up to 4 s (the durable index, its broadcast): the
// limit must be well above 12 MiB.
const growPause = 300 * time.Millisecond

// grow writes through one node's router until an error, or until there are that many MiB.
func (c *cluster) grow(n *demo.Node, mib int) (written int, err error) {
	l := c.throughRouter(n)
	db, err := l.Open("")
	if err != nil {
		return 0, err
	}
	defer db.Close()
	for _, q := range []string{"CREATE DATABASE IF NOT EXISTS grow",
		"CREATE TABLE IF NOT EXISTS grow.t (id INT AUTO_INCREMENT PRIMARY KEY, v LONGBLOB)"} {
		if _, err := db.ExecContext(c.t.Context(), q); err != nil {
			return 0, err
		}
	}
	for ; written < mib; written++ {
		if _, err := db.ExecContext(c.t.Context(), "INSERT INTO grow.t (v) VALUES (REPEAT(RANDOM_BYTES(1024), 1024))"); err != nil {
			return written, err
		}
		<-time.After(growPause)
	}
	return written, nil
}
