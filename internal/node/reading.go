package node

import (
	"math"
	"time"
)

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
