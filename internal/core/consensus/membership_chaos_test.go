package consensus

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/lab/needs"
)

// confChaos is a chaos in which members come, change their roles and go.
type confChaos struct {
	*chaos
	first     []uint64 // the voters to begin with, which the log does not tell
	last      uint64   // id given last: none is given twice
	off, lost int      // members switched off after their removal, and voters whose disk was lost
}

// TestChaosMembership changes the membership in the middle of chaos, one member or many at once, through joint
// configurations and without. Who was removed is switched off for good as soon as a voter that stays has the change in
// force; a minority of the voters is lost for good; in some runs members are of a version that tells nothing, and in
// some a survivor takes over. Once all faults have ended, somebody must lead, and all members agree.
func TestChaosMembership(t *testing.T) {
	needs.NoRace(t)
	changes, off, lost, learned, accepted := 0, 0, 0, 0, 0
	for i := range *chaosSeeds {
		seed := *chaosFrom + i
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			first := []uint64{1, 2, 3, 4, 5}[:2+seed%4]
			c := &confChaos{chaos: newChaos(t, uint64(seed), 4, first...), first: first, last: 5}
			c.run(seed)
			changes, off, lost, learned, accepted = changes+len(c.confs)-1, off+c.off, lost+c.lost, learned+c.learned,
				accepted+c.accepted
		})
	}
	t.Logf("%d changes in force, %d members switched off, %d lost, %d told what is committed, %d proposals accepted",
		changes, off, lost, learned, accepted)
	if *chaosSeeds >= 100 && (changes < 2**chaosSeeds || off < *chaosSeeds/10 || lost == 0 || learned == 0 ||
		accepted < 10**chaosSeeds) {
		t.Error("the test does not test")
	}
}

func (c *confChaos) run(seed int) {
	c.older = func(id uint64) bool { return seed%5 == 0 && id%2 == 0 }
	c.rush(2000)
	if seed%4 == 0 {
		c.loseAndTakeOver()
		c.rush(1000)
	}
	c.older = nil // all are of this version in the end
	c.peace()
}

func (c *confChaos) rush(n int) {
	for range n {
		c.repair()
		switch k := c.rnd.IntN(200); {
		case k < 16:
			c.change()
		case k < 26:
			c.switchOff()
		case k == 26 && c.rnd.IntN(3) == 0:
			c.lose()
		}
		c.step()
		c.check()
		c.out.Reset()
	}
}

// change lets a member that leads, or believes so, propose a change of membership, or leave a joint configuration.
func (c *confChaos) change() {
	for _, id := range c.ids() {
		m := c.members[id]
		if m.down || m.core.state.Role != Leader {
			continue
		}
		cc := &raftpb.ConfChangeV2{}
		if s := m.pub.state.Load(); len(s.Outgoing) == 0 {
			if cc = c.draw(id, s); cc == nil {
				continue
			}
		}
		p, err := newChangeProposal(cc)
		if err != nil {
			c.t.Fatal(err)
		}
		m.core.props.waiting = append(m.core.props.waiting, p)
		m.turn()
	}
}

// draw makes up a change. It leaves a majority of voters whose disks are there, and never takes back who was removed.
func (c *confChaos) draw(leader uint64, s *Status) *raftpb.ConfChangeV2 {
	cc := &raftpb.ConfChangeV2{Transition: raftpb.ConfChangeTransition(c.rnd.IntN(3)).Enum()}
	roles := []raftpb.ConfChangeType{raftpb.ConfChangeAddNode, raftpb.ConfChangeAddLearnerNode,
		raftpb.ConfChangeRemoveNode}
	voters := slices.Clone(s.Voters)
	to := func(role raftpb.ConfChangeType, id uint64) {
		cc.Changes = append(cc.Changes, &raftpb.ConfChangeSingle{Type: role.Enum(), NodeId: new(id)})
		voters = slices.DeleteFunc(voters, func(v uint64) bool { return v == id })
		if role == raftpb.ConfChangeAddNode {
			voters = append(voters, id)
		}
	}
	for _, id := range slices.Concat(s.Voters, s.Learners) {
		role := roles[c.rnd.IntN(len(roles))]
		switch {
		case c.members[id] == nil:
			to(raftpb.ConfChangeRemoveNode, id)
		case c.rnd.IntN(4) == 0 && (id != leader || c.rnd.IntN(4) == 0):
			to(role, id)
		}
	}
	if c.rnd.IntN(2) == 0 {
		if id := c.stranger(); id != 0 {
			to(roles[c.rnd.IntN(2)], id)
		}
	}
	left := 0
	for _, id := range voters {
		if c.members[id] != nil {
			left++
		}
	}
	if len(cc.GetChanges()) == 0 || 2*left <= len(voters) {
		return nil
	}
	return cc
}

// stranger is a member of no committed membership yet, with an empty log; 0: there are enough.
func (c *confChaos) stranger() uint64 {
	if id := c.last; c.members[id] != nil {
		if !slices.ContainsFunc(c.confs, func(g confAt) bool { return inConf(g.ConfState, id) }) {
			return id
		}
	}
	if len(c.members) >= 8 {
		return 0
	}
	c.last++
	id := c.last
	if err := c.start(id, newMemStore(c.first...), nil); err != nil {
		c.t.Fatal(err)
	}
	return id
}

// knows reports whether a voter but one has the newest committed membership in force, for good.
func (c *confChaos) knows(but uint64) bool {
	voters := slices.Concat(c.conf().GetVoters(), c.conf().GetVotersOutgoing())
	for _, id := range c.ids() {
		if id != but && slices.Contains(voters, id) && c.members[id].store.ConfStateIndex() >= c.conf().index {
			return true
		}
	}
	return false
}

// switchOff ends members that were removed, once a remaining voter has the removal in force: an operator was told so.
// No change that was drawn up before the removal and waits may add such a member again; an operator would not ask for
// that.
func (c *confChaos) switchOff() {
	if c.changing() {
		return
	}
	for _, id := range c.ids() {
		was := slices.ContainsFunc(c.confs, func(g confAt) bool { return inConf(g.ConfState, id) })
		if was && !inConf(c.conf().ConfState, id) && c.knows(id) && c.rnd.IntN(2) == 0 {
			c.end(id)
			c.off++
		}
	}
}

// changing reports whether a membership may come that is not committed yet.
func (c *confChaos) changing() bool {
	isChange := func(e *raftpb.Entry) bool {
		return e.GetType() != raftpb.EntryNormal && e.GetIndex() > c.conf().index
	}
	for _, m := range c.members {
		waits := slices.ContainsFunc(m.core.props.waiting, func(p *proposal) bool { return p.change != nil })
		if waits || m.core.change > c.conf().index || slices.ContainsFunc(m.store.all(), isChange) {
			return true
		}
	}
	return slices.ContainsFunc(c.net,
		func(m *raftpb.Message) bool { return slices.ContainsFunc(m.GetEntries(), isChange) })
}

// lose takes a voter's disk, where the others are a majority of every membership that there is or may be, and one of
// them knows the newest.
func (c *confChaos) lose() {
	if c.changing() {
		return
	}
	ids := c.ids()
	id := ids[c.rnd.IntN(len(ids))]
	left := func(v uint64) bool { return v != id && c.members[v] != nil }
	if inConf(c.conf().ConfState, id) && c.knows(id) && Quorum(c.conf().ConfState, left) {
		c.end(id)
		c.lost++
	}
}

func (c *confChaos) end(id uint64) {
	c.gone[id] = c.members[id].store.crash()
	delete(c.members, id)
}
