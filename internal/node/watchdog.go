package node

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"trireme/internal/base/poll"
	"trireme/internal/base/systemd"
)

// watchdog tells the service manager that this daemon works: not that it runs, but that its loop and raft's goroutine
// make progress. The guard stops a node that serves and hangs, within a lease (S10). The manager does the same for one
// that does not serve, within a minute: it starts the daemon again.
//
// A disk or a mysqld that hangs is no reason for a restart, and holds up neither of the two.
type watchdog struct {
	manager *systemd.Manager
	proof   atomic.Pointer[func(context.Context) error] // nil: no node runs now, one is being opened or closed
}

// errStandsStill: nothing happened between two looks.
var errStandsStill = errors.New("the node's loop does not progress")

// feed goes on until ctx ends. It looks often enough that one look may fail.
func (w *watchdog) feed(ctx context.Context, log *slog.Logger) {
	wait := w.manager.Watchdog()
	if wait == 0 {
		return
	}
	tick := time.NewTicker(wait / 4)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := w.look(ctx, wait/4); err == nil {
			w.manager.Feed()
		} else if ctx.Err() == nil {
			log.Error("the service manager is not told that this daemon works", "err", err, "aborts_after", wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look asks for the proof.
func (w *watchdog) look(ctx context.Context, limit time.Duration) error {
	proof := w.proof.Load()
	if proof == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return (*proof)(ctx)
}

// watch says which node is to prove that it works; nil: none.
func (w *watchdog) watch(n *Node) {
	if n == nil {
		w.proof.Store(nil)
		return
	}
	proof := n.getsOn
	w.proof.Store(&proof)
}

// getsOn waits until the loop has begun another turn and raft's goroutine has answered.
func (n *Node) getsOn(ctx context.Context) error {
	n.wakeLoop()
	for seen := n.turns.Load(); n.turns.Load() == seen; {
		if poll.Pause(ctx, turnPoll) != nil {
			return errStandsStill
		}
	}
	return n.cons.Answers(ctx)
}

// turnPoll is how often getsOn looks.
const turnPoll = 5 * time.Millisecond
