package sim

import (
	"time"

	"trireme/internal/api"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
)

// peerState is another node as its last status showed it.
type peerState struct {
	status status
	at     time.Duration
	since  time.Duration // live and ready since
}

// status is what nodes tell each other of themselves. Nothing that safety rests on is taken from it, but what a node's
// recovery may need of the others' logs.
type status struct {
	ready    bool
	applied  uint64
	openTerm uint64
	keep     uint64
	term     uint64
	rules    *api.CommitRulesView // a leader's
}

// takeOver says that a leader hands over to the node that gets it (consensus knows, and tells; see ha.Raft.Asked).
type takeOver struct{ term uint64 }

// question and answer are a request between daemons and what comes back.
type question struct {
	id   uint64
	what any
}

type answer struct {
	id   uint64
	what any
}

// awaitApplied asks a node to answer when its mysqld has applied an index; donate asks it for what a copy of its data
// would be.
type (
	awaitApplied struct{ index uint64 }
	donate       struct{}
)

func (g *glue) fresh(p *peerState) bool { return g.now() < p.at+freshFor }

func (g *glue) broadcast() {
	st := g.n.Status()
	s := status{ready: g.ready() && !g.hung, applied: g.applied, keep: g.lives.KeepFrom()}
	if g.logger {
		s.keep = st.Commit
	}
	if st.Role == consensus.Leader {
		s.term, s.rules = st.Term, g.acks.Rules()
	}
	if now := g.lives.Status(); now.Phase() == ha.PhaseOpen {
		s.openTerm = now.Term()
	}
	for _, id := range members(&st) {
		if id != g.n.ID {
			g.n.Tell(id, s)
		}
	}
}

// Told implements Top.
func (g *glue) Told(from uint64, what any) {
	switch m := what.(type) {
	case status:
		p := g.peers[from]
		if p == nil {
			p = &peerState{}
			g.peers[from] = p
		}
		if !m.ready || !p.status.ready || !g.fresh(p) {
			p.since = g.now()
		}
		p.status, p.at = m, g.now()
		if m.rules != nil {
			g.acks.HeardRules(m.term, m.rules)
		}
		g.poke()
	case takeOver:
		g.asked = m.term
	case question:
		g.answer(from, m)
	case answer:
		if f := g.asks[m.id]; f != nil {
			delete(g.asks, m.id)
			f(m.what)
		}
	}
}

// ask puts a question to another node and waits for its answer.
func (g *glue) ask(k *task, to uint64, what any, limit time.Duration) (any, error) {
	g.nextAsk++
	id := g.nextAsk
	var got any
	g.asks[id] = func(x any) { got = x }
	g.n.Tell(to, question{id, what})
	err := k.until(limit, "no answer", func() bool { return got != nil })
	delete(g.asks, id)
	return got, err
}

func (g *glue) answer(from uint64, q question) {
	switch m := q.what.(type) {
	case donate:
		if d, ok := g.donation(); ok {
			g.n.Tell(from, answer{q.id, d})
		}
	case awaitApplied:
		p := g.proc
		if !g.ready() || g.lives.Life() == nil {
			return
		}
		g.spawn("await applied", func(k *task) {
			err := k.until(3*time.Second, "applying", func() bool {
				_, committed := g.led.Snapshot()
				return p.dead || g.led.Index() >= m.index && g.srv.Executed().ContainsSet(committed)
			})
			if err == nil && !p.dead {
				g.n.Tell(from, answer{q.id, true})
			}
		})
	}
}
