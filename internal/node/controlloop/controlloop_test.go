package controlloop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"trireme/internal/base/config"
	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/dump"
	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/node/gossip"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/seeding"
)

// testHost is the rest of a member of which nothing runs. What a test does not need is not there.
type testHost struct {
	Host
	restarted string
	woken     int
	failed    error
	kill      error // of Kill
	ended     string
}

func (h *testHost) Restart(reason string)      { h.restarted = reason }
func (h *testHost) WakeLoop()                  { h.woken++ }
func (h *testHost) Fail(err error)             { h.failed = err }
func (h *testHost) Kill(*lifecycle.Life) error { return h.kill }
func (h *testHost) WhyEnded() string           { return h.ended }

var realTime = run.Real{Boottime: consensus.Boottime}

func newTest(t *testing.T) (*Loop, *testHost) {
	t.Helper()
	h, led, log := &testHost{}, ledger.New(raftlog.Boundary{}), slog.New(slog.DiscardHandler)
	cfg := config.Default()
	cfg.Dir = t.TempDir()
	rlog, err := raftlog.Open(raftlog.Options{Dir: t.TempDir(), Cluster: 5, NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rlog.Close() })
	id := config.Identity{ID: 1, Name: "db1", Role: config.RoleVoter}
	lives := lifecycle.New(realTime)
	lives.Open(lifecycle.Config{Node: 1, Log: rlog, Ledger: led})
	return New(Parts{ID: id, Mu: &sync.Mutex{}, Time: realTime, Lives: lives,
		Gossip: gossip.New(cfg, id, led, realTime, nil, log), Ledger: led, Host: h, Log: log}), h
}

// TestStreamEnded: what follows the end of a stream depends on its reason. Nothing does where somebody has closed it; a
// broken one means that mysqld is killed and judged again (S12), and one that cannot be read that it is fenced.
func TestStreamEnded(t *testing.T) {
	for name, c := range map[string]struct {
		err       error
		restarts  bool
		stalls    bool
		looksSoon bool
	}{
		"closed":             {dump.ErrClosed, false, false, false},
		"leadership is lost": {consensus.ErrNotLeader, false, false, true},
		"broken":             {fmt.Errorf("a gap: %w", dump.ErrInvariant), true, false, false},
		"cannot be read":     {errors.New("no such file"), false, true, true},
	} {
		l := new(lifecycle.Life)
		control, h := newTest(t)
		control.streamEnded(l, 7, c.err)
		if (h.restarted != "") != c.restarts || (l.Stalled() != "") != c.stalls || (h.woken > 0) != c.looksSoon {
			t.Errorf("%s: restarted %q, stalled %q, woken %d times", name, h.restarted, l.Stalled(), h.woken)
		}
	}
}

// TestJudged: what comes of a judgement, and that one of a life that has died changes nothing.
func TestJudged(t *testing.T) {
	good, other := &ledger.Judgement{}, &ledger.Judgement{Problems: []string{"executed here"}}
	other.Errant.Add(gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(5, 1, 1)}, GNO: 1})
	for name, c := range map[string]struct {
		j       *ledger.Judgement
		err     error
		outcome Outcome
		state   ha.ServerState
	}{
		"a prefix of the log": {good, nil, Ready, ha.ServerReady},
		"not judged":          {nil, errors.New("no quorum"), Unjudged, ha.ServerUp},
		"void":                {nil, fmt.Errorf("entry 7: %w", seeding.ErrHoldsVoid), Void, ha.ServerBehind},
		"purged":              {&ledger.Judgement{Behind: true}, nil, Lags, ha.ServerBehind},
		"other data":          {other, nil, Broken, ha.ServerBroken},
	} {
		control, _ := newTest(t)
		l := new(lifecycle.Life)
		control.Lives.Change(func(s *lifecycle.Status) { s.Started(l); s.Judging() })
		if v := (Verdict{Judgement: c.j, Err: c.err}); control.judged(new(lifecycle.Life), &v) {
			t.Errorf("%s: a judgement of another life counts", name)
		}
		v := Verdict{Judgement: c.j, Err: c.err}
		if !control.judged(l, &v) || v.Outcome != c.outcome {
			t.Errorf("%s: %v", name, v.Outcome)
		}
		if s := control.Lives.Status(); s.State() != c.state {
			t.Errorf("%s: mysqld is %v", name, s.State())
		}
		if control.judged(l, &v) {
			t.Errorf("%s: it counts twice", name)
		}
	}
}

// TestUnjudgedAgain: a reason is told once, not at each attempt.
func TestUnjudgedAgain(t *testing.T) {
	control, _ := newTest(t)
	l := new(lifecycle.Life)
	for i, why := range []string{"no quorum", "no quorum", "a full disk"} {
		control.Lives.Change(func(s *lifecycle.Status) {
			if i == 0 {
				s.Started(l)
			}
			s.Judging()
		})
		v := Verdict{Err: errors.New(why)}
		if !control.judged(l, &v) || v.Again != (i == 1) {
			t.Errorf("%d: %+v", i, v)
		}
	}
}

// TestEndServer: a process that cannot be killed ends the daemon, and mysqld with it; one that something else has ended
// says so.
func TestEndServer(t *testing.T) {
	control, h := newTest(t)
	l := new(lifecycle.Life)
	control.Lives.Change(func(s *lifecycle.Status) { s.Started(l); s.Ready() })
	h.kill = errors.New("operation not permitted")
	control.EndServer(l)
	if s := control.Lives.Status(); h.failed == nil || s.State() != ha.ServerReady {
		t.Errorf("%v, mysqld is %v", h.failed, s.State())
	}
	h.kill, h.ended = nil, "the guard killed it"
	control.EndServer(new(lifecycle.Life))
	if s := control.Lives.Status(); s.State() != ha.ServerReady {
		t.Errorf("the end of another life: mysqld is %v", s.State())
	}
	control.EndServer(l)
	if s := control.Lives.Status(); s.State() != ha.ServerDying || !strings.Contains(s.Server.View().Ended, h.ended) {
		t.Errorf("%+v", s.Server.View())
	}
	control.Dead(l)
	if s := control.Lives.Status(); s.State() != ha.ServerOff || s.Life() != nil {
		t.Errorf("%+v", s.Server.View())
	}
}

// TestServeAfter: what is served waits for the promotion before it, or for the member's end.
func TestServeAfter(t *testing.T) {
	control, h := newTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	host := &taskHost{testHost: h, ctx: ctx}
	control.Host = host
	first := make(chan struct{})
	control.ServeLocked(func(context.Context) { <-first })
	control.ServeLocked(func(context.Context) {})
	s := control.Lives.Status()
	select {
	case <-s.Done():
		t.Error("the second has ended before the first")
	default:
	}
	close(first)
	<-s.Done()
	cancel()
	host.tasks.Wait()
}

// taskHost runs tasks.
type taskHost struct {
	*testHost
	ctx   context.Context
	tasks sync.WaitGroup
}

func (h *taskHost) Context() context.Context       { return h.ctx }
func (h *taskHost) Go(f func(ctx context.Context)) { h.tasks.Go(func() { f(h.ctx) }) }
func (h *taskHost) WakeLoop()                      {}
