package rolling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"trireme/internal/api"
)

// scripted is a cluster in memory: n1 leads, n2 and n3 follow, n4 is a logger, n5 a learner.
type scripted struct {
	v         api.ClusterView
	log       []string
	looks     int                                  // since the last act
	back      int                                  // looks until a node that was restarted is back
	pending   func()                               // brings it back
	restarted func(m *api.MemberView)              // what a restart changes
	onAct     func(s *scripted, name string) error // nil: restart
}

func cluster() *scripted {
	s := &scripted{back: 2, restarted: func(m *api.MemberView) { m.Daemon.PID += 100 }}
	s.v = api.ClusterView{Cluster: "c", Term: 7, Leader: "n1"}
	for i, role := range []string{api.RoleLeader, api.RoleFollower, api.RoleFollower, api.RoleLogger, api.RoleLearner} {
		m := api.MemberView{Name: fmt.Sprintf("n%d", i+1), Role: role, State: api.StateHealthy,
			Raft:   api.RaftView{Voter: role != api.RoleLearner},
			Daemon: api.DaemonView{PID: i + 1, Version: "1.0", API: fmt.Sprintf("db%d:8008", i+1)}}
		if role != api.RoleLogger {
			m.MySQL = &api.MySQLView{PID: 50 + i, Epoch: fmt.Sprintf("%d", i), Version: "9.7.4"}
		}
		s.v.Members = append(s.v.Members, m)
	}
	return s
}

func (s *scripted) view(context.Context) (api.ClusterView, error) {
	if s.pending != nil {
		if s.looks++; s.looks > s.back {
			s.pending()
			s.pending = nil
		} else if s.looks == 1 {
			return api.ClusterView{}, errors.New("no answer")
		}
	}
	v := s.v
	v.Members = slices.Clone(s.v.Members)
	return v, nil
}

func (s *scripted) switchover(_ context.Context, req api.SwitchoverRequest) (api.SwitchoverResult, error) {
	if req.IfTerm != s.v.Term {
		return api.SwitchoverResult{}, errors.New("another term")
	}
	from := s.v.Leader
	s.lead("n2")
	s.log = append(s.log, "switchover "+from+" to n2")
	return api.SwitchoverResult{From: from, To: "n2", Term: s.v.Term, WriteGapMS: 30}, nil
}

func (s *scripted) lead(name string) {
	member(s.v, s.v.Leader).Role = api.RoleFollower
	s.v.Leader, s.v.Term = name, s.v.Term+1
	member(s.v, name).Role = api.RoleLeader
}

func (s *scripted) act(_ context.Context, m api.MemberView) error {
	s.log = append(s.log, "act "+m.Name)
	if s.onAct != nil {
		return s.onAct(s, m.Name)
	}
	s.restart(m.Name)
	return nil
}

// restart takes a node away, and back some looks later.
func (s *scripted) restart(name string) {
	m := member(s.v, name)
	m.State, s.looks = api.StateDown, 0
	s.pending = func() {
		m.State = api.StateHealthy
		s.restarted(m)
	}
}

func (s *scripted) options() Options {
	return Options{View: s.view, Switchover: s.switchover, Act: s.act, Patience: 5 * time.Second, Poll: time.Microsecond,
		Say:     func(string, ...any) {},
		Confirm: func(q string) error { s.log = append(s.log, "asked"); return nil }}
}

func (s *scripted) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(s.log, want) {
		t.Errorf("%q, not %q", s.log, want)
	}
}

func TestLeaderIsLast(t *testing.T) {
	s := cluster()
	res, err := Run(t.Context(), s.options())
	if err != nil {
		t.Fatal(err)
	}
	s.expect(t, "act n5", "act n4", "act n2", "act n3", "switchover n1 to n2", "act n1")
	if len(res.Left) != 0 || len(res.Steps) != 5 || res.Steps[4].To != "n2" || res.Steps[4].GapMS != 30 {
		t.Errorf("%+v", res)
	}
}

// TestFailoverMeanwhile: the node that leads when its turn comes is the one that hands over.
func TestFailoverMeanwhile(t *testing.T) {
	s := cluster()
	s.onAct = func(s *scripted, name string) error {
		if name == "n4" {
			s.lead("n3")
		}
		s.restart(name)
		return nil
	}
	if _, err := Run(t.Context(), s.options()); err != nil {
		t.Fatal(err)
	}
	s.expect(t, "act n5", "act n4", "act n1", "act n2", "switchover n3 to n2", "act n3")
}

// TestOneAtATime: a node that does not come back ends the run, and no other node is touched.
func TestOneAtATime(t *testing.T) {
	for what, broken := range map[string]func(s *scripted, name string) error{
		"n4 is down":           func(s *scripted, name string) error { member(s.v, name).State = api.StateDown; return nil },
		"n4 has not restarted": func(*scripted, string) error { return nil },
		"exit status 5":        func(*scripted, string) error { return errors.New("exit status 5") },
		"n3 is down": func(s *scripted, name string) error {
			s.restart(name)
			member(s.v, "n3").State = api.StateDown
			return nil
		},
	} {
		synctest.Test(t, func(t *testing.T) { breaksOff(t, what, broken) })
	}
}

