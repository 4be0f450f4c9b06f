package node

import (
	"testing"
	"time"

	"trireme/internal/node/gossip"
	"trireme/internal/node/lifecycle"
)

// TestTendFlow: the leader minds the follower that lags most and was heard of a moment ago, while it takes
// writes.
func TestTendFlow(t *testing.T) {
	lagging := func(lag, ago time.Duration) *gossip.Peer {
		return &gossip.Peer{Up: true, At: now() - ago, Status: gossip.Status{Lagging: lag}}
	}
	n := newTestNode(t, withMembers(testVoters(4)...), func(d *testDir) { d.cluster.LagObjectiveMS = 4000 })
	peers := n.gossip.Peers()
	peers[2], peers[3], peers[4] = lagging(2500*time.Millisecond, 0), lagging(4*time.Second, 2*time.Second),
		lagging(2*time.Second, 0)
	n.lives.Change((*lifecycle.Status).Open)
	n.updateFlow()
	if v := n.acks.Flow(); v == nil || v.Node != "db2" || v.DelaySeconds != 0.125 ||
		n.acks.Delay() != 125*time.Millisecond {
		t.Errorf("%+v, %v", v, n.acks.Delay())
	}
	n.lives.Change((*lifecycle.Status).HandOver) // until it closes writes
	if n.updateFlow(); n.acks.Delay() == 0 {
		t.Error("writes that go on during a switchover are not slowed")
	}
	n.lives.Change(func(s *lifecycle.Status) { s.BeginClosing() })
	if n.updateFlow(); n.acks.Delay() != 0 || n.acks.Flow() != nil {
		t.Errorf("writes are being closed, and slowed: %+v", n.acks.Flow())
	}
	n.lives.Change((*lifecycle.Status).HandOver)
	n.updateFlow()
	n.control.Leader(nil, 0).BeginClosing()
	if s := n.lives.Status(); n.acks.Delay() != 0 || !s.Closing() {
		t.Errorf("writes are about to be closed, and slowed by %v", n.acks.Delay())
	}
}

// TestLaggingLocked: what a follower said last is forgotten when it has not looked since.
func TestLaggingLocked(t *testing.T) {
	n := newTestNode(t)
	n.srv.lagging, n.srv.laggingAt = 3*time.Second, now()
	if n.laggingLocked() == 0 {
		t.Error("what was said now is not told")
	}
	n.srv.laggingAt -= 2 * flowHeard
	if got := n.laggingLocked(); got != 0 {
		t.Errorf("%v, of a mysqld that does not answer", got)
	}
}
