package robustness

import (
	"testing"
	"time"

	"trireme/internal/verify"
	"trireme/internal/wan"
)

// TestClockPartition cuts off a leader whose clock runs a tenth too slow, or has just jumped back, so that it believes in its lease for
// longer. It may not say that it takes writes once another node does.
func TestClockPartition(t *testing.T) {
	topo := emulated(t, "city")
	bin, err := tagged()
	must(t, err)
	c := createShape(t, shape{nodes: 2, loggers: 1, wan: &topo, binary: bin})
	w := c.load(verify.Config{Writers: 8, Rate: 10})
	defer c.oneLeader()()
	faults := []string{"clock rate 0.9"}
	if soak() {
		faults = append(faults, "clock rate 0.9", "clock rate 0.9", "clock jump -2h", "clock jump 3h")
	}
	for _, f := range faults {
		leader := c.healthy()
		other := c.others(leader)[0]
		c.writesMore(w, 20)
		c.command(leader, f)
		c.writesMore(w, 20)
		leader = c.healthy() // a jump ahead may have moved it
		other = c.others(leader)[0]
		at := time.Now()
		must(t, c.Network().Isolate(leader.Name, wan.Both))
		eventually(t, healLimit, "another leader", func() error { return c.primary(other) })
		if ok, _ := c.isPrimary(leader); ok {
			t.Errorf("%s: %s still says that it takes writes although %s does", f, leader.Name, other.Name)
		}
		taken := time.Since(at)
		c.writesMore(w, 20)
		must(t, c.Network().RestoreAll())
		for _, n := range c.Nodes() {
			c.command(n, "clock rate 1")
		}
		c.healthy()
		t.Logf("%s of %s, which is cut off then: %s takes writes after %v", f, leader.Name, other.Name, taken.Round(time.Millisecond))
	}
	t.Log(c.check(w))
}
