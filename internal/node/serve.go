package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"trireme/internal/consensus"
	"trireme/internal/dump"
	"trireme/internal/failpoint"
	"trireme/internal/gtid"
	"trireme/internal/ha"
	"trireme/internal/mutant"
	"trireme/internal/mysqld"
	"trireme/internal/raftlog"
)

// promote makes this node's mysqld the one that takes writes in term (S6): barrier committed, everything below it applied,
// settings verified, then writes open. Whatever fails on the way ends in a fence.
func (n *Node) promote(ctx context.Context, l *life, term uint64) {
	t := n.beginTakeover(term, l.incarnation)
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
	if n.serving.phase == ha.PhasePromoting && n.serving.term == term && n.srv.life == l {
		// Still asked for, but it did not work: a mysqld that cannot be promoted must not stay in the way.
		n.srv.retryAt = now() + promoteRetry
		n.fenceLocked("promotion failed: " + err.Error())
	}
}

// promoteLife notes in t when it had applied everything.
func (n *Node) promoteLife(ctx context.Context, l *life, term uint64, t *takeover) error {
	failpoint.Hit("promote.begin")
	adopted, err := n.adoptXA(ctx, l)
	if err != nil {
		return err
	}
	if err := n.beginLead(ctx, l); err != nil {
		return err
	}
	failpoint.Hit("promote.semisync-on")
	src, from := l.stream()
	fde, err := src.Attach(ctx, from)
	if err != nil {
		return fmt.Errorf("attaching to mysqld's binary log: %w", err)
	}
	m := raftlog.Meta{Kind: raftlog.Barrier, Node: uint16(n.id.ID), Incarnation: l.incarnation, Start: from, End: from}
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
	if err := n.applyAll(ctx, l, index); err != nil {
		return err
	}
	t.applied = now()
	if err := n.checkAdopted(ctx, l, adopted); err != nil {
		return err
	}
	if err := n.pauseFeed(ctx); err != nil {
		return err
	}
	if err := l.admin.SetDurabilityRole(ctx, true); err != nil {
		return err
	}
	if err := l.admin.VerifyLeaderSettings(ctx); err != nil {
		return err
	}
	n.mu.Lock()
	refuse := n.cluster.TransactionRefuse
	n.mu.Unlock()
	if err := n.limitTransactions(ctx, l, refuse, always); err != nil {
		return err
	}
	if err := failpoint.Err("promote.before-open"); err != nil {
		return err
	}
	return n.openWrites(ctx, l, term, ha.PhasePromoting)
}

// beginLead puts the start of the dump behind this life's prelude: what it logged while it followed (local statements, adopted XA
// transactions). That is its own affair, has been committed without Raft, and is remembered as such: all else that this life logs is
// errant unless Raft has it. From here on every commit waits.
func (n *Node) beginLead(ctx context.Context, l *life) error {
	for range quietAttempts {
		if err := l.admin.SetSemisync(ctx, true); err != nil {
			return err
		}
		from, last, err := n.quietEnd(ctx, l)
		if err == nil {
			if err := n.local.update(func(s *localState) { s.Lead(l.incarnation, last) }); err != nil {
				return err
			}
			l.mu.Lock()
			l.consumed = from
			l.mu.Unlock()
			return nil
		}
		if !errors.Is(err, errNotQuiet) {
			return err
		}
		// A local statement that began just now waits: it would not be known as one if this life died before Raft had it.
		if err := l.admin.SetSemisync(ctx, false); err != nil {
			return err
		}
	}
	return errNotQuiet
}

// quietAttempts bounds beginLead: more local statements than that, back to back, are not for a promotion to wait for.
const quietAttempts = 10

// errNotQuiet: something was being logged meanwhile.
var errNotQuiet = errors.New("a local statement is under way")

