package consensus

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

var chaosSeeds = flag.Int("chaos.seeds", 100, "seeds for TestChaos")

// chaos runs a group under lost, doubled and reordered messages, partitions, disks that hang and power losses, and
// checks after every step what Raft promises. Raft draws its election timeouts from a source of its own, so a seed
// repeats the faults, not the run.
type chaos struct {
	*env
	rnd       *rand.Rand
	committed map[uint64]*raftpb.Entry // first seen as committed, by index
	leaders   map[uint64]uint64        // by term
	applied   map[uint64]uint64        // checked so far, by member
	proposed  int
	accepted  int
}

func TestChaos(t *testing.T) {
	seeds, accepted := 0, 0
	for seed := range *chaosSeeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			c := &chaos{
				env: newEnv(t), rnd: rand.New(rand.NewPCG(uint64(seed), 1)), committed: map[uint64]*raftpb.Entry{},
				leaders: map[uint64]uint64{}, applied: map[uint64]uint64{},
			}
			c.run(seed)
			seeds, accepted = seeds+1, accepted+c.accepted
		})
	}
	if accepted < 40*seeds {
		t.Errorf("only %d proposals were accepted with %d seeds: the test does not test", accepted, seeds)
	}
}

func (c *chaos) run(seed int) {
	voters := []uint64{1, 2, 3}
	if seed%3 == 0 {
		voters = []uint64{1, 2, 3, 4, 5}
	}
	for _, id := range voters {
		if err := c.start(id, newMemStore(voters...), nil); err != nil {
			c.t.Fatal(err)
		}
	}
	for range 4000 {
		c.repair()
		c.step()
		c.check()
		c.out.Reset()
	}
	c.peace()
}

// peace ends all faults: the group must come to agree again.
func (c *chaos) peace() {
	clear(c.cut)
	for _, id := range c.ids() {
		m := c.members[id]
		m.diskHeld = false
		if m.down {
			c.restart(m)
		}
	}
	c.tick(c.ids(), 200)
	c.check()
	for range 1800 { // two voters split a vote in one round of ten, and a round takes up to 20; behind a hundred rounds they never agree
		if c.agreed() == nil {
			return
		}
		c.tick(c.ids(), 1)
		c.check()
	}
	if err := c.agreed(); err != nil {
		c.t.Fatal(err)
	}
}

// agreed says who has not applied everything that was ever seen as committed.
func (c *chaos) agreed() error {
	for _, id := range c.ids() {
		m := c.members[id]
		if got, want := m.pub.applied.Load(), uint64(len(c.committed)); got != want {
			return fmt.Errorf("member %d of %v has applied %d of %d entries: %+v", id, c.ids(), got, want, m.core.stateNow())
		}
	}
	return nil
}

func (c *chaos) step() {
	ids := c.ids()
	m := c.members[ids[c.rnd.IntN(len(ids))]]
	switch n := c.rnd.IntN(1000); {
	case n < 250: // time passes, not for everybody
		c.now += int64(m.cfg.TickInterval)
		for _, id := range ids {
			if x := c.members[id]; !x.down && c.rnd.IntN(10) > 0 {
				x.core.tick()
			}
		}
	case n < 600:
		c.someMail()
	case n < 800:
		m.turn()
	case n < 900:
		c.propose()
	case n < 930:
		m.diskHeld = c.rnd.IntN(4) == 0
	case n < 945:
		c.cut[m.id] = c.rnd.IntN(3) == 0
	case n < 960:
		m.down = m.down || c.rnd.IntN(3) == 0
	case n < 970:
		m.core.campaign()
	case n < 975:
		m.core.startTransfer(&transfer{to: ids[c.rnd.IntN(len(ids))], done: make(chan error, 1)})
	case n < 985: // a death is reported only where it happened
		for _, id := range ids {
			if c.members[id].down && !m.down {
				m.core.peerGone(id)
			}
		}
	default:
		for _, id := range ids {
			c.members[id].turn()
		}
		c.someMail()
	}
}

// repair ends faults after a while, so that there is progress for the next ones to disturb.
func (c *chaos) repair() {
	for _, id := range c.ids() {
		m := c.members[id]
		if m.diskHeld && c.rnd.IntN(40) == 0 {
			m.diskHeld = false
		}
		if c.cut[id] && c.rnd.IntN(80) == 0 {
			c.cut[id] = false
		}
		if m.down && c.rnd.IntN(80) == 0 {
			c.restart(m)
		}
	}
}

