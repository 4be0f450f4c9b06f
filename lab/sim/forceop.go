package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/raftlog/memfs"
)

// operator is who loses the majority, and makes generations.
type operator struct {
	watching bool
	pending  bool     // a majority is about to be lost
	rough    bool     // disks and links fail while it is decided, too
	waits    int64    // until this moment there may be an answer
	voters   []string // to be named, as the last report has advised
	source   *Node    // where it was confirmed last, and in which life; nil: what came of it is known
	life     uint64
	asked    int   // answers to that which are not known yet
	giveUp   int64 // when those who are only switched off are switched on again; 0: not before it is decided
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
	for _, id := range conf.ln {
		if rnd.IntN(3) == 0 {
			gone = append(gone, id)
		}
	}
	if len(stay) > 0 && rnd.IntN(2) == 0 { // one of them falls behind before
		d := time.Duration(50+rnd.IntN(800)) * time.Millisecond
		f.pending = true
		f.cutOff(w.Node(stay[0]), d)
		w.At(d, func() { f.loseAll(gone, flt, rnd) })
		return
	}
	f.loseAll(gone, flt, rnd)
}

// cutOff cuts a node off for a time.
func (f *force) cutOff(n *Node, d time.Duration) {
	w := f.s.w
	w.Tracef("%d: is cut off for %v", n.ID, d)
	all := slices.Clone(w.nodes)
	cut := func(by int) {
		for _, m := range all {
			if m != n {
				w.net.addCut(w.now, n.ID, m.ID, by)
				w.net.addCut(w.now, m.ID, n.ID, by)
			}
		}
	}
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
		f.source, f.asked = nil, 0
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
			f.confirm(rep)
		case rep.ProblemKind == api.KindNeeded && !slices.Contains(rep.Voters, rep.Source):
			f.voters = append(rep.Voters, rep.Source)
		case rep.ProblemKind == api.KindNotReady && len(asked) == 0:
			f.voters = append(rep.Voters, rep.Learners...)
		}
	})
}

// confirm: the operator, or two of them, confirm what they have read, on the node that the report names.
func (f *force) confirm(rep api.ForceReport) {
	w := f.s.w
	operators := 1 + f.rnd.IntN(3)/2
	var at *member
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
			f.cutOff(m, time.Duration(500+f.rnd.IntN(5000))*time.Millisecond)
		})
	}
	for range operators {
		w.At(time.Duration(f.rnd.IntN(2000))*time.Millisecond, func() {
			if !at.up || at.n.halted || at.n.paused || at.n.past() {
				return
			}
			if f.source != at.n || f.life != at.n.life {
				f.asked = 0 // the other operator gets no answer
			}
			f.source, f.life, f.asked = at.n, at.n.life, f.asked+1
			if f.rough && f.rnd.IntN(4) == 0 {
				at.n.disk.cutNext = 1 + f.rnd.IntN(40)
			}
			at.spawn(func(ctx context.Context) {
				rep, to, err := at.recovery.ForceQuorum(ctx, api.ForceRequest{Voters: voters, By: "operator",
					Confirm: rep.Term, Seen: rep.Seen})
				w.Tracef("%d: force-quorum, done %t, self %t: %v", at.n.ID, rep.Done, to.Self, err)
				if f.asked--; f.asked == 0 && !at.n.halted {
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
		f.cutOff(g.n, 5*surveyTime)
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
