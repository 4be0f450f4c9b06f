package delay

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// testHost is a member without a mysqld, db1, whose settings a test changes.
type testHost struct {
	Host
	settings config.Cluster
	order    *Order
	full     error // of writing node.json
}

func (h *testHost) Settings() *config.Cluster { return &h.settings }

func (h *testHost) Applied() (gtid.Set, ledger.Backlog) { return gtid.Set{}, ledger.Backlog{} }

func (h *testHost) Order() *Order { return h.order }

func (h *testHost) SetOrder(o *Order) error {
	if h.full == nil {
		h.order = o
	}
	return h.full
}

func (h *testHost) delayBy(delay time.Duration) {
	h.settings = config.Cluster{Members: []config.Member{{ID: 1, Name: "db1", Role: config.RoleLearner,
		ApplyDelayMS: delay.Milliseconds()}}}
}

// gateScene is a gate with a clock of the test.
type gateScene struct {
	*Delay
	t    *testing.T
	host *testHost
	now  time.Time
}

func newGateScene(t *testing.T, delay time.Duration) *gateScene {
	h := &testHost{}
	s := &gateScene{t: t, host: h, now: time.Unix(1_700_000_000, 0), Delay: New(config.Identity{Name: "db1", ID: 1},
		ledger.New(raftlog.Boundary{}), h, slog.New(slog.DiscardHandler))}
	s.clock = func() time.Time { return s.now }
	s.set(delay)
	s.Begin(gtid.Set{})
	return s
}

func (s *gateScene) set(delay time.Duration) (again bool) {
	s.host.delayBy(delay)
	return s.SettingsChanged()
}

func (s *gateScene) view(executed gtid.Set) *api.DelayView { return s.View(executed, ledger.Backlog{}) }

func id(gno int64) gtid.GTID { return gtid.GTID{SID: gtid.SID{UUID: gtid.UUID{1}}, GNO: gno} }

func ids(gnos ...int64) (s gtid.Set) {
	for _, g := range gnos {
		s.Add(id(g))
	}
	return s
}

// pass is whether the gate lets a transaction pass that was committed some time ago.
func (s *gateScene) pass(gno int64, ago time.Duration) bool {
	wait, changed := s.Pass(&binlog.TrxInfo{GTIDEvent: binlog.GTIDEvent{GTID: id(gno),
		ImmediateCommit: uint64(s.now.Add(-ago).UnixMicro())}})
	if wait > 0 && (changed == nil || wait > gateLook) {
		s.t.Errorf("%d: wait %v, told of a change: %t", gno, wait, changed != nil)
	}
	return wait <= 0
}

func (s *gateScene) order(kind string, gno int64) {
	o := &Order{Kind: kind}
	if gno > 0 {
		o.GTID = id(gno).String()
	}
	if err := s.command(o, func() error { return nil }); err != nil {
		s.t.Fatal(err)
	}
}

func TestGateDelays(t *testing.T) {
	s := newGateScene(t, time.Hour)
	if !s.pass(1, time.Hour) || s.pass(2, 59*time.Minute) {
		t.Error("the age of a commit decides")
	}
	if v := s.view(ids(1)); v.Next != id(2).String() || v.RemainingSeconds != 60 || v.Stopped || !v.CaughtUp {
		t.Errorf("%+v", v)
	}
	if v := s.view(gtid.Set{}); v.CaughtUp {
		t.Error("what it was given is not applied")
	}
	s.now = s.now.Add(time.Minute)
	if !s.pass(2, time.Hour) {
		t.Error("it is old enough now")
	}
	// The leader's clock was a day ahead, or its event tells no time.
	for gno, commit := range map[int64]uint64{3: uint64(s.now.Add(24 * time.Hour).UnixMicro()), 4: 0} {
		passes := func() bool {
			wait, _ := s.Pass(&binlog.TrxInfo{GTIDEvent: binlog.GTIDEvent{GTID: id(gno), ImmediateCommit: commit}})
			return wait <= 0
		}
		if passes() {
			t.Errorf("%d passes at once", gno)
		}
		if s.now = s.now.Add(time.Hour); !passes() {
			t.Errorf("%d waits for longer than the delay from the first look on", gno)
		}
	}
	if again := s.set(0); again || s.view(gtid.Set{}) != nil || !s.pass(5, 0) {
		t.Error("without a delay everything passes, and nothing is told")
	}
	if again := s.set(time.Hour); !again {
		t.Error("what mysqld has is not known any more")
	}
}

// TestGateDelayChanges: another delay holds for the transaction that waits, too.
func TestGateDelayChanges(t *testing.T) {
	s := newGateScene(t, time.Minute)
	if s.pass(1, 30*time.Second) {
		t.Error("it is not old enough")
	}
	s.set(time.Hour)
	s.now = s.now.Add(time.Minute)
	if s.pass(1, 90*time.Second) {
		t.Error("it passes by the delay that was")
	}
	s.set(time.Minute)
	if !s.pass(1, 90*time.Second) {
		t.Error("it waits for the delay that was")
	}
}

