package sim

import (
	"context"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/node/controlloop"
	"trireme/internal/node/lifecycle"
)

// ProposeInTerm implements lifecycle.Raft: it waits until raft takes the proposal.
func (r raftOf) ProposeInTerm(ctx context.Context, term uint64, data []byte) (at uint64, err error) {
	told := false
	giveUp := r.g.n.Propose(r.g.proposalTerm(term), data, func(i, _ uint64, e error) { at, err, told = i, e, true })
	done := func() bool { return told }
	if late := exec(r).until(ctx, done); late != nil && giveUp() {
		return 0, late
	}
	_ = exec(r).until(r.g.root, done) // raft is about to tell
	return at, err
}

// proposalTerm is the only term in which a proposal is taken (S7).
func (g *member) proposalTerm(term uint64) uint64 {
	if g.sql.broken("S7") {
		return 0
	}
	return term
}

// loopHost is the node as package controlloop sees it (node.loopHost).
type loopHost struct{ g *member }

// Raft and the next ones implement controlloop.Host.
func (h loopHost) Raft() controlloop.Raft                         { return h.g.n }
func (h loopHost) Settings() *config.Cluster                      { return h.g.Settings() }
func (h loopHost) Disks(*consensus.Status) (full, refused string) { return h.g.full, h.g.refused }
func (h loopHost) LeaderChanged()                                 { h.g.lives.Change((*lifecycle.Status).Stay) }
func (h loopHost) Differs(l *lifecycle.Life) bool                 { return h.g.seeding.FenceKnown(l) }
func (h loopHost) Seed(ctx context.Context)                       { h.g.seeding.Seed(ctx) }
func (h loopHost) WhyEnded() string                               { return "" }
func (h loopHost) MayServe() bool                                 { return !h.g.seeding.HasNewDecisions() }
func (h loopHost) Go(f func(ctx context.Context))                 { h.g.spawn(f) }
func (h loopHost) Context() context.Context                       { return h.g.root }
func (h loopHost) WakeLoop()                                      { h.g.wakeLoop() }
func (h loopHost) Fail(err error)                                 { h.g.Fail(err) }
func (h loopHost) TransactionRefuse() config.Bytes                { return 0 }
func (h loopHost) Routes()                                        {}
func (h loopHost) DropAddresses()                                 {}

// Decided implements controlloop.Host.
func (h loopHost) Decided(st ha.State) {
	if h.g.why != st.Why {
		h.g.why = st.Why
		h.g.w.Tracef("%d: %s: %s", h.g.n.ID, st.Name, st.Why)
	}
}

// Started implements controlloop.Host.
func (h loopHost) Started(l *lifecycle.Life) {
	g := h.g
	g.lives.GuardStep(0, 0)
	g.seeding.Started()
	g.spawn(func(ctx context.Context) { // node.watch
		if l.Watch(ctx) {
			g.control.Dead(l)
		}
	})
	g.w.Tracef("%d: mysqld is up, incarnation %d, executed %v", g.n.ID, l.Incarnation, g.srv.Executed())
	if g.sql.broken("locks") {
		_ = exec(h).Sleep(g.root, time.Millisecond)
	}
}

// NotStarted implements controlloop.Host.
func (h loopHost) NotStarted() {
	s := h.g.lives.Status()
	h.g.w.Tracef("%d: mysqld did not start: %s", h.g.n.ID, s.Problem())
}

// Applying implements controlloop.Host.
func (h loopHost) Applying(v *ha.Server) {
	g := h.g
	v.Applied, v.Applier = g.applied, g.seeding.Applier()
	if g.hungAt != 0 && g.now() > g.hungAt+hungPatience {
		v.Stuck, v.StuckSince = "mysqld does not answer", g.hungAt
	}
}

// Judged implements controlloop.Host.
func (h loopHost) Judged(_ context.Context, _ *lifecycle.Life, v controlloop.Verdict) {
	g := h.g
	switch v.Outcome {
	case controlloop.Unjudged:
		g.w.Tracef("%d: could not be judged yet: %v", g.n.ID, v.Err)
	case controlloop.Lags:
		g.w.Tracef("%d: lags: %v", g.n.ID, &v.Missing)
	case controlloop.Broken:
		if g.tampered {
			g.w.Tracef("%d: broken: %v", g.n.ID, v.Problems)
			g.w.At(time.Duration(500+g.w.rnd.IntN(2000))*time.Millisecond, g.reinit)
			break
		}
		g.w.Violate("S5", "node %d: mysqld's data does not match the committed log: %v", g.n.ID, v.Problems)
	case controlloop.Ready:
		g.w.Tracef("%d: ready, plugged %v, refed %v", g.n.ID, &v.Plug, &v.Refeed)
		g.sql.counts.plugged += int64(v.Plug.Count())
		g.sql.counts.refed += int64(v.Refeed.Count())
		g.sql.ready(g)
	}
}

// Promote implements controlloop.Host.
func (h loopHost) Promote(ctx context.Context, leader *lifecycle.Leader, _ *lifecycle.Life, _ uint64) {
	_, _ = leader.Promote(ctx)
}

// Fencing implements controlloop.Host.
func (h loopHost) Fencing(reason string) {
	g := h.g
	g.w.Tracef("%d: fences: %s", g.n.ID, reason)
	g.broadcast()
	if g.lives.Life() != nil && g.sql.broken("S4") {
		g.srv.SetSemiSync(false)
		g.sql.drain(g)
	}
}

// Fenced implements controlloop.Host.
func (h loopHost) Fenced(_ string, f lifecycle.Fenced) {
	h.g.w.Tracef("%d: is fenced: %s", h.g.n.ID, f.Outcome)
}

// Restart implements controlloop.Host.
func (h loopHost) Restart(string) {
	if l := h.g.lives.Life(); l != nil {
		h.g.control.EndServer(l)
	}
}

// Kill implements controlloop.Host.
func (h loopHost) Kill(l *lifecycle.Life) error {
	if h.g.lives.Life() != l {
		return nil
	}
	return h.g.proc.Kill()
}

// opened is called when mysqld opens writes.
func (g *member) opened() {
	s := g.lives.Status()
	g.w.Tracef("%d: writes are open in term %d, incarnation %d", g.n.ID, s.Term(), s.Life().Incarnation)
	g.sql.opened(g, s.Life(), s.Term())
}
