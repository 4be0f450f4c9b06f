package robustness

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/failpoint"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/verify"
)

// command sends a line to a running daemon's failpoints and returns the answer.
func (c *cluster) command(n *demo.Node, line string) string {
	c.t.Helper()
	conn, err := net.DialTimeout("unix", filepath.Join(n.Dir, "failpoints.sock"), sqlLimit)
	must(c.t, err)
	defer conn.Close()
	must(c.t, conn.SetDeadline(time.Now().Add(sqlLimit)))
	_, err = fmt.Fprintln(conn, line)
	must(c.t, err)
	in := bufio.NewScanner(conn)
	if !in.Scan() || strings.HasPrefix(in.Text(), "error") {
		c.t.Fatalf("%s: %q is answered with %q, %v", n.Name, line, in.Text(), in.Err())
	}
	return in.Text()
}

// armStart arms a point for the next start of a daemon.
func (c *cluster) armStart(n *demo.Node, spec string) {
	c.t.Helper()
	must(c.t, os.WriteFile(filepath.Join(n.Dir, "failpoints"), []byte(spec), 0o600))
}

// fired counts what has happened at a node's points.
func (c *cluster) fired(n *demo.Node) int {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(n.Dir, "failpoints.fired"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

// provokeAgain is when what should have led a node to its point is tried once more: a switchover may have been refused
// meanwhile.
const provokeAgain = 15 * time.Second

// awaitFired waits until something has happened at a node's points since before, and provokes it if need be. A daemon
// that was killed there is gone then.
func (c *cluster) awaitFired(n *demo.Node, before int, spec string, provoke func(*cluster, *demo.Node) error) {
	c.t.Helper()
	var next time.Time
	last := errors.New("nothing was done about it")
	eventually(c.t, healLimit, n.Name+" comes to "+spec, func() error {
		if c.fired(n) > before {
			return nil
		}
		if provoke != nil && time.Now().After(next) {
			last = provoke(c, n)
			next = time.Now().Add(provokeAgain)
		}
		return fmt.Errorf("it did not; provoked: %w", last)
	})
	if !strings.Contains(spec, "=kill@") {
		return
	}
	eventually(c.t, healLimit, n.Name+" is killed at "+spec, func() error {
		if n.DaemonPID() != 0 {
			return errors.New("it runs")
		}
		return nil
	})
}

// way leads one node after the other, or one again and again, to points: the daemon is killed at each, and comes back
// by itself.
type way struct {
	what   string
	leader bool // the leader is led there; else a follower
	// points in the order in which they are armed, each in the start after the one before; "@N" is the hit. Of a way
	// that does not lead there again by itself each is a way of its own.
	points []string
	apart  bool // each point is provoked again, on the node that has the role then
	// offline leaves the victim dead, and in such a state that its next start leads to the points.
	offline func(c *cluster, victim *demo.Node)
	// provoke makes a running victim come to the first point; nil: the load does.
	provoke func(c *cluster, victim *demo.Node) error
	mixed   bool // with DDL, account statements and XA, of which kills leave some unfinished: the log is not purged then
	short   bool // in the short run too
}

var ways = []way{
	{what: "leader, before and in the log", mixed: true, leader: true, apart: true,
		points: []string{"source.event-read@50", "source.batch-cut@20", "source.before-propose@20",
			"raft.before-send@50", "raft.before-append@30", "raft.before-respond@20", "log.before-write@20", "log.after-sync@20",
			"raft.before-apply@20", "raft.after-apply@20"}},
	{what: "leader, where an answer hangs on it", leader: true, apart: true, short: true,
		points: []string{"source.after-propose@20", "log.after-write@20",
			"ack.before@20", "ack.after@20"}},
	{what: "follower's log", mixed: true, points: []string{"raft.before-append@20", "log.before-write@20",
		"raft.before-respond@20", "raft.before-apply@20"}},
	{what: "follower's log, written and not told", short: true, points: []string{"log.after-write@20", "log.after-sync@20",
		"raft.after-apply@20"}},
	{what: "feed", mixed: true, points: []string{"feed.before-trx@20", "feed.after-trx@20", "feed.after-flush@5"}},
	{what: "vote", apart: true, provoke: switchAway, points: []string{"state.before-write", "state.after-write",
		"state.after-sync"}},
	{what: "rotation", points: []string{"spare.before-sync", "spare.after-sync", "rotate.before-seal", "rotate.after-seal",
		"rotate.after-cut", "rotate.after-header", "rotate.after-new", "rotate.after-rename", "rotate.before-state",
		"index.before-write", "index.after-write"}},
	{what: "leader's rotation", leader: true, apart: true, points: []string{"spare.after-sync", "rotate.after-cut",
		"rotate.after-header", "rotate.after-rename"}},
	{what: "purge", points: []string{"purge.before-state", "purge.after-state", "purge.after-segment"}},
	{what: "conflicting tail", leader: true, offline: leaveTail, points: []string{"truncate.before-watermark",
		"truncate.after-watermark", "truncate.before-file", "truncate.after-file"}},
	{what: "snapshot", offline: fallBehind, points: []string{"reset.before-segment", "reset.after-segment",
		"reset.after-state", "reset.before-rename", "reset.before-done"}},
	{what: "durable index", points: []string{"durable.before-flush", "durable.after-flush", "file.before-rename@3",
		"file.after-rename@3", "durable.after-persist"}},
	{what: "leader's durable index", leader: true, apart: true,
		points: []string{"durable.after-flush", "file.before-rename"}},
	{what: "start of mysqld", mixed: true, provoke: crashWithHole, points: []string{"server.incarnation-persisted",
		"server.binlog-deleted", "server.files-written", "server.started", "judge.before-plug", "judge.after-plug",
		"judge.after-feed"}},
	{what: "promotion", apart: true, provoke: switchTo, points: []string{"promote.begin", "promote.semisync-on",
		"promote.before-barrier", "promote.before-open"}},
	{what: "promotion, committed", apart: true, short: true, provoke: switchTo,
		points: []string{"promote.after-barrier", "promote.after-open"}},
	{what: "fence", leader: true, apart: true, provoke: loseQuorum,
		points: []string{"fence.begin", "drain.before-read-only", "fence.before-kill"}},
	{what: "switchover", leader: true, apart: true, provoke: switchAway,
		points: []string{"switchover.begin", "switchover.before-close", "drain.after-read-only",
			"drain.after-cut", "drain.done", "switchover.drained", "switchover.before-transfer", "switchover.after-transfer",
			"retire.before-persist", "retire.after-persist", "retire.done"}},
	{what: "routes", leader: true, points: []string{"routes.before-view@20"}},
	{what: "seeding, the old data is there", apart: true, provoke: reinit, points: []string{"seed.begin", "seed.forgotten",
		"seed.receiver-up"}},
	{what: "seeding, the old data is gone", provoke: reinit, points: []string{"seed.discarded", "seed.copying",
		"seed.copied", "seed.confirmed", "seed.done"}},
	{what: "membership, leader", leader: true, apart: true, provoke: demoteOther,
		points: []string{"conf.before-propose", "conf.after-apply"}},
	{what: "membership, follower", apart: true, provoke: demoteOther,
		points: []string{"conf.after-apply", "conf.after-persist", "settings.before-save"}},
}

// TestFailpointWays: every point is on a way, with a hit that makes sense.
func TestFailpointWays(t *testing.T) {
	led := map[string]bool{"leave.prepared": true} // TestLeaveWithoutItsLeader
	for _, w := range ways {
		for _, p := range w.points {
			name, _, _ := strings.Cut(p, "@")
			led[name] = true
		}
	}
	for _, p := range failpoint.Points {
		if !led[p.Name] {
			t.Errorf("no test leads a node to %s", p.Name)
		}
		delete(led, p.Name)
	}
	for name := range led {
		t.Errorf("there is no point %s", name)
	}
}

// TestFailpoints kills daemons at labelled points under load: between any two steps of a commit and of everything that
// changes what is on disk. Each comes back by itself; nothing is lost or doubled, and all nodes are equal in the end.
// The long run leads to all points.
func TestFailpoints(t *testing.T) {
	t.Parallel()
	c := leaseTagged(t)
	var w *verify.Workload
	mixed := false // of w
	kills, unchecked := 0, 0
	check := func() {
		t.Logf("%d kills until here: %s", kills, c.check(w))
		w, unchecked = nil, 0
	}
	for _, v := range slices.SortedStableFunc(slices.Values(ways), byLoad) {
		if !v.short && !needs.IsLong() {
			continue
		}
		if w != nil && v.mixed != mixed {
			check()
		}
		if w == nil {
			mixed = v.mixed
			w = c.load(verify.Config{Writers: 8, Rate: 10, PayloadBytes: 4000, Mixed: mixed})
		}
		t.Run(v.what, func(t *testing.T) {
			sub := &cluster{Cluster: c.Cluster, t: t}
			sub.goWay(v, w)
			kills += len(v.points)
			unchecked += len(v.points)
		})
		if unchecked >= pointsPerCheck {
			check()
		}
	}
	if w != nil {
		check()
	}
}

// byLoad: a change of the load is a check.
func byLoad(a, b way) int {
	switch {
	case a.mixed == b.mixed:
		return 0
	case a.mixed:
		return 1
	}
	return -1
}

// pointsPerCheck: the more are between two checks, the quicker it is, and the less a finding tells.
const pointsPerCheck = 15

// goWay leads victims to the points of one way.
func (c *cluster) goWay(v way, w *verify.Workload) {
	c.t.Helper()
	if !v.apart {
		c.leadChain(v, w, v.points)
		return
	}
	for _, p := range v.points {
		c.leadChain(v, w, []string{p})
	}
}

// leadChain kills one victim at one point after the other, and waits until all are healthy and write.
func (c *cluster) leadChain(v way, w *verify.Workload, points []string) {
	c.t.Helper()
	must(c.t, c.StartAll()) // a way before this one may have failed
	victim := c.healthy()
	if !v.leader {
		victim = c.others(victim)[0]
	}
	c.writesMore(w, 20)
	if v.offline != nil {
		v.offline(c, victim)
	}
	began := time.Now()
	for i, p := range points {
		name, hit, _ := strings.Cut(p, "@")
		spec := name + "=kill@" + cmp.Or(hit, "1")
		before, provoke := c.fired(victim), v.provoke
		if i > 0 || v.offline != nil {
			c.armStart(victim, spec)
			c.start(victim)
			provoke = nil
		} else {
			c.command(victim, "arm "+spec)
		}
		c.awaitFired(victim, before, spec, provoke)
	}
	must(c.t, c.StartAll())
	c.healthy()
	c.allVote()
	c.writesMore(w, 20)
	c.t.Logf("%s was killed at %s; all healthy and writing %v after the first was armed", victim.Name,
		strings.Join(points, ", then "), time.Since(began).Round(100*time.Millisecond))
}

// switchAway asks for a switchover.
func switchAway(c *cluster, victim *demo.Node) error { return c.ask(victim, "switchover") }

// switchTo asks for a switchover to the victim.
func switchTo(c *cluster, victim *demo.Node) error {
	return c.ask(c.another(victim), "switchover --to "+victim.Name)
}

// reinit throws the victim's data away.
func reinit(c *cluster, victim *demo.Node) error {
	return c.ask(c.another(victim), "reinit --yes "+victim.Name)
}

// demoteOther takes the vote of a follower that is not the victim. allVote gives it back.
func demoteOther(c *cluster, victim *demo.Node) error {
	v, err := c.View(c.t.Context())
	for _, n := range c.others(victim) {
		if err == nil && n.Name != v.Leader {
			return c.ask(n, "demote "+n.Name)
		}
	}
	return err
}

// ask runs a command that may fail, because somebody is killed on the way.
func (c *cluster) ask(n *demo.Node, args string) error {
	code, out := c.trireme(n, strings.Fields(args)...)
	return fmt.Errorf("trireme %s: exit code %d: %s", args, code, out)
}

// another is any node but one.
func (c *cluster) another(than *demo.Node) *demo.Node { return c.others(than)[0] }

// leaveTail leaves the victim, the leader, dead with entries that no other node has, and the others in a later term.
func leaveTail(c *cluster, victim *demo.Node) {
	before := c.view().Term
	others := c.others(victim)
	for _, n := range others {
		must(c.t, c.Signal(n, syscall.SIGKILL))
	}
	for _, n := range others {
		c.KillDaemon(n)
	}
	eventually(c.t, healLimit, victim.Name+" has no quorum", func() error {
		v, err := c.seen(victim)
		if err == nil && v.Leader != "" {
			err = fmt.Errorf("leader %q", v.Leader)
		}
		return err
	})
	c.KillDaemon(victim)
	c.start(others...)
	c.failedOver(before)
}

// fallBehind leaves the victim dead until it lacks what the others' logs have purged.
func fallBehind(c *cluster, victim *demo.Node) {
	c.says(c.leader(), 0, "demote "+victim.Name) // a voter would hold up the purge
	last := c.view().CommitIndex
	c.KillDaemon(victim)
	c.purged(last)
}

// crashWithHole kills the victim's mysqld, which has lost the trace of an XA PREPARE then.
func crashWithHole(c *cluster, victim *demo.Node) error {
	c.healthy()
	s := c.session(c.leader())
	s.exec("CREATE DATABASE IF NOT EXISTS hole", "CREATE TABLE IF NOT EXISTS hole.t (id INT AUTO_INCREMENT PRIMARY KEY)",
		"XA START 'hole'", "INSERT INTO hole.t VALUES ()", "XA END 'hole'", "XA PREPARE 'hole'", "XA COMMIT 'hole'")
	s.close()
	last := c.view().CommitIndex
	c.shows(victim, victim.Name, "has applied it", func(m api.MemberView) bool { return m.Raft.Applied >= last })
	c.KillMySQL(victim)
	return errors.New("its mysqld was killed")
}

// loseQuorum kills the followers: the victim's lease runs out, while sessions wait.
func loseQuorum(c *cluster, victim *demo.Node) error {
	for _, n := range c.others(victim) {
		must(c.t, c.Signal(n, syscall.SIGKILL))
	}
	for _, n := range c.others(victim) {
		c.KillDaemon(n)
	}
	return errors.New("its followers were killed")
}

// allVote sees to it that all are voters.
func (c *cluster) allVote() {
	c.t.Helper()
	eventually(c.t, healLimit, "all vote", func() error {
		for _, m := range c.view().Members {
			if m.Raft.Voter && m.Role != api.RoleLearner {
				continue
			}
			_, out := c.trireme(c.leader(), "promote", m.Name)
			return fmt.Errorf("%s has no vote; %s", m.Name, out)
		}
		return nil
	})
}
