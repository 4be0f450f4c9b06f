package robustness

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/ops/demo"
	"trireme/lab/testkit"
	"trireme/lab/verify"
)

// TestStoppedLeader freezes the leader's daemon. The others must take over; before they do, the guard must have killed
// the mysqld, so that no client that is connected to it directly reads what is no longer so; and the frozen daemon must
// not serve when it wakes up.
func TestStoppedLeader(t *testing.T) {
	testkit.Quiet(t, "that the guard has killed mysqld by the time another node leads")
	c := lease(t)
	w := c.load(verify.Config{Writers: 16, Rate: steady()})
	leader := c.healthy()

	// The guard that will be needed is a second one: the first has died, which must do no harm.
	first := leader.GuardPID()
	must(t, syscall.Kill(first, syscall.SIGKILL))
	eventually(t, healLimit, "another guard", func() error {
		if pid := leader.GuardPID(); pid == 0 || pid == first {
			return errors.New("none")
		}
		return nil
	})
	c.writesMore(w, loadBeforeKill)
	if now := c.healthy(); now != leader {
		t.Fatalf("%s leads after the guard of %s was killed", now.Name, leader.Name)
	}

	direct := c.connect(leader)
	at := time.Now()
	must(t, c.Signal(leader, syscall.SIGSTOP))
	eventually(t, healLimit, "another leader", func() error {
		for _, n := range c.others(leader) {
			if ok, _ := c.isPrimary(n); ok {
				return nil
			}
		}
		return fmt.Errorf("none takes writes")
	})
	taken := time.Since(at)
	// It is killed before anybody can be elected: one election timeout after the last proof of leadership.
	if read(direct) == nil {
		t.Errorf("%s's mysqld still answers %v after its daemon was stopped, and another node takes writes", leader.Name,
			time.Since(at))
	}
	must(t, c.Signal(leader, syscall.SIGCONT))
	c.writesMore(w, 50)
	gap := w.Meter().LongestGap(at).Length()
	c.healthy()
	events, err := c.History(t.Context(), leader)
	must(t, err)
	if !slices.ContainsFunc(events, func(e api.Event) bool { return e.Kind == "guard" && e.Time.After(at) }) {
		t.Error("the history does not tell that the guard killed mysqld")
	}
	// A fence that says that mysqld has died has its reader look for a crash of MySQL.
	for _, e := range events {
		if e.Kind == "fence" && e.Time.After(at) && strings.Contains(e.Message, "mysqld died") {
			t.Errorf("the history does not give the reason for the fence: %s", e.Message)
		}
	}
	t.Logf("another leader after %v, write gap %v; %s", taken.Round(time.Millisecond), gap.Round(time.Millisecond),
		c.check(w))
}

// TestStuckMySQL stops the leader's mysqld, which stays alive: its daemon must find out, kill it and give leadership
// away. Before that, a server that turns logins away for as long must not be taken for one that hangs.
func TestStuckMySQL(t *testing.T) {
	t.Parallel()
	c := lease(t)
	w := c.load(verify.Config{Writers: 16, Rate: steady()})
	leader := c.healthy()
	before := c.view()
	c.writesMore(w, loadBeforeKill)

	full := c.exhaust(leader)
	for at := time.Now(); time.Since(at) < 7*time.Second; { // longer than a probe's limit of 5 s
		c.writesMore(w, 20)
	}
	full()
	if now := c.view(); now.Term != before.Term {
		t.Fatalf("too many connections on %s made %s leader of term %d", leader.Name, now.Leader, now.Term)
	}

	pid := leader.MySQLPID()
	at := time.Now()
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	c.writesAfter(w, before.Term)
	gap := w.Meter().LongestGap(at).Length()
	if now := c.healthy(); now == leader {
		t.Errorf("%s leads again although its mysqld was stopped", leader.Name)
	}
	if now := leader.MySQLPID(); now == pid {
		t.Errorf("the stopped mysqld %d still runs", pid)
	}
	if gap > 15*time.Second {
		t.Errorf("write gap of %v: a stopped mysqld is found within 6 s", gap)
	}
	t.Logf("write gap %v, all healthy after %v; %s", gap.Round(time.Millisecond), time.Since(at).
		Round(100*time.Millisecond), c.check(w))
}

