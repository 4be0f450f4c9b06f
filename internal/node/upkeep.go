package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"trireme/internal/failpoint"
	"trireme/internal/ha"
	"trireme/internal/mysqld"
)

// every calls f once per interval until the node stops.
func (n *Node) every(interval time.Duration, f func(ctx context.Context)) {
	n.task(func(ctx context.Context) {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				f(ctx)
			}
		}
	})
}

// tendDurable calls keepDurable every durableInterval, and sooner while some node's log is larger than it should be, or
// XA transactions are prepared here.
func (n *Node) tendDurable() func(ctx context.Context) {
	var next time.Duration
	return func(ctx context.Context) {
		if now() < next && !n.logsPinned() && !n.watchesXA() {
			return
		}
		next = now() + durableInterval
		n.keepDurable(ctx)
	}
}

// logsPinned says whether a log cannot be purged down to raft.log_max, here or on another node.
func (n *Node) logsPinned() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.peers {
		if p.fresh() && p.status.Member.Raft.LogPinned != "" {
			return true
		}
	}
	return n.pinned != ""
}

// keepDurable moves the durable index (S8): what is applied is noted first, then InnoDB's redo log is flushed, then the index is
// written down. It also says from where the log must be kept for this node.
func (n *Node) keepDurable(ctx context.Context) {
	n.mu.Lock()
	l, ready := n.srv.life, n.srv.state == ha.ServerReady
	n.mu.Unlock()
	if l == nil || !ready {
		return
	}
	// Open XA transactions are looked at first: one whose end is durable with this flush is then still counted as open.
	n.mu.Lock()
	known := n.srv.backlog.Applied
	n.mu.Unlock()
	executed := l.executedSet()
	xids, err := l.admin.XARecover(ctx)
	if err != nil {
		return
	}
	n.watchXA(l, known, executed, xids)
	applied, err := n.readApplied(ctx, l)
	if err != nil {
		return
	}
	before := n.local.get().Durable
	if applied > before {
		failpoint.Hit("durable.before-flush")
		if err := l.admin.FlushEngineLogs(ctx); err != nil {
			n.log.Debug("the engine's logs were not flushed", "err", err)
			return
		}
		failpoint.Hit("durable.after-flush")
		err := n.local.update(func(s *localState) { s.Durable = max(s.Durable, applied) })
		failpoint.Hit("durable.after-persist")
		if full := errors.Is(err, syscall.ENOSPC); full || err == nil {
			if n.warnings.isNew("durable index", err) {
				n.log.Warn("the durable index was not written down", "err", err) // an older one is as true
			}
			if full {
				return
			}
		}
		if err != nil {
			n.fail(err) // the disk does not take 100 bytes: nothing here can be relied on
			return
		}
	}
	// An open XA transaction may have to be prepared again on any node. Where its PREPARE lies is not worth an index of its
	// own: while one is open the log is not purged.
	keep := min(before, applied)
	if len(xids) > 0 {
		keep = 0
	}
	n.mu.Lock()
	n.keepFrom = keep
	n.mu.Unlock()
}

// tidyBinlog deletes files of the leader's binary log that Raft has whole.
func (n *Node) tidyBinlog(ctx context.Context) {
	n.mu.Lock()
	l, open, done := n.srv.life, n.serving.phase == ha.PhaseOpen, n.purgedFile
	n.mu.Unlock()
	if l == nil || !open {
		return
	}
	file := l.acked().File
	if file <= 1 || file == done {
		return
	}
	err := l.admin.PurgeBinlogs(ctx, fmt.Sprintf("binlog.%06d", file))
	if n.warnings.isNew("purge binlog", err) {
		n.log.Warn("mysqld's binary log was not purged", "err", err)
	}
	if err != nil {
		return
	}
	n.mu.Lock()
	n.purgedFile = file
	n.mu.Unlock()
}

