package mysqld

import (
	"path/filepath"
	"testing"
)

// TestLooksTakeNobodysTime: what the governor looks for goes over all sessions. A fence, which has 200 ms, must not
// wait for that: it asks on the lane of the status, which is not even there here.
func TestLooksTakeNobodysTime(t *testing.T) {
	a := &Admin{sample: newLane(laneSpec{socket: filepath.Join(t.TempDir(), "none")})}
	if _, err := a.RunningDDL(testContext(t)); err == nil {
		t.Error("no server, and no error")
	}
	if _, err := a.RefusedTransactions(testContext(t)); err == nil {
		t.Error("no server, and no error")
	}
}
