package lifecycle

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/mysqld"
)

// A mysqld that was asked to open writes and did not answer is not drained: whatever it is asked next, it may still
// open them.
func TestUnansweredOpenIsNotDrained(t *testing.T) {
	m := newMember(t)
	l := m.life(7)
	m.mysql.openErr = errors.New("no answer")
	if err := l.open(t.Context(), yes, yes); !errors.Is(err, m.mysql.openErr) {
		t.Fatal(err)
	}
	m.mysql.openErr = nil
	for name, f := range map[string]func() error{
		"close":           func() error { return l.Close(t.Context()) },
		"open again":      func() error { return l.open(t.Context(), yes, yes) },
		"retire":          func() error { return l.Retire(t.Context()) },
		"stop politely":   func() error { return l.StopPolitely(t.Context()) },
		"close once more": func() error { _, err := l.closeGently(t.Context()); return err },
	} {
		if err := f(); err == nil || l.writesAre() != unsure {
			t.Errorf("%s: %v; writes are %v", name, err, l.writesAre())
		}
	}
}

func yes() error { return nil }

// TestWrites: from where writes may be opened, closed and given up, and what is refused.
func TestWrites(t *testing.T) {
	m := newMember(t)
	l := m.life(7)
	no := errors.New("the term has moved on")
	var ended func()
	gently := func() error { _, err := l.closeGently(t.Context()); return err }
	for _, c := range []struct {
		name string
		do   func() error
		err  string // part of it
		want writes
	}{
		{"it may not", func() error { return l.open(t.Context(), func() error { return no }, yes) }, no.Error(), closed},
		{"it is fenced meanwhile", func() error { return l.open(t.Context(), yes, func() error { return no }) }, no.Error(),
			open},
		{"a fence", func() error { return l.Close(t.Context()) }, "", drained},
		{"a follower to be", func() error { return l.Retire(t.Context()) }, errNoDump.Error(), drained},
		{"a promotion", func() error { return l.open(t.Context(), yes, yes) }, "", open},
		{"open and retired", func() error { return l.Retire(t.Context()) }, "its writes are open", open},
		{"open and shut down", func() error { return l.StopPolitely(t.Context()) }, "its writes are open", open},
		{"not drained in time", func() error { m.mysql.waiting = 1; return l.Close(m.soon(t)) }, "1 sessions wait", closing},
		{"not drained and retired", func() error { return l.Retire(t.Context()) }, "its writes are closing", closing},
		{"not drained and shut down", func() error { return l.StopPolitely(t.Context()) }, "its writes are closing", closing},
		{"open again", func() error { m.mysql.waiting = 0; return l.open(t.Context(), yes, yes) }, "", open},
		{"a switchover", gently, "", drained},
		{"that failed", func() error { return l.open(t.Context(), yes, yes) }, "", open},
		{"another one", gently, "", drained},
		{"its stream goes on", func() error { ended = l.CarryStream(); l.Stall("unreadable"); return l.Retire(m.soon(t)) },
			"the stream of its binary log did not end", drained},
		{"it has ended", func() error { ended(); return l.Retire(t.Context()) }, errNoDump.Error(), drained},
		{"somebody waits after all", func() error { m.mysql.waiting = 1; return l.StopPolitely(t.Context()) },
			"1 sessions wait", drained},
	} {
		err := c.do()
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || l.writesAre() != c.want ||
			l.ReadOnly() != (c.want != open) {
			t.Errorf("%s: %v, want %q; writes are %v, want %v", c.name, err, c.err, l.writesAre(), c.want)
		}
	}
	if l.Stalled() != "" || m.state.Retired[7] != 0 || len(m.state.Retired) != 1 {
		t.Errorf("a stream that has ended is stalled: %q; %+v", l.Stalled(), m.state)
	}
}

// feedable is a fake mysqld that can become a follower, as far as a test lets it.
type feedable struct {
	*fakeMySQL
	Stream  // for a dump that can begin
	Feed    // which has nothing to do
	roleErr error
}

func (f *feedable) SetEventScheduler(context.Context, bool) error { return nil }
func (f *feedable) SetDurabilityRole(context.Context, bool) error { return f.roleErr }
func (f *feedable) Prepare(context.Context) error                 { return nil }
func (f *feedable) Acked() (p raftlog.Pos)                        { return p }
func (f *feedable) Resume()                                       { f.m.calls = append(f.m.calls, "feed") }
func (f *feedable) Close() error                                  { return nil }

