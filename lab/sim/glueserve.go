package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"trireme/internal/consensus"
	"trireme/internal/dump"
	"trireme/internal/gtid"
	"trireme/internal/ha"
	"trireme/internal/ledger"
	"trireme/internal/raftlog"
	"trireme/lab/sim/fakemysql"
)

func fakePos(p raftlog.Pos) fakemysql.Pos { return fakemysql.Pos{File: p.File, Off: p.Off} }
func logPos(p fakemysql.Pos) raftlog.Pos  { return raftlog.Pos{File: p.File, Off: p.Off} }

// promote is node.promote.
func (g *glue) promote(k *task, l *mysqlLife, term uint64) {
	err := g.promoteLife(k, l, term)
	if err == nil || g.serving.phase != ha.PhasePromoting || g.serving.term != term || g.life != l {
		return
	}
	g.retryAt = g.now() + 500*time.Millisecond
	g.fence("promotion failed: " + err.Error())
}

// promoteLife is node.promoteLife (S6).
func (g *glue) promoteLife(k *task, l *mysqlLife, term uint64) error {
	if err := g.adoptXA(k, l); err != nil {
		return err
	}
	adopted := g.srv.Prepared()
	from, err := g.beginLead(k, l)
	if err != nil {
		return err
	}
	if err := g.attach(k, l, from); err != nil {
		return err
	}
	m := raftlog.Meta{Kind: raftlog.Barrier, Node: uint16(g.n.ID), Incarnation: l.incarnation, Start: from, End: from}
	index, err := g.propose(k, term, append(raftlog.AppendMeta(nil, &m), l.src.FDE()...))
	if err != nil {
		return fmt.Errorf("proposing the barrier: %w", err)
	}
	l.term, l.pumping = term, true
	g.pumpSoon()
	if err := k.until(time.Minute, "committing the barrier", func() bool { return g.led.Index() >= index }); err != nil {
		return err
	}
	if b := g.led.NewestBarrier(); b.Index != index || b.Term != term {
		return errors.New("the barrier was replaced")
	}
	if err := g.applyAll(k, l); err != nil {
		return err
	}
	for _, x := range g.srv.Prepared() { // lifecycle.Life.CheckAdopted
		if !slices.Contains(adopted, x) {
			return fmt.Errorf("XA transaction %s was prepared by the applier during the promotion", x)
		}
	}
	g.feed.on = false
	if err := k.command(l, openPatience); err != nil {
		return err
	}
	g.srv.Flush = g.sql.mode.leader
	return g.openWrites(k, l, term, ha.PhasePromoting)
}

// adoptXA is lifecycle.Life.AdoptXA: everything of older terms is applied first, then what the applier has
// prepared becomes mysqld's own.
func (g *glue) adoptXA(k *task, l *mysqlLife) error {
	if err := k.command(l, openPatience); err != nil {
		return err
	}
	if len(g.srv.Prepared()) == 0 && g.applied >= g.led.Index() {
		return nil
	}
	var index uint64
	answered := false
	g.n.ReadIndex(func(i uint64) { index, answered = i, true })
	if err := k.until(time.Minute, "read index", func() bool { return answered && g.led.Index() >= index }); err != nil {
		return err
	}
	if err := g.applyAll(k, l); err != nil {
		return err
	}
	if len(g.srv.Prepared()) == 0 {
		return nil
	}
	g.feed.on = false
	if err := k.command(l, openPatience); err != nil {
		return err
	}
	g.sql.adopting = true
	err := g.srv.AdoptXA()
	g.sql.adopting = false
	if err != nil {
		g.endServer()
	}
	return err
}

// applyAll is lifecycle.Life.ApplyAll.
func (g *glue) applyAll(k *task, l *mysqlLife) error {
	if g.sql.broken("S6") {
		return nil
	}
	_, want := g.led.Snapshot()
	err := k.until(time.Minute, "applying", func() bool { return l.dead || !g.hung && g.srv.Executed().ContainsSet(want) })
	if l.dead {
		return errDeadLife
	}
	return err
}

