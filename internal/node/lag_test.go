package node

import (
	"testing"
	"time"

	"trireme/internal/core/ledger"
)

// TestLagCounts: what is not applied, and a mysqld that says nothing.
func TestLagCounts(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	if lag, _ := n.lagLocked(); lag != 0 {
		t.Error(lag)
	}
	began := time.Now()
	n.srv.backlog = ledger.Backlog{Since: began, Committed: began.Add(-3 * time.Second), Bytes: 100}
	if lag, bytes := n.lagLocked(); lag < 3*time.Second || lag > 3*time.Second+time.Since(began) || bytes != 100 {
		t.Error(lag, bytes)
	}
}
