package robustness

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/verify"
)

// TestShapes grows a cluster of two data nodes, a logger and a learner to 5 voters, and in its long form to 7 and 9,
// all the time under load. At each size as many voters as it bears are killed at once, the leader among them: writes go
// on. One more, and writes stop and say why; when it is back they go on by themselves. Nothing acknowledged is lost.
func TestShapes(t *testing.T) {
	t.Parallel()
	c := createShape(t,
		shape{nodes: 2, loggers: 1, learners: 1,
			tune: func(n *config.Node) { n.Router.HoldTimeout = config.Duration(time.Second) }})
	w := c.load(verify.Config{Writers: 2, Rate: steady()})
	for size := 3; ; size += 2 {
		began := time.Now()
		c.bearsTheLossOf(w, size/2)
		t.Logf("%d voters: %v", size, time.Since(began).Round(100*time.Millisecond))
		if size == 5 {
			c.loggerHandsOver(w)
		}
		if size == 9 || size == 5 && !needs.IsLong() {
			break
		}
		for i := range 2 {
			_, err := c.Add(t.Context(), fmt.Sprintf("l%d", size-1+i), config.RoleLogger)
			must(t, err)
		}
		for _, n := range c.Nodes() {
			c.joined(n)
		}
	}
	t.Logf("%s", c.check(w))
}

// bearsTheLossOf kills the leader and loggers, k voters together, then one more.
func (c *cluster) bearsTheLossOf(w *verify.Workload, k int) {
	c.t.Helper()
	leader, survivor := c.pair()
	loggers := c.loggers()
	victims, last := append([]*demo.Node{leader}, loggers[:k-1]...), loggers[k-1]
	term, at := c.view().Term, time.Now()
	for _, n := range victims {
		must(c.t, c.Signal(n, syscall.SIGKILL))
	}
	c.writesAfter(w, term)
	c.writesMore(w, 20)
	c.t.Logf("%d of %d voters killed, the leader among them: write gap %v", k, 2*k+1, w.Meter().LongestGap(at).Length().
		Round(time.Millisecond))

	c.KillDaemon(last)
	eventually(c.t, healLimit, "writes are refused", func() error {
		if v, err := c.seen(survivor); err != nil || v.Leader != "" {
			return fmt.Errorf("leader %q, %v", v.Leader, err)
		}
		return nil
	})
	// Polled: a node whose mysqld was just killed is shown as down for a moment.
	want := fmt.Sprintf("%d of %d", k, 2*k+1)
	eventually(c.t, steerLimit, "status says how many voters are up", func() error {
		if code, out := c.trireme(survivor, "status"); code != 3 || !strings.Contains(out, want) {
			return fmt.Errorf("exit code %d: %s", code, out)
		}
		return nil
	})
	c.refused(survivor, api.KindNoLeader, "switchover") // no leader, or it has closed writes
	if err := c.pingRouter(survivor); !refusesWrites(err) {
		c.t.Errorf("without a quorum the router says: %v", err)
	}
	c.start(last)
	c.leader()
	c.writesMore(w, 20)
	for _, n := range victims {
		c.KillDaemon(n) // reaps it, and waits for its mysqld
	}
	c.start(victims...)
	c.healthy()
}

// pair is the leader and the other data node with a vote.
func (c *cluster) pair() (leader, other *demo.Node) {
	c.t.Helper()
	leader = c.healthy()
	for _, n := range c.others(leader) {
		if n.Role == config.RoleVoter {
			other = n
		}
	}
	return leader, other
}

func (c *cluster) loggers() []*demo.Node {
	var out []*demo.Node
	for _, n := range c.Nodes() {
		if n.Role == config.RoleLogger {
			out = append(out, n)
		}
	}
	return out
}

// throughRouter is a login through the read-write port of one node.
func (c *cluster) throughRouter(n *demo.Node) verify.Login {
	l := c.Direct(n)
	l.Addr = verify.Fixed(fmt.Sprintf("127.0.0.1:%d", n.Ports.RW))
	return l
}

// pingRouter connects through the read-write port of one node.
func (c *cluster) pingRouter(n *demo.Node) error {
	c.t.Helper()
	l := c.throughRouter(n)
	db, err := l.Open("")
	must(c.t, err)
	defer db.Close()
	return db.PingContext(c.t.Context())
}

// loggerHandsOver makes a logger the only one that can win: the other data node is stopped while writes go on, then the
// leader dies. The logger that is elected opens nothing; once the data node goes on and has caught up, it is handed
// leadership.
func (c *cluster) loggerHandsOver(w *verify.Workload) {
	c.t.Helper()
	leader, other := c.pair()
	must(c.t, c.Signal(other, syscall.SIGSTOP))
	c.writesMore(w, 20)
	term := c.view().Term
	c.KillDaemon(leader)
	asked := c.loggers()[0]
	eventually(c.t, healLimit, "a logger is elected and keeps writes closed", func() error {
		v, err := c.seen(asked)
		if err != nil {
			return err
		}
		for _, m := range v.Members {
			if m.Role == api.RoleLogger && m.Raft.State == "leader" && m.Raft.Term > term && v.Leader == "" {
				return nil
			}
		}
		return errors.New("not yet")
	})
	must(c.t, c.Signal(other, syscall.SIGCONT))
	if now := c.failedOver(term); now != other {
		c.t.Errorf("%s leads, not %s", now.Name, other.Name)
	}
	c.writesMore(w, 20)
	c.start(leader)
	c.healthy()
}

// TestOneDataNode: with one data node and two loggers the loss of a logger stops nothing; without the data node there
// are no writes and no other leader, until it is back.
func TestOneDataNode(t *testing.T) {
	t.Parallel()
	c := create(t, 1, 2)
	w := c.load(verify.Config{Writers: 2, Rate: steady()})
	data, loggers := c.healthy(), c.loggers()
	at := time.Now()
	c.KillDaemon(loggers[0])
	c.writesMore(w, 50)
	t.Logf("a logger was killed: write gap %v", w.Meter().LongestGap(at).Length().Round(time.Millisecond))
	c.start(loggers[0])
	c.healthy()
	if f := result[api.ClusterView](c, data, 0, "status").Failover; f.To != "" || f.Problem == "" {
		t.Errorf("%+v", f)
	}

	c.KillDaemon(data)
	eventually(t, healLimit, "an elected logger keeps writes closed", func() error {
		v, err := c.seen(loggers[1])
		if err != nil || v.Leader != "" {
			return fmt.Errorf("leader %q, %v", v.Leader, err)
		}
		for _, m := range v.Members {
			if m.Role == api.RoleLogger && m.Raft.State == "leader" && m.Reason != "" {
				return nil
			}
		}
		return fmt.Errorf("%+v", v.Members)
	})
	c.says(loggers[1], 3, "status", data.Name) // as text
	c.start(data)
	c.writesMore(w, 20)
	t.Logf("%s", c.check(w))
}
