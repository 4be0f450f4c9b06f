package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/ackpath"
)

// ackHost is the node as package ackpath sees it (node.ackHost).
type ackHost struct{ g *member }

// Raft implements ackpath.Host.
func (h ackHost) Raft() ackpath.Raft { return ackRaft(h) }

// WhenRoom implements ackpath.Host.
func (h ackHost) WhenRoom(f func()) {
	g := h.g
	g.n.st.WhenRoom(func() { g.n.in(g.short()/4, f) })
	g.n.wake()
}

// CarryBegins implements ackpath.Host.
func (h ackHost) CarryBegins() {}

// Proposing implements ackpath.Host.
func (h ackHost) Proposing(m *raftlog.Meta, _ []byte) {
	if h.g.sql.broken("S1") {
		l, _ := h.Leading()
		h.g.acks.Acknowledge(l.Term, m)
	}
}

// Leading implements ackpath.Host.
func (h ackHost) Leading() (ackpath.Leading, bool) {
	s := h.g.lives.Status()
	l := s.Life()
	if l == nil || !h.g.up {
		return ackpath.Leading{}, false
	}
	src, _ := l.Stream()
	return ackpath.Leading{Incarnation: l.Incarnation, Term: s.Term(), Source: src}, true
}

// Committed implements ackpath.Host.
func (h ackHost) Committed(e ackpath.Entry) error {
	g := h.g
	term, err := g.n.Log().Term(e.Index)
	if err != nil {
		return fmt.Errorf("the term of entry %d: %w", e.Index, err)
	}
	if !g.n.past() {
		g.sql.learn(g.n.Log(), e.Index-1)
		g.sql.committed(e.Index, term, e.Meta, e.Body)
	}
	if e.Meta.Flags&raftlog.FlagSpecial != 0 {
		g.lives.NoteSpecial(e.Index)
	}
	if e.Meta.Kind == raftlog.Settings {
		return g.adopt(e.Body)
	}
	return nil
}

// Acknowledged implements ackpath.Host.
func (h ackHost) Acknowledged(*raftlog.Meta) {}

// WhyUnmet implements ackpath.Host.
func (h ackHost) WhyUnmet(ha.CommitRule, consensus.Matches, uint64) string { return "" }

// RuleChanged implements ackpath.Host.
func (h ackHost) RuleChanged(kind string, _, _ uint64, text string) {
	h.g.w.Tracef("%d: %s: %s", h.g.n.ID, kind, text)
	if kind == ackpath.RuleOff {
		h.g.sql.counts.rulesOff++
	}
	h.g.gossip.Publish()
}

// WakeLoop implements ackpath.Host.
func (h ackHost) WakeLoop() { h.g.wakeLoop() }

// Fail implements ackpath.Host.
func (h ackHost) Fail(err error) { h.g.w.Violate("S1", "node %d: %v", h.g.n.ID, err) }

// ackRaft is consensus as package ackpath sees it.
type ackRaft struct{ g *member }

// Status implements ackpath.Raft.
func (r ackRaft) Status() consensus.Status { return r.g.n.st.Status() }

// Matches implements ackpath.Raft.
func (r ackRaft) Matches() (consensus.Matches, bool) {
	m, leads := r.g.n.st.Matches()
	return r.g.sql.matches(m), leads
}

// Offer implements ackpath.Raft.
func (r ackRaft) Offer(term uint64, data []byte, done func(index, term uint64, err error), copied func()) (more bool) {
	return r.g.n.Offer(r.g.proposalTerm(term), data, done, copied)
}

// WatchMatches implements ackpath.Raft.
func (r ackRaft) WatchMatches(on bool) {
	r.g.n.st.WatchMatches(on)
	r.g.n.wake()
}

// matches are those that a node goes by: where commit rules are broken, all voters have what the first one has.
func (s *sqlWorld) matches(m consensus.Matches) consensus.Matches {
	if s.broken("rules") {
		most := uint64(0)
		for _, v := range m.Voters {
			most = max(most, v.Index)
		}
		for i := range m.Voters {
			m.Voters[i].Index = most
		}
	}
	return m
}

// Matched implements Top.
func (g *member) Matched(m consensus.Matches) { g.acks.OnMatch(g.sql.matches(m)) }

// tickAcks is what node.loop does for commit rules, and node.updateFlow.
func (g *member) tickAcks() {
	h := &g.sql.holds
	g.acks.TickRules(h.settings)
	g.ruled = h.settings
	switch s := g.lives.Status(); {
	case h.objective == 0:
	case !s.TakesWrites():
		g.acks.SlowNothing()
	case g.acks.Slow(h.objective, "a follower", h.backlog) == ackpath.SlowingBegan:
		g.sql.counts.slowed++
	}
}

