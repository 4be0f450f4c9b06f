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
	if err := n.startPump(ctx, l, src, term); err != nil {
		return err
	}
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

// openWrites is the last step. It is serialised with fences by the gate: once a fence has closed writes they do not open again.
func (n *Node) openWrites(ctx context.Context, l *lifecycle.Life, term uint64, from ha.Phase) error {
	if err := n.awaitLease(ctx, leasePatience); err != nil {
		return err
	}
	n.gate.Lock()
	defer n.gate.Unlock()
	if !n.mayOpen(l, term, from) {
		return consensus.ErrNotLeader
	}
	n.mu.Lock()
	if n.serving.Phase() == from {
		n.guardStepLocked(openPatience) // before the statement that opens is sent
	}
	n.mu.Unlock()
	octx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	if err := l.OpenWrites(octx); err != nil {
		return err
	}
	n.log.Info("mysqld takes writes", "term", term)
	failpoint.Hit("promote.after-open")
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.serving.Phase() != from || n.srv.Life() != l {
		return consensus.ErrNotLeader // a fence waits for the gate
	}
	l.NoteOpen()
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

// mayOpen re-reads everything that opening writes depends on (S7).
func (n *Node) mayOpen(l *lifecycle.Life, term uint64, from ha.Phase) bool {
	st := n.cons.Status()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cluster.Disbanded == nil && len(n.newVoidsLocked()) == 0 && n.srv.Life() == l && n.serving.Phase() == from && n.serving.Term() == term && st.Term == term && st.Role == consensus.Leader
}

// startPump carries what mysqld writes to Raft until the incarnation, the term or the node ends.
func (n *Node) startPump(ctx context.Context, l *lifecycle.Life, src *dump.Source, term uint64) error {
	done := make(chan struct{})
	n.mu.Lock()
	defer n.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err() // a fence waits for us and will look for a pump
	}
	n.serving.Stream(done)
	n.tasks.Add(1)
	go func() {
		defer n.tasks.Done()
		defer close(done)
		n.pump(l, src, term)
	}()
	return nil
}

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
		n.mu.Lock()
		if n.srv.Life() == l {
			n.srv.Stall("its binary log cannot be read: " + err.Error())
		}
		n.mu.Unlock()
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
	err := n.drainGated(dctx, l)
	if err == nil {
		err = n.awaitServeTask(dctx)
	}
	cancel()
	if err == nil {
		n.mu.Lock()
		n.guardUntilLocked(0)
		n.mu.Unlock()
		if err = n.retire(ctx, l); err == nil {
			return "drained: mysqld continues as a read-only follower", true
		}
	}
	failpoint.Hit("fence.before-kill")
	n.endServer(l)
	return fmt.Sprintf("mysqld was killed (%v)", err), false
}

// drainGated is drain with the gate closed.
func (n *Node) drainGated(ctx context.Context, l *lifecycle.Life) error {
	if err := n.closeGate(ctx); err != nil {
		return err
	}
	defer n.gate.Unlock()
	return l.Drain(ctx)
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

// closeGate waits until nobody is in the middle of opening writes. The caller unlocks the gate.
func (n *Node) closeGate(ctx context.Context) error {
	for !n.gate.TryLock() {
		select {
		case <-ctx.Done():
			return errors.New("mysqld does not answer while writes are being opened")
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// retire turns a drained leader into a follower without a restart: the dump ends, the feed begins again.
func (n *Node) retire(ctx context.Context, l *lifecycle.Life) error {
	n.mu.Lock()
	pump := n.serving.StreamEnded()
	n.mu.Unlock()
	from := l.Acked()
	l.EndStream()
	ctx, cancel := context.WithTimeout(ctx, retirePatience)
	defer cancel()
	if pump != nil {
		select {
		case <-pump:
		case <-ctx.Done():
			return fmt.Errorf("the stream of its binary log did not end: %w", ctx.Err())
		}
	}
	n.mu.Lock()
	n.srv.Resume()
	n.srv.events = false
	n.mu.Unlock()
	return l.Retire(ctx, from)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
