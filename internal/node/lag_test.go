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

func TestRateMeter(t *testing.T) {
	var m rateMeter
	if r := m.take(time.Second, 100, 200); r != 0 {
		t.Errorf("a short backlog is measured: %v", r)
	}
	m.take(2*time.Second, 100, 10_000)
	if r := m.take(3*time.Second, 600, 10_000); r != 500 {
		t.Errorf("%v, want 500 entries per second", r)
	}
	if r := m.take(4*time.Second, 9_999, 10_000); r != 500 {
		t.Errorf("the end of the backlog is measured: %v", r)
	}
}
