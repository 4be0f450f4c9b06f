package node

import (
	"cmp"
	"context"
	"time"

	"trireme/internal/node/lifecycle"
)

// fence carries out a fence that has begun, and tells of it.
func (n *Node) fence(ctx context.Context, reason string) {
	n.routes()
	n.gossip.Broadcast()
	began := now()
	f := n.lives.Fence(ctx, leaderHost{n})
	n.log.Warn("fenced", "reason", reason, "term", f.Term, "outcome", cmp.Or(f.Outcome, "mysqld is dead"), "ms",
		ms(now()-began))
	text := reason
	if f.Outcome != "" {
		text += ": " + f.Outcome
	}
	e := n.event("fence", 0, text)
	e.Term, e.Drained = f.Term, f.Drained
	n.history.add(e)
	leaderHost{n}.Change((*lifecycle.Status).End)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// tellGuard: see lifecycle.Lives.TellGuard.
func (n *Node) tellGuard(lease time.Duration) (until time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lives.TellGuard(lease + n.leadership.Grace())
}

// guardStepLocked: see lifecycle.Lives.GuardStep.
func (n *Node) guardStepLocked(limit time.Duration) {
	n.lives.GuardStep(limit, n.leadership.Lease(time.Duration(n.cons.LeaseUntil()))+n.leadership.Grace())
	if limit != 0 {
		n.wakeLoop() // it tells the guard when that changes
	}
}