// TestStoppedFollower stops a follower's mysqld, then its daemon too. The follower must be shown for what it is, the
// leader must go on with the other one and keep to its memory, and the follower must catch up when both go on, without
// a restart of its mysqld.
func TestStoppedFollower(t *testing.T) {
	t.Parallel()
	c := lease(t)
	w := c.load(verify.Config{Writers: 16, PayloadBytes: 4000, Rate: steady()})
	leader := c.healthy()
	victim := c.others(leader)[0]
	before := c.view()
	c.writesMore(w, loadBeforeKill)
	pid := victim.MySQLPID()
	at := time.Now()
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	eventually(t, healLimit, "the follower with a stopped mysqld is not called healthy", func() error {
		m := c.member(victim)
		if m.State == api.StateHealthy {
			return fmt.Errorf("%s: %s", m.State, m.Reason)
		}
		return nil
	})
	found := time.Since(at)
	must(t, c.Signal(victim, syscall.SIGSTOP))
	at = time.Now()
	memory := peakMemory(t, leader.DaemonPID())
	c.writesMore(w, 4*loadBeforeKill)
	gap := w.Meter().LongestGap(at).Length()
	if gap > 10*time.Second { // what a commit may take on a loaded machine; one that waits for the follower takes for ever
		t.Errorf("write gap of %v on the leader while a follower is stopped", gap)
	}
	grown := peakMemory(t, leader.DaemonPID()) - memory
	// queues to one peer: 64 MiB in the transport, 32 MiB in flight, twice while they are copied
	if limit := int64(256 << 20); grown > limit {
		t.Errorf("the leader's daemon grew by %d MiB", grown>>20)
	}
	must(t, c.Signal(victim, syscall.SIGCONT))
	must(t, syscall.Kill(pid, syscall.SIGCONT))
	if now := c.healthy(); now != leader || c.view().Term != before.Term {
		t.Errorf("leadership went from %s to %s because a follower was stopped", leader.Name, now.Name)
	}
	if now := victim.MySQLPID(); now != pid {
		t.Errorf("mysqld was restarted: %d became %d", pid, now)
	}
	t.Logf("seen as stuck after %v; while both were stopped: longest write gap %v, the leader's daemon grew by %d KiB; %s",
		found.Round(100*time.Millisecond), gap.Round(time.Millisecond), grown>>10, c.check(w))
}

// member is a node as the cluster shows it.
func (c *cluster) member(n *demo.Node) api.MemberView {
	c.t.Helper()
	for _, m := range c.view().Members {
		if m.Name == n.Name {
			return m
		}
	}
	c.t.Fatalf("%s is not shown", n.Name)
	return api.MemberView{}
}

// exhaust opens connections to a node's mysqld until it refuses one. The function that it returns closes them.
func (c *cluster) exhaust(n *demo.Node) func() {
	c.t.Helper()
	db, err := c.Direct(n).Open("")
	must(c.t, err)
	db.SetMaxOpenConns(0)
	for {
		if _, err = db.Conn(c.t.Context()); err != nil {
			break
		}
	}
	if !strings.Contains(err.Error(), "1040") {
		c.t.Fatalf("not refused for too many connections: %v", err)
	}
	return func() { _ = db.Close() }
}

// connect opens one connection to a node's own mysqld.
func (c *cluster) connect(n *demo.Node) *sql.Conn {
	c.t.Helper()
	db, err := c.Direct(n).Open("")
	must(c.t, err)
	c.t.Cleanup(func() { _ = db.Close() })
	conn, err := db.Conn(c.t.Context())
	must(c.t, err)
	must(c.t, read(conn))
	return conn
}

// read asks a server for anything; it has a second.
func read(conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var one int
	return conn.QueryRowContext(ctx, "SELECT 1").Scan(&one)
}
