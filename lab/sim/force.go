package sim

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/raftlog/memfs"
	"trireme/internal/core/transport"
	"trireme/internal/node/recovery"
)

// force is what a run knows of force-quorum: the generations, and the operator who makes them. It has random numbers of
// its own.
//
// There is one truth: the newest generation. The moment that generation.json of its source is there is known at once,
// or, if the machine failed meanwhile, when it starts again. What the lists of the world hold beyond the entries that
// the source has is cut then (checks.forced, sqlWorld.forced), and what nodes of the generations before do from then on
// counts for nothing (Node.past), but that they must end once they have met the new one.
type force struct {
	s   *sqlWorld
	rnd *rand.Rand
	now *config.Generation // nil: the first
	// what an operator was shown who has confirmed it, by the term
	shown map[uint64]*api.ForceReport

	// The operator.
	watching bool
	pending  bool     // a majority is about to be lost
	rough    bool     // disks and links fail while it is decided, too
	waits    int64    // until this moment there may be an answer
	voters   []string // to be named, as the last report has advised
	source   *Node    // where it was confirmed last, and in which life; nil: what came of it is known
	life     uint64
	giveUp   int64 // when those who are only switched off are switched on again; 0: not before it is decided
}

func (f *force) init(s *sqlWorld) {
	f.s, f.rnd, f.shown = s, rand.New(rand.NewPCG(s.w.plan.seed, 4)), map[uint64]*api.ForceReport{}
}

// generationOf is called when a node knows its generation, which may be one that nobody has heard of.
func (s *sqlWorld) generationOf(g *member) {
	st, err := recovery.Load(g.n.fs, nodeDir)
	if err != nil {
		return // the disk fails: see Node.failedStart
	}
	number := g.recovery.Generation().NumberOf()
	if number < g.knew {
		s.w.Violate("generations", "node %d was of generation %d, and opens as one of %d", g.n.ID, g.knew, number)
	}
	g.knew = number
	switch gen := st.Generation; {
	case g.left:
		s.w.Violate("generations", "node %d was given up and starts again", g.n.ID)
	case st.Left != nil: // it is about to end
	case gen.NumberOf() > s.force.now.NumberOf() && st.Takeover == nil:
		s.w.Violate("generations", "node %d follows generation %d, which no node has made", g.n.ID, gen.Number)
	case st.Takeover != nil && (gen.Number >= s.force.now.NumberOf() && gen.ID != s.force.now.IDOf()):
		s.decided(g, gen, st.Takeover)
	case gen.NumberOf() == s.force.now.NumberOf() && gen.IDOf() != s.force.now.IDOf():
		s.w.Violate("generations", "node %d is of another generation %d", g.n.ID, gen.Number)
	}
}

// decided: the operator has made a new generation. It goes on with what the source has.
func (s *sqlWorld) decided(g *member, gen *config.Generation, t *consensus.Takeover) {
	f := &s.force
	s.w.Tracef("%d: makes generation %d of %v, base %d of term %d, end %d, parent %x", g.n.ID, gen.Number, gen.Members,
		gen.Base, gen.BaseTerm, t.End(), gen.Parent)
	s.w.note(30, g.n.ID, gen.Number, gen.Base, gen.BaseTerm)
	if gen.Parent != f.now.IDOf() || gen.Number != f.now.NumberOf()+1 {
		s.w.Violate("generations", "node %d makes generation %d out of %v, and generation %d of %v is there", g.n.ID,
			gen.Number, gen.Members, f.now.NumberOf(), f.now.Members)
		return
	}
	s.w.Count("force_quorums", 1)
	said := map[uint64]uint64{g.n.ID: gen.Base}
	for _, id := range gen.Members {
		if id != g.n.ID {
			said[id] = s.member(id).said
		}
	}
	report := f.shown[t.Term]
	before := uint64(len(s.w.check.entries))
	kept := s.w.check.forced(g.n, gen, t, said)
	lost := before - kept
	if lost > 0 {
		s.w.Count("given_up_entries", int64(lost))
	}
	if report != nil && report.Certain && lost > 0 {
		s.w.Violate("generations", "node %d makes generation %d with %d of %d committed entries, and the report says that none is lost",
			g.n.ID, gen.Number, kept, before)
	}
	f.now, s.w.generation = gen, gen.Number
	s.forced(kept)
	s.holds.forced(gen)
	if f.rough && f.rnd.IntN(4) == 0 { // those that were given up are back before they can hear of it
		f.cutOff(g.n, s.w.nodes, time.Duration(1000+f.rnd.IntN(7000))*time.Millisecond)
		s.w.At(0, func() {
			for _, n := range s.w.nodes {
				n.powerOn()
			}
		})
	}
}

