package node

import (
	"testing"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/history"
	"trireme/internal/node/lifecycle"
)

// TestHeavyMeter: an estimate counts down, is never less than a tenth, and the next one rests on what was seen.
func TestHeavyMeter(t *testing.T) {
	const mib = 1 << 20
	var m heavyMeter
	large := ledger.Heavy{Bytes: 320 * mib}
	for _, c := range []struct {
		at   time.Duration
		b    ledger.Backlog
		want time.Duration
	}{
		{10 * time.Second, ledger.Backlog{Applied: 5}, 0},
		{20 * time.Second, ledger.Backlog{Applied: 9, Heavy: large, Next: large}, 20 * time.Second}, // 16 MiB/s
		{28 * time.Second, ledger.Backlog{Applied: 9, Heavy: large, Next: large}, 12 * time.Second},
		{60 * time.Second, ledger.Backlog{Applied: 9, Heavy: large, Next: large}, 2 * time.Second},
		{84 * time.Second, ledger.Backlog{Applied: 10}, 0}, // 5 MiB/s
		{90 * time.Second, ledger.Backlog{Applied: 10, Heavy: large.Plus(ledger.Heavy{DDL: 30 * time.Second}), Next: large},
			94 * time.Second},
		// 10 MiB/s
		{122 * time.Second, ledger.Backlog{Applied: 11, Heavy: ledger.Heavy{DDL: 30 * time.Second},
			Next: ledger.Heavy{DDL: 30 * time.Second}}, 30 * time.Second},
		{132 * time.Second, ledger.Backlog{Applied: 11, Heavy: ledger.Heavy{DDL: 30 * time.Second},
			Next: ledger.Heavy{DDL: 30 * time.Second}}, 20 * time.Second},
		{133 * time.Second, ledger.Backlog{Applied: 12}, 0},
	} {
		if got := m.take(c.at, c.b); got.Round(10*time.Millisecond) != c.want {
			t.Errorf("at %v: %v, want %v (%+v)", c.at, got, c.want, m)
		}
	}
	if got := m.rate / mib; got < 7.4 || got > 7.6 { // the mean of 5 and 10
		t.Errorf("%.1f MiB/s", got)
	}
}

// TestDDLView: what a statement tells of itself is trusted once it says something.
func TestDDLView(t *testing.T) {
	for _, c := range []struct {
		d    mysqld.DDL
		want float64
	}{
		{mysqld.DDL{Seconds: 40}, 40}, {mysqld.DDL{Seconds: 40, Done: 0.5}, 80}, {mysqld.DDL{Seconds: 2, Done: 0.0001}, 2},
	} {
		if got := ddlView(c.d).ReplaySeconds; got != c.want {
			t.Errorf("%+v: %v", c.d, got)
		}
	}
}

// TestLargeTransactionIsToldOnce: entries that a daemon reads again when it starts are those of a dead incarnation, and
// are not announced again.
func TestLargeTransactionIsToldOnce(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	startTestRaft(t, n, nil)
	n.Settings().TransactionWarn = config.MiB
	m := raftlog.Meta{Kind: raftlog.Trx, Flags: raftlog.FlagUnfinished, Node: 1, Incarnation: 7}
	body := append(make([]byte, 49), 253, 0, 0, 5<<4, 0, 0, 0, 0) // a TransactionLength of 5 MiB, no version
	body[17], body[25] = 1, 2                                     // a GNO; there is a logical clock
	n.load.Committed(9, &m, 100, binlog.AppendEvent(nil, binlog.Header{Type: binlog.TypeGTID}, body))
	told := func() (count int) {
		n.tasks.Wait()
		for _, e := range n.history.All() {
			if e.Kind == history.EventLarge {
				count++
			}
		}
		return count
	}
	n.noteLarge(9, &m) // nothing runs yet
	n.lives.Change(func(s *lifecycle.Status) { s.Started(&lifecycle.Life{Incarnation: 8}) })
	n.noteLarge(9, &m)
	if got := told(); got != 0 {
		t.Errorf("announced %d times after a restart", got)
	}
	n.lives.Change(func(s *lifecycle.Status) { s.Started(&lifecycle.Life{Incarnation: 7}) })
	n.noteLarge(9, &m)
	if got := told(); got != 1 {
		t.Errorf("announced %d times while it is written", got)
	}
}
