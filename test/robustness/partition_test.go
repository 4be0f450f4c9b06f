package robustness

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"trireme/internal/bench"
	"trireme/internal/config"
	"trireme/internal/demo"
	"trireme/internal/needs"
	"trireme/internal/verify"
	"trireme/internal/wan"
)

// electionTimeouts within which another node takes writes when the leader's host is cut off: one until its silence is noticed, up to
// two for the vote, and the rest for a loaded machine.
const electionTimeouts = 8

// TestPartition cuts the leader's host off from the others, in both directions and in each one alone: they elect another leader in bounded
// time, the old one stops taking writes and cuts the clients that reach it, nothing is lost, and all are healthy when the link is back. This
// machine reaches every node all the time, so clients of the cut one are there too.
func TestPartition(t *testing.T) {
	c := createWAN(t, 2, 1, "city")
	w := c.load(verify.Config{Writers: 16})
	for _, direction := range []wan.Direction{wan.Out, wan.In, wan.Both} {
		c.writesMore(w, loadBeforeKill)
		leader := c.healthy()
		other := c.others(leader)[0]
		before := c.view()
		direct := c.connect(leader)
		at, lost := time.Now(), bench.StolenCPU()
		must(t, c.Network().Isolate(leader.Name, direction))
		eventually(t, healLimit, "another leader", func() error { return c.primary(other) })
		taken := time.Since(at)
		open := time.Now()
		if ok, _ := c.isPrimary(leader); ok {
			t.Errorf("%s still takes writes although %s does", leader.Name, other.Name)
		}
		if err := read(direct); err == nil {
			// Its daemon and its guard end mysqld by the clock, before another node can take writes; a CPU that is taken away takes that
			// time too, and nobody on the machine can know.
			if lost = bench.StolenCPU() - lost; lost < stolenLimit {
				t.Errorf("%s still answers a client from before the cut although %s takes writes", leader.Name, other.Name)
			} else {
				t.Logf("%s still answers a client from before the cut although %s takes writes: not judged, the hypervisor took %v of CPU time away", leader.Name, other.Name, lost)
			}
		}
		eventually(t, healLimit, "writes on "+other.Name, func() error {
			if !w.Meter().AckedSince(open) {
				return errors.New("no acknowledged write")
			}
			return nil
		})
		gap := w.Meter().LongestGap(at).Length()
		c.writesMore(w, 50)
		if limit := electionTimeouts * config.Default().Raft.ElectionTimeout(); taken > limit {
			t.Errorf("%s takes writes %v after %s was cut off (%v), want %v", other.Name, taken, leader.Name, direction, limit)
		}
		v, err := c.seen(other)
		must(t, err)
		if v.Leader != other.Name || v.Term <= before.Term {
			t.Errorf("%s sees %q as the leader of term %d; %s led term %d", other.Name, v.Leader, v.Term, leader.Name, before.Term)
		}
		healed := time.Now()
		must(t, c.Network().RestoreAll())
		if now := c.healthy(); now != other {
			t.Errorf("%s leads after the link is back, %s did before", now.Name, other.Name)
		}
		t.Logf("%s (%v) cut off: %s leads after %v, write gap %v; all healthy %v after the link was back", leader.Name, direction, other.Name,
			taken.Round(time.Millisecond), gap.Round(time.Millisecond), time.Since(healed).Round(time.Millisecond))
	}
	t.Log(c.check(w))
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

// createWAN makes a cluster of its own for a test, each node on an emulated host. It skips where there can be none, unless they are
// required.
func createWAN(t *testing.T, nodes, loggers int, topology string) *cluster {
	t.Helper()
	topo := emulated(t, topology)
	return createShape(t, shape{nodes: nodes, loggers: loggers, wan: &topo})
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