// forced cuts what is known of committed transactions after an entry.
func (s *sqlWorld) forced(kept uint64) {
	taken, next := s.taken, s.next
	s.truth = newTruth()
	for _, e := range taken {
		if e.index > kept {
			break
		}
		s.next = e.index
		s.committed(e.index, e.term, e.meta, e.events)
	}
	s.next = min(next, kept+1)
	s.probe.client, s.probe.ok = 0, false
}

// forced is what recovery.forcedCluster does with commit rules, and with a pause.
func (h *holds) forced(gen *config.Generation) {
	h.version++
	h.pause = nil
	if h.settings == nil {
		return
	}
	c := h.settings.Clone()
	c.Members = slices.DeleteFunc(c.Members, func(m config.Member) bool { return !slices.Contains(gen.Members, m.ID) })
	if c.CheckRules() != nil {
		c.CommitZones = 0
		for i := range c.Members {
			c.Members[i].MustAck = false
		}
	}
	h.settings = c
}

// leftBehind is called when a node has ended because it was given up, which it must have been.
func (s *sqlWorld) leftBehind(g *member, diskFailed bool) {
	s.w.Count("left_behind", 1)
	st, err := recovery.Load(g.n.fs, nodeDir)
	if err != nil || st.Left == nil {
		if !diskFailed {
			s.w.Violate("generations", "node %d was given up and has not written that down: %v", g.n.ID, err)
		}
		return
	}
	g.left = !diskFailed
	by, l := st.Left.By, s.w.check.log(g.n)
	if by.ID == s.force.now.IDOf() {
		by = *s.force.now
	}
	beyond := l.lastTerm(&s.w.check) > by.BaseTerm || l.lastTerm(&s.w.check) == by.BaseTerm && l.last() > by.Base
	if slices.Contains(by.Members, g.n.ID) && by.Parent == st.Generation.IDOf() && !beyond {
		s.w.Violate("generations", "node %d is a member of generation %d, has nothing beyond it, and was given up", g.n.ID,
			by.Number)
	}
}

// toldPatience is how long a node may take to end once it was told of a newer generation. Its disk may hang meanwhile.
const toldPatience = 20 * time.Second

// toldNewer is called when a node is told of a newer generation than its own.
func (s *sqlWorld) toldNewer(g *member) {
	if g.told == 0 {
		g.told = s.w.now
	}
	if s.w.now > g.told+int64(toldPatience) {
		s.w.Violate("generations", "node %d was told of a newer generation %v ago and runs", g.n.ID,
			time.Duration(s.w.now-g.told))
	}
}

// serves is called when a node of an older generation does what only one of the newest may: it has not met that yet.
func (s *sqlWorld) serves(g *member, what string) {
	s.w.Count("served_in_the_past", 1)
	if g.told != 0 && s.w.now > g.told+int64(time.Second) {
		s.w.Violate("generations", "node %d %s %v after it was told of a newer generation", g.n.ID, what,
			time.Duration(s.w.now-g.told))
	}
}

// without is a generation's claim that does not name a node any more.
func (f *force) without(t transport.Generation, id uint64) (transport.Generation, error) {
	var g config.Generation
	err := json.Unmarshal([]byte(t.Claim), &g)
	g.Members = slices.DeleteFunc(g.Members, func(m uint64) bool { return m == id })
	b, _ := json.Marshal(&g)
	t.Claim = string(b)
	return t, err
}

// loseMajority takes the majority of the voters away, for good or for long, and calls an operator.
func (f *force) loseMajority(flt fault, rnd *rand.Rand) {
	w, c := f.s.w, &f.s.w.check
	if f.pending || f.s.logger != 0 || f.s.someStuck() || w.Leader() == nil || len(c.confs) == 0 {
		return
	}
	conf := &c.confs[len(c.confs)-1]
	voters := slices.Clone(conf.voters)
	for _, id := range conf.outgoing {
		if !slices.Contains(voters, id) {
			voters = append(voters, id)
		}
	}
	left := uint64(0)
	for _, n := range w.nodes {
		switch {
		case n.off || n.rotten != "":
			return // it is bad enough
		case !n.lost && !n.past():
			left |= 1 << n.ID
		}
	}
	rnd.Shuffle(len(voters), func(i, j int) { voters[i], voters[j] = voters[j], voters[i] })
	var gone, stay []uint64
	for _, id := range voters {
		if left>>id&1 == 0 {
			continue
		}
		if !conf.isQuorum(left) && rnd.IntN(3) > 0 || !f.s.canSpare(left&^(1<<id), conf) {
			stay = append(stay, id)
			continue
		}
		left &^= 1 << id
		gone = append(gone, id)
	}
	if conf.isQuorum(left) {
		return
	}
	for _, id := range slices.Concat(conf.ln) {
		if rnd.IntN(3) == 0 {
			gone = append(gone, id)
		}
	}
	if len(stay) > 0 && rnd.IntN(2) == 0 { // one of them falls behind before
		d := time.Duration(50+rnd.IntN(800)) * time.Millisecond
		f.pending = true
		f.cutOff(w.Node(stay[0]), w.nodes, d)
		w.At(d, func() { f.loseAll(gone, flt, rnd) })
		return
	}
	f.loseAll(gone, flt, rnd)
}

