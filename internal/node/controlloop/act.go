package controlloop

import (
	"context"
	"errors"
	"fmt"

	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/mysql/gtid"
	"trireme/internal/node/gossip"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/seeding"
)

// act begins one action of the policy. What it rests on is read again first: mysqld may have died and the term may have
// moved on since the View was made. An action of an older term is dropped, except a fence (S7).
func (c *Loop) act(a ha.Action) {
	term := c.Host.Raft().Status().Term
	c.Mu.Lock()
	defer c.Mu.Unlock()
	l, stands := c.Lives.Begin(a, term)
	if !stands {
		return
	}
	switch a.Kind {
	case ha.StartServer:
		c.Host.Go(c.start)
	case ha.Judge:
		c.Host.Go(func(ctx context.Context) { c.judge(ctx, l) })
	case ha.Seed:
		c.Host.Go(c.Host.Seed)
	case ha.Promote:
		c.ServeLocked(func(ctx context.Context) { c.Host.Promote(ctx, c.Leader(l, a.Term), l, a.Term) })
	case ha.Fence:
		c.fenceLocked(a.Reason)
	case ha.Restart:
		c.Host.Go(func(context.Context) { c.Host.Restart(a.Reason) })
	case ha.HandOver:
		c.Host.Go(c.Leadership.Begin(a).HandOver)
	case ha.Switchover:
		attempt, leader := c.Leadership.Begin(a), c.Leader(l, a.Term)
		c.ServeLocked(func(ctx context.Context) { attempt.Switchover(ctx, leader) })
	}
}

// ServeLocked runs a promotion, or what closes writes by plan: a fence cancels it and waits for its end.
func (c *Loop) ServeLocked(f func(ctx context.Context)) {
	ctx, cancel := c.Time.WithCancel(c.Host.Context())
	done := make(chan struct{})
	var before <-chan struct{}
	c.Lives.Change(func(s *lifecycle.Status) { before = s.Run(cancel, done) })
	c.Gossip.Publish()
	c.Host.Go(func(end context.Context) {
		defer close(done)
		f(ctx)
		cancel()
		if before != nil {
			c.Host.WakeLoop()
			_ = c.Time.Wait(end, before)
		}
	})
}

// fenceLocked begins a fence, whatever is under way.
func (c *Loop) fenceLocked(reason string) {
	if s := c.Lives.Status(); s.TakesWrites() {
		c.Gossip.Leave(s.Term(), gossip.Leave{Cause: reason})
	}
	c.Lives.BeginFence()
	c.Gossip.Publish()
	c.Host.Go(func(ctx context.Context) {
		c.Host.Fencing(reason)
		c.Host.Fenced(reason, c.Lives.Fence(ctx, c.LeaderHost()))
		c.LeaderHost().Change((*lifecycle.Status).End)
	})
}

// start begins a new incarnation: fresh server_uuid, no binary log, read-only (S5).
func (c *Loop) start(ctx context.Context) {
	l, err := c.Lives.Start(ctx)
	c.Mu.Lock()
	defer c.Mu.Unlock()
	if err != nil {
		c.Lives.Change(func(s *lifecycle.Status) { s.StartFailed(err, c.ID.Name) })
		c.Host.NotStarted()
		return
	}
	c.Host.Started(l)
	c.Lives.Change(func(s *lifecycle.Status) { s.Started(l) })
	c.Gossip.Publish()
}

// Dying lets a fence and a hand-over begin before the kernel is done with mysqld. A server that is being seeded ends
// and starts as its seeding wants.
func (c *Loop) Dying(l *lifecycle.Life) {
	c.Mu.Lock()
	if s := c.Lives.Status(); s.Life() == l && s.State() == ha.ServerReady {
		c.endsLocked((*lifecycle.Status).Dying)
	}
	c.Mu.Unlock()
	c.Host.WakeLoop()
}

// Dead: the process of a life has ended.
func (c *Loop) Dead(l *lifecycle.Life) {
	c.Mu.Lock()
	if c.Lives.Life() == l {
		c.endsLocked((*lifecycle.Status).Dead)
	}
	c.Mu.Unlock()
	c.Host.WakeLoop()
}

