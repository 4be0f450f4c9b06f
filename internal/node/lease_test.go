package node

import (
	"testing"
	"time"
)

// What is added to a lease that has run out ends before another node can lead, whatever the election timeout (S10).
func TestLeaseGrace(t *testing.T) {
	for _, timeoutMS := range []int{15, 300, 500, 1000, 10_000} {
		var n Node
		n.cfg.Raft.ElectionTimeoutMS = timeoutMS
		timeout := n.cfg.Raft.ElectionTimeout()
		lease := now() - time.Millisecond
		proof := lease - timeout*8/10
		fence := n.leaseLocked(lease)
		if fence <= lease || fence+n.grace() > proof+timeout {
			t.Errorf("election timeout %v: fenced after %v, by the guard after %v", timeout, fence-proof, fence+n.grace()-proof)
		}
	}
}

// A step with a limit of its own, longer than the lease, gives mysqld no time beyond the lease; nor does it end the guard's watch before.
func TestGuardStep(t *testing.T) {
	var n Node
	n.cfg.Raft.ElectionTimeoutMS = 1000
	lease := now() + 800*time.Millisecond
	n.serving.until = now() + drainPatience + guardGrace
	if end := n.guardStepEndLocked(lease); end != lease+n.grace() {
		t.Errorf("a drain is given %v beyond the lease", end-lease)
	}
	n.serving.until = now() + 100*time.Millisecond
	if end := n.guardStepEndLocked(lease); end != n.serving.until {
		t.Errorf("a step of 100 ms is given until %v before the end of the lease", lease-end)
	}
}