// cutOff cuts a node off from others for a time.
func (f *force) cutOff(n *Node, from []*Node, d time.Duration) {
	w := f.s.w
	w.Tracef("%d: is cut off for %v", n.ID, d)
	cut := func(by int) {
		for _, m := range from {
			if m != n {
				w.net.addCut(w.now, n.ID, m.ID, by)
				w.net.addCut(w.now, m.ID, n.ID, by)
			}
		}
	}
	from = slices.Clone(from)
	cut(1)
	w.At(d, func() { cut(-1) })
}

// loseAll takes nodes away.
func (f *force) loseAll(gone []uint64, flt fault, rnd *rand.Rand) {
	w, c := f.s.w, &f.s.w.check
	f.pending = false
	left := uint64(0)
	for _, n := range w.nodes {
		if !n.lost && !n.off && n.rotten == "" && !slices.Contains(gone, n.ID) {
			left |= 1 << n.ID
		}
	}
	if !f.s.canSpare(left, &c.confs[len(c.confs)-1]) {
		return
	}
	w.Count("majorities_lost", 1)
	f.rough = true
	how := rnd.IntN(4)
	f.giveUp = w.now + int64(6*time.Second+8*flt.dur)
	for _, id := range gone {
		n := w.Node(id)
		if n.lost || n.rotten != "" {
			continue
		}
		if how == 0 || how == 3 && rnd.IntN(2) == 0 {
			n.lose("disk lost, with the majority's")
			f.giveUp = 0
			continue
		}
		n.powerOff()
	}
	f.watch()
}

// canSpare reports whether one of the nodes in set, as bits, is a voter that has all data.
func (s *sqlWorld) canSpare(set uint64, conf *conf) bool {
	return slices.ContainsFunc(conf.voters, func(id uint64) bool {
		g := s.member(id)
		return set>>id&1 != 0 && !g.bare && !g.tampered && !g.noDirectory && g.ready()
	})
}

// watch lets the operator look after the cluster, until the end.
func (f *force) watch() {
	if f.watching {
		return
	}
	f.watching = true
	var look func()
	look = func() {
		f.look()
		f.s.w.At(time.Duration(300+f.rnd.IntN(900))*time.Millisecond, look)
	}
	f.s.w.At(time.Duration(200+f.rnd.IntN(1500))*time.Millisecond, look)
}

// look is one of the operator's looks: without a majority a survivor is asked.
func (f *force) look() {
	w, c := f.s.w, &f.s.w.check
	conf := &c.confs[len(c.confs)-1]
	live, off := uint64(0), false
	for _, n := range w.nodes {
		off = off || n.off
		if !n.lost && !n.off {
			live |= 1 << n.ID
		}
	}
	switch {
	case f.giveUp != 0 && w.now > f.giveUp && off:
		w.Tracef("the operator gives up: all are switched on")
		for _, n := range w.nodes {
			n.powerOn()
		}
	case conf.isQuorum(live):
		// It goes on by itself. Those that were given up come back, one at a time.
		for _, n := range w.nodes {
			if n.off && f.now != nil && !slices.Contains(f.now.Members, n.ID) && f.rnd.IntN(4) == 0 {
				n.powerOn()
				return
			}
		}
	case w.now < f.waits || f.unknown():
	default:
		if g := f.survivor(); g != nil {
			f.ask(g)
		}
	}
}

// unknown reports whether it is not known what came of the last confirmation: then its node is waited for.
func (f *force) unknown() bool {
	n := f.source
	if n == nil {
		return false
	}
	if n.lost || n.up && n.life != f.life {
		f.source = nil
	}
	return f.source != nil
}

