package lifecycle

import (
	"context"
	"errors"
	"strings"
	"testing"

	"trireme/internal/mysqld"
	"trireme/internal/raftlog"
)

// A mysqld that was asked to open writes and did not answer is not drained: whatever it is asked next, it may still
// open them.
func TestUnansweredOpenIsNotDrained(t *testing.T) {
	m := newMember(t)
	l := m.life(7)
	m.mysql.openErr = errors.New("no answer")
	if err := l.OpenWrites(t.Context()); !errors.Is(err, m.mysql.openErr) {
		t.Fatal(err)
	}
	if err := l.Drain(t.Context()); !errors.Is(err, errUnsure) {
		t.Fatalf("drain: %v, want %v", err, errUnsure)
	}
}

// TestDrain: a life is drained once nobody waits and all that mysqld wrote is acknowledged, and says what is missing
// until its time is over.
func TestDrain(t *testing.T) {
	for _, c := range []struct {
		name    string
		waiting uint64
		end     raftlog.Pos
		want    string // part of the error
	}{
		{name: "drained", end: raftlog.Pos{File: 1, Off: 4}},
		{name: "somebody waits", waiting: 2, end: raftlog.Pos{File: 1, Off: 4}, want: "2 sessions wait for an acknowledgement, must_ack"},
		{name: "written and not acknowledged", end: raftlog.Pos{File: 1, Off: 900}, want: "mysqld wrote up to binlog.000001:900, acknowledged is binlog.000001:4, must_ack"},
	} {
		m := newMember(t)
		l := m.life(7)
		m.why = "must_ack"
		m.mysql.waiting, m.mysql.end = c.waiting, c.end
		ctx, cancel := context.WithCancel(t.Context())
		m.mysql.cut = cancel // the rest has no time
		if c.want == "" {
			m.mysql.cut = func() {}
		}
		err := l.Drain(ctx)
		cancel()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if !l.ReadOnly() || m.released != 1 {
			t.Errorf("%s: read-only %v, slowed acknowledgements released %d times", c.name, l.ReadOnly(), m.released)
		}
	}
}

// An XA COMMIT that outlives KILL holds a step-down up; a rollback that takes its time, and sessions that came later,
// do not.
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