// TestHalfRetired: once it may commit without waiting for an acknowledgement, as a follower does, mysqld takes no
// writes before it has been made a leader again (S1), whatever closes them once more meanwhile.
func TestHalfRetired(t *testing.T) {
	m := newMember(t)
	l, f := m.life(7), &feedable{fakeMySQL: m.mysql, roleErr: errors.New("no answer")}
	l.mysql, m.lives.Feed, m.stream = f, f, f
	if err := errors.Join(l.open(t.Context(), yes, yes), l.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := l.Retire(t.Context()); !errors.Is(err, f.roleErr) || !slices.Contains(m.calls, "semisync off") {
		t.Fatalf("%v, %q", err, m.calls)
	}
	if err := l.open(t.Context(), yes, yes); !errors.Is(err, errRetiring) {
		t.Errorf("opened: %v", err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Errorf("closed again: %v", err)
	}
	if err := l.open(t.Context(), yes, yes); !errors.Is(err, errRetiring) {
		t.Errorf("opened after it was closed again: %v", err)
	}
	f.roleErr = nil
	if err := errors.Join(l.Retire(t.Context()), l.open(t.Context(), yes, yes)); err != nil {
		t.Errorf("the next promotion: %v", err)
	}
}

// TestCloseWaitsForOpen: who closes writes waits until they are not being opened, and then they stay closed.
func TestCloseWaitsForOpen(t *testing.T) {
	m := newMember(t)
	l := m.life(7)
	opens, answer, opened := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		opened <- l.open(t.Context(), yes, func() error { close(opens); <-answer; return nil })
	}()
	<-opens
	if err := l.Close(m.soon(t)); err == nil || l.writesAre() != open {
		t.Errorf("closed in the middle: %v; writes are %v", err, l.writesAre())
	}
	close(answer)
	if err := errors.Join(<-opened, l.Close(t.Context())); err != nil || l.writesAre() != drained {
		t.Errorf("%v; writes are %v", err, l.writesAre())
	}
}

// TestCloseGently: what was rolled back is told if clients were cut, and one answer is enough to go on.
func TestCloseGently(t *testing.T) {
	refused := errors.New("refused")
	for _, c := range []struct {
		name           string
		readOnly, kill error
		cut            int
		ok             bool
	}{{"no session was there", nil, nil, 0, true}, {"two were", nil, nil, 2, true},
		{"a statement runs on", refused, nil, 1, true},
		{"they stay", nil, refused, 0, true}, {"neither", refused, refused, 0, false}} {
		m := newMember(t)
		l := m.life(7)
		m.mysql.readOnlyErr, m.mysql.killErr, m.mysql.killed = c.readOnly, c.kill, c.cut
		cut, err := l.closeGently(t.Context())
		if (err == nil) != c.ok || cut.Connections != c.cut || (len(cut.Rolled) > 0) != (c.cut > 0) ||
			(l.writesAre() == drained) != c.ok {
			t.Errorf("%s: %v, %+v; writes are %v", c.name, err, cut, l.writesAre())
		}
	}
}

// TestDrain: a life is drained once no session waits and all that mysqld wrote is acknowledged, and says what is
// missing until its time is over.
func TestDrain(t *testing.T) {
	for _, c := range []struct {
		name    string
		waiting uint64
		end     raftlog.Pos
		want    string // part of the error
	}{
		{name: "drained", end: raftlog.Pos{File: 1, Off: 4}},
		{name: "somebody waits", waiting: 2, end: raftlog.Pos{File: 1, Off: 4},
			want: "2 sessions wait for an acknowledgement, must_ack"},
		{name: "written and not acknowledged", end: raftlog.Pos{File: 1, Off: 900},
			want: "mysqld wrote up to binlog.000001:900, acknowledged is binlog.000001:4, must_ack"},
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
		err := l.Close(ctx)
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

// fakeProcess notes that it is shut down.
type fakeProcess struct {
	Process
	m *member
}

func (p fakeProcess) OnlyControlEvents(from, to raftlog.Pos) bool { return from == to }
func (p fakeProcess) StopPolitely(context.Context) error {
	p.m.calls = append(p.m.calls, "shut down")
	return nil
}

func (p fakeProcess) Kill() error {
	p.m.calls = append(p.m.calls, "kill")
	return nil
}

// super_read_only stops neither REPAIR TABLE nor XA COMMIT. What a client logged between the last look at who waits and
// the shutdown would be released by that, and no other node would have it: so no client may be able to.
func TestPoliteStopTurnsClientsAway(t *testing.T) {
	m := newMember(t)
	l := m.life(7)
	l.proc = fakeProcess{m: m}
	m.mysql.looked = func() { m.calls = append(m.calls, "look at who waits") }
	m.mysql.cut = func() { m.calls = append(m.calls, "cut clients") }
	if err := l.StopPolitely(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"refuse clients", "cut clients", "look at who waits", "shut down"}
	if !slices.Equal(m.calls, want) {
		t.Errorf("%q, want %q", m.calls, want)
	}
}
