package robustness

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/ops/demo"
	"trireme/lab/bench"
	"trireme/lab/needs"
	"trireme/lab/testkit"
	"trireme/lab/verify"
	"trireme/lab/wan"
)

// electionTimeouts within which another node takes writes when the leader's host is cut off: one until its silence is
// noticed, up to two for the vote, and the rest for a loaded machine.
const electionTimeouts = 8

// cut is how a leader is cut off from the others.
type cut struct {
	direction wan.Direction
	clock     string // command to its daemon's clock before; empty: none
}

// TestPartition cuts the leader's host off from the others, in each direction alone and in both, then with a clock that
// runs a tenth too slow, so that it believes in its lease for longer: they elect another leader in bounded time, the
// old one stops taking writes, and cuts the clients that reach it, before another node takes any, nothing is lost, and
// all are healthy when the link is back. This machine reaches every node all the time, so clients of the cut one are
// there too. Half a minute: a cut costs an election timeout or two, and mysqld's restart.
func TestPartition(t *testing.T) {
	testkit.Quiet(t, "how soon another node leads, and that the old one has fenced itself by then")
	topo := emulated(t, "city")
	c := createShape(t, shape{nodes: 2, loggers: 1, wan: &topo, binary: testkit.Program(t, testkit.Failpoints)})
	w := c.load(verify.Config{Writers: 16, Rate: steady()})
	defer c.oneLeader()()
	cuts := []cut{{direction: wan.Out}, {direction: wan.In}, {direction: wan.Both, clock: "clock rate 0.9"}}
	if needs.IsLong() {
		cuts = append(cuts, cut{direction: wan.Both}, cut{wan.Both, "clock rate 0.9"}, cut{wan.Both, "clock jump -2h"},
			cut{wan.Both, "clock jump 3h"})
	}
	for _, x := range cuts {
		c.isolate(w, x)
	}
	t.Log(c.check(w))
}

// isolate the leader for a time.
func (c *cluster) isolate(w *verify.Workload, x cut) {
	t := c.t
	t.Helper()
	c.writesMore(w, loadBeforeKill)
	if x.clock != "" {
		c.command(c.healthy(), x.clock)
		c.writesMore(w, 20)
	}
	leader := c.healthy() // a clock that jumps ahead may have moved it
	other := c.others(leader)[0]
	before := c.view()
	direct := c.connect(leader)
	at, lost := time.Now(), bench.StolenCPU()
	must(t, c.Network().Isolate(leader.Name, x.direction))
	eventually(t, healLimit, "another leader", func() error { return c.primary(other) })
	taken, open := time.Since(at), time.Now()
	if ok, _ := c.isPrimary(leader); ok {
		t.Errorf("%s still takes writes although %s does", leader.Name, other.Name)
	}
	answers := x.clock == "" && read(direct) == nil
	eventually(t, healLimit, "writes on "+other.Name, func() error {
		if !w.Meter().AckedSince(open) {
			return errors.New("no acknowledged write")
		}
		return nil
	})
	gap := w.Meter().LongestGap(at).Length()
	// Its daemon and its guard end mysqld by the clock, before another node can take writes; a CPU that is taken away
	// takes that time too, and nothing on the machine can know.
	limit := electionTimeouts * config.Default().Raft.ElectionTimeout()
	switch lost = bench.StolenCPU() - lost; {
	case lost >= stolenLimit:
		t.Logf("%s answers a client from before the cut: %t. Neither this nor the time is judged: the hypervisor took %v of CPU time away", leader.Name, answers, lost)
	case answers:
		t.Errorf("%s still answers a client from before the cut although %s takes writes", leader.Name, other.Name)
	case taken > limit:
		t.Errorf("%s takes writes %v after %s was cut off (%v), want %v", other.Name, taken, leader.Name, x.direction, limit)
	}
	c.writesMore(w, 50)
	// Another node may lead sooner than what is not heard of counts as unknown (1.5 s).
	var v api.ClusterView
	eventually(t, 3*time.Second, "the view of "+other.Name+" without "+leader.Name, func() (err error) {
		if v, err = c.seen(other); err != nil {
			return err
		}
		if v.Failover.To == leader.Name || v.Doubt != "" {
			return fmt.Errorf("it expects %q to take over, doubt %q", v.Failover.To, v.Doubt)
		}
		for _, m := range v.Members {
			if m.Role == api.RoleLeader && m.Name != v.Leader || m.Name == leader.Name && m.Answers() {
				return fmt.Errorf("%s leads, and it shows %s as %s, %s", v.Leader, m.Name, m.Role, m.State)
			}
		}
		return nil
	})
	if v.Leader != other.Name || v.Term <= before.Term {
		t.Errorf("%s sees %q as the leader of term %d; %s led term %d", other.Name, v.Leader, v.Term, leader.Name,
			before.Term)
	}
	healed := time.Now()
	must(t, c.Network().RestoreAll())
	if x.clock != "" {
		for _, n := range c.Nodes() {
			c.command(n, "clock rate 1")
		}
	}
	if now := c.healthy(); now != other {
		t.Errorf("%s leads after the link is back, %s did before", now.Name, other.Name)
	}
	t.Logf("%s (%v %s) cut off: %s leads after %v, write gap %v; all healthy %v after the link was back", leader.Name,
		x.direction, x.clock, other.Name, taken.Round(time.Millisecond), gap.Round(time.Millisecond), time.Since(healed).
			Round(time.Millisecond))
}

// stolenLimit is how much stolen CPU time may have delayed a fence by its margin.
const stolenLimit = 200 * time.Millisecond

// primary is nil when a node takes writes.
func (c *cluster) primary(n *demo.Node) error {
	ok, err := c.isPrimary(n)
	if err == nil && !ok {
		err = fmt.Errorf("%s does not", n.Name)
	}
	return err
}

// emulated loads a topology. It skips where hosts cannot be emulated, unless they are required.
func emulated(t *testing.T, topology string) wan.Topology {
	t.Helper()
	needMySQL(t)
	topo, err := wan.Load(topology)
	must(t, err)
	probe, err := wan.New(topo, []string{"probe"})
	needs.Netns(t, err)
	must(t, probe.Close())
	return topo
}
