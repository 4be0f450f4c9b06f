package consensus

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/lab/needs"
)

// quintet makes five voters, with 1 as leader, that have committed some entries.
func quintet(g *group) {
	for id := uint64(1); id <= 5; id++ {
		g.add(id, newMemStore(1, 2, 3, 4, 5), nil)
	}
	g.elect(g.nodes[1])
}

func (g *group) propose(r *runner, data ...string) {
	g.t.Helper()
	for _, d := range data {
		if _, _, err := r.Propose(within(g.t, 20*time.Second), []byte(d)); err != nil {
			g.t.Fatal(err)
		}
	}
}

func (g *group) holds(want string, ids ...uint64) {
	g.t.Helper()
	for _, id := range ids {
		eventually(g.t, fmt.Sprintf("%d has %q", id, want), func() bool { return slices.Contains(g.nodes[id].data(), want) })
	}
}

// takeOver stops a survivor, gives it what it needs to go on with others, and starts it again.
func (g *group) takeOver(id, term uint64, conf ForcedConf) {
	g.t.Helper()
	g.nodes[id].Stop()
	st := g.nodes[id].store.crash()
	plan, err := PlanTakeover(st, 0, term, [][]byte{[]byte("settings")}, conf)
	if err != nil {
		g.t.Fatal(err)
	}
	for range 2 { // the second time for nothing
		if err := plan.CarryOut(st, id); err != nil {
			g.t.Fatal(err)
		}
	}
	g.add(id, st.crash(), nil)
}

// Three of five voters are lost; one of the two survivors has entries that no other member has, the other has a shorter
// log. Both continue with everything that the longer log held. The lost ones, kept apart as the transport does, change
// nothing.
func TestTakeover(t *testing.T) {
	g := newGroup(t)
	quintet(g)
	g.propose(g.nodes[1], "a")
	g.holds("a", 1, 2, 3, 4, 5)
	g.isolate(3, 4, 5)
	g.propose(g.nodes[1], "b")
	eventually(t, "2 has b", func() bool { return g.nodes[2].Status().LastIndex == g.nodes[1].Status().LastIndex })
	g.isolate(2, 3, 4, 5)
	if g.nodes[1].Status().Role == Leader {
		_, _, _ = g.nodes[1].Propose(within(t, 20*time.Second), []byte("c")) // in the log of 1 alone, if it leads still
	}
	last := g.nodes[1].Status().LastIndex
	term := max(g.nodes[1].Status().Term, g.nodes[2].Status().Term)
	for id := uint64(3); id <= 5; id++ {
		g.nodes[id].Stop()
	}
	g.isolate(3, 4, 5)
	g.takeOver(1, term+1, ForcedConf{Voters: []uint64{1, 2}})
	eventually(t, "a leader among the survivors", func() bool { return g.leaderOf(1, 2) != nil })
	g.propose(g.leaderOf(1, 2), "d")
	for _, want := range []string{"a", "b", "settings", "d"} {
		g.holds(want, 1, 2)
	}
	for _, id := range []uint64{1, 2} {
		s := g.nodes[id].Status()
		if !slices.Equal(s.Voters, []uint64{1, 2}) || len(s.Outgoing)+len(s.Learners) > 0 || s.Commit <= last {
			t.Errorf("%d: voters %v %v %v, commit %d, held %d before", id, s.Voters, s.Outgoing, s.Learners, s.Commit, last)
		}
	}
	if a, b := g.nodes[1].data(), g.nodes[2].data(); !slices.Equal(a, b[len(b)-len(a):]) &&
		!slices.Equal(b, a[len(a)-len(b):]) {
		t.Errorf("1 has %q, 2 has %q", a, b)
	}
}

func (g *group) leaderOf(ids ...uint64) *runner {
	for _, id := range ids {
		if s := g.nodes[id].Status(); s.Role == Leader {
			if term, err := g.nodes[id].store.Term(s.Commit); err == nil && term == s.Term {
				return g.nodes[id]
			}
		}
	}
	return nil
}

// Learners of a lost region become voters.
func TestTakeoverOfLearners(t *testing.T) {
	g := newGroup(t)
	for id := uint64(1); id <= 5; id++ {
		st := newMemStore(1, 2, 3)
		st.conf.Learners = []uint64{4, 5}
		g.add(id, st, nil)
	}
	g.elect(g.nodes[1])
	g.propose(g.nodes[1], "a", "b")
	g.holds("b", 4, 5)
	for id := uint64(1); id <= 3; id++ {
		g.nodes[id].Stop()
	}
	g.isolate(1, 2, 3)
	g.takeOver(5, g.nodes[5].Status().Term+1, ForcedConf{Voters: []uint64{4, 5}})
	eventually(t, "a leader among the learners", func() bool { return g.leaderOf(4, 5) != nil })
	g.propose(g.leaderOf(4, 5), "c")
	for _, want := range []string{"a", "b", "c"} {
		g.holds(want, 4, 5)
	}
}

