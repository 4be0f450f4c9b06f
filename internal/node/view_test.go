package node

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3"

	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/node/controlloop"
)

// TestAskingChangesNothing: a view that an operator, a scrape of the metrics or another task asks for takes note of
// nothing, neither of a new term nor of a lease that is gone: only the loop does, in order.
func TestAskingChangesNothing(t *testing.T) {
	n := newTestNode(t, withMembers(testVoters(1)...))
	openTestLog(t, n)
	startTestRaft(t, n, nil, raft.Peer{ID: 1})
	n.cons.Campaign()
	eventually(t, n.cons.HoldsLease)
	n.leadership.Ask(2, 1, "", 0)
	n.gossip.Due()
	if v := n.control.View(); !v.Raft.IsLeader {
		t.Fatalf("%+v", v.Raft)
	}
	if s := n.control.Soft(); *s != (controlloop.Soft{}) || n.gossip.Due() {
		t.Errorf("asking took note of %+v", s)
	}
	n.leadership.NoteLease(0)
	lost := n.leadership.Lease(0)
	if n.control.View(); n.leadership.Lease(0) != lost {
		t.Errorf("the loop saw the lease end at %v, then somebody asked: %v", lost, n.leadership.Lease(0))
	}
	n.control.Look()
	if s := n.control.Soft(); s.Role != consensus.Leader || s.LeaderSince == 0 || n.leadership.Lease(0) == lost {
		t.Errorf("the loop took note of %+v, and takes the lease for lost: %v", s, lost)
	}
}

// TestOlderStateComesLate: what was read before a newer role or term was noted does not take its place.
func TestOlderStateComesLate(t *testing.T) {
	n := newTestNode(t)
	older := consensus.State{Role: consensus.Leader, Term: 7, Leader: 1, Seq: 3}
	newer := consensus.State{Term: 8, Leader: 2, Seq: 4}
	n.control.SoftState(newer)
	n.control.SoftState(older)
	if s := n.control.Soft(); s.State != newer || s.LeaderSince != 0 {
		t.Errorf("%+v", s)
	}
}

// TestRaftDoesNotWait: while another holds the node's lock, consensus and the links get their answers.
func TestRaftDoesNotWait(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	startTestRaft(t, n, nil)
	n.control.Look()
	n.mu.Lock()
	defer n.mu.Unlock()
	done := make(chan *config.Cluster)
	go func() {
		n.leadership.CampaignDelay(2)
		done <- n.Settings() // what a link asks whether a certificate is revoked
	}()
	select {
	case c := <-done:
		if c != n.Settings() {
			t.Error("other settings than those in force")
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for the node's lock")
	}
}