// survivor picks a node of the newest generation that runs; nil: there is none.
func (f *force) survivor() *member {
	var all []*member
	for _, g := range f.s.members {
		if n := g.n; n.up && !n.paused && !n.halted && !n.past() && g.isMember() {
			all = append(all, g)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[f.rnd.IntN(len(all))]
}

// isMember reports whether the node is one by what it knows itself.
func (g *member) isMember() bool {
	_, ok := g.Settings().MemberByID(g.n.ID)
	return ok
}

// surveyTime is how long an operator waits for an answer at least: those that do not answer are waited for.
const surveyTime = 4 * time.Second

// ask is `trireme force-quorum --dry-run` on a survivor, and then without, as the report says.
func (f *force) ask(g *member) {
	f.waits = f.s.w.now + int64(2*surveyTime)
	g.spawn(func(ctx context.Context) {
		rep, _, err := g.recovery.ForceQuorum(ctx, api.ForceRequest{Voters: f.voters, By: "operator"})
		f.s.w.Tracef("%d: force-quorum would be: %q of voters %v, source %s, base %d/%d, term %d, certain %t: %s %v", g.n.ID,
			rep.Voters, f.voters, rep.Source, rep.LastTerm, rep.LastIndex, rep.Term, rep.Certain, rep.Problem, err)
		f.waits = 0
		asked := f.voters
		f.voters = nil
		switch {
		case err != nil:
		case rep.Problem == "":
			f.voters = asked
			f.confirm(g, rep)
		case rep.ProblemKind == api.KindNeeded && !slices.Contains(rep.Voters, rep.Source):
			f.voters = append(rep.Voters, rep.Source)
		case rep.ProblemKind == api.KindNotReady && len(asked) == 0:
			f.voters = append(rep.Voters, rep.Learners...)
		}
	})
}

// confirm: the operator, or two of them, confirm what they have read, on the node that the report names or on the one
// that was asked.
func (f *force) confirm(g *member, rep api.ForceReport) {
	w := f.s.w
	operators := 1 + f.rnd.IntN(3)/2
	at := f.s.member(0)
	for _, m := range f.s.members {
		if m.n.up && name(m.n.ID) == rep.Source {
			at = m
		}
	}
	if at == nil {
		return
	}
	f.waits = w.now + int64(3*surveyTime)
	if f.s.broken("certain") {
		rep.Certain = true
	}
	f.shown[rep.Term+1] = &rep
	voters := f.voters
	if f.s.broken("both sides") {
		f.otherSides(at)
	}
	if f.rough && f.rnd.IntN(3) == 0 { // another survivor does not hear of it at once
		m := w.nodes[f.rnd.IntN(len(w.nodes))]
		w.At(time.Duration(f.rnd.IntN(6000))*time.Millisecond, func() {
			f.cutOff(m, w.nodes, time.Duration(500+f.rnd.IntN(5000))*time.Millisecond)
		})
	}
	for range operators {
		w.At(time.Duration(f.rnd.IntN(2000))*time.Millisecond, func() {
			if !at.up || at.n.halted || at.n.paused || at.n.past() {
				return
			}
			f.source, f.life = at.n, at.n.life
			if f.rough && f.rnd.IntN(4) == 0 {
				at.n.disk.cutNext = 1 + f.rnd.IntN(40)
			}
			at.spawn(func(ctx context.Context) {
				rep, to, err := at.recovery.ForceQuorum(ctx, api.ForceRequest{Voters: voters, By: "operator",
					Confirm: rep.Term, Seen: rep.Seen})
				w.Tracef("%d: force-quorum, done %t, self %t: %v", at.n.ID, rep.Done, to.Self, err)
				if !rep.Done && !at.n.halted {
					f.source, f.waits = nil, 0
				}
			})
		})
	}
}

// otherSides is what operators must not do: each survivor is cut off, and made a cluster of its own.
func (f *force) otherSides(side *member) {
	for _, g := range f.s.members {
		if g == side || !g.up || g.n.past() {
			continue
		}
		f.cutOff(g.n, f.s.w.nodes, 5*surveyTime)
		g.spawn(func(ctx context.Context) {
			if rep, _, err := g.recovery.ForceQuorum(ctx, api.ForceRequest{}); err == nil {
				_, _, _ = g.recovery.ForceQuorum(ctx, api.ForceRequest{Confirm: rep.Term, Seen: rep.Seen})
			}
		})
	}
}

// patience is how much longer a cluster may take to be well again when it needs an operator.
func (f *force) patience() time.Duration {
	if f.watching {
		return 60 * time.Second
	}
	return 0
}

// hurt lets something happen to the disk of a node that is about to write generation.json, now and then.
func (f *force) hurt(d *disk) {
	if !f.rough {
		return
	}
	switch f.rnd.IntN(8) {
	case 0:
		d.cutIn = 1 + f.rnd.IntN(6)
	case 1:
		d.failing = []memfs.Op{memfs.OpCreate, memfs.OpWrite, memfs.OpFdatasync, memfs.OpRename, memfs.OpSyncDir,
			memfs.OpSyncDir}[f.rnd.IntN(6)]
	}
}