// storeOf is a log with entries of certain terms, membership changes among them.
func storeOf(t *testing.T, conf *raftpb.ConfState, terms []uint64, changes map[int]*raftpb.ConfChangeV2) *memStore {
	t.Helper()
	st := newMemStore()
	st.conf = conf
	var ents []*raftpb.Entry
	for i, term := range terms {
		e := &raftpb.Entry{Index: new(uint64(i + 1)), Term: new(term)}
		if cc := changes[i+1]; cc != nil {
			p, err := newChangeProposal(cc)
			if err != nil {
				t.Fatal(err)
			}
			e.Type, e.Data = p.entry.Type, p.entry.Data
		}
		ents = append(ents, e)
	}
	if err := errors.Join(st.SetHardState(&raftpb.HardState{Term: new(terms[len(terms)-1]), Vote: new(uint64(1))}),
		st.Append(ents), st.Sync()); err != nil {
		t.Fatal(err)
	}
	return st
}

// Membership changes that the log holds uncommitted count as committed too: the plan starts from where they lead.
func TestTakeoverBehindMembershipChanges(t *testing.T) {
	change := func(tr raftpb.ConfChangeTransition, cs ...*raftpb.ConfChangeSingle) *raftpb.ConfChangeV2 {
		return &raftpb.ConfChangeV2{Transition: tr.Enum(), Changes: cs}
	}
	one := func(ty raftpb.ConfChangeType, id uint64) *raftpb.ConfChangeSingle {
		return &raftpb.ConfChangeSingle{Type: ty.Enum(), NodeId: new(id)}
	}
	for name, cc := range map[string]*raftpb.ConfChangeV2{
		"a voter leaves": change(raftpb.ConfChangeTransitionAuto, one(raftpb.ConfChangeRemoveNode, 1)),
		"a voter comes":  change(raftpb.ConfChangeTransitionAuto, one(raftpb.ConfChangeAddNode, 6)),
		"joint": change(raftpb.ConfChangeTransitionJointImplicit, one(raftpb.ConfChangeAddNode, 6),
			one(raftpb.ConfChangeAddNode, 4),
			one(raftpb.ConfChangeAddLearnerNode, 2)),
	} {
		conf := &raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}}
		st := storeOf(t, conf, []uint64{1, 1, 2}, map[int]*raftpb.ConfChangeV2{3: cc})
		want := ForcedConf{Voters: []uint64{1, 4}, Learners: []uint64{2}}
		plan, err := PlanTakeover(st, 0, 3, nil, want)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := plan.CarryOut(st, 1); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s, err := recoverState(st, 0)
		if err != nil || s.commit != plan.End() || s.lastTerm != 3 {
			t.Fatalf("%s: commit %d of %d, term %d: %v", name, s.commit, plan.End(), s.lastTerm, err)
		}
		// A follower applies the same entries one by one.
		ch, err := changer(conf, plan.End())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range st.all() {
			if e.GetType() != raftpb.EntryNormal {
				cc, err := decodeChange(e)
				if err == nil {
					err = ch.apply(cc.AsV2())
				}
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
		if got := ch.Tracker.ConfState(); !slices.Equal(got.GetVoters(), want.Voters) ||
			!slices.Equal(got.GetLearners(), want.Learners) || len(got.GetVotersOutgoing()) > 0 {
			t.Errorf("%s: a follower comes to %v", name, got)
		}
	}
}

// The process dies between any two steps: asked again, it comes to the same end; a log that is another one is left
// alone.
func TestTakeoverCrash(t *testing.T) {
	conf := &raftpb.ConfState{Voters: []uint64{1, 2, 3}}
	make3 := func() *memStore { return storeOf(t, conf, []uint64{1, 2, 2}, nil) }
	plan, err := PlanTakeover(make3(), 0, 7, [][]byte{[]byte("s")}, ForcedConf{Voters: []uint64{1}})
	if err != nil {
		t.Fatal(err)
	}
	for step := range 4 {
		st := make3()
		d := &dyingStore{memStore: st, left: step}
		if err := plan.CarryOut(d, 1); !errors.Is(err, errDied) {
			t.Fatalf("step %d: %v", step, err)
		}
		st = st.crash()
		if s, err := recoverState(st, 0); err != nil || step < 3 && s.commit > 3 {
			t.Fatalf("step %d: committed %+v, %v", step, s, err)
		}
		if err := plan.CarryOut(st, 1); err != nil {
			t.Fatalf("step %d, again: %v", step, err)
		}
		s, err := recoverState(st.crash(), 0)
		if err != nil || s.last != plan.End() || s.commit != plan.End() ||
			!slices.Equal(s.storage.conf.GetVoters(), []uint64{1}) {
			t.Fatalf("step %d: %+v, %v", step, s, err)
		}
	}
	for name, terms := range map[string][]uint64{"shorter": {1, 2}, "longer": {1, 2, 2, 2}, "another": {1, 1, 1}} {
		st := storeOf(t, conf, terms, nil)
		if err := plan.CarryOut(st, 1); !errors.Is(err, ErrStorageInconsistent) {
			t.Errorf("%s: %v", name, err)
		}
		if last, _ := st.LastIndex(); last != uint64(len(terms)) {
			t.Errorf("%s: changed", name)
		}
	}
}

