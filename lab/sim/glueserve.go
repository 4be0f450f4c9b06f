package sim

import (
	"context"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
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
	_ = exec(r).until(context.Background(), done) // raft is about to tell
	return at, err
}

// proposalTerm is the only term in which a proposal is taken (S7).
func (g *glue) proposalTerm(term uint64) uint64 {
	if g.sql.broken("S7") {
		return 0
	}
	return term
}

// leader is l as what takes writes in a term, or is to.
func (g *glue) leader(l *lifecycle.Life, term uint64) *lifecycle.Leader {
	return g.lives.Leader(l, term, leaderHost{g})
}

// leaderHost is the node as a life that leads sees it (node.leaderHost).
type leaderHost struct{ g *glue }

// AwaitLease implements lifecycle.LeaderHost.
func (h leaderHost) AwaitLease(ctx context.Context, patience time.Duration) error {
	return h.g.lead.AwaitLease(ctx, patience)
}

// MayOpen implements lifecycle.LeaderHost.
func (h leaderHost) MayOpen(l *lifecycle.Life, term uint64, from ha.Phase) error {
	st, s := h.g.n.st.Status(), h.g.lives.Status()
	if err := s.MayOpen(l, term, from); err != nil {
		return err
	}
	if st.Term != term || st.Role != consensus.Leader {
		return consensus.ErrNotLeader
	}
	h.GuardStep(lifecycle.OpenPatience)
	return nil
}

// Opened implements lifecycle.LeaderHost.
func (h leaderHost) Opened(l *lifecycle.Life, _ uint64, from ha.Phase) error {
	if s := h.g.lives.Status(); s.Phase() != from || s.Life() != l {
		return consensus.ErrNotLeader
	}
	h.Change((*lifecycle.Status).Open)
	h.g.wakeLoop()
	return nil
}

// Change implements lifecycle.LeaderHost.
func (h leaderHost) Change(f func(*lifecycle.Status)) {
	h.g.lives.Change(f)
	h.g.said = true
}

// Fence implements lifecycle.LeaderHost.
func (h leaderHost) Fence(reason string, stands func(*lifecycle.Status) bool) {
	yes := false
	h.g.lives.Change(func(s *lifecycle.Status) { yes = stands(s) })
	if yes {
		h.g.fence(reason)
	}
}

// EndServer and the next ones implement lifecycle.LeaderHost.
func (h leaderHost) EndServer(l *lifecycle.Life) { h.g.endServer(l) }
func (h leaderHost) GuardStep(limit time.Duration) {
	h.g.lives.GuardStep(limit, h.g.lead.Lease(time.Duration(h.g.n.LeaseUntil()))+h.g.lead.Grace())
	if limit != 0 { // as node.guardStepLocked
		h.g.wakeLoop()
	}
}
func (h leaderHost) Carry(_ *lifecycle.Life, src lifecycle.Stream, term uint64, ended func()) {
	src.(*stream).carry(term, ended)
}
func (h leaderHost) TransactionRefuse() config.Bytes { return 0 }
func (h leaderHost) Routes()                         {}
func (h leaderHost) DropAddresses()                  {}

// opened is called when mysqld opens writes.
func (g *glue) opened() {
	s := g.lives.Status()
	g.w.Tracef("%d: writes are open in term %d, incarnation %d", g.n.ID, s.Term(), s.Life().Incarnation)
	g.sql.opened(g, s.Life(), s.Term())
}

// fence is node.fenceLocked and node.fence.
func (g *glue) fence(reason string) {
	g.lives.BeginFence()
	g.said = true
	g.w.Tracef("%d: fences: %s", g.n.ID, reason)
	g.spawn("fence", func(k *task) {
		l := g.lives.Life()
		if l != nil && g.sql.broken("S4") {
			g.srv.SetSemiSync(false)
			g.sql.drain(g)
		}
		f := g.lives.Fence(k.ctx(), leaderHost{g})
		g.w.Tracef("%d: is fenced: %s", g.n.ID, f.Outcome)
		if f.Drained {
			g.sql.retired(g, l)
		}
		leaderHost{g}.Change((*lifecycle.Status).End)
	})
}
