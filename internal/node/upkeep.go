package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"trireme/internal/ha"
	"trireme/internal/mysqld"
	"trireme/internal/node/lifecycle"
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
		if now() < next && !n.logsPinned() && !n.lives.WatchesXA() {
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
	for _, p := range n.gossip.Peers() {
		if p.Fresh() && p.Member.Raft.LogPinned != "" {
			return true
		}
	}
	return n.pinned != ""
}

// keepDurable moves the durable index (S8).
func (n *Node) keepDurable(ctx context.Context) {
	n.mu.Lock()
	s, applied := n.lives.Status(), n.srv.backlog.Applied
	n.mu.Unlock()
	l := s.Life()
	if l == nil || s.State() != ha.ServerReady {
		return
	}
	err := l.KeepDurable(ctx, applied)
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		n.fail(err) // the disk does not take 100 bytes: nothing here can be relied on
		return
	}
	if n.warnings.isNew("durable index", err) {
		n.log.Warn("the durable index was not written down", "err", err) // an older one is as true
	}
}

// tidyBinlog deletes files of the leader's binary log that Raft has whole.
func (n *Node) tidyBinlog(ctx context.Context) {
	s := n.lives.Status()
	l := s.Life()
	if l == nil || !s.Opens(l) {
		return
	}
	if err := l.TidyBinlog(ctx); n.warnings.isNew("purge binlog", err) {
		n.log.Warn("mysqld's binary log was not purged", "err", err)
	}
}

// tendApplier starts a follower's receiver or applier again when it has stopped, and cuts sessions that hold it up.
// While it does not run, the node is no candidate.
func (n *Node) tendApplier(ctx context.Context) {
	n.mu.Lock()
	s, failure := n.lives.Status(), n.srv.failure
	lag := time.Duration(0)
	if !n.srv.backlog.Since.IsZero() {
		lag = time.Since(n.srv.backlog.Since)
	}
	if n.delayLocked() > 0 { // what is held back is not held up
		lag, _ = n.lagLocked()
	}
	n.mu.Unlock()
	l := s.Life()
	if l == nil {
		return
	}
	if s.State() == ha.ServerBroken && failure != nil && failure.view.Diverged {
		n.healDiverged(ctx, l, *failure)
		return
	}
	switch {
	case s.State() == ha.ServerReady && s.Phase() == ha.PhasePromoting: // it applies the rest first
		n.watchLeftOut(ctx, l)
		return
	case !s.Follows():
		l.ForgetLeftOut()
		return
	}
	if lag > spaceInterval && n.sleepsInVain(ctx, l) {
		n.mu.Lock()
		stands := n.lives.BeginRestart(l)
		n.mu.Unlock()
		if stands {
			n.restartServer("it waited for space on a disk that has room again")
		}
		return
	}
	full, stalled := n.outOfSpace()
	st, err := l.Admin().ReplicaStatus(ctx)
	if err != nil { // one whose receiver waits for space does not tell
		if stalled {
			n.noteApplier(l,
				cmp.Or(full,
					"nothing is applied, and mysqld does not tell why; one that has waited for space continues within a minute"))
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
	case lag > lifecycle.BlockerPatience:
		l.KillBlockers(ctx)
	}
	n.watchLeftOut(ctx, l)
}

// wakePause is how old a life is that is ended because it waits for space: a disk may be full although it says that it
// has room.
const wakePause = 10 * time.Second

// sleepsInVain says whether mysqld waits for space although each of this node's disks has room. It would sleep for the
// rest of a minute; a KILL of that thread leaves an event cut short in the relay log, so only a new start helps.
func (n *Node) sleepsInVain(ctx context.Context, l *lifecycle.Life) bool {
	if s := n.lives.Status(); now() < s.Server.View().Since+wakePause {
		return false
	}
	waits, err := l.Admin().WaitsForSpace(ctx)
	return err == nil && waits && n.lowestSpace(spaceLow) == ""
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
func (n *Node) noteApplier(l *lifecycle.Life, problem string) (changed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lives.Life() != l {
		return false
	}
	changed = n.srv.applier != problem
	n.srv.applier = problem
	if changed {
		n.gossip.Publish()
	}
	if f := n.srv.failure; f != nil && !f.view.Diverged && problem == "" && n.srv.backlog.Applied >= f.view.Index {
		n.srv.failure = nil
	}
	return changed
}

// watchLeftOut takes a follower out of service whose applier has left a transaction out.
func (n *Node) watchLeftOut(ctx context.Context, l *lifecycle.Life) {
	if what, index, executed := l.LeftOut(ctx); index != 0 {
		n.fenceDiverged(l, n.explainLeftOut(what, index, executed))
	}
}