// tendApplier starts a follower's receiver or applier again when it has stopped, and cuts sessions that hold it up. While it does not
// run, the node is no candidate.
func (n *Node) tendApplier(ctx context.Context) {
	n.mu.Lock()
	l, follows := n.srv.life, n.srv.state == ha.ServerReady && n.serving.phase == ha.PhaseNone
	promotes := n.srv.state == ha.ServerReady && n.serving.phase == ha.PhasePromoting
	failure, broken := n.srv.failure, n.srv.state == ha.ServerBroken
	lag := time.Duration(0)
	if !n.srv.backlog.Since.IsZero() {
		lag = time.Since(n.srv.backlog.Since)
	}
	if n.delayLocked() > 0 { // what is held back is not held up
		lag, _ = n.lagLocked()
	}
	n.mu.Unlock()
	if l == nil || n.keepPlain() {
		return
	}
	if broken && failure != nil && failure.view.Diverged {
		n.healDiverged(ctx, l, *failure)
		return
	}
	switch {
	case promotes: // it applies the rest first
		n.watchLeftOut(ctx, l)
		return
	case !follows:
		n.leftOut = leftOut{}
		return
	}
	full, stalled := n.outOfSpace()
	st, err := l.admin.ReplicaStatus(ctx)
	if err != nil { // one whose receiver waits for space does not tell
		if stalled {
			n.noteApplier(l, cmp.Or(full, "nothing is applied, and mysqld does not tell why; one that has waited for space continues within a minute"))
		}
		return
	}
	problem := ""
	switch {
	case !st.SQLRunning && st.SQLErrno == unknownXID:
		v := n.explain(ctx, l, mysqld.ApplyError{Number: st.SQLErrno, Text: st.SQLError})
		v.Diverged, v.Error = true, "the log ends an XA transaction that a session on this node has ended before: "+v.Error
		n.fenceDiverged(l, v)
		return
	case !st.SQLRunning && st.SQLErrno != 0:
		n.noteApplier(l, n.mendApplier(ctx, l, st))
		return
	case !st.SQLRunning:
		problem = "the applier has stopped"
	case st.IOState == "No":
		problem = fmt.Sprintf("the receiver has stopped: error %d: %s", st.IOErrno, st.IOError)
	}
	changed := n.noteApplier(l, cmp.Or(problem, full))
	switch {
	case problem != "":
		if changed {
			n.log.Error("replication from the feed stopped; starting it again", "err", problem)
		}
		n.startReplica(ctx, l)
	case lag > blockerPatience:
		n.killBlockers(ctx, l)
	}
	n.watchLeftOut(ctx, l)
}

// outOfSpace says whether the applier stands still, and that a disk is full then; empty: none is.
func (n *Node) outOfSpace() (full string, stalled bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stalledLocked() == 0 {
		return "", false
	}
	if n.full != "" {
		full = n.full + ", and nothing is applied; make room"
	}
	return full, true
}

// noteApplier keeps why replication from the feed does not run, and says whether that is new.
func (n *Node) noteApplier(l *life, problem string) (changed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.srv.life != l {
		return false
	}
	changed = n.srv.applier != problem
	n.srv.applier = problem
	n.publishNow = n.publishNow || changed
	if f := n.srv.failure; f != nil && !f.view.Diverged && problem == "" && n.srv.backlog.Applied >= f.view.Index {
		n.srv.failure = nil
	}
	return changed
}

// killBlockers ends sessions that hold a metadata lock for which the applier waits; it would wait for a year.
func (n *Node) killBlockers(ctx context.Context, l *life) {
	killed, err := l.admin.KillMetadataBlockers(ctx)
	for _, b := range killed {
		n.log.Warn("a session that held up replication was killed", "user", b.User, "host", b.Host, "object", b.Object, "statement", b.Info)
	}
	if err != nil && ctx.Err() == nil {
		n.log.Debug("looking for sessions that hold up replication", "err", err)
	}
}