var errDied = errors.New("the process died")

// dyingStore dies after some writes.
type dyingStore struct {
	*memStore
	left int
}

func (d *dyingStore) step() error {
	if d.left--; d.left < 0 {
		return errDied
	}
	return nil
}

func (d *dyingStore) SetHardState(hs *raftpb.HardState) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.memStore.SetHardState(hs)
}

func (d *dyingStore) Append(ents []*raftpb.Entry) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.memStore.Append(ents)
}

func (d *dyingStore) Sync() error {
	if err := d.step(); err != nil {
		return err
	}
	return d.memStore.Sync()
}

func (d *dyingStore) SetConfState(cs *raftpb.ConfState, index uint64) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.memStore.SetConfState(cs, index)
}

func TestCommittedWithin(t *testing.T) {
	in := func(ids ...uint64) func(uint64) bool { return func(id uint64) bool { return slices.Contains(ids, id) } }
	three, four := &raftpb.ConfState{Voters: []uint64{1, 2, 3}}, &raftpb.ConfState{Voters: []uint64{1, 2, 3, 4}}
	joint := &raftpb.ConfState{Voters: []uint64{1, 4, 5}, VotersOutgoing: []uint64{1, 2, 3}}
	for _, c := range []struct {
		cs           *raftpb.ConfState
		live         func(uint64) bool
		quorum, safe bool
	}{
		{three, in(1), false, false},
		{three, in(1, 2), true, true},
		{four, in(1), false, false},
		{four, in(1, 2), false, true}, // two of four lost: they are no majority
		{three, in(), false, false},
		{joint, in(2, 3), false, true}, // 4 and 5 commit nothing without 1's half
		{joint, in(1), false, false},
		{joint, in(1, 2), false, true}, // 3 is no majority of the old half
	} {
		if q, s := Quorum(c.cs, c.live), CommittedWithin(c.cs, c.live); q != c.quorum || s != c.safe {
			t.Errorf("%v: quorum %t, safe %t", c.cs, q, s)
		}
	}
}

// TestChaosTakeover loses a part of a group, a majority as a rule, in the middle of chaos, for good. The most
// up-to-date log of the rest is taken for the committed one, with a power loss somewhere on the way. What a survivor
// knew to be committed must be in it; if those lost were no majority, everything that was ever committed; and the
// survivors must go on through more chaos, and agree.
func TestChaosTakeover(t *testing.T) {
	needs.NoRace(t)
	certain, kept, lost := 0, 0, 0
	for i := range *chaosSeeds {
		seed := *chaosFrom + i
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			c := newChaos(t, uint64(seed), 2, []uint64{1, 2, 3, 4, 5}[:2+seed%4]...)
			c.steps(800 + c.rnd.IntN(400))
			k, l, all := c.loseAndTakeOver()
			kept, lost = kept+k, lost+l
			if all {
				certain++
			}
			c.steps(600)
			c.peace()
		})
	}
	t.Logf("%d runs without a doubt; %d committed entries kept, %d lost with those who knew them", certain, kept, lost)
	if *chaosSeeds >= 100 && (certain == 0 || kept == 0 || lost == 0) {
		t.Error("the test does not test")
	}
}

func (c *chaos) steps(n int) {
	for range n {
		c.repair()
		c.step()
		c.checkLogs()
		c.out.Reset()
	}
}