// breaksOff runs through a cluster in which broken is what becomes of n4 when its turn comes. The clock is a bubble's:
// an hour passes as soon as all wait.
func breaksOff(t *testing.T, what string, broken func(s *scripted, name string) error) {
	t.Helper()
	s := cluster()
	s.onAct = func(s *scripted, name string) error {
		if name == "n4" {
			return broken(s, name)
		}
		s.restart(name)
		return nil
	}
	o := s.options()
	o.Patience, o.Poll = time.Hour, time.Second
	res, err := Run(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), what) {
		t.Errorf("%s: %v", what, err)
	}
	s.expect(t, "act n5", "act n4")
	if len(res.Steps) != 1 || !slices.Equal(res.Left, []string{"n4", "n2", "n3", "n1"}) {
		t.Errorf("%s: %+v", what, res)
	}
}

func TestRefusals(t *testing.T) {
	for what, change := range map[string]func(s *scripted, o *Options){
		"paused":               func(s *scripted, _ *Options) { s.v.Pause = &api.PauseView{} },
		"n3 is fenced":         func(s *scripted, _ *Options) { member(s.v, "n3").State = api.StateFenced },
		"no node takes writes": func(s *scripted, _ *Options) { s.v.Leader = "" },
		`no node "n9"`:         func(_ *scripted, o *Options) { o.Nodes = []string{"n2", "n9"} },
		"no majority is left":  func(s *scripted, _ *Options) { s.v.Members = s.v.Members[:2] },
		"nothing was upgraded": func(_ *scripted, o *Options) { o.Upgrade = true },
		"does not hand over":   func(s *scripted, o *Options) { o.Nodes = []string{"n1"}; o.Switchover = refuses },
		"is no longer a node of the clus": func(s *scripted, _ *Options) {
			s.onAct = func(s *scripted, _ string) error { s.v.Members = s.v.Members[:4]; return nil }
		},
	} {
		s := cluster()
		o := s.options()
		change(s, &o)
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		if len(s.log) > 1 {
			t.Errorf("%s: %q", what, s.log)
		}
	}
}

func refuses(context.Context, api.SwitchoverRequest) (api.SwitchoverResult, error) {
	return api.SwitchoverResult{}, errors.New("n2 lags far")
}

// TestSmallClusters: who accepts that writes are refused meanwhile may restart two nodes, or one.
func TestSmallClusters(t *testing.T) {
	for n, want := range map[int][]string{1: {"act n1"}, 2: {"act n2", "switchover n1 to n2", "act n1"}} {
		s := cluster()
		s.v.Members = s.v.Members[:n]
		o := s.options()
		o.AcceptOutage = true
		if _, err := Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		s.expect(t, want...)
	}
}

// TestUpgrade: each node has to come back with something new, and the way that leads only forwards is asked about.
func TestUpgrade(t *testing.T) {
	for version, want := range map[string][]string{
		"9.7.5":  {"act n5", "act n4", "act n2", "act n3", "switchover n1 to n2", "act n1"},
		"10.1.0": {"act n5", "act n4", "act n2", "act n3", "asked", "switchover n1 to n2", "act n1"},
	} {
		s := cluster()
		s.restarted = func(m *api.MemberView) {
			m.Daemon.Version = "1.1"
			if m.MySQL != nil {
				m.MySQL = &api.MySQLView{PID: m.MySQL.PID + 1, Version: version}
			}
		}
		o := s.options()
		o.Upgrade = true
		res, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		s.expect(t, want...)
		if got, want := res.Steps[4].After.String(), "Trireme 1.1, MySQL "+version; got != want {
			t.Errorf("%s, not %s", got, want)
		}
		if got := res.Steps[1].Before.String(); got != "Trireme 1.0" {
			t.Errorf("a logger: %s", got)
		}
	}
	s := cluster()
	s.restarted = func(m *api.MemberView) {
		if m.MySQL != nil {
			m.MySQL = &api.MySQLView{Version: "10.1.0"}
		}
		m.Daemon.Version = "1.1"
	}
	o := s.options()
	o.Upgrade, o.Confirm = true, func(string) error { return errors.New("no") }
	if res, err := Run(t.Context(), o); err == nil || len(res.Steps) != 4 || s.v.Leader != "n1" {
		t.Errorf("went on without a yes: %v %+v", err, res)
	}
}

// TestContainers: a daemon whose process has the same number again has restarted if it was seen down.
func TestContainers(t *testing.T) {
	s := cluster()
	s.restarted = func(*api.MemberView) {}
	s.back = 5
	o := s.options()
	o.Nodes = []string{"n4"}
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// TestSaysWhatItWaitsFor: a run whose operator does not restart the node says whom it waits for, and so does the error
// of one that is stopped.
func TestSaysWhatItWaitsFor(t *testing.T) {
	s := cluster()
	s.onAct = func(*scripted, string) error { return nil }
	ctx, cancel := context.WithCancel(t.Context())
	o := s.options()
	o.Patience, o.Poll = time.Hour, time.Millisecond
	var said []string
	o.Say = func(format string, args ...any) {
		if said = append(said, fmt.Sprintf(format, args...)); strings.HasPrefix(said[len(said)-1], "waiting") {
			cancel()
		}
	}
	res, err := Run(ctx, o)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "n5 has not restarted") || len(res.Left) != 5 {
		t.Errorf("%v, left %v", err, res.Left)
	}
	if last := said[len(said)-1]; !strings.Contains(last, "n5 has not restarted") ||
		!strings.Contains(last, "1h0m0s at most") {
		t.Errorf("%q", said)
	}
}
