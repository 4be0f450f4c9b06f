package sim

import (
	"context"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/consensus"
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

// question and answer are a request between daemons and what comes back.
type question struct {
	id   uint64
	what any
}

type answer struct {
	id   uint64
	what any
}

// request is a transport.Kind, and reply what is answered; donate asks for what a copy of a node's data would be.
type (
	request struct {
		kind uint8
		body []byte
	}
	reply struct {
		body []byte
		err  error
	}
	donate struct{}
)

func (g *glue) fresh(p *peerState) bool { return g.now() < p.at+freshFor }

func (g *glue) broadcast() {
	st := g.n.Status()
	s := status{ready: g.fit(), applied: g.applied, keep: g.lives.KeepFrom()}
	if g.logger {
		s.keep = st.Commit
	}
	if st.Role == consensus.Leader {
		s.term, s.rules = st.Term, g.acks.Rules()
		if now := g.lives.Status(); now.TakesWrites() {
			s.openTerm = now.Term()
		}
	}
	for _, id := range members(&st) {
		if id != g.n.ID {
			g.n.Tell(id, s)
		}
	}
}

// Asked implements Top (node.HandleRaft).
func (g *glue) Asked(term uint64) { g.lead.Told(term) }

// PeerGone implements Top (node.PeerDown).
func (g *glue) PeerGone() { g.wakeLoop() }

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
		g.wakeLoop()
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
func (g *glue) ask(ctx context.Context, to uint64, what any) (any, error) {
	g.nextAsk++
	id := g.nextAsk
	var got any
	g.asks[id] = func(x any) { got = x }
	g.n.Tell(to, question{id, what})
	err := exec{g}.until(ctx, func() bool { return got != nil })
	delete(g.asks, id)
	return got, err
}

func (g *glue) answer(from uint64, q question) {
	switch m := q.what.(type) {
	case donate:
		if d, ok := g.donation(); ok {
			g.n.Tell(from, answer{q.id, d})
		}
	case request:
		g.spawn("answer", func(k *task) {
			body, err := g.answers().HandleRequest(k.ctx(), from, m.kind, m.body)
			g.n.Tell(from, answer{q.id, reply{body, err}})
		})
	}
}