// endsLocked notes how a life ends, and the reason, if something else ended it.
func (c *Loop) endsLocked(how func(*lifecycle.Status)) {
	why := c.Host.WhyEnded()
	c.Lives.Change(func(s *lifecycle.Status) {
		if why != "" {
			s.EndedBecause(why)
		}
		how(s)
	})
	c.Gossip.Publish()
}

// EndServer sends SIGKILL to a life's process. One that hangs in the kernel, with its disk, can stay for longer: it
// does nothing any more, and is not waited for.
func (c *Loop) EndServer(l *lifecycle.Life) {
	if err := c.Host.Kill(l); err != nil {
		c.Host.Fail(fmt.Errorf("mysqld cannot be killed: %w", err)) // it ends with this process
		return
	}
	c.Mu.Lock()
	defer c.Mu.Unlock()
	if c.Lives.Life() == l {
		c.endsLocked((*lifecycle.Status).Dying)
	}
}

// FeedFailed is told what ends the feed of mysqld permanently.
func (c *Loop) FeedFailed(err error) {
	c.LeaderHost().Fence("promotion failed: the feed: "+err.Error(),
		func(s *lifecycle.Status) bool { return s.FeedFailed(err) })
	c.Gossip.Publish()
	c.Host.WakeLoop()
}

// Outcome is what came of a judgement.
type Outcome int

// Outcomes of judgements.
const (
	Ready    Outcome = iota // mysqld is fed
	Unjudged                // it could not be judged, and is judged again in a moment
	Lags                    // the log does not have what it needs any more: it is seeded
	Void                    // it holds what operators have declared void: it is seeded
	Broken                  // its data does not match the committed log (S5)
)

// Verdict is a judgement, and what came of it.
type Verdict struct {
	Outcome Outcome
	*ledger.Judgement
	RolledBack gtid.Set // what was lost with the life before
	Err        error    // of Unjudged and Void
	Again      bool     // Unjudged for the same reason as the time before
}

// judge decides by S5 whether what InnoDB holds is a prefix of what was acknowledged, plugs the holes and lets the feed
// begin.
func (c *Loop) judge(ctx context.Context, l *lifecycle.Life) {
	if c.Host.Differs(l) {
		return
	}
	j, rolledBack, err := l.Judge(ctx)
	if errors.Is(err, lifecycle.ErrStillFed) && ctx.Err() == nil {
		c.Host.Restart(err.Error()) // and so it is not judging any more
	}
	v := Verdict{Judgement: j, RolledBack: rolledBack, Err: err}
	if c.judged(l, &v) {
		c.Host.Judged(ctx, l, v)
	}
}

// judged changes the status by a judgement. false: the life has died meanwhile.
func (c *Loop) judged(l *lifecycle.Life, v *Verdict) bool {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	s := c.Lives.Status()
	if s.Life() != l || s.State() != ha.ServerJudging {
		return false
	}
	switch {
	case errors.Is(v.Err, seeding.ErrHoldsVoid):
		v.Outcome = Void
		c.ReplaceDataLocked(v.Err.Error())
	case v.Err != nil: // also when the log was purged meanwhile: the next judgement sees where it begins now
		v.Outcome, v.Again = Unjudged, s.Problem() == v.Err.Error()
		c.Lives.Change(func(s *lifecycle.Status) { s.Unjudged(v.Err.Error()) })
	case v.Behind:
		v.Outcome = Lags
		first, _ := c.Lives.Log.FirstIndex()
		c.ReplaceDataLocked(fmt.Sprintf("the log begins at entry %d and mysqld needs earlier ones", first))
	case !v.Consistent():
		v.Outcome = Broken
		c.Lives.Change(func(s *lifecycle.Status) { s.Broken(fmt.Sprint(v.Problems)) })
		c.Gossip.Publish()
	default:
		c.Lives.Change((*lifecycle.Status).Ready)
		c.Gossip.Publish()
	}
	return true
}

// ReplaceDataLocked has this member's data replaced by a copy of another one's.
func (c *Loop) ReplaceDataLocked(why string) {
	c.Lives.Change(func(s *lifecycle.Status) { s.Behind(why) })
	c.Gossip.Publish()
}
