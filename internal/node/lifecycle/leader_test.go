package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/mysql/gtid"
)

// leads is the rest of a member to a Leader. Methods that a test does not need are nil's.
type leads struct {
	LeaderHost
	m        *member
	noLease  error
	leased   func() // while the lease is waited for
	fenced   string
	mayAsked int
}

func (h *leads) AwaitLease(context.Context, time.Duration) error {
	if h.leased != nil {
		h.leased()
	}
	return h.noLease
}

func (h *leads) MayOpen(l *Life, term uint64, from ha.Phase) error {
	h.mayAsked++
	s := h.m.lives.Status()
	return s.MayOpen(l, term, from)
}

func (h *leads) Opened(*Life, uint64, ha.Phase) error {
	h.m.lives.Change((*Status).Open)
	return nil
}

func (h *leads) Change(f func(*Status)) { h.m.lives.Change(f) }

func (h *leads) Fence(reason string, stands func(*Status) bool) {
	yes := false
	h.m.lives.Change(func(s *Status) { yes = stands(s) })
	if yes {
		h.m.lives.BeginFence()
		h.fenced = reason
	}
}

func (h *leads) EndServer(*Life) { h.m.calls = append(h.m.calls, "end") }
func (h *leads) DropAddresses()  { h.m.calls = append(h.m.calls, "drop addresses") }
func (h *leads) Routes()         { h.m.calls = append(h.m.calls, "routes") }
func (h *leads) GuardStep(limit time.Duration) {
	h.m.lives.GuardStep(limit, realTime.Now()+time.Hour)
}

// leader is a life that takes writes in term 5.
func leader(t *testing.T) (*member, *leads, *Leader) {
	t.Helper()
	m := newMember(t)
	life := m.life(7)
	h := &leads{m: m}
	l := m.lives.Leader(life, 5, h)
	m.lives.Change(func(s *Status) { s.Promote(5) })
	if err := l.Open(t.Context(), ha.PhasePromoting); err != nil {
		t.Fatal(err)
	}
	return m, h, l
}

// TestReopen: a hand-over that failed ends with open writes or with a fence, and says which.
func TestReopen(t *testing.T) {
	handOver := func(m *member, l *Leader) {
		t.Helper()
		m.lives.Change((*Status).HandOver)
		if !l.BeginClosing() {
			t.Error("there is no hand-over")
		}
		if _, _, err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if s := m.lives.Status(); !s.Drained() || s.TakesWrites() || m.released == 0 {
			t.Errorf("%+v; slowed commits were released %d times", s.Serving.View(), m.released)
		}
	}
	stop := func(m *member) { m.lives.Change((*Status).BeginStop) }
	fence := func(m *member) { m.lives.Change((*Status).Fence) }
	m, h, l := leader(t)
	handOver(m, l)
	if err := l.Reopen(t.Context()); err != nil || h.fenced != "" {
		t.Errorf("%v; fenced because %q", err, h.fenced)
	}
	if s := m.lives.Status(); !s.Opens(l.life) || l.life.ReadOnly() {
		t.Errorf("not open: %+v", s.Serving.View())
	}

	for name, c := range map[string]struct {
		change func(m *member, h *leads)
		want   string // part of the error
		fenced bool   // by Reopen
	}{
		"no lease":            {func(_ *member, h *leads) { h.noLease = errors.New("not proven") }, "not proven", true},
		"mysqld does not":     {func(m *member, _ *leads) { m.mysql.openErr = errors.New("no answer") }, "no answer", true},
		"the daemon stops":    {func(m *member, _ *leads) { stop(m) }, "the daemon is stopping", true},
		"it stops meanwhile":  {func(m *member, h *leads) { h.leased = func() { stop(m) } }, "the daemon is stopping", true},
		"a fence has begun":   {func(m *member, _ *leads) { fence(m) }, consensus.ErrNotLeader.Error(), false},
		"a fence comes first": {func(m *member, h *leads) { h.leased = func() { fence(m) } }, consensus.ErrNotLeader.Error(), false},
	} {
		m, h, l := leader(t)
		handOver(m, l)
		c.change(m, h)
		err := l.Reopen(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) || (h.fenced != "") != c.fenced || !l.life.ReadOnly() {
			t.Errorf("%s: %v; fenced because %q", name, err, h.fenced)
		}
		if s := m.lives.Status(); s.Phase() != ha.PhaseFencing {
			t.Errorf("%s: %+v", name, s.Serving.View())
		}
	}
}

