package node

import (
	"testing"
	"time"
)

// What is added to a lease that has run out ends before another node can lead, whatever the election timeout (S10).
func TestLeaseGrace(t *testing.T) {
	for _, timeoutMS := range []int{15, 300, 500, 1000, 10_000} {
		n := newTestNode(t, func(d *testDir) { d.cfg.Raft.ElectionTimeoutMS = timeoutMS })
		timeout := n.cfg.Raft.ElectionTimeout()
		lease := now() - time.Millisecond
		proof := lease - timeout*8/10
		fence := n.leaseLocked(lease)
		if fence <= lease || fence+n.grace() > proof+timeout {
			t.Errorf("election timeout %v: fenced after %v, by the guard after %v", timeout, fence-proof, fence+n.grace()-proof)
		}
	}
}
