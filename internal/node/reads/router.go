package reads

import (
	"context"
	"fmt"

	"trireme/internal/base/poll"
)

// Router is how this node's router finds out what servers show.
type Router struct {
	*Reads
	LogName string // of the log that indexes belong to
}

// Barrier is Reads.Barrier that waits for who leads next while leadership moves.
func (r Router) Barrier(ctx context.Context) (index uint64, err error) {
	err = poll.Until(ctx, func(ctx context.Context) error {
		index, err = r.Reads.Barrier(ctx)
		return err
	})
	return index, err
}

// Answered covers what a node's server has answered. This node's ledger has an entry before mysqld hears that it is
// committed.
func (r Router) Answered(ctx context.Context, node string) (uint64, error) {
	if node == r.id.Name {
		return r.ledger.Index(), nil
	}
	return r.Barrier(ctx)
}

// Everywhere is WaitEverywhere.
func (r Router) Everywhere(ctx context.Context, index uint64) error {
	return r.WaitEverywhere(ctx, index)
}

// Applied waits until a node's server has applied an index.
func (r Router) Applied(ctx context.Context, node string, index uint64) error {
	m, ok := r.host.Settings().Member(node)
	if !ok {
		return fmt.Errorf("%s is no member any more", node)
	}
	return r.waitOn(ctx, m.ID, index)
}

// Log names the log that indexes belong to.
func (r Router) Log() string { return r.LogName }
