package lifecycle

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/core/ha"
)

// TestFence: a mysqld lives only if it was drained in time and nothing that was under way can touch it. The guard waits
// for the fence, and no longer than that.
func TestFence(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *member)
		want   string // part of the outcome
		killed bool
	}{
		"nobody waits":           {func(*member) {}, "drained: ", false},
		"a session waits":        {func(m *member) { m.mysql.waiting = 1 }, "killed (1 sessions wait", true},
		"what goes on":           {func(m *member) { m.underWay(make(chan struct{})) }, "killed (what was under way", true},
		"what has ended":         {func(m *member) { m.underWay(closedChan()) }, "drained: ", false},
		"mysqld is dying":        {func(m *member) { m.lives.Change((*Status).Dying) }, "", true},
		"it cannot be a replica": {func(m *member) { m.stream = nil }, "no connection for a dump", true},
	} {
		m, h, l := leader(t)
		f := &feedable{fakeMySQL: m.mysql}
		l.life.mysql, m.lives.Feed, m.stream = f, f, f
		c.change(m)
		m.calls = nil
		began := realTime.Now()
		m.lives.BeginFence()
		if s := m.lives.Status(); s.Phase() != ha.PhaseFencing || m.guarded < began+fencePatience+guardGrace ||
			m.guarded > realTime.Now()+fencePatience+guardGrace {
			t.Errorf("%s: %+v, the guard waits until %v of %v", name, s.Serving.View(), m.guarded, began)
		}
		got := m.lives.Fence(t.Context(), h)
		if got.Term != 5 || got.Drained == c.killed || !strings.Contains(got.Outcome, c.want) ||
			slices.Contains(m.calls, "end") != c.killed || slices.Contains(m.calls, "feed") == c.killed {
			t.Errorf("%s: %+v, %q", name, got, m.calls)
		}
		if got.Drained && m.guarded != 0 {
			t.Errorf("%s: the guard waits still", name)
		}
		if m.calls[0] != "drop addresses" {
			t.Errorf("%s: %q", name, m.calls)
		}
	}
}

func (m *member) underWay(done chan struct{}) {
	m.lives.Change(func(s *Status) { s.Run(func() {}, done) })
}

func closedChan() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// TestPromotionFailed: a promotion that fails is fenced, unless something else has begun meanwhile.
func TestPromotionFailed(t *testing.T) {
	for _, fence := range []bool{false, true} {
		m := newMember(t)
		h := &leads{m: m}
		l := m.lives.Leader(m.life(7), 5, h)
		m.lives.Change(func(s *Status) { s.Promote(5) })
		m.mysql.busy = 1 << 10
		if fence {
			m.lives.BeginFence()
		}
		_, err := l.Promote(t.Context())
		want := "making commits wait: " + errNotQuiet.Error()
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if fence {
			want = ""
		} else {
			want = "promotion failed: " + want
		}
		s := m.lives.Status()
		if h.fenced != want || s.Phase() != ha.PhaseFencing || s.Server.View().RetryAt != 0 == fence {
			t.Errorf("a fence has begun %t: fenced because %q, %+v", fence, h.fenced, s.Server.View())
		}
	}
}

// TestStop: mysqld is shut down only when it serves nothing or is drained, and killed otherwise.
func TestStop(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *member)
		killed bool
	}{
		"a leader":                     {func(*member) {}, false},
		"a follower":                   {func(m *member) { m.lives.Change((*Status).End) }, false},
		"a leader that is not drained": {func(m *member) { m.mysql.waiting = 1 }, true},
	} {
		m, h, l := leader(t)
		l.life.proc = fakeProcess{m: m}
		if name == "a follower" {
			l.life.setWrites(closed)
		}
		c.change(m)
		m.calls = nil
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		m.lives.Stop(ctx, h)
		cancel()
		if slices.Contains(m.calls, "kill") != c.killed || slices.Contains(m.calls, "shut down") == c.killed {
			t.Errorf("%s: %q", name, m.calls)
		}
		if !c.killed && m.guarded != 0 {
			t.Errorf("%s: the guard is told %v", name, m.guarded)
		}
	}
}