// quietEnd is the end of the binary log and the highest GNO of this life below it, all of it executed.
func (n *Node) quietEnd(ctx context.Context, l *life) (end raftlog.Pos, last int64, err error) {
	before, err := l.admin.BinlogStatus(ctx)
	if err != nil {
		return end, 0, err
	}
	s, err := l.admin.WaitingSessions(ctx)
	if err != nil {
		return end, 0, err
	}
	// What has left the binary log's commit and has not come to gtid_executed is owned: looked at first, or it could slip through between.
	owned, err := l.admin.GTIDOwned(ctx)
	if err != nil {
		return end, 0, err
	}
	if _, err := n.readApplied(ctx, l); err != nil {
		return end, 0, err
	}
	after, err := l.admin.BinlogStatus(ctx)
	if err != nil {
		return end, 0, err
	}
	if s.Waiting > 0 || before != after || strings.Contains(owned, l.uuid.String()) {
		return end, 0, errNotQuiet
	}
	end, err = parsePos(after)
	return end, l.executedSet().Last(gtid.SID{UUID: l.uuid}), err
}

// pauseFeed stops feeding a mysqld that is about to lead. It is not done once a fence has begun.
func (n *Node) pauseFeed(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	n.feed.SetPaused(true)
	return nil
}

// applyAll waits until mysqld holds everything up to the barrier. A long backlog is no failure, a stopped applier is.
func (n *Node) applyAll(ctx context.Context, l *life, index uint64) error {
	if mutant.S6 {
		return nil
	}
	_, committed := n.led.Snapshot()
	want := committed.String()
	for began := now(); ; {
		done, err := l.admin.WaitExecuted(ctx, want, time.Second)
		if err != nil {
			return fmt.Errorf("applying the log up to entry %d: %w", index, err)
		}
		if done {
			_, err := n.readApplied(ctx, l)
			return err
		}
		if st, err := l.admin.ReplicaStatus(ctx); err == nil && !st.SQLRunning {
			return fmt.Errorf("applying the log up to entry %d: the applier has stopped: error %d: %s", index, st.SQLErrno, st.SQLError)
		}
		if now() > began+blockerPatience {
			n.killBlockers(ctx, l)
		}
	}
}

// openWrites is the last step. It is serialised with fences by the gate: once a fence has closed writes they do not open again.
func (n *Node) openWrites(ctx context.Context, l *life, term uint64, from ha.Phase) error {
	if err := n.awaitLease(ctx, leasePatience); err != nil {
		return err
	}
	n.gate.Lock()
	defer n.gate.Unlock()
	if !n.mayOpen(l, term, from) {
		return consensus.ErrNotLeader
	}
	n.mu.Lock()
	if n.serving.phase == from {
		n.guardStepLocked(openPatience) // before the statement that opens is sent
	}
	n.mu.Unlock()
	octx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	if err := l.admin.OpenWrites(octx); err != nil {
		l.mu.Lock()
		l.mayOpen = true
		l.mu.Unlock()
		return fmt.Errorf("opening writes: %w", err)
	}
	n.log.Info("mysqld takes writes", "term", term)
	failpoint.Hit("promote.after-open")
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.serving.phase != from || n.srv.life != l {
		return consensus.ErrNotLeader // a fence waits for the gate
	}
	l.setReadOnly(false)
	n.serving.phase, n.serving.until = ha.PhaseOpen, 0
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
func (n *Node) mayOpen(l *life, term uint64, from ha.Phase) bool {
	st := n.cons.Status()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cluster.Disbanded == nil && len(n.newVoidsLocked()) == 0 && n.srv.life == l && n.serving.phase == from && n.serving.term == term && st.Term == term && st.Role == consensus.Leader
}

// startPump carries what mysqld writes to Raft until the incarnation, the term or the node ends.
func (n *Node) startPump(ctx context.Context, l *life, src *dump.Source, term uint64) error {
	done := make(chan struct{})
	n.mu.Lock()
	defer n.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err() // a fence waits for us and will look for a pump
	}
	n.serving.pump = done
	n.tasks.Add(1)
	go func() {
		defer n.tasks.Done()
		defer close(done)
		n.pump(l, src, term)
	}()
	return nil
}

