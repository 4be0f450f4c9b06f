package node

import (
	"context"
	"fmt"
	"math"
	"time"

	"trireme/internal/router"
)

// routerReads is how this node's router finds out what servers show.
type routerReads struct{ n *Node }

var _ router.Reads = routerReads{}

// Barrier implements router.Reads. While leadership moves it waits for who leads next.
func (r routerReads) Barrier(ctx context.Context) (uint64, error) {
	for {
		index, err := r.n.ReadBarrier(ctx)
		if err == nil || ctx.Err() != nil {
			return index, err
		}
		select {
		case <-time.After(farRetry):
		case <-ctx.Done():
			return 0, err
		}
	}
}

// Answered implements router.Reads. This node's ledger has an entry before mysqld hears that it is committed.
func (r routerReads) Answered(ctx context.Context, node string) (uint64, error) {
	if node == r.n.id.Name {
		return r.n.led.Index(), nil
	}
	return r.Barrier(ctx)
}

// Everywhere implements router.Reads.
func (r routerReads) Everywhere(ctx context.Context, index uint64) error {
	return r.n.WaitAppliedEverywhere(ctx, index)
}

// Applied implements router.Reads.
func (r routerReads) Applied(ctx context.Context, node string, index uint64) error {
	r.n.mu.Lock()
	m, ok := r.n.cluster.Member(node)
	r.n.mu.Unlock()
	if !ok {
		return fmt.Errorf("%s is no member any more", node)
	}
	return r.n.waitAppliedOn(ctx, m.ID, index)
}

// Log implements router.Reads. A force-quorum gives entries up: indexes from before it may mean something else.
func (r routerReads) Log() string {
	r.n.mu.Lock()
	defer r.n.mu.Unlock()
	return fmt.Sprintf("%s/%d", r.n.id.Cluster, r.n.generation.NumberOf())
}

// followerLags is how far the nodes are behind, those that do not know it endlessly.
func (n *Node) followerLags() map[string]time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	own, _ := n.lagLocked()
	lags := map[string]time.Duration{n.id.Name: own}
	for _, p := range n.peers {
		if m := p.status.Member; m.MySQL != nil && p.fresh() {
			if lags[m.Name] = math.MaxInt64; m.MySQL.LagSeconds != nil {
				lags[m.Name] = agedLag(secondsOf(*m.MySQL.LagSeconds), now()-p.at)
			}
		}
	}
	return lags
}

// sessionsFollowed says whether a router may have sessions that a planned switchover holds at a boundary.
func (n *Node) sessionsFollowed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.follows || n.routers.Any() {
		return true
	}
	for _, p := range n.peers {
		if p.fresh() && p.status.Follows {
			return true
		}
	}
	return false
}
