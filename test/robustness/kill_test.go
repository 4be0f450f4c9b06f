package robustness

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/ops/demo"
	"trireme/lab/bench"
	"trireme/lab/verify"
)

const loadBeforeKill = 150 // writes acknowledged before each kill

// gaps collects write gaps and prints them.
type gaps []time.Duration

func (g gaps) String() string {
	if len(g) == 0 {
		return "none"
	}
	s := slices.Sorted(slices.Values(g))
	return fmt.Sprintf("median %v, longest %v of %d", s[len(s)/2].Round(time.Millisecond),
		s[len(s)-1].Round(time.Millisecond), len(s))
}

// kills of the leader: what is killed, and whether its daemon must be started again.
var leaderKills = []struct {
	name    string
	kill    func(*cluster, *demo.Node)
	restart bool
}{
	{"mysqld", (*cluster).crash, false},
	{"daemon", func(c *cluster, n *demo.Node) { c.KillDaemon(n) }, true},
	{"both", func(c *cluster, n *demo.Node) {
		c.KillMySQL(n)
		c.KillDaemon(n)
	}, true},
}

// TestKillLeader kills the leader's mysqld, daemon, or both, round after round, under 32 writers and a mix of DDL,
// accounts, transfers and XA. Every ex-leader must come back as a healthy follower by itself, nothing acknowledged may
// be lost.
func TestKillLeader(t *testing.T) {
	t.Parallel()
	c := lease(t)
	w := c.load(verify.Config{Writers: 32, Mixed: true, Rate: steady()})
	n := rounds(t, 3, 20)
	seen := map[string]gaps{}
	moved := 0
	for i := range n {
		victim := c.healthy()
		c.writesMore(w, loadBeforeKill)
		how := leaderKills[i%len(leaderKills)]
		before := c.view()
		at := time.Now()
		how.kill(c, victim)
		if how.restart {
			c.start(victim)
		}
		c.writesAfter(w, before.Term)
		leader := c.healthy()
		gap := w.Meter().LongestGap(at).Length()
		if leader != victim {
			moved++
		}
		seen[how.name] = append(seen[how.name], gap)
		t.Logf("round %d: killed %s of %s, write gap %v, %s leads, all healthy after %v", i+1, how.name, victim.Name,
			gap.Round(time.Millisecond), leader.Name, time.Since(at).Round(100*time.Millisecond))
	}
	r := c.check(w)
	t.Logf("%d rounds, leadership moved in %d: %s", n, moved, r)
	for _, k := range leaderKills {
		t.Logf("write gap, %s killed: %v", k.name, seen[k.name])
	}
}

// TestKillFollower kills followers under load; the leader must not stop.
func TestKillFollower(t *testing.T) {
	t.Parallel()
	c := lease(t)
	w := c.load(verify.Config{Writers: 16, Mixed: true, Rate: steady()})
	for i := range rounds(t, 2, 12) {
		leader := c.healthy()
		victim := c.others(leader)[i%2]
		c.writesMore(w, loadBeforeKill)
		at := time.Now()
		how := leaderKills[i%len(leaderKills)]
		how.kill(c, victim)
		c.writesMore(w, loadBeforeKill)
		if how.restart {
			c.start(victim)
		}
		now := c.healthy()
		if now != leader {
			t.Errorf("round %d: leadership went from %s to %s because a follower's %s was killed", i+1, leader.Name, now.Name,
				how.name)
		}
		t.Logf("round %d: killed %s of follower %s, longest write gap %v", i+1, how.name, victim.Name, w.Meter().
			LongestGap(at).Length().Round(time.Millisecond))
	}
	t.Logf("%s", c.check(w))
}

