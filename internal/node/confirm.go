package node

import (
	"context"
	"fmt"
	"time"

	"trireme/internal/access/router"
)

// confirmPatience bounds one question to the leader.
const confirmPatience = time.Second

// confirmRoute says whether a target of a view still takes writes in its epoch. What this node was told may be seconds
// old, or have waited that long in a socket; by then another node may lead, and the mysqld at that address may be a
// later one, which follows or is not even judged. Only the node itself knows, and its word counts from when it was
// asked.
func (n *Node) confirmRoute(ctx context.Context, t router.Target) error {
	if t.Name == n.id.Name {
		return n.servesHere(ctx, t.Epoch)
	}
	m, err := n.findMember(t.Name)
	if err != nil {
		return err
	}
	_, err = n.routing.Ask(ctx, t, func() ([]uint64, error) {
		ctx, cancel := context.WithTimeout(n.ctx, confirmPatience)
		defer cancel()
		return reqServes.Ask(ctx, n.tr, m.ID, t.Epoch)
	})
	return err
}

// servesHere says whether this node's mysqld takes writes in an epoch, and may be read from (S10).
func (n *Node) servesHere(ctx context.Context, epoch string) error {
	// The death of a voter takes its answer out of the lease; a fresh round gives it back a moment later.
	if err := n.leadership.AwaitLease(ctx, n.leadership.Grace()); err != nil {
		return err
	}
	st := n.cons.Status()
	n.mu.Lock()
	defer n.mu.Unlock()
	if open, mine := n.epochLocked(&st); open == 0 || mine != epoch || n.lives.Life() == nil || !n.cons.HoldsLease() {
		return fmt.Errorf("%s does not take writes in epoch %q any more", n.id.Name, epoch)
	}
	return nil
}
