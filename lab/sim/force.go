package sim

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/transport"
	"trireme/internal/node/recovery"
)

// force is what a run knows of force-quorum: the generations, and the operator who makes them. It has random numbers of
// its own.
//
// There is one truth: the newest generation. The moment that generation.json of its source is there is known at once,
// or, if the machine failed meanwhile, when it starts again. What the lists of the world hold beyond the entries that
// the source has is cut then (checks.forced, sqlWorld.forced), and what nodes of the generations before do from then on
// counts for nothing (Node.past), except that they must end once they have met the new one.
type force struct {
	s   *sqlWorld
	rnd *rand.Rand
	now *config.Generation // nil: the first
	// what an operator was shown who has confirmed it, by the term
	shown map[uint64]*api.ForceReport

	operator
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
	case g.left || st.Left != nil:
		s.w.Violate("generations", "node %d was given up and starts again", g.n.ID)
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
		s.w.Violate("generations", "node %d makes generation %d out of %v, and there is generation %d, of another parent",
			g.n.ID, gen.Number, gen.Members, f.now.NumberOf())
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
		s.w.Violate("generations", "node %d makes generation %d with %d of %d committed entries, and the report says all",
			g.n.ID, gen.Number, kept, before)
	}
	f.now, s.w.generation = gen, gen.Number
	s.forced(kept)
	s.holds.forced(gen)
	if f.rough && f.rnd.IntN(4) == 0 { // those that were given up are back before they can hear of it
		f.cutOff(g.n, time.Duration(1000+f.rnd.IntN(7000))*time.Millisecond)
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
	by := s.force.known(&st.Left.By)
	if slices.Contains(by.Members, g.n.ID) && by.Parent == st.Generation.IDOf() && !s.w.check.beyond(g.n, by) {
		s.w.Violate("generations", "node %d is a member of generation %d, has nothing beyond it, and was given up", g.n.ID,
			by.Number)
	}
}

// follows is called when a node goes over to a generation that another one has made.
func (s *sqlWorld) follows(g *member, gen *config.Generation) {
	gen = s.force.known(gen)
	if !slices.Contains(gen.Members, g.n.ID) || s.w.check.beyond(g.n, gen) {
		s.w.Violate("generations", "node %d follows generation %d of %v, and is not of them or goes beyond", g.n.ID,
			gen.Number, gen.Members)
	}
}

// known is a generation as it was made, if it is the newest.
func (f *force) known(g *config.Generation) *config.Generation {
	if g.IDOf() == f.now.IDOf() {
		return f.now
	}
	return g
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

// altered is a generation as a node is told of it where it breaks a rule.
func (g *member) altered(t transport.Generation) transport.Generation {
	var c config.Generation
	if json.Unmarshal([]byte(t.Claim), &c) != nil {
		return t
	}
	if g.sql.broken("survivor given up") {
		c.Members = slices.DeleteFunc(c.Members, func(m uint64) bool { return m == g.n.ID })
	}
	if g.sql.broken("follows beyond") {
		c.BaseTerm += 100
		c.Members = append(c.Members, g.n.ID)
	}
	b, _ := json.Marshal(&c)
	t.Claim = string(b)
	return t
}
