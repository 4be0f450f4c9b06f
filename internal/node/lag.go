package node

import (
	"math"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/node/gossip"
)

// How far mysqld lags, told so that it is never too little by more than gossip.LagTold and the way of a message.
// It counts from the commit on the leader, by the time stamp in the GTID event and what this host's clock differs from
// the leader's. What has not come here yet counts from when the leader first told of it. A status that is on its way,
// or is the last one, grows old with the lag in it (gossip.Peer.Lag).

// lagLocked is what mysqld has not applied of what is committed: since when the oldest of these entries is, and their
// bytes. A delayed learner lags with what it should have applied by now; what it holds back on purpose DelayView
// tells.
func (n *Node) lagLocked() (time.Duration, uint64) {
	lag, bytes := time.Duration(0), uint64(0)
	if b := n.srv.backlog; !b.Since.IsZero() {
		lag, bytes = time.Since(b.Committed), uint64(b.Bytes)
	}
	// mysqld may not have been heard of since something was committed.
	if at, waits := n.led.Oldest(); waits && time.Since(at) > 2*gossip.LagTold {
		lag = max(lag, time.Since(at))
	}
	lag = max(lag, n.gossip.Awaiting())
	if d := n.delay.View(n.appliedLocked()); d != nil && d.CaughtUp {
		return 0, 0
	} else if d != nil {
		return max(0, lag-secondsOf(d.Seconds)), 0
	}
	return max(0, lag), bytes
}

// tellLag has the others told at once when this node begins to lag, and when it has caught up.
func (n *Node) tellLag() {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, _ := n.Settings().MemberByID(n.id.ID)
	lag, _ := n.lagLocked()
	if lags := lag >= gossip.LagTold && m.Role != config.RoleLogger; lags != n.srv.toldLags {
		n.srv.toldLags = lags
		n.Publish()
	}
}

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
