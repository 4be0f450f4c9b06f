package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"trireme/internal/base/failpoint"
	"trireme/internal/base/mutant"
	"trireme/internal/core/ha"
	"trireme/internal/node/lifecycle"
)

// fence makes this node unable to serve, for sure: clients are cut, and unless mysqld is drained within fencePatience
// (no commit waits, all that it wrote is committed) it is killed.
func (n *Node) fence(ctx context.Context, reason string) {
	n.routes()
	n.gossip.Broadcast()
	s := n.lives.Status()
	l, term := s.Life(), s.Term()
	failpoint.Hit("fence.begin")
	began := now()
	n.dropVIP()
	how, drained := "", false
	switch {
	case l != nil && s.State() == ha.ServerDying:
		n.endServer(l) // the one that began it may not have come that far
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
	n.lives.Change((*lifecycle.Status).End)
	n.gossip.Publish()
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

// awaitServeTask waits for the end of a promotion or switchover that was cancelled: it must not touch a life that goes
// on.
func (n *Node) awaitServeTask(ctx context.Context) error {
	s := n.lives.Status()
	if s.Done() == nil {
		return nil
	}
	select {
	case <-s.Done():
		return nil
	case <-ctx.Done():
		return errors.New("what was under way did not end in time")
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// tellGuard moves ahead the moment at which the guard kills mysqld: with the lease, while writes are open (S10). A loop
// that hangs, or a daemon that is stopped, cannot do that. The moment lies at most one election timeout after the last
// proof of leadership: no other node can have been elected before. It is returned; 0: there is none.
func (n *Node) tellGuard(lease time.Duration) (until time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.lives.Status()
	until, told := s.GuardUntil(now(), lease+n.leadership.Grace())
	if told {
		n.guardUntilLocked(until)
	}
	return until
}

// guardStepLocked gives mysqld time for one step, as long as the lease runs: whatever mysqld does, a daemon that is
// stopped meanwhile leaves no reader once another node can lead. 0: the step has ended, and mysqld serves
// nothing.
func (n *Node) guardStepLocked(limit time.Duration) {
	if limit == 0 {
		n.lives.Change(func(s *lifecycle.Status) { s.BeginStep(0) })
		n.guardUntilLocked(0)
		return
	}
	var until time.Duration
	proven := n.leadership.Lease(time.Duration(n.cons.LeaseUntil())) + n.leadership.Grace()
	n.lives.Change(func(s *lifecycle.Status) {
		s.BeginStep(now() + limit + guardGrace)
		until = s.StepEnd(proven)
	})
	n.guardUntilLocked(until)
	n.wakeLoop() // it tells the guard when that changes
}

// guardUntilLocked: see guard.Until. 0: mysqld serves nothing.
func (n *Node) guardUntilLocked(t time.Duration) {
	if n.guard != nil {
		n.guard.Until(t)
	}
}
