package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"trireme/internal/consensus"
	"trireme/internal/dump"
	"trireme/internal/failpoint"
	"trireme/internal/ha"
	"trireme/internal/mutant"
	"trireme/internal/node/lifecycle"
	"trireme/internal/raftlog"
)

// promote makes this node's mysqld the one that takes writes in term (S6): barrier committed, everything below it applied,
// settings verified, then writes open. Whatever fails on the way ends in a fence.
func (n *Node) promote(ctx context.Context, l *lifecycle.Life, term uint64) {
	t := n.beginTakeover(term, l.Incarnation)
	err := n.promoteLife(ctx, l, term, t)
	if err == nil {
		t.opened = now()
		n.tendVIPSoon()
		n.task(func(ctx context.Context) { n.reportTakeover(ctx, t) })
		n.startEvents(ctx, l)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.serving.Phase() == ha.PhasePromoting && n.serving.Term() == term && n.srv.Life() == l {
		// Still asked for, but it did not work: a mysqld that cannot be promoted must not stay in the way.
		n.srv.PromotionFailed()
		n.fenceLocked("promotion failed: " + err.Error())
	}
}

// promoteLife notes in t when it had applied everything.
func (n *Node) promoteLife(ctx context.Context, l *lifecycle.Life, term uint64, t *takeover) error {
	failpoint.Hit("promote.begin")
	adopted, err := l.AdoptXA(ctx)
	if err != nil {
		return err
	}
	if err := l.BeginLead(ctx); err != nil {
		return err
	}
	failpoint.Hit("promote.semisync-on")
	src, from := l.Stream()
	fde, err := src.Attach(ctx, from)
	if err != nil {
		return fmt.Errorf("attaching to mysqld's binary log: %w", err)
	}
	m := raftlog.Meta{Kind: raftlog.Barrier, Node: uint16(n.id.ID), Incarnation: l.Incarnation, Start: from, End: from}
	failpoint.Hit("promote.before-barrier")
	index, err := n.cons.ProposeInTerm(ctx, term, append(raftlog.AppendMeta(nil, &m), fde...))
	if err != nil {
		return fmt.Errorf("proposing the barrier: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ended := l.CarryStream()
	n.Go(func(context.Context) {
		defer ended()
		n.pump(l, src, term)
	})
	if err := n.led.Await(ctx, index); err != nil {
		return fmt.Errorf("committing the barrier: %w", err)
	}
	failpoint.Hit("promote.after-barrier")
	if b := n.led.NewestBarrier(); b.Index != index || b.Term != term {
		return fmt.Errorf("the barrier %d of term %d was replaced by %d of term %d", index, term, b.Index, b.Term)
	}
	if err := l.ApplyAll(ctx, index); err != nil {
		return err
	}
	t.applied = now()
	if err := l.CheckAdopted(ctx, adopted); err != nil {
		return err
	}
	if err := l.PrepareWrites(ctx); err != nil {
		return err
	}
	n.mu.Lock()
	refuse := n.cluster.TransactionRefuse
	n.mu.Unlock()
	if err := l.LimitTransactions(ctx, refuse, lifecycle.Always); err != nil {
		return err
	}
	if err := failpoint.Err("promote.before-open"); err != nil {
		return err
	}
	return n.openWrites(ctx, l, term, ha.PhasePromoting)
}

// openWrites is the last step. Once a fence has closed writes they do not open again.
func (n *Node) openWrites(ctx context.Context, l *lifecycle.Life, term uint64, from ha.Phase) error {
	if err := n.awaitLease(ctx, leasePatience); err != nil {
		return err
	}
	return l.Open(ctx, func() error { return n.mayOpen(l, term, from) }, func() error { return n.noteOpened(l, term, from) })
}

// noteOpened: mysqld takes writes.
func (n *Node) noteOpened(l *lifecycle.Life, term uint64, from ha.Phase) error {
	n.log.Info("mysqld takes writes", "term", term)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.serving.Phase() != from || n.srv.Life() != l {
		return consensus.ErrNotLeader // a fence waits until this is over
	}
	n.serving.Open()
	n.noteOpenLocked(n.id.ID, term)
	if from == ha.PhaseHandover {
		n.left = leave{} // the switchover did not take place
	}
	n.publishNow = true
	return nil
}

// awaitLease waits until leadership is proven (S10). After a transfer that did not happen that takes some election timeouts.
func (n *Node) awaitLease(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !n.cons.HoldsLease() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("leadership could not be proven within %v: %w", patience, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// mayOpen re-reads everything that opening writes depends on (S7), and gives the statement its time.
func (n *Node) mayOpen(l *lifecycle.Life, term uint64, from ha.Phase) error {
	st := n.cons.Status()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cluster.Disbanded != nil || len(n.newVoidsLocked()) > 0 || n.srv.Life() != l ||
		n.serving.Phase() != from || n.serving.Term() != term || st.Term != term || st.Role != consensus.Leader {
		return consensus.ErrNotLeader
	}
	n.guardStepLocked(lifecycle.OpenPatience)
	return nil
}

// pump carries what mysqld writes to Raft until the incarnation, the term or the node ends.
func (n *Node) pump(l *lifecycle.Life, src *dump.Source, term uint64) {
	n.load.drop()
	for {
		p, err := src.Next(n.ctx)
		if err == nil {
			n.load.begin(&p.Meta, p.Data)
			failpoint.Hit("source.before-propose")
			_, err = n.cons.ProposeInTerm(n.ctx, term, p.Data)
			failpoint.Hit("source.after-propose")
		}
		if mutant.S1 && err == nil {
			n.acks.Acknowledge(term, &p.Meta)
		}
		switch {
		case err == nil:
			continue
		case n.ctx.Err() != nil, errors.Is(err, dump.ErrClosed):
			return
		case errors.Is(err, consensus.ErrNotLeader):
			n.poke() // the loop fences: what was dropped makes the life undrained
			return
		case errors.Is(err, dump.ErrInvariant):
			n.fail(fmt.Errorf("the stream of mysqld's binary log is broken: %w", err))
			return
		}
		n.log.Error("the stream of mysqld's binary log ended; fencing", "err", err, "term", term)
		l.Stall("its binary log cannot be read: " + err.Error())
		n.poke()
		return
	}
}

// fence makes this node unable to serve, for sure: clients are cut, and unless mysqld is drained within fencePatience
// (nobody waiting, all that it wrote committed) it is killed.
func (n *Node) fence(ctx context.Context, reason string) {
	n.routes()
	n.broadcastStatus()
	n.mu.Lock()
	l, dying := n.srv.Life(), n.srv.State() == ha.ServerDying
	term := n.serving.Term()
	n.mu.Unlock()
	failpoint.Hit("fence.begin")
	began := now()
	n.dropVIP()
	how, drained := "", false
	switch {
	case l != nil && dying:
		n.endServer(l) // whoever began it may not have come that far
	case l != nil:
		how, drained = n.drainOrKill(ctx, l)
	}
	n.log.Warn("fenced", "reason", reason, "term", term, "outcome", cmp.Or(how, "mysqld is dead"), "ms", ms(now()-began))
	text := reason
	if how != "" {
		text += ": " + how
	}
	e := n.event("fence", 0, text)
	e.Term, e.Drained = term, drained
	n.history.add(e)
	n.mu.Lock()
	n.serving.End()
	n.publishNow = true
	n.mu.Unlock()
}

// drainOrKill returns what became of mysqld, in words, and whether it was drained.
func (n *Node) drainOrKill(ctx context.Context, l *lifecycle.Life) (string, bool) {
	if mutant.S4 {
		_ = l.Admin().SetSemisync(ctx, false)
	}
	dctx, cancel := context.WithTimeout(ctx, fencePatience)
	err := l.Close(dctx)
	if err == nil {
		err = n.awaitServeTask(dctx)
	}
	cancel()
	if err == nil {
		n.mu.Lock()
		n.guardUntilLocked(0)
		n.mu.Unlock()
		if err = l.Retire(ctx); err == nil {
			return "drained: mysqld continues as a read-only follower", true
		}
	}
	failpoint.Hit("fence.before-kill")
	n.endServer(l)
	return fmt.Sprintf("mysqld was killed (%v)", err), false
}

// awaitServeTask waits for the end of a promotion or switchover that was cancelled: it must not touch a life that goes on.
func (n *Node) awaitServeTask(ctx context.Context) error {
	n.mu.Lock()
	done := n.serving.Done()
	n.mu.Unlock()
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errors.New("what was under way did not end in time")
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
