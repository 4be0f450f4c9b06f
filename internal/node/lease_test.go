package node

import (
	"testing"
	"time"

	"trireme/internal/mysqld"
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

// An XA COMMIT that outlives KILL holds a step-down up; a rollback that takes its time, and sessions that came later, do not.
func TestStillEnding(t *testing.T) {
	killed := []mysqld.Session{{ID: 7, Info: "XA COMMIT 'a'"}, {ID: 8, Info: "UPDATE t SET v = 1"}, {ID: 9}}
	for _, c := range []struct {
		left []mysqld.Session
		want bool
	}{
		{nil, false},
		{[]mysqld.Session{{ID: 8, Info: "UPDATE t SET v = 1", Command: "Killed"}, {ID: 9, Command: "Killed"}}, false},
		{[]mysqld.Session{{ID: 10, Info: "xa commit 'b'"}}, false},
		{[]mysqld.Session{{ID: 8}, {ID: 7, Info: "/* app */ xa commit 'a'", Command: "Killed"}}, true},
	} {
		if err := stillEnding(killed, c.left); (err != nil) != c.want {
			t.Errorf("%+v: %v", c.left, err)
		}
	}
}
