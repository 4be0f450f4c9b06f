package node

import (
	"context"
	"fmt"

	"trireme/internal/access/router"
	"trireme/internal/api"
)

// sessionOutcomes is what this node's router asks about sessions that have lost their server.
type sessionOutcomes struct{ *Node }

// Reached implements router.Outcomes.
func (n sessionOutcomes) Reached(ctx context.Context, t router.Target) (uint64, error) {
	if t.Name == n.id.Name {
		return n.reachedHere(ctx, t.Epoch)
	}
	m, err := n.findMember(t.Name)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, confirmPatience)
	defer cancel()
	index, err := reqServes.Ask(ctx, n.tr, m.ID, t.Epoch)
	if err != nil {
		return 0, err
	}
	if len(index) != 1 { // of a daemon from before it told
		return 0, fmt.Errorf("%s does not tell its commit index", t.Name)
	}
	return index[0], nil
}

// reachedHere is an index at or above every commit that this node's mysqld has answered in an epoch before the call.
func (n *Node) reachedHere(ctx context.Context, epoch string) (uint64, error) {
	if err := n.servesHere(ctx, epoch); err != nil {
		return 0, err
	}
	return n.led.Index(), nil // an entry is counted there before it is acknowledged
}

// Outcome implements router.Outcomes.
func (n sessionOutcomes) Outcome(ctx context.Context, sent router.Sent) router.Outcome {
	o, err := n.reads.Outcome(ctx, api.OutcomeQuery{Node: sent.Node, Epoch: sent.Epoch, Thread: sent.Thread,
		Index: sent.Index,
		Sole:  sent.Others >= 0, Others: max(0, sent.Others)})
	switch {
	case err != nil: // a follower, say, which takes no writes
		n.log.Debug("outcome of a statement", "err", err)
	case o.Result == api.Committed:
		return router.OutcomeCommitted
	case o.Result == api.NotCommitted:
		return router.OutcomeNotCommitted
	default:
		n.log.Info("the outcome of a statement is not known", "node", sent.Node, "epoch", sent.Epoch, "thread", sent.Thread,
			"why", o.Why)
	}
	return router.OutcomeUnknown
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
