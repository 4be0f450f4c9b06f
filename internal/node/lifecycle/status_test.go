package lifecycle

import (
	"testing"

	"trireme/internal/core/ha"
)

// TestBegin: an action of the policy is begun if it still stands, and once.
func TestBegin(t *testing.T) {
	s := New(realTime)
	l := &Life{Incarnation: 7}
	started := func() { s.Change(func(st *Status) { st.Started(l) }) }
	for _, c := range []struct {
		name   string
		before func()
		a      ha.Action
		stands bool
		state  ha.ServerState
		phase  ha.Phase
	}{
		{"no mysqld is started on a logger", nil, ha.Action{Kind: ha.StartServer, Term: 5}, false, ha.ServerAbsent,
			ha.PhaseNone},
		{"start", func() { s.Change((*Status).Off) }, ha.Action{Kind: ha.StartServer, Term: 5}, true, ha.ServerStarting,
			ha.PhaseNone},
		{"start twice", nil, ha.Action{Kind: ha.StartServer, Term: 5}, false, ha.ServerStarting, ha.PhaseNone},
		{"nothing runs", nil, ha.Action{Kind: ha.Restart, Term: 5}, false, ha.ServerStarting, ha.PhaseNone},
		{"judge", started, ha.Action{Kind: ha.Judge, Term: 5}, true, ha.ServerJudging, ha.PhaseNone},
		{"of an older term", func() { s.Change((*Status).Ready) }, ha.Action{Kind: ha.Promote, Term: 4}, false,
			ha.ServerReady, ha.PhaseNone},
		{"promote", nil, ha.Action{Kind: ha.Promote, Term: 5}, true, ha.ServerReady, ha.PhasePromoting},
		{"not open yet", nil, ha.Action{Kind: ha.Switchover, Term: 5}, false, ha.ServerReady, ha.PhasePromoting},
		{"it serves", nil, ha.Action{Kind: ha.Restart, Term: 5}, false, ha.ServerReady, ha.PhasePromoting},
		{"switchover", func() { s.Change((*Status).Open) }, ha.Action{Kind: ha.Switchover, Term: 5}, true, ha.ServerReady,
			ha.PhaseHandover},
		{"a fence is never dropped", nil, ha.Action{Kind: ha.Fence, Term: 1}, true, ha.ServerReady, ha.PhaseHandover},
		{"restart", func() { s.Change((*Status).End) }, ha.Action{Kind: ha.Restart, Term: 5}, true, ha.ServerDying,
			ha.PhaseNone},
		{"seed", func() { s.Change(func(st *Status) { st.Behind("the log begins at 9") }) },
			ha.Action{Kind: ha.Seed, Term: 5}, true, ha.ServerSeeding, ha.PhaseNone},
	} {
		if c.before != nil {
			c.before()
		}
		got, stands := s.Begin(c.a, 5)
		st := s.Status()
		if stands != c.stands || stands && got != st.Life() || st.State() != c.state || st.Phase() != c.phase {
			t.Errorf("%s: stands %v, mysqld is %s, phase %v; %+v", c.name, stands, st.State(), st.Phase(), c)
		}
	}
}

// TestBeginRestart: only a follower is restarted, and only the life that was looked at; none is promoted then.
func TestBeginRestart(t *testing.T) {
	l := &Life{Incarnation: 7}
	for name, c := range map[string]struct {
		since  func(s *Lives)
		stands bool
	}{
		"it follows":     {func(*Lives) {}, true},
		"it is promoted": {func(s *Lives) { s.Begin(ha.Action{Kind: ha.Promote, Term: 5}, 5) }, false},
		"it leads": {func(s *Lives) { s.Begin(ha.Action{Kind: ha.Promote, Term: 5}, 5); s.Change((*Status).Open) },
			false},
		"it is judged": {func(s *Lives) { s.Change((*Status).JudgeAgain) }, false},
		"it died":      {func(s *Lives) { s.Change((*Status).Dead) }, false},
		"it is another": {func(s *Lives) { s.Change(func(st *Status) { st.Started(&Life{Incarnation: 8}); st.Ready() }) },
			false},
		"it is ending":     {func(s *Lives) { s.Change((*Status).Dying) }, false},
		"it was restarted": {func(s *Lives) { s.BeginRestart(l) }, false},
	} {
		s := New(realTime)
		s.Change(func(st *Status) { st.Started(l); st.Ready() })
		c.since(s)
		if got := s.BeginRestart(l); got != c.stands {
			t.Errorf("%s: %v", name, got)
		}
		if _, promoted := s.Begin(ha.Action{Kind: ha.Promote, Term: 5}, 5); c.stands && promoted {
			t.Errorf("%s: it is promoted although it ends", name)
		}
	}
}

// TestBeginWhileStopping: a daemon that was asked to stop gives leadership away and fences, and begins nothing else,
// though it was decided a moment before; writes do not open either.
func TestBeginWhileStopping(t *testing.T) {
	l := &Life{Incarnation: 7}
	for kind, c := range map[ha.Kind]struct {
		before func(s *Status)
		begins bool
	}{
		ha.StartServer: {(*Status).Off, false},
		ha.Judge:       {func(s *Status) { s.Started(l) }, false},
		ha.Seed:        {func(s *Status) { s.Behind("the log begins at 9") }, false},
		ha.Promote:     {func(s *Status) { s.Started(l); s.Ready() }, false},
		ha.Restart:     {func(s *Status) { s.Started(l); s.Ready() }, false},
		ha.HandOver:    {func(s *Status) { s.Started(l); s.Ready() }, true},
		ha.Switchover:  {func(s *Status) { s.Started(l); s.Ready(); s.Promote(5); s.Open() }, true},
		ha.Fence:       {func(s *Status) { s.Started(l); s.Ready(); s.Promote(5); s.Open() }, true},
	} {
		s := New(realTime)
		s.Change(c.before)
		s.Change((*Status).BeginStop)
		if _, begins := s.Begin(ha.Action{Kind: kind, Term: 5}, 5); begins != c.begins {
			t.Errorf("%v begins: %v", kind, begins)
		}
	}
	s := New(realTime)
	s.Change(func(st *Status) { st.Started(l); st.Promote(5) })
	if st := s.Status(); st.MayOpen(l, 5, ha.PhasePromoting) != nil {
		t.Error("writes may not open")
	}
	s.Change((*Status).BeginStop)
	if st := s.Status(); st.MayOpen(l, 5, ha.PhasePromoting) == nil || !st.Stopping() {
		t.Error("writes may open")
	}
	s.Change((*Status).End)
	s.Change(func(st *Status) { st.Started(l) })
	if st := s.Status(); !st.Stopping() {
		t.Error("it is forgotten")
	}
}