// beginLead is lifecycle.Life.BeginLead: from here on every commit waits, and what this life has logged so far is its
// own affair.
func (g *glue) beginLead(k *task, l *mysqlLife) (raftlog.Pos, error) {
	for range 10 {
		if err := k.command(l, openPatience); err != nil {
			return raftlog.Pos{}, err
		}
		g.srv.SetSemiSync(true)
		if err := k.command(l, openPatience); err != nil {
			return raftlog.Pos{}, err
		}
		if len(g.srv.Waiting()) == 0 {
			last := g.srv.Executed().Last(gtid.SID{UUID: l.uuid})
			g.saved.lives.Lead(l.incarnation, last)
			l.consumed = logPos(g.srv.End())
			return l.consumed, nil
		}
		g.srv.SetSemiSync(false)
		g.sql.drain(g)
	}
	return raftlog.Pos{}, errors.New("a local statement is under way")
}

// attach is dump.Source.Attach.
func (g *glue) attach(k *task, l *mysqlLife, from raftlog.Pos) error {
	l.src = dump.NewStepper(dump.SourceConfig{Node: uint16(g.n.ID), Incarnation: l.incarnation, ServerUUID: l.uuid,
		ChunkBytes: g.sql.chunk})
	l.src.Attach(from)
	if err := k.command(l, openPatience); err != nil {
		return err
	}
	l.conn = g.srv.Dump(fakePos(from), true)
	return k.until(openPatience, "attaching", func() bool {
		for l.conn != nil && len(l.src.FDE()) == 0 {
			ev, need, ok, lost := l.conn.Next()
			if lost || !ok {
				return false
			}
			if !g.take(l, ev, need) {
				return false
			}
			if _, ok, err := l.src.Next(false); ok || err != nil {
				g.w.Violate("S12", "node %d: a payload before the FORMAT_DESCRIPTION event: %v", g.n.ID, err)
				return false
			}
		}
		return l.conn != nil
	})
}

// take gives the source an event. A broken stream is a violated invariant.
func (g *glue) take(l *mysqlLife, ev []byte, need bool) bool {
	err := l.src.Event(ev, need)
	if err != nil {
		g.w.Violate("S12", "node %d: %v", g.n.ID, err)
	}
	return err == nil
}