// TestKillEverything kills every daemon, and with them every mysqld, at the same moment under load, and starts all
// again; then it ends all by SIGTERM, and starts the last leader last. Starts and what follows them take most of its
// half a minute.
func TestKillEverything(t *testing.T) {
	t.Parallel()
	c := lease(t)
	w := c.load(verify.Config{Writers: 16, Mixed: true, Rate: steady()})
	n := rounds(t, 1, 5)
	for i := range n {
		c.healthy()
		c.writesMore(w, loadBeforeKill)
		killed := time.Now()
		c.KillAll()
		at := time.Now()
		must(t, c.StartAll())
		c.writesMore(w, 10)
		if e := c.change(c.healthy(), c.view().Term); e.Kind != "failover" || e.GapMS < 100 ||
			e.GapMS > float64(time.Since(killed).Milliseconds()+10_000) {
			t.Errorf("all daemons were killed %v ago, and the history says %+v", time.Since(killed), e)
		}
		t.Logf("round %d: writes again %v after the start of all", i+1, time.Since(at).Round(100*time.Millisecond))
	}
	leader := c.healthy()
	c.writesMore(w, loadBeforeKill)
	must(t, w.Stop())
	begin := time.Now()
	c.StopAll()
	for _, n := range c.Nodes() {
		if n.DaemonPID() != 0 {
			t.Fatalf("%s still runs after SIGTERM and SIGKILL", n.Name)
		}
	}
	t.Logf("all ended after %v", time.Since(begin).Round(100*time.Millisecond))
	begin = time.Now()
	c.start(c.others(leader)...)
	c.start(leader)
	c.healthy()
	t.Logf("all healthy %v after the start: %s", time.Since(begin).Round(100*time.Millisecond), c.check(w))
}

// TestSwitchover moves leadership to each node under load, and at last has the leader's daemon hand it over when
// SIGTERM ends it.
func TestSwitchover(t *testing.T) {
	t.Parallel()
	c := lease(t)
	w := c.load(verify.Config{Writers: 16, Mixed: true, Rate: steady()})
	var seen gaps
	for range rounds(t, 1, 10) {
		for _, to := range c.DataNodes() {
			from := c.healthy()
			if from == to {
				continue
			}
			c.writesMore(w, loadBeforeKill)
			before := w.Log().Counts()
			var at time.Time
			var res api.SwitchoverResult
			// refused while it lags much, which load can cause
			eventually(t, healLimit, to.Name+" takes over", func() (err error) {
				at = time.Now()
				res, err = c.Switchover(t.Context(), to.Name)
				return err
			})
			if res.To != to.Name {
				t.Fatalf("asked for %s, got %+v", to.Name, res)
			}
			c.writesMore(w, 50)
			if now := c.healthy(); now != to {
				t.Fatalf("%s leads after a switchover to %s", now.Name, to.Name)
			}
			gap := w.Meter().LongestGap(at).Length()
			seen = append(seen, gap)
			after := w.Log().Counts()
			t.Logf("%s to %s: write gap %v, of which the daemons saw %.0f ms; %d writes refused, %d without an answer",
				from.Name, to.Name, gap.Round(time.Millisecond), res.WriteGapMS, after.Failed-before.Failed,
				after.Unknown-before.Unknown)
		}
	}
	c.stopLeader(w)
	t.Logf("write gap: %v; %s", seen, c.check(w))
}

// stopLeader ends the leader's daemon by SIGTERM: it hands over first, and does not wait for connections that no client
// uses, for which mysqld has a patience of 10 s.
func (c *cluster) stopLeader(w *verify.Workload) {
	c.t.Helper()
	leader := c.healthy()
	c.writesMore(w, loadBeforeKill)
	at, lost := time.Now(), bench.StolenCPU()
	if !c.StopDaemon(leader) {
		c.t.Error("SIGTERM did not end the daemon within its limit")
	}
	ended := time.Since(at)
	if lost = bench.StolenCPU() - lost; ended-lost > 9*time.Second {
		c.t.Errorf("SIGTERM took %v to end the daemon, of which the hypervisor took %v of CPU time away", ended, lost)
	}
	c.writesMore(w, 50)
	gap := w.Meter().LongestGap(at).Length()
	c.start(leader)
	if now := c.healthy(); now == leader {
		c.t.Errorf("%s leads again although it was ended", leader.Name)
	}
	c.t.Logf("daemon ended after %v, write gap %v", ended.Round(time.Millisecond), gap.Round(time.Millisecond))
}

// isPrimary asks a node's health check.
func (c *cluster) isPrimary(n *demo.Node) (bool, error) {
	cl := c.Client(n)
	defer cl.Close()
	ok, _, err := cl.Check(c.t.Context(), "/primary")
	return ok, err
}
