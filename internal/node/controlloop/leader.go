package controlloop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trireme/internal/base/rule"
	"trireme/internal/core/consensus"
	"trireme/internal/core/dump"
	"trireme/internal/core/ha"
	"trireme/internal/node/lifecycle"
)

// Leader is l as what takes writes in a term, or is to.
func (c *Loop) Leader(l *lifecycle.Life, term uint64) *lifecycle.Leader {
	return c.Lives.Leader(l, term, c.LeaderHost())
}

// LeaderHost is what a life that leads sees of the member.
func (c *Loop) LeaderHost() lifecycle.LeaderHost { return leaderHost{c, c.Host} }

type leaderHost struct {
	*Loop
	Clients
}

func (c leaderHost) AwaitLease(ctx context.Context, patience time.Duration) error {
	return c.Leadership.AwaitLease(ctx, patience)
}

func (c leaderHost) MayOpen(l *lifecycle.Life, term uint64, from ha.Phase) error {
	st := c.Host.Raft().Status()
	c.Mu.Lock()
	defer c.Mu.Unlock()
	s := c.Lives.Status()
	if err := s.MayOpen(l, term, from); err != nil {
		return err
	}
	if !c.Host.MayServe() || st.Term != term || st.Role != consensus.Leader {
		return consensus.ErrNotLeader
	}
	c.guardStepLocked(lifecycle.OpenPatience)
	return nil
}

func (c leaderHost) Opened(l *lifecycle.Life, term uint64, from ha.Phase) error {
	c.Log.Info("mysqld takes writes", "term", term)
	c.Mu.Lock()
	defer c.Mu.Unlock()
	if s := c.Lives.Status(); s.Phase() != from || s.Life() != l {
		return consensus.ErrNotLeader
	}
	c.Lives.Change((*lifecycle.Status).Open)
	c.Gossip.Opened(term)
	c.Gossip.Publish()
	c.Host.WakeLoop() // the loop tells the guard: this step has ended
	return nil
}

func (c leaderHost) Change(f func(*lifecycle.Status)) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.Lives.Change(f)
	c.Gossip.Publish()
}

func (c leaderHost) Fence(reason string, stands func(*lifecycle.Status) bool) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	yes := false
	c.Lives.Change(func(s *lifecycle.Status) { yes = stands(s) })
	if yes {
		c.fenceLocked(reason)
	}
}

func (c leaderHost) Carry(l *lifecycle.Life, src lifecycle.Stream, term uint64, ended func()) {
	c.Host.Go(func(member context.Context) {
		defer ended()
		ctx, cancel := c.Time.WithCancel(member)
		defer cancel()
		if err := c.Acks.Carry(ctx, cancel, src, term); member.Err() == nil {
			c.streamEnded(l, term, err)
		}
	})
}

// streamEnded is told why the stream of a life's binary log is not carried to Raft any more.
func (c *Loop) streamEnded(l *lifecycle.Life, term uint64, err error) {
	switch {
	case errors.Is(err, dump.ErrClosed):
	case errors.Is(err, consensus.ErrNotLeader):
		c.Host.WakeLoop() // it fences: what was dropped makes the life undrained
	case errors.Is(err, dump.ErrInvariant):
		err = fmt.Errorf("the stream of its binary log is broken: %w", err)
		c.Log.Error("mysqld is killed, to be judged again", rule.Fields(err)...) // after a full disk: docs/mysql.md
		c.Host.Restart(err.Error())
	default:
		c.Log.Error("the stream of mysqld's binary log ended; fencing", "err", err, "term", term)
		l.Stall("its binary log cannot be read: " + err.Error())
		c.Host.WakeLoop()
	}
}

func (c leaderHost) GuardStep(limit time.Duration) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.guardStepLocked(limit)
}

// tellGuard: see lifecycle.Lives.TellGuard.
func (c *Loop) tellGuard(lease time.Duration) (until time.Duration) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.Lives.TellGuard(lease + c.Leadership.Grace())
}

// guardStepLocked: see lifecycle.Lives.GuardStep.
func (c *Loop) guardStepLocked(limit time.Duration) {
	c.Lives.GuardStep(limit, c.Leadership.Lease(time.Duration(c.Host.Raft().LeaseUntil()))+c.Leadership.Grace())
	if limit != 0 {
		c.Host.WakeLoop() // it tells the guard when that changes
	}
}
