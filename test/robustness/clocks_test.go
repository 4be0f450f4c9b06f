package robustness

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/verify"
)

// clockFaults are what CLOCK_BOOTTIME never does, but for the jump ahead of a machine that was suspended, and more than
// a host's clock is ever off by.
var clockFaults = []struct{ what, command, undo string }{
	{"jumps 3 h ahead", "clock jump 3h", ""},
	{"jumps 2 h back and, later, ahead again", "clock jump -2h", "clock jump 2h"},
	{"runs a tenth too fast", "clock rate 1.1", "clock rate 1"},
	{"runs a tenth too slow", "clock rate 0.9", "clock rate 1"},
}

// settle is how long a clock that runs wrong is left so: some leases.
const settle = 3 * time.Second

// TestClocks lets the clock of the leader, of a follower and of all nodes at once jump by hours and run wrong, daemon
// and guard alike. Never do two nodes say that they take writes, writes go on, and nothing is lost. See
// docs/ops/failures.md for what happens to whom.
func TestClocks(t *testing.T) {
	t.Parallel()
	c := leaseTagged(t)
	w := c.load(verify.Config{Writers: 8, Rate: 10})
	defer c.oneLeader()()
	for _, who := range []string{"the leader", "a follower", "all nodes"} {
		for _, f := range clockFaults {
			if !needs.IsLong() && who != "the leader" {
				continue
			}
			leader := c.healthy()
			nodes := map[string][]*demo.Node{"the leader": {leader}, "a follower": c.others(leader)[:1],
				"all nodes": c.Nodes()}[who]
			c.writesMore(w, 20)
			before, at := c.view(), time.Now()
			for _, n := range nodes {
				c.command(n, f.command)
			}
			c.writesMore(w, 20)
			if f.undo != "" {
				end := time.Now().Add(settle)
				eventually(t, healLimit, "it has run like that for a time", func() error {
					if time.Now().Before(end) {
						return errors.New("not yet")
					}
					return nil
				})
				for _, n := range nodes {
					c.command(n, f.undo)
				}
			}
			now := c.healthy()
			c.writesMore(w, 20)
			t.Logf("the clock of %s %s: term %d, led by %s, becomes %d, led by %s; longest write gap %v; all healthy after %v",
				who, f.what, before.Term, leader.Name, c.view().Term, now.Name, w.Meter().LongestGap(at).Length().
					Round(time.Millisecond), time.Since(at).Round(time.Millisecond))
			if who == "a follower" && now != leader {
				t.Errorf("the clock of a follower %s, and %s lost leadership", f.what, leader.Name)
			}
		}
	}
	t.Log(c.check(w))
}

// oneLeader watches until the function that it returns is called that no two nodes say at once that they take writes:
// one says so before and after the other does.
func (c *cluster) oneLeader() (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	rounds, found := 0, error(nil)
	go func() {
		defer close(done)
		for found == nil {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			rounds++
			found = c.twoLeaders()
		}
	}()
	return func() {
		close(stop)
		<-done
		c.t.Logf("looked %d times for two nodes that take writes", rounds)
		if found != nil {
			c.t.Error(found)
		}
	}
}

func (c *cluster) twoLeaders() error {
	for _, a := range c.DataNodes() {
		if ok, _ := c.isPrimary(a); !ok {
			continue
		}
		for _, b := range c.others(a) {
			if ok, _ := c.isPrimary(b); !ok {
				continue
			}
			if ok, _ := c.isPrimary(a); ok {
				return fmt.Errorf("%s and %s both say that they take writes", a.Name, b.Name)
			}
		}
	}
	return nil
}