// propose is consensus.ProposeInTerm, which waits until raft takes the proposal.
func (g *glue) propose(k *task, term uint64, data []byte) (uint64, error) {
	for {
		var at uint64
		var err error
		answered := false
		g.n.Propose(g.proposalTerm(term), data, func(index, _ uint64, e error) { at, err, answered = index, e, true })
		if werr := k.until(time.Minute, "proposing", func() bool { return answered }); werr != nil {
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

// pumpSoon lets node.pump carry on.
func (g *glue) pumpSoon() {
	l := g.life
	if l == nil || l.pumpDue || !l.pumping || !g.up {
		return
	}
	l.pumpDue = true
	g.n.in(g.short()/4, func() {
		l.pumpDue = false
		if g.life == l && !l.dead {
			g.pump(l)
		}
	})
}

// pump carries what mysqld writes to Raft: a payload at a time, the next one when raft has taken it.
func (g *glue) pump(l *mysqlLife) {
	if !l.pumping || l.proposing || g.hung {
		return
	}
	if l.pending != nil {
		g.pumpPropose(l)
		return
	}
	if l.conn == nil { // resumed from what was acknowledged, over the spare session
		from := l.src.Resume()
		if g.sql.broken("S12") {
			l.src.Attach(from)
		}
		l.conn = g.srv.Dump(fakePos(from), true)
		g.sql.drain(g)
	}
	for {
		p, ok, err := l.src.Next(false)
		if err != nil {
			g.w.Violate("S12", "node %d: the stream of mysqld's binary log is broken: %v", g.n.ID, err)
			return
		}
		if !ok {
			ev, need, more, lost := l.conn.Next()
			if lost {
				l.conn = nil
				return
			}
			if more {
				if !g.take(l, ev, need) {
					return
				}
				continue
			}
			if p, ok, err = l.src.Next(true); err != nil || !ok {
				return
			}
		}
		l.pending = p.Data
		g.pumpPropose(l)
		if g.sql.broken("S1") {
			g.acknowledge(l.term, &p.Meta)
		}
		return
	}
}

func (g *glue) pumpPropose(l *mysqlLife) {
	l.proposing = true
	g.n.Propose(g.proposalTerm(l.term), l.pending, func(_, _ uint64, err error) {
		l.proposing = false
		switch {
		case err == nil:
			l.pending = nil
			g.pumpSoon()
		case errors.Is(err, consensus.ErrProposeTimeout):
			g.n.in(10*time.Millisecond, g.pumpSoon)
		default:
			l.pumping = false // the loop fences: what was dropped makes the life undrained
			g.poke()
		}
	})
}

// acknowledge is node.acknowledge (S1).
func (g *glue) acknowledge(entryTerm uint64, m *raftlog.Meta) {
	l := g.life
	if l == nil || l.dead || l.src == nil {
		return
	}
	ack := ledger.Ack{Node: g.n.ID, Incarnation: l.incarnation, Serving: g.serving.term, Term: g.n.st.Status().Term}
	if !ack.Allows(entryTerm, m) {
		return
	}
	send, err := l.src.Ack(m.Incarnation, m.End)
	if err != nil {
		if errors.Is(err, dump.ErrInvariant) {
			g.w.Violate("S1", "node %d: acknowledging %v: %v", g.n.ID, m.End, err)
		}
		return
	}
	if send && l.conn != nil {
		l.ackDue = m.End
		g.sendAck(l)
	}
}

// sendAck tells mysqld what may go on, unless it hangs.
func (g *glue) sendAck(l *mysqlLife) {
	if g.hung || l.dead || l.conn == nil {
		return
	}
	g.srv.Ack(fakePos(l.ackDue))
	g.sql.drain(g)
}

// openWrites is node.openWrites: everything that it depends on is read again (S7).
func (g *glue) openWrites(k *task, l *mysqlLife, term uint64, from ha.Phase) error {
	if err := k.until(3*time.Second, "leadership could not be proven", g.n.HoldsLease); err != nil {
		return err
	}
	g.serving.until = g.now() + openPatience + guardGrace
	g.tellGuard(g.lease())
	if err := k.command(l, openPatience); err != nil {
		return err
	}
	st := g.n.st.Status()
	if g.life != l || g.serving.phase != from || g.serving.term != term || st.Term != term || st.Role != consensus.Leader {
		return consensus.ErrNotLeader
	}
	g.srv.SetReadOnly(false)
	g.serving.phase, g.serving.until, g.serving.drained = ha.PhaseOpen, 0, false
	g.said = true
	g.w.Tracef("%d: writes are open in term %d, incarnation %d", g.n.ID, term, l.incarnation)
	g.sql.opened(g, l, term)
	return nil
}

// fence is node.fence: clients are cut, and unless mysqld is drained in time it is killed.
func (g *glue) fence(reason string) {
	g.serving.task.cancel()
	was, l := g.serving, g.life
	g.serving.phase, g.serving.until, g.serving.task = ha.PhaseFencing, 0, nil
	g.guard.set(g, g.now()+fencePatience+guardGrace)
	g.said = true
	g.w.Tracef("%d: fences: %s", g.n.ID, reason)
	g.spawn("fence", func(k *task) {
		if l != nil && !l.dead && g.life == l {
			if g.sql.broken("S4") {
				g.srv.SetSemiSync(false)
				g.sql.drain(g)
			}
			err := g.drain(k, l, fencePatience)
			if err == nil {
				err = k.until(fencePatience, "what was under way did not end",
					func() bool { return was.task == nil || was.task.done })
			}
			if err == nil {
				g.guard.set(g, 0)
				err = g.retire(k, l)
			}
			if err != nil {
				g.w.Tracef("%d: mysqld is killed: %v", g.n.ID, err)
				if g.life == l {
					g.endServer()
					l.pumping = false
				}
			}
		}
		g.serving = serving{}
		g.said = true
	})
}

// drain is lifecycle.Life.Close: writes are closed; it returns nil only when no session waits and everything that
// mysqld wrote is committed.
func (g *glue) drain(k *task, l *mysqlLife, patience time.Duration) error {
	end := g.now() + patience
	if err := k.command(l, patience); err != nil {
		return err
	}
	closed := g.srv.SetReadOnly(true)
	g.srv.Disconnect()
	g.sql.drain(g)
	for {
		err := g.drained(l)
		if err == nil && (closed || g.srv.ReadOnly()) {
			return nil
		}
		if g.now() >= end {
			return fmt.Errorf("%w: %w", errPatience, err)
		}
		if err := k.command(l, end-g.now()); err != nil {
			return err
		}
	}
}

// drained is lifecycle.Life.drained.
func (g *glue) drained(l *mysqlLife) error {
	if n := len(g.srv.Waiting()); n > 0 {
		return fmt.Errorf("%d sessions wait for an acknowledgement", n)
	}
	acked := l.acked()
	if _, end, ok := g.srv.Logged(); ok && fakePos(acked).Less(end) {
		return fmt.Errorf("mysqld wrote up to %v, acknowledged is %v", end, acked)
	}
	return nil
}

// acked is life.acked.
func (l *mysqlLife) acked() raftlog.Pos {
	if l.src != nil && l.consumed.Less(l.src.Acked()) {
		return l.src.Acked()
	}
	return l.consumed
}

// retire is lifecycle.Life.Retire: a drained leader goes on as a follower without a restart.
func (g *glue) retire(k *task, l *mysqlLife) error {
	l.consumed = l.acked()
	l.pumping, l.conn, l.src, l.pending = false, nil, nil, nil
	_, committed := g.led.Snapshot()
	g.saved.lives.Retired[l.incarnation] = committed.Last(gtid.SID{UUID: l.uuid})
	if err := k.command(l, time.Second); err != nil {
		return err
	}
	if len(g.srv.Waiting()) > 0 {
		return errors.New("sessions wait for an acknowledgement")
	}
	g.sql.retired(g, l)
	g.connectFeed()
	return nil
}

// switchover is node.switchover: the target is sure, writes are closed and drained, the target has applied everything,
// leadership goes.
func (g *glue) switchover(k *task, l *mysqlLife, a ha.Action) {
	err := g.moveLeadership(k, l, a)
	if err == nil {
		if err = g.retire(k, l); err == nil {
			if g.serving.phase == ha.PhaseHandover && g.life == l {
				g.serving = serving{}
			}
			return
		}
	}
	g.w.Tracef("%d: switchover failed: %v", g.n.ID, err)
	g.hand.fails++
	if g.serving.phase != ha.PhaseHandover || g.life != l {
		return
	}
	g.serving.drained = false
	if err = g.openWrites(k, l, a.Term, ha.PhaseHandover); err != nil && g.serving.phase == ha.PhaseHandover &&
		g.life == l {
		g.fence("the switchover failed half-way: " + err.Error())
	}
}

func (g *glue) moveLeadership(k *task, l *mysqlLife, a ha.Action) error {
	if _, err := g.ask(k, a.To, awaitApplied{g.led.Index()}, 3*time.Second); err != nil {
		return err
	}
	if err := g.drain(k, l, 2*time.Second); err != nil {
		return err
	}
	if g.serving.phase != ha.PhaseHandover || g.serving.term != a.Term {
		return errCancelled
	}
	g.serving.drained = true
	if _, err := g.ask(k, a.To, awaitApplied{g.led.Index()}, 3*time.Second); err != nil {
		return err
	}
	var terr error
	answered := false
	g.n.Tell(a.To, takeOver{a.Term})
	g.n.Transfer(a.To, func(err error) { terr, answered = err, true })
	if err := k.until(2*time.Second, "the target was not elected", func() bool { return answered }); err != nil {
		return err
	}
	return terr
}