// TestLeaderRetires: a life that is a follower serves nothing; a fence that has begun meanwhile goes on.
func TestLeaderRetires(t *testing.T) {
	for _, fence := range []bool{false, true} {
		m, _, l := leader(t)
		f := &feedable{fakeMySQL: m.mysql}
		l.life.mysql, m.lives.Feed, m.stream = f, f, f
		m.lives.Change((*Status).HandOver)
		if _, _, err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := ha.PhaseNone
		if fence {
			m.lives.Change((*Status).Fence)
			want = ha.PhaseFencing
		}
		if err := l.Retire(t.Context()); err != nil || !slices.Contains(m.calls, "feed") {
			t.Errorf("%v, %q", err, m.calls)
		}
		if s := m.lives.Status(); s.Phase() != want {
			t.Errorf("a fence %t: %+v", fence, s.Serving.View())
		}
	}
}

// TestRetireUnlogged: a leader that holds a transaction of its own which Raft does not have does not become a follower,
// where that would count as a local statement. What it logged before it led does.
func TestRetireUnlogged(t *testing.T) {
	for gno, good := range map[int]bool{0: true, 1: true, 2: false} {
		m, _, l := leader(t)
		f := &feedable{fakeMySQL: m.mysql}
		l.life.mysql, m.lives.Feed, m.stream = f, f, f
		m.state.Lead(l.life.Incarnation, 1)
		if gno > 0 {
			m.mysql.executed = fmt.Sprintf("%v:1-%d", l.life.UUID, gno)
		}
		if _, _, err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := l.life.Retire(t.Context())
		if (err == nil) != good {
			t.Errorf("executed up to %d, 1 before it led: %v", gno, err)
		}
		if _, retired := m.state.Retired[l.life.Incarnation]; retired != good || slices.Contains(m.calls, "feed") != good {
			t.Errorf("executed up to %d: retired %v, %q", gno, retired, m.calls)
		}
	}
}

// TestBrokenIsNotFed: a mysqld that was found to differ while it was promoted, and is fenced for that, is not fed again
// when it has become a follower.
func TestBrokenIsNotFed(t *testing.T) {
	for _, broken := range []bool{false, true} {
		m := newMember(t)
		l, f := m.life(7), &feedable{fakeMySQL: m.mysql}
		l.mysql, m.lives.Feed, m.stream = f, f, f
		m.lives.Change(func(s *Status) {
			s.Promote(5)
			if broken {
				s.Broken("it holds what is not committed")
			}
			s.Fence()
		})
		if err := errors.Join(l.Close(t.Context()), l.Retire(t.Context())); err != nil {
			t.Error(err)
		}
		if slices.Contains(m.calls, "feed") == broken {
			t.Errorf("broken %t: %q", broken, m.calls)
		}
	}
}

// TestAwaitApplied: only a mysqld that follows can say that it holds what is committed.
func TestAwaitApplied(t *testing.T) {
	m := newMember(t)
	if err := m.lives.AwaitApplied(t.Context(), 0, time.Hour); err == nil {
		t.Error("there is no mysqld")
	}
	l := m.life(7)
	l.executed = gtid.Set{}
	if err := m.lives.AwaitApplied(t.Context(), 0, time.Hour); err != nil {
		t.Error(err)
	}
	err := m.lives.AwaitApplied(t.Context(), 9, 5*time.Millisecond)
	if err == nil || err.Error() != "entry 9 did not arrive in time" {
		t.Error(err)
	}
	m.lives.Change((*Status).JudgeAgain)
	if err := m.lives.AwaitApplied(t.Context(), 0, time.Hour); err == nil {
		t.Error("it is not judged")
	}
}
