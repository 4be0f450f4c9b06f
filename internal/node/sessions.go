package node

import (
	"context"
	"fmt"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/api"
)

// confirmPatience bounds one question to the leader.
const confirmPatience = time.Second

// sessionServers is what this node's router asks about the servers that its sessions write to.
type sessionServers struct{ *Node }

// confirm says whether a target of a view still takes writes in its epoch. What this node was told may be seconds old,
// or have waited that long in a socket; by then another node may lead, and the mysqld at that address may be a later
// one, which follows or is not even judged. Only the node itself knows, and its word counts from when it was asked.
func (n sessionServers) confirm(ctx context.Context, t router.Target) error {
	_, err := n.Reached(ctx, t)
	return err
}

// Reached implements router.Outcomes.
func (n sessionServers) Reached(ctx context.Context, t router.Target) (uint64, error) {
	if t.Name == n.id.Name {
		return n.Serves(ctx, t.Epoch)
	}
	m, err := n.findMember(t.Name)
	if err != nil {
		return 0, err
	}
	return n.serving.Do(ctx, t, func() (uint64, error) {
		ctx, cancel := context.WithTimeout(n.ctx, confirmPatience)
		defer cancel()
		index, err := reqServes.Ask(ctx, n.tr, m.ID, t.Epoch)
		if err != nil || len(index) == 0 {
			return 0, err
		}
		return index[0], nil
	})
}

// Serves implements api.Backend. It says whether this node's mysqld takes writes in an epoch, and may be read from
// (S10). The index is at or above every commit that it has answered in that epoch before the call.
func (n *Node) Serves(ctx context.Context, epoch string) (index uint64, err error) {
	// The death of a voter takes its answer out of the lease; a fresh round gives it back a moment later.
	if err := n.leadership.AwaitLease(ctx, n.leadership.Grace()); err != nil {
		return 0, err
	}
	st := n.cons.Status()
	n.mu.Lock()
	defer n.mu.Unlock()
	if open, mine := n.epochOf(&st); open == 0 || mine != epoch || n.lives.Life() == nil || !n.cons.HoldsLease() {
		return 0, fmt.Errorf("%s does not take writes in epoch %q any more", n.id.Name, epoch)
	}
	return n.led.Index(), nil // an entry is counted there before it is acknowledged
}

// Outcome implements router.Outcomes.
func (n sessionServers) Outcome(ctx context.Context, sent api.OutcomeQuery) api.OutcomeResult {
	o, err := n.reads.Outcome(ctx, sent)
	switch {
	case err != nil: // a follower, say, which takes no writes
		n.log.Debug("outcome of a statement", "err", err)
		return api.OutcomeUnknown
	case o.Result == api.OutcomeUnknown:
		n.log.Info("the outcome of a statement is not known", "node", sent.Node, "epoch", sent.Epoch, "thread", sent.Thread,
			"why", o.Why)
	}
	return o.Result
}

// sessionCluster is the cluster for sessions of this node's router.
type sessionCluster struct{ *Node }

// View implements router.Cluster.
func (n sessionCluster) View(ctx context.Context) (api.ClusterView, error) {
	if !n.up() {
		return api.ClusterView{}, n.stops()
	}
	return n.Node.View(ctx), nil
}

func (n sessionCluster) stops() error {
	return api.Errorf(api.KindNoLeader, "%s is stopping", n.id.Name).With("ask another node")
}
