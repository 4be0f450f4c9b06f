package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"trireme/internal/core/ha"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/room"
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

// updateDurable calls keepDurable every durableInterval, and sooner while some node's log is larger than it should be,
// or XA transactions are prepared here.
func (n *Node) updateDurable() func(ctx context.Context) {
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
	return n.room.State().Pinned != ""
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

// restartApplier starts a follower's receiver or applier again when it has stopped, and cuts sessions that hold it up.
// While it does not run, the node is no candidate.
func (n *Node) restartApplier(ctx context.Context) {
	n.mu.Lock()
	s := n.lives.Status()
	lag := time.Duration(0)
	if !n.srv.backlog.Since.IsZero() {
		lag = time.Since(n.srv.backlog.Since)
	}
	if n.delay.Configured() > 0 { // what is held back is not held up
		lag, _ = n.lagLocked()
	}
	n.mu.Unlock()
	l := s.Life()
	if l == nil {
		return
	}
	if s.State() == ha.ServerBroken && n.seeding.HealDiverged(ctx, l) {
		return
	}
	switch {
	case s.State() == ha.ServerReady && s.Phase() == ha.PhasePromoting: // it applies the rest first
		n.seeding.WatchLeftOut(ctx, l)
		return
	case !s.Follows():
		l.ForgetLeftOut()
		return
	}
	if lag > room.SpaceInterval && n.sleepsInVain(ctx, l) {
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
			n.seeding.NoteApplier(l,
				cmp.Or(full,
					"nothing is applied, and mysqld does not tell why; one that has waited for space continues within a minute"))
		}
		return
	}
	problem := ""
	switch {
	case !st.SQLRunning && st.SQLErrno != 0:
		n.seeding.Mend(ctx, l, st)
		return
	case !st.SQLRunning:
		problem = "the applier has stopped"
	case st.IOState == "No":
		problem = fmt.Sprintf("the receiver has stopped: error %d: %s", st.IOErrno, st.IOError)
	}
	changed := n.seeding.NoteApplier(l, cmp.Or(problem, full))
	switch {
	case problem != "":
		if changed {
			n.log.Error("replication from the feed stopped; starting it again", "err", problem)
		}
		if err := l.RestartFeed(ctx); err != nil {
			n.log.Debug("replication did not start", "err", err)
		}
	case lag > lifecycle.BlockerPatience:
		l.KillBlockers(ctx)
	}
	n.seeding.WatchLeftOut(ctx, l)
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
	return err == nil && waits && n.room.HasSpace()
}

// outOfSpace says whether the applier stands still, and that a disk is full then; empty: none is.
func (n *Node) outOfSpace() (full string, stalled bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stalledLocked() == 0 {
		return "", false
	}
	if full = n.room.State().Full(); full != "" {
		full += ", and nothing is applied; make room"
	}
	return full, true
}

// watchOpen notes that somebody takes writes.
func (n *Node) watchOpen(context.Context) {
	s, own := n.lives.Status(), uint64(0)
	if s.TakesWrites() {
		own = s.Term()
	}
	if err := n.gossip.SeeOpen(own); n.warnings.isNew("open.json", err) {
		n.log.Warn("when writes were last taken was not written down", "err", err)
	}
}