// someMail delivers, drops, doubles or keeps each message under way.
func (c *chaos) someMail() {
	msgs := c.net
	c.net = nil
	for _, m := range msgs {
		switch n := c.rnd.IntN(20); {
		case n == 0: // lost
		case n == 1:
			c.net = append(c.net, m)
			c.deliver(m)
		case n < 5:
			c.net = append(c.net, m)
		default:
			c.deliver(m)
		}
	}
	if len(c.net) > 2 && c.rnd.IntN(4) == 0 {
		c.rnd.Shuffle(len(c.net), func(i, j int) { c.net[i], c.net[j] = c.net[j], c.net[i] })
	}
}

func (c *chaos) propose() {
	for _, id := range c.ids() {
		m := c.members[id]
		if m.down || m.core.state.Role != Leader {
			continue
		}
		c.proposed++
		p := &proposal{entry: &raftpb.Entry{Data: fmt.Appendf(nil, "%d", c.proposed)}, done: make(chan struct{})}
		m.core.props.waiting = append(m.core.props.waiting, p)
		m.turn()
		select {
		case <-p.done:
			if p.err == nil {
				c.accepted++
			}
		default:
		}
	}
}

// restart is a power loss: what was not synced is gone, messages of the old life may still be under way.
func (c *chaos) restart(m *member) {
	if err := c.start(m.id, m.store.crash(), nil); err != nil {
		c.t.Fatalf("member %d does not come back: %v", m.id, err)
	}
	c.applied[m.id] = 0
}

func (c *chaos) check() {
	c.checkLogs()
	c.checkLease()
}

// checkLogs: one leader in a term, one entry at an index, on the disks of a majority.
func (c *chaos) checkLogs() {
	for _, id := range c.ids() {
		m := c.members[id]
		if m.down {
			continue
		}
		if s := m.core.stateNow(); s.Role == Leader {
			if l, ok := c.leaders[s.Term]; ok && l != id {
				c.t.Fatalf("term %d has two leaders: %d and %d", s.Term, l, id)
			}
			c.leaders[s.Term] = id
		}
		for index := c.applied[id] + 1; index <= m.pub.applied.Load(); index++ {
			c.checkEntry(m, index)
			c.applied[id] = index
		}
	}
}

func (c *chaos) checkEntry(m *member, index uint64) {
	ents, err := m.store.Entries(index, index+1, 1)
	if err != nil {
		c.t.Fatalf("member %d applied %d: %v", m.id, index, err)
	}
	e := ents[0]
	old := c.committed[index]
	if old == nil {
		c.committed[index] = e
		if n := c.onDisk(e); 2*n <= len(c.members) {
			c.t.Fatalf("entry %d/%d is committed, and on the disks of %d of %d members only", e.GetTerm(), index, n, len(c.members))
		}
		return
	}
	if old.GetTerm() != e.GetTerm() || string(old.GetData()) != string(e.GetData()) {
		c.t.Fatalf("member %d applied %d/%d %q, another %d/%d %q", m.id, e.GetTerm(), index, e.GetData(), old.GetTerm(), index, old.GetData())
	}
}

// onDisk counts the members that would still have e after a power loss.
func (c *chaos) onDisk(e *raftpb.Entry) int {
	n := 0
	for _, m := range c.members {
		after := m.store.crash()
		if term, err := after.Term(e.GetIndex()); err == nil && term == e.GetTerm() {
			n++
		}
	}
	return n
}

// checkLease: while a lease runs, nobody of a later term may lead (S10).
func (c *chaos) checkLease() {
	for _, m := range c.members {
		until := m.pub.lease.Load()
		if m.down || until == 0 || c.now >= until {
			continue
		}
		for _, other := range c.members {
			bs := other.core.rn.BasicStatus()
			if !other.down && bs.RaftState == raft.StateLeader && bs.GetTerm() > m.core.state.Term {
				c.t.Fatalf("member %d leads term %d while %d holds a lease of term %d", other.id, bs.GetTerm(), m.id, m.core.state.Term)
			}
		}
	}
}
