package node

import (
	"math"
	"time"
)

// followerLags is how far the nodes lag; without end where that is not known.
func (n *Node) followerLags() map[string]time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	own, _ := n.lagLocked()
	lags := map[string]time.Duration{n.id.Name: own}
	for _, p := range n.gossip.Peers() {
		if lag, known := p.Lag(); p.Member.MySQL != nil && p.Fresh() {
			if lags[p.Member.Name] = math.MaxInt64; known {
				lags[p.Member.Name] = lag
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
	for _, p := range n.gossip.Peers() {
		if p.Fresh() && p.Follows {
			return true
		}
	}
	return false
}