// holds is what acknowledgements of a run wait for: commit rules, which an operator changes, and a follower that is
// said to lag. It has random numbers of its own, and most runs have neither.
type holds struct {
	w         *World
	rnd       *rand.Rand
	settings  *config.Cluster // nil: there was no rule yet
	objective time.Duration   // 0: commits are not slowed
	backlog   time.Duration
	bound     bool // logs come to their bounds
	weights   bool // members are preferred as leaders
	pause     *config.Pause
	version   uint64 // of what stands in the cluster's settings
}

func (h *holds) init(w *World) {
	h.w, h.rnd = w, rand.New(rand.NewPCG(w.plan.seed, 3))
	if h.rnd.IntN(3) == 0 {
		w.At(quiet/2, h.changeRules)
	}
	if h.rnd.IntN(4) == 0 {
		h.objective = 400 * time.Millisecond
		w.At(quiet/2, h.changeBacklog)
	}
	h.bound, h.weights = h.rnd.IntN(4) == 0, h.rnd.IntN(3) == 0
	if h.rnd.IntN(6) == 0 {
		w.At(quiet/2, h.changePause)
	}
}

// atBound says whether a log that is looked at has come to its bound.
func (h *holds) atBound() bool { return h.bound && h.rnd.IntN(3) == 0 }

// changePause is an operator's `pause` and `resume`.
func (h *holds) changePause() {
	h.pause, h.version = nil, h.version+1
	if h.w.now >= h.w.load.until {
		return
	}
	if d := time.Duration(500+h.rnd.IntN(3000)) * time.Millisecond; h.rnd.IntN(2) == 0 {
		h.pause = &config.Pause{Until: time.Unix(1_800_000_000, h.w.now).Add(d)}
	}
	h.w.At(time.Duration(500+h.rnd.IntN(4000))*time.Millisecond, h.changePause)
}

// changeRules is an operator's `set`, again and again.
func (h *holds) changeRules() {
	c := &config.Cluster{CommitGraceMS: 200 + h.rnd.Int64N(1800)}
	kind, member := h.rnd.IntN(4), h.rnd.IntN(len(h.w.nodes))
	for i, n := range h.w.nodes {
		m := config.Member{ID: n.ID, Name: fmt.Sprint("n", n.ID), Role: config.RoleVoter, Zone: fmt.Sprint("z", n.ID%2)}
		m.MustAck = kind&1 != 0 && i == member
		c.Members = append(c.Members, m)
	}
	if kind&2 != 0 {
		c.CommitZones = 2
	}
	h.settings = c
	h.w.Tracef("commit rules: grace %d ms, zones %d, must_ack %v of n%d", c.CommitGraceMS, c.CommitZones, kind&1 != 0,
		h.w.nodes[member].ID)
	if h.w.now < h.w.load.until {
		h.w.At(time.Duration(500+h.rnd.IntN(6000))*time.Millisecond, h.changeRules)
	}
}

// changeBacklog has a follower lag more or less.
func (h *holds) changeBacklog() {
	h.backlog = 0
	if h.w.now < h.w.load.until {
		h.backlog = time.Duration(h.rnd.Int64N(int64(h.objective) * 3 / 4))
		h.w.At(time.Duration(50+h.rnd.IntN(500))*time.Millisecond, h.changeBacklog)
	}
}

// okGiven is called when a client's transaction becomes visible on the leader: it meets all rules that are in force.
// What is said of them may be from before they were suspended, a moment ago, so it is looked at a moment later. It can
// only become true meanwhile: a rule comes back when all meet it that had their OK.
func (s *sqlWorld) okGiven(g *member, index uint64) {
	settings, life, term := g.ruled, g.n.life, g.n.Status().Term
	if settings == nil || g.n.past() || s.w.check.entries[index-1].term != term {
		return
	}
	s.w.At(time.Millisecond, func() {
		if g.n.life != life || !g.n.up || g.n.past() || g.ruled != settings || g.n.Status().Term != term {
			return
		}
		rules, _ := ackpath.RulesOf(settings)
		mustAck, zones := g.acks.InForce(rules)
		has := map[string]bool{}
		for _, m := range settings.Members {
			if s.w.check.logs[m.ID-1].had(index, term) {
				has[m.Zone] = true
			}
		}
		for _, id := range mustAck {
			s.counts.ruled++
			if !s.w.check.logs[id-1].had(index, term) {
				s.w.Violate("commit rules", "node %d shows entry %d, which is not on n%d's disk, and must_ack is in force", g.n.ID,
					index, id)
			}
		}
		if zones > 1 {
			s.counts.ruled++
			if len(has) < zones {
				s.w.Violate("commit rules", "node %d shows entry %d, which is on disk in %d zones; %d are asked for", g.n.ID, index,
					len(has), zones)
			}
		}
	})
}
