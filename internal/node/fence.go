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