// TestGateWithoutFeed: a transaction that is not asked for any more does not make a learner one that has caught up.
func TestGateWithoutFeed(t *testing.T) {
	s := newGateScene(t, time.Minute)
	if s.pass(1, 0) || !s.view(gtid.Set{}).CaughtUp {
		t.Error("all that may be applied is")
	}
	s.now = s.now.Add(time.Hour)
	if v := s.view(gtid.Set{}); v.CaughtUp {
		t.Errorf("a transaction is due for an hour: %+v", v)
	}
}

// TestDelayBeforeTheGate: between new settings and the gate that follows them, orders are refused, and nothing breaks.
func TestDelayBeforeTheGate(t *testing.T) {
	s := newGateScene(t, 0)
	s.host.delayBy(time.Second)
	for _, order := range []string{"", api.OrderHold, api.OrderApplyNow} {
		if _, err := s.take(api.DelayRequest{Order: order}); api.KindOf(err) != api.KindConflict {
			t.Errorf("%q: %v", order, err)
		}
	}
}

// TestOrderEndsWithDelay: an order that cannot be taken back keeps the delay in force.
func TestOrderEndsWithDelay(t *testing.T) {
	s := newGateScene(t, time.Hour)
	s.order(api.OrderStopAfter, 0)
	s.host.full = errors.New("no space")
	if s.set(0); s.host.order == nil || !s.Active() || s.pass(1, 2*time.Hour) {
		t.Error("the order is on disk, and not followed")
	}
	s.host.full = nil
	if s.set(0); s.host.order != nil || s.Active() || !s.pass(1, 0) {
		t.Error("the order outlives the delay")
	}
}

// TestGateStops: what an order lets pass.
func TestGateStops(t *testing.T) {
	for _, tt := range []struct {
		name, kind string
		gno        int64 // of the order
		has        gtid.Set
		passes     []int64 // of 1 to 5
		missed     bool
	}{
		{name: "before", kind: api.OrderStopBefore, gno: 3, passes: []int64{1, 2}},
		{name: "after", kind: api.OrderStopAfter, gno: 3, passes: []int64{1, 2, 3}},
		{name: "hold", kind: api.OrderStopAfter},
		{name: "now", kind: api.OrderApplyNow, passes: []int64{1, 2, 3, 4, 5}},
		{name: "before, after a restart", kind: api.OrderStopBefore, gno: 3, has: ids(1), passes: []int64{2}},
		{name: "after, after a restart", kind: api.OrderStopAfter, gno: 3, has: ids(1, 2, 3)},
		{name: "before, copied meanwhile", kind: api.OrderStopBefore, gno: 3, has: ids(1, 2, 3), missed: true},
	} {
		s := newGateScene(t, time.Hour)
		s.order(tt.kind, tt.gno)
		s.Begin(tt.has) // a restart
		executed := tt.has.Clone()
		var passed []int64
		held := int64(6)
		for gno := int64(1); gno <= 5; gno++ {
			if tt.has.Contains(id(gno)) {
				continue
			}
			if held = gno; !s.pass(gno, 0) {
				break
			}
			passed = append(passed, gno)
			executed.Add(id(gno))
		}
		if !slices.Equal(passed, tt.passes) {
			t.Errorf("%s: passed %v, want %v", tt.name, passed, tt.passes)
		}
		v := s.view(executed)
		if v.Stopped != (tt.kind != api.OrderApplyNow) || v.Missed != tt.missed {
			t.Errorf("%s: %+v", tt.name, v)
		}
		_, changed := s.Pass(&binlog.TrxInfo{GTIDEvent: binlog.GTIDEvent{GTID: id(held)}})
		if err := s.command(nil, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if tt.kind != api.OrderApplyNow {
			select {
			case <-changed:
			default:
				t.Errorf("%s: the feed is not told that it goes on", tt.name)
			}
		}
		if !s.pass(7, time.Hour) || s.pass(8, 0) {
			t.Errorf("%s: taken back, the delay is what counts", tt.name)
		}
	}
}

// TestGateIsAskedAgain: what was let pass still passes when the feed comes back to it, because a later one of the same
// entry has to wait.
func TestGateIsAskedAgain(t *testing.T) {
	s := newGateScene(t, time.Hour)
	s.order(api.OrderStopAfter, 2)
	for range 2 {
		if !s.pass(1, 0) || !s.pass(2, 0) || s.pass(3, 0) {
			t.Error("it is to stop after 2")
		}
	}
}

// TestGateHoldsWhileAsked: between the look at what mysqld has and the order nothing is handed out, and a refused order
// changes nothing.
func TestGateHoldsWhileAsked(t *testing.T) {
	s := newGateScene(t, time.Hour)
	s.pass(1, time.Hour)
	refused := errors.New("no")
	done := make(chan bool)
	err := s.command(&Order{Kind: api.OrderStopAfter}, func() error {
		go func() { done <- s.pass(2, time.Hour) }()
		select {
		case <-done:
			t.Error("handed out while an order was judged")
		case <-time.After(20 * time.Millisecond):
		}
		return refused
	})
	if err != refused || !<-done || s.view(ids(1, 2)).Stopped {
		t.Errorf("%v: a refused order stands", err)
	}
}
