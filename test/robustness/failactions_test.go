package robustness

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/verify"
)

// deed is what else than the daemon's death can happen at a point.
type deed struct {
	spec    string
	leader  bool // it happens to the leader; else to a follower
	provoke func(c *cluster, victim *demo.Node) error
	// then is what follows; nil: all heal by themselves. term is that from before.
	then func(c *cluster, victim *demo.Node, term uint64)
}

var deeds = []deed{
	{spec: "source.after-propose=kill-mysqld@20", leader: true},
	{spec: "ack.before=stop@20", leader: true, then: goOn},
	{spec: "promote.before-open=stop", provoke: switchTo, then: goOn},
	{spec: "promote.before-open=error", provoke: switchTo},
	{spec: "promote.after-open=stop", provoke: switchTo, then: goOn},
	{spec: "log.after-write=error@20", then: ends},
	{spec: "switchover.drained=error", leader: true, provoke: switchAway, then: stays},
}

// TestFailpointActions makes mysqld die, the daemon stop, wait or fail at points where that matters. All heals, and
// nothing is lost.
func TestFailpointActions(t *testing.T) {
	needs.Long(t)
	t.Parallel()
	c := leaseTagged(t)
	w := c.load(verify.Config{Writers: 8, Rate: 10})
	for _, d := range deeds {
		t.Run(strings.ReplaceAll(d.spec, "=", " "), func(t *testing.T) {
			sub := &cluster{Cluster: c.Cluster, t: t}
			sub.carryOut(d, w)
		})
	}
	t.Run("routes.before-view pause", func(t *testing.T) { (&cluster{Cluster: c.Cluster, t: t}).oldView() })
	t.Log(c.check(w))
}

// TestLateJudgement: a judgement that fails when replication runs already is done again, on the same mysqld.
func TestLateJudgement(t *testing.T) {
	t.Parallel()
	c := leaseTagged(t)
	w := c.load(verify.Config{Writers: 2, Rate: 10})
	provoke := func(_ *cluster, victim *demo.Node) error { return syscall.Kill(victim.MySQLPID(), syscall.SIGKILL) }
	c.carryOut(deed{spec: "judge.after-feed=error", provoke: provoke, then: func(c *cluster, victim *demo.Node, _ uint64) {
		pid := victim.MySQLPID()
		c.healthy()
		if now := victim.MySQLPID(); now != pid {
			c.t.Errorf("mysqld %d was replaced by %d", pid, now)
		}
	}}, w)
	c.t.Log(c.check(w))
}

func (c *cluster) carryOut(d deed, w *verify.Workload) {
	c.t.Helper()
	victim := c.healthy()
	if !d.leader {
		victim = c.others(victim)[0]
	}
	c.writesMore(w, 20)
	term, before, at := c.view().Term, c.fired(victim), time.Now()
	c.command(victim, "arm "+d.spec)
	pid := victim.MySQLPID()
	c.awaitFired(victim, before, d.spec, d.provoke)
	if strings.Contains(d.spec, "=kill-mysqld") {
		eventually(c.t, healLimit, victim.Name+"'s mysqld is another", func() error {
			if now := victim.MySQLPID(); now == 0 || now == pid {
				return fmt.Errorf("it is process %d, before it was %d", now, pid)
			}
			return nil
		})
	}
	if d.then != nil {
		d.then(c, victim, term)
	}
	c.writesMore(w, 20)
	c.healthy()
	c.writesMore(w, 20)
	c.t.Logf("%s; term %d became %d; longest write gap %v; all healthy after %v", victim.Name, term, c.view().Term,
		w.Meter().LongestGap(at).Length().Round(time.Millisecond), time.Since(at).Round(100*time.Millisecond))
}

// goOn continues a stopped daemon when another node has taken over.
func goOn(c *cluster, victim *demo.Node, _ uint64) {
	eventually(c.t, healLimit, "another node takes writes", func() error {
		for _, n := range c.others(victim) {
			if ok, _ := c.isPrimary(n); ok {
				return nil
			}
		}
		return errors.New("none does")
	})
	must(c.t, c.Signal(victim, syscall.SIGCONT))
}

// ends waits until the victim's daemon has ended by itself, as one does whose disk has failed, and starts it again.
func ends(c *cluster, victim *demo.Node, _ uint64) {
	eventually(c.t, healLimit, victim.Name+"'s daemon ends", func() error {
		if victim.DaemonPID() != 0 {
			return errors.New("it runs")
		}
		return nil
	})
	c.start(victim)
}

// stays expects that the same node goes on in the same term.
func stays(c *cluster, victim *demo.Node, term uint64) {
	if now := c.healthy(); now != victim || c.view().Term != term {
		c.t.Errorf("%s leads term %d, before it was %s in term %d", now.Name, c.view().Term, victim.Name, term)
	}
}
