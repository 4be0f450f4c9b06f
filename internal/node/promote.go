package node

import (
	"context"
	"errors"
	"fmt"

	"trireme/internal/base/failpoint"
	"trireme/internal/base/mutant"
	"trireme/internal/core/consensus"
	"trireme/internal/core/dump"
	"trireme/internal/node/lifecycle"
)

// promote makes this node's mysqld the one that takes writes in term, and tells of it.
func (n *Node) promote(ctx context.Context, l *lifecycle.Life, term uint64) {
	t := n.beginTakeover(term, l.Incarnation)
	applied, err := n.leader(l, term).Promote(ctx)
	if err != nil {
		return
	}
	t.applied, t.opened = applied, now()
	n.updateVIPSoon()
	n.task(func(ctx context.Context) { n.reportTakeover(ctx, t) })
	n.startEvents(ctx, l)
}

// pump carries what mysqld writes to Raft until the incarnation, the term or the node ends.
func (n *Node) pump(l *lifecycle.Life, src lifecycle.Stream, term uint64) {
	n.load.drop()
	err := n.carry(src, term)
	switch {
	case n.ctx.Err() != nil, errors.Is(err, dump.ErrClosed):
		return
	case errors.Is(err, consensus.ErrNotLeader):
		n.wakeLoop() // the loop fences: what was dropped makes the life undrained
		return
	case errors.Is(err, dump.ErrInvariant):
		err = fmt.Errorf("the stream of its binary log is broken: %w", err)
		n.log.Error("mysqld is killed, to be judged again", whyStopped(err)...) // after a full disk: docs/mysql.md
		n.restartServer(err.Error())
		return
	}
	n.log.Error("the stream of mysqld's binary log ended; fencing", "err", err, "term", term)
	l.Stall("its binary log cannot be read: " + err.Error())
	n.wakeLoop()
}

// carry proposes what mysqld writes, on the engine, and says why it does not go on.
func (n *Node) carry(src lifecycle.Stream, term uint64) error {
	ctx, cancel := context.WithCancelCause(n.ctx)
	defer cancel(nil)
	over := false // what follows a proposal that is in no log must not be in one
	done := func(_, _ uint64, err error) {
		if err != nil {
			over = true
			cancel(err)
		}
	}
	return src.Run(ctx, func(p dump.Payload) (more bool) {
		if over {
			return false
		}
		n.load.begin(&p.Meta, p.Data)
		failpoint.Hit("source.before-propose")
		more = n.cons.Offer(term, p.Data, done, p.Release)
		failpoint.Hit("source.after-propose")
		if mutant.S1 {
			n.acks.Acknowledge(term, &p.Meta)
		}
		if !more {
			n.cons.WhenRoom(func() { n.engine.Do(src.Resume) })
		}
		return more
	})
}
