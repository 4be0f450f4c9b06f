package node

import (
	"time"

	"trireme/internal/base/config"
	"trireme/internal/core/ha"
	"trireme/internal/node/ackpath"
	"trireme/internal/node/gossip"
)

// flowHeard is how old a follower's word about its backlog may be: it speaks several times a second while it lags.
const flowHeard = gossip.Interval + appliedInterval

// updateFlow is the loop's part: how much commits are slowed, and on whose account.
func (n *Node) updateFlow() {
	n.mu.Lock()
	defer n.mu.Unlock()
	objective := n.Settings().LagObjective()
	if s := n.lives.Status(); objective == 0 || !s.TakesWrites() {
		n.acks.SlowNothing() // under mu, or a node that has just begun to close writes could be slowed once more
		return
	}
	var name string
	var backlog time.Duration
	for _, m := range n.Settings().Members {
		p := n.gossip.Peers()[m.ID]
		if p != nil && m.ID != n.id.ID && p.Up && now() < p.At+flowHeard && p.Lagging > backlog {
			name, backlog = m.Name, p.Lagging
		}
	}
	switch n.acks.Slow(objective, name, backlog) {
	case ackpath.SlowingBegan:
		n.log.Warn("commits are slowed: a follower nears lag_objective", "node", name, "backlog_s", backlog.Seconds(),
			"lag_objective", config.Duration(objective).String())
	case ackpath.SlowingEnded:
		n.log.Info("commits are not slowed any more")
	}
}

// laggingLocked is what the leader is asked to mind. A mysqld that has not answered for a while asks for nothing.
func (n *Node) laggingLocked() time.Duration {
	if now() > n.srv.laggingAt+flowHeard {
		return 0
	}
	return n.srv.lagging
}

// updateLag is a follower's part: whether its backlog is the leader's business. Who only stores the log, or has no
// vote, is not waited for.
func (n *Node) updateLag(f *ha.Laggard) {
	n.mu.Lock()
	m, _ := n.Settings().MemberByID(n.id.ID)
	_, ready := n.control.ReadyLocked()
	was, s := n.srv.lagging, n.lives.Status()
	n.srv.laggingAt = now()
	n.srv.lagging = f.Ask(now(), n.Settings().LagObjective(), n.load.Bytes(), uint64(n.srv.backlog.Bytes),
		ready && m.Role == config.RoleVoter && s.Phase() == ha.PhaseNone)
	n.srv.applyRate = f.Rate()
	told := n.srv.lagging != was
	n.mu.Unlock()
	if told {
		n.Publish()
	}
}

// catchUpLocked is about how long mysqld needs for so many bytes, in seconds, if nothing is added: as fast as it
// applied when it last had a backlog, and what is known of large transactions and DDL. nil: not known.
func (n *Node) catchUpLocked(bytes uint64) *float64 {
	s := 0.0
	switch {
	case bytes == 0:
	case n.srv.applyRate == 0 || n.delay.Configured() > 0:
		return nil
	default:
		s = max(float64(bytes)/n.srv.applyRate, n.srv.heavy.Seconds())
	}
	return &s
}
