package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/lifecycle"
)

// Patience, as in package node; promoteLimit is a day there.
const (
	promoteLimit    = time.Minute
	durablePatience = 5 * time.Second
)

// promote is node.promote.
func (g *glue) promote(k *task, l *lifecycle.Life, term uint64) {
	err := g.promoteLife(k, l, term)
	if err == nil {
		return
	}
	if s := g.lives.Status(); s.Phase() == ha.PhasePromoting && s.Term() == term && s.Life() == l {
		g.lives.Change((*lifecycle.Status).PromotionFailed)
		g.fence("promotion failed: " + err.Error())
	}
}

// promoteLife is node.promoteLife (S6), with the steps of node.promotionSteps.
func (g *glue) promoteLife(k *task, l *lifecycle.Life, term uint64) error {
	ctx := k.within(promoteLimit)
	adopted, err := l.AdoptXA(ctx)
	if err != nil {
		return fmt.Errorf("adopting prepared XA transactions: %w", err)
	}
	if err := l.BeginLead(ctx); err != nil {
		return fmt.Errorf("making commits wait: %w", err)
	}
	src, from := l.Stream()
	format, err := src.Attach(ctx, from)
	if err != nil {
		return fmt.Errorf("attaching to mysqld's binary log: %w", err)
	}
	m := raftlog.Meta{Kind: raftlog.Barrier, Node: uint16(g.n.ID), Incarnation: l.Incarnation, Start: from, End: from}
	index, err := g.propose(k, term, append(raftlog.AppendMeta(nil, &m), format...))
	if err != nil {
		return fmt.Errorf("proposing the barrier: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	src.(*stream).carry(term, l.CarryStream())
	if err := (exec{g}).until(ctx, func() bool { return g.led.Index() >= index }); err != nil {
		return fmt.Errorf("committing the barrier: %w", err)
	}
	if b := g.led.NewestBarrier(); b.Index != index || b.Term != term {
		return errors.New("the barrier was replaced")
	}
	if err := l.ApplyAll(ctx, index); err != nil {
		return err
	}
	if err := l.CheckAdopted(ctx, adopted); err != nil {
		return err
	}
	if err := l.PrepareWrites(ctx); err != nil {
		return err
	}
	return g.leader(l, term).Open(ctx, ha.PhasePromoting)
}

// propose is consensus.ProposeInTerm, which waits until raft takes the proposal.
func (g *glue) propose(k *task, term uint64, data []byte) (uint64, error) {
	for {
		var at uint64
		var err error
		answered := false
		g.n.Propose(g.proposalTerm(term), data, func(index, _ uint64, e error) { at, err, answered = index, e, true })
		if werr := k.until(promoteLimit, "proposing", func() bool { return answered }); werr != nil {
			return 0, werr
		}
		if !errors.Is(err, consensus.ErrProposeTimeout) {
			return at, err
		}
		if err := k.sleep(10 * time.Millisecond); err != nil {
			return 0, err
		}
	}
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
	h.g.guardStep(lifecycle.OpenPatience)
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

// FenceHandover implements lifecycle.LeaderHost.
func (h leaderHost) FenceHandover(l *lifecycle.Life, reason string) {
	if s := h.g.lives.Status(); s.HandsOver(l) {
		h.g.fence(reason)
	}
}

// opened is called when mysqld opens writes.
func (g *glue) opened() {
	s := g.lives.Status()
	g.w.Tracef("%d: writes are open in term %d, incarnation %d", g.n.ID, s.Term(), s.Life().Incarnation)
	g.sql.opened(g, s.Life(), s.Term())
}

// fence is node.fenceLocked and node.fence: clients are cut, and unless mysqld is drained in time it is killed.
func (g *glue) fence(reason string) {
	g.lives.Change((*lifecycle.Status).Fence)
	g.guard.set(g, g.now()+fencePatience+guardGrace)
	g.said = true
	g.w.Tracef("%d: fences: %s", g.n.ID, reason)
	g.spawn("fence", func(k *task) {
		s := g.lives.Status()
		switch l := s.Life(); {
		case l != nil && s.State() == ha.ServerDying:
			g.endServer(l)
		case l != nil:
			g.drainOrKill(k, l)
		}
		g.lives.Change((*lifecycle.Status).End)
		g.said = true
	})
}

// drainOrKill is node.drainOrKill.
func (g *glue) drainOrKill(k *task, l *lifecycle.Life) {
	if g.sql.broken("S4") {
		g.srv.SetSemiSync(false)
		g.sql.drain(g)
	}
	ctx := k.within(fencePatience)
	err := l.Close(ctx)
	if s := g.lives.Status(); err == nil && s.Done() != nil {
		err = exec{g}.Wait(ctx, s.Done())
	}
	if err == nil {
		g.guard.set(g, 0)
		err = l.Retire(k.ctx())
	}
	if err == nil {
		g.sql.retired(g, l)
	}
	if err != nil {
		g.w.Tracef("%d: mysqld is killed: %v", g.n.ID, err)
		g.endServer(l)
	}
}
