package node

import (
	"context"

	"trireme/internal/node/lifecycle"
)

// promote makes this node's mysqld the one that takes writes in term, and tells of it.
func (n *Node) promote(ctx context.Context, leader *lifecycle.Leader, l *lifecycle.Life, term uint64) {
	t := n.beginTakeover(term, l.Incarnation)
	applied, err := leader.Promote(ctx)
	if err != nil {
		return
	}
	t.applied, t.opened = applied, now()
	n.addresses.UpdateSoon()
	n.task(func(ctx context.Context) { n.reportTakeover(ctx, t) })
	n.startEvents(ctx, l)
}