func (n *Node) pump(l *life, src *dump.Source, term uint64) {
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
		if n.srv.life == l {
			n.srv.stuck = "its binary log cannot be read: " + err.Error()
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
	l, dying := n.srv.life, n.srv.state == ha.ServerDying
	term := n.serving.term
	n.mu.Unlock()
	failpoint.Hit("fence.begin")
	began := now()
	n.dropVIP()
	how, drained := "mysqld is dead", false
	switch {
	case l != nil && dying:
		n.endServer(l) // whoever began it may not have come that far
	case l != nil:
		how, drained = n.drainOrKill(ctx, l)
	}
	n.log.Warn("fenced", "reason", reason, "term", term, "outcome", how, "ms", ms(now()-began))
	e := n.event("fence", 0, reason+": "+how)
	e.Term, e.Drained = term, drained
	n.history.add(e)
	n.mu.Lock()
	n.serving = servingSlot{}
	n.publishNow = true
	n.mu.Unlock()
}

// drainOrKill returns what became of mysqld, in words, and whether it was drained.
func (n *Node) drainOrKill(ctx context.Context, l *life) (string, bool) {
	if mutant.S4 {
		_ = l.admin.SetSemisync(ctx, false)
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
func (n *Node) drainGated(ctx context.Context, l *life) error {
	if err := n.closeGate(ctx); err != nil {
		return err
	}
	defer n.gate.Unlock()
	return n.drain(ctx, l)
}

// awaitServeTask waits for the end of a promotion or switchover that was cancelled: it must not touch a life that goes on.
func (n *Node) awaitServeTask(ctx context.Context) error {
	n.mu.Lock()
	done := n.serving.done
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

// drain closes writes and returns nil only when nobody waits and everything that mysqld wrote is committed and acknowledged.
func (n *Node) drain(ctx context.Context, l *life) error {
	l.mu.Lock()
	unsure := l.mayOpen
	l.mu.Unlock()
	if unsure {
		return errUnsure
	}
	failpoint.Hit("drain.before-read-only")
	n.acks.ReleaseSlowed()
	if err := l.admin.SetSuperReadOnly(ctx, true); err != nil {
		return fmt.Errorf("super_read_only: %w", err)
	}
	l.setReadOnly(true)
	failpoint.Hit("drain.after-read-only")
	// Those that are there now may be in the middle of a statement that super_read_only does not stop, XA COMMIT of their own
	// transaction, and that outlives KILL. What such a one logs must not be taken for a local statement of the follower to be (retire).
	sessions, err := l.admin.ApplicationSessions(ctx)
	if err != nil {
		return fmt.Errorf("listing clients: %w", err)
	}
	if _, err := l.admin.KillApplicationConnections(ctx); err != nil {
		return fmt.Errorf("cutting clients: %w", err)
	}
	failpoint.Hit("drain.after-cut")
	for {
		err := n.drained(ctx, l)
		if err == nil {
			err = n.awaitGone(ctx, l, sessions)
		}
		if err == nil {
			err = n.drained(ctx, l) // what the last of them did
		}
		if err == nil {
			failpoint.Hit("drain.done")
			return nil
		}
		select {
		case <-ctx.Done():
			if w := n.acks.LongestWait(); w.Entries > 0 {
				err = fmt.Errorf("%w, %v", err, w)
			}
			return err
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// errUnsure: super_read_only cannot be relied on. A mysqld that was stuck takes up its connections in any order.
var errUnsure = errors.New("a statement that opens writes got no answer, and may take effect after the one that closes them")

// awaitGone says whether one of the sessions that were killed is still in the middle of an XA statement.
func (n *Node) awaitGone(ctx context.Context, l *life, killed []mysqld.Session) error {
	if len(killed) == 0 {
		return nil
	}
	left, err := l.admin.ApplicationSessions(ctx)
	if err != nil {
		return err
	}
	return stillEnding(killed, left)
}

// stillEnding names a session that was killed and runs an XA statement. Others may go on rolling back: they log nothing.
func stillEnding(killed, left []mysqld.Session) error {
	for _, s := range left {
		was := slices.ContainsFunc(killed, func(k mysqld.Session) bool { return k.ID == s.ID })
		if was && strings.Contains(strings.ToUpper(s.Info), "XA") {
			return fmt.Errorf("session %d of %s was killed and still runs: %s", s.ID, s.User, s.Info)
		}
	}
	return nil
}

func (n *Node) drained(ctx context.Context, l *life) error {
	s, err := l.admin.WaitingSessions(ctx)
	if err != nil {
		return err
	}
	if s.Waiting > 0 {
		return fmt.Errorf("%d sessions wait for an acknowledgement", s.Waiting)
	}
	status, err := l.admin.BinlogStatus(ctx)
	if err != nil {
		return err
	}
	end, err := parsePos(status)
	if err != nil {
		return err
	}
	if acked := l.acked(); acked.Less(end) && !onlyControlEvents(n.mysqldConfig().BinlogDir(), acked, end) {
		return fmt.Errorf("mysqld wrote up to %s, acknowledged is %s", end, acked)
	}
	return nil
}

// parsePos reads the number from a binary log's file name.
func parsePos(p mysqld.BinlogPos) (raftlog.Pos, error) {
	_, number, _ := strings.Cut(p.File, ".")
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return raftlog.Pos{}, fmt.Errorf("binary log file %q: %w", p.File, err)
	}
	return raftlog.Pos{File: uint32(n), Off: p.Offset}, nil
}

// stream is the source in use and where its next dump starts.
func (l *life) stream() (*dump.Source, raftlog.Pos) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.source, l.consumed
}

// acked is up to where everything that this life wrote is committed.
func (l *life) acked() raftlog.Pos {
	src, from := l.stream()
	if p := src.Acked(); from.Less(p) {
		return p
	}
	return from
}

// retire turns a drained leader into a follower without a restart: the dump ends, the feed begins again. What this life executes
// from now on is its own affair, and is remembered as such.
func (n *Node) retire(ctx context.Context, l *life) error {
	n.mu.Lock()
	pump := n.serving.pump
	n.mu.Unlock()
	old, _ := l.stream()
	pos := l.acked()
	_ = old.Close()
	pctx, cancel := context.WithTimeout(ctx, retirePatience)
	defer cancel()
	if pump != nil {
		select {
		case <-pump:
		case <-pctx.Done():
			return fmt.Errorf("the stream of its binary log did not end: %w", pctx.Err())
		}
	}
	_, committed := n.led.Snapshot()
	failpoint.Hit("retire.before-persist")
	if err := n.local.update(func(s *localState) { s.Retired[l.incarnation] = committed.Last(gtid.SID{UUID: l.uuid}) }); err != nil {
		return err
	}
	failpoint.Hit("retire.after-persist")
	src := n.newSource(l)
	if err := src.Prepare(pctx); err != nil {
		return errors.Join(err, src.Close())
	}
	l.mu.Lock()
	l.source, l.consumed = src, pos
	l.mu.Unlock()
	n.mu.Lock()
	n.srv.stuck, l.events = "", false
	n.mu.Unlock()
	if err := l.admin.SetEventScheduler(pctx, false); err != nil {
		return err
	}
	// Read-only and drained, so that nobody waits whose commit Raft does not have (S4); looked at once more, since XA COMMIT of a
	// session's own transaction is not stopped by super_read_only.
	if s, err := l.admin.WaitingSessions(pctx); err != nil || s.Waiting > 0 {
		return errors.Join(err, fmt.Errorf("%d sessions wait for an acknowledgement", s.Waiting))
	}
	n.feed.SetPaused(false)
	// This takes up to a second: the plugin's receiver of acknowledgements looks once a second whether it should end.
	if err := l.admin.SetSemisync(pctx, false); err != nil {
		return err
	}
	if err := n.limitTransactions(pctx, l, 0, always); err != nil { // what it adopts at its next promotion knows no limit
		return err
	}
	err := l.admin.SetDurabilityRole(pctx, false)
	failpoint.Hit("retire.done")
	return err
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