// loseAndTakeOver returns how many of the committed entries are kept and lost, and whether it was certain that none is.
func (c *chaos) loseAndTakeOver() (kept, lost int, certain bool) {
	ids := slices.DeleteFunc(c.ids(), func(id uint64) bool { return !inConf(c.conf().ConfState, id) })
	c.rnd.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	alive := ids[:1+c.rnd.IntN(max(1, len(ids)/2))]
	slices.Sort(alive)
	live := func(id uint64) bool { return slices.Contains(alive, id) }
	for _, g := range c.confs {
		// of a membership that one of them may have in force still: they need no takeover, and must not have one
		if Quorum(g.ConfState, live) {
			return 0, 0, false
		}
	}
	certain = len(c.confs) == 1 && CommittedWithin(c.conf().ConfState, live)
	for _, id := range c.ids() {
		if m := c.members[id]; live(id) {
			m.store = m.store.crash()
		} else {
			delete(c.members, id)
		}
	}
	kept, lost = c.takeOver(alive, certain)
	return kept, lost, certain
}

// takeOver makes some members, whose logs are at rest, the beginning of a new cluster. certain says that they must have
// all that was ever committed.
func (c *chaos) takeOver(alive []uint64, certain bool) (kept, lost int) {
	var known, term uint64 // to a survivor
	for _, id := range alive {
		m := c.members[id]
		known = max(known, m.pub.applied.Load()) // beyond that it may know of commits that its disk has not got yet
		term = max(term, m.store.hard.GetTerm())
	}
	source := c.newest(alive)
	c.net, c.leaders = nil, map[uint64]uint64{}
	plan, err := PlanTakeover(source.store, 0, term+1, [][]byte{[]byte("settings")},
		ForcedConf{Voters: slices.Clone(alive)})
	if err != nil {
		c.t.Fatal(err)
	}
	_ = plan.CarryOut(&dyingStore{memStore: source.store, left: c.rnd.IntN(5)}, source.id)
	source.store = source.store.crash()
	if err := plan.CarryOut(source.store, source.id); err != nil {
		c.t.Fatal(err)
	}
	before := c.committed
	c.committed = map[uint64]*raftpb.Entry{}
	c.confs, c.gone = []confAt{{plan.End(), &raftpb.ConfState{Voters: slices.Clone(alive)}}}, map[uint64]*memStore{}
	for _, e := range source.store.all() {
		c.committed[e.GetIndex()] = e
	}
	for index, e := range before {
		got := c.committed[index]
		same := got != nil && got.GetTerm() == e.GetTerm() && string(got.GetData()) == string(e.GetData())
		switch {
		case same:
			kept++
		case certain || index <= known:
			c.t.Fatalf("entry %d/%d was committed (survivors %v knew up to %d, certain: %t) and is gone", e.GetTerm(), index,
				alive, known, certain)
		default:
			lost++
		}
	}
	for _, id := range alive {
		c.restart(c.members[id])
	}
	return kept, lost
}

// TestTakeoverUnknownMembership: the survivor with the newest log does not know that it is one of two, and asks the
// lost majority for their votes. It refuses its vote to the other one, whose log is shorter, and learns in turn what is
// committed.
func TestTakeoverUnknownMembership(t *testing.T) {
	c := newChaos(t, 0, 3, 1, 2, 3, 4, 5)
	c.loseLeaderOfTwo()
	c.tick(c.ids(), peaceTicks/2)
	c.check()
	if err := c.agreed(); err != nil {
		t.Fatalf("%v\n%s", err, c.out.String())
	}
	if c.learned == 0 {
		t.Error("no member had to accept a hint: the test does not test")
	}
}

// loseLeaderOfTwo loses three voters of five and takes over. The leader's disk hangs when it is elected; the other
// survivor, 2, writes what the leader sends, and both lose power: 2 before it has applied anything, so it does not know
// that it is one of two.
func (c *chaos) loseLeaderOfTwo() {
	c.members[1].core.campaign()
	c.settle()
	for _, id := range c.ids()[2:] {
		delete(c.members, id)
	}
	c.takeOver([]uint64{2, 1}, true) // the one named last counts of two equal logs
	one, two := c.members[1], c.members[2]
	end, _ := one.store.LastIndex()
	for range 100 {
		c.now += int64(one.cfg.TickInterval)
		one.tick()
		two.tick()
		for range 10 {
			one.turn()
			msgs := c.net
			c.net = nil
			for _, m := range msgs {
				c.deliver(m)
				one.diskHeld = one.diskHeld || one.core.stateNow().Role == Leader
			}
			two.turn()
			if last, _ := two.store.LastIndex(); last > end {
				c.net = nil
				one.diskHeld = false
				c.restart(one)
				c.restart(two)
				return
			}
		}
	}
	c.t.Fatalf("member 2 gets nothing:\n%s", c.out.String())
}

// upToDate reports whether a's log is more up to date than b's, or as much.
func upToDate(a, b *memStore) bool {
	la, _ := a.LastIndex()
	lb, _ := b.LastIndex()
	ta, _ := a.Term(la)
	tb, _ := b.Term(lb)
	return ta > tb || ta == tb && la >= lb
}
