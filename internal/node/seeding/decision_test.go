package seeding

import (
	"errors"
	"testing"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/mysql/gtid"
)

// TestTakeVoids: a decision is written down before mysqld is fed. Data that has the transaction already does not
// follow it.
func TestTakeVoids(t *testing.T) {
	g := gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(5, 1, 1)}, GNO: 7}
	has, later := gtid.SetOf(g), gtid.GTID{SID: g.SID, GNO: 8}
	m := newMember(t)
	m.settings.Voids = []config.Void{{GTID: g.String(), Index: 9}}
	s := m.s
	if !s.DeclaredVoid(g) || s.DeclaredVoid(later) || s.FollowsVoid(g) || !s.HasNewDecisions() {
		t.Error("it is decided, and not taken up yet")
	}
	if err := s.FollowDecisions(has); !errors.Is(err, ErrHoldsVoid) || s.FollowsVoid(g) {
		t.Errorf("data that has it: %v", err)
	}
	m.full = errors.New("disk full")
	if err := s.FollowDecisions(gtid.Set{}); !errors.Is(err, m.full) || s.FollowsVoid(g) {
		t.Errorf("it is not written down: %v", err)
	}
	m.full = nil
	if err := s.FollowDecisions(gtid.Set{}); err != nil || !s.FollowsVoid(g) || s.HasNewDecisions() {
		t.Errorf("taken up: %v", err)
	}
	if err := s.FollowDecisions(has); err != nil {
		t.Errorf("executed since, as it is void: %v", err)
	}
	if err := s.Forget(); err != nil || s.FollowsVoid(g) {
		t.Errorf("new data follows nothing yet: %v", err)
	}
}

// TestTakeTolerant: a decision to apply a transaction tolerantly is taken up in the same way. That it is void, decided
// later, is another one, and wins.
func TestTakeTolerant(t *testing.T) {
	g := gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(5, 1, 1)}, GNO: 7}
	m := newMember(t)
	m.settings.DeclareVoid(config.Void{GTID: g.String(), Index: 9, Tolerant: true})
	s := m.s
	if s.DeclaredVoid(g) || s.followsTolerant(g) {
		t.Error("consumers of the change stream get it as it is, and it is not taken up yet")
	}
	if err := s.FollowDecisions(gtid.SetOf(g)); !errors.Is(err, ErrHoldsVoid) {
		t.Errorf("data that has it already: %v", err)
	}
	if err := s.FollowDecisions(gtid.Set{}); err != nil || !s.followsTolerant(g) || s.FollowsVoid(g) {
		t.Errorf("taken up: %v", err)
	}
	m.settings.DeclareVoid(config.Void{GTID: g.String(), Index: 9})
	if open := s.newDecisions(); len(open) != 1 {
		t.Errorf("%d decisions to take up", len(open))
	}
	if err := s.FollowDecisions(gtid.Set{}); err != nil || s.followsTolerant(g) || !s.FollowsVoid(g) ||
		!s.DeclaredVoid(g) {
		t.Errorf("void: %v", err)
	}
}

// TestDecide: an operator decides about the entry that blocks the cluster, whose GTID is named, and about no other.
func TestDecide(t *testing.T) {
	g := gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(5, 1, 1)}, GNO: 7}
	m := newMember(t)
	req := api.VoidRequest{By: "ann"}
	if _, err := m.s.Void(t.Context(), req); api.KindOf(err) != api.KindAlready {
		t.Errorf("nothing blocks: %v", err)
	}
	m.blocked = &api.BlockedView{Told: "no node has it", ApplyErrorView: api.ApplyErrorView{GTID: g.String(), Index: 9,
		Number: 1062, Entry: "1 row"}}
	if rep, err := m.s.Void(t.Context(), req); err != nil || rep.Done || rep.Problem != "" || len(m.settings.Voids) != 0 {
		t.Errorf("only asked: %+v, %v", rep, err)
	}
	req.GTID = "u:8"
	if _, err := m.s.Void(t.Context(), req); api.KindOf(err) != api.KindChanged || len(m.settings.Voids) != 0 {
		t.Errorf("another entry: %v", err)
	}
	req.GTID = g.String()
	if rep, err := m.s.ForceApply(t.Context(), req); err != nil || !rep.Done || len(m.settings.Voids) != 1 ||
		!m.settings.Voids[0].Tolerant || m.settings.Voids[0].By != "ann" {
		t.Errorf("tolerantly: %+v, %v", rep, err)
	}
	if _, err := m.s.ForceApply(t.Context(), req); api.KindOf(err) != api.KindAlready {
		t.Errorf("once more: %v", err)
	}
	if rep, err := m.s.Void(t.Context(), req); err != nil || !rep.Done || !m.s.DeclaredVoid(g) {
		t.Errorf("void, since that did not help: %+v, %v", rep, err)
	}
	m.blocked.XA = true
	if _, err := m.s.Void(t.Context(), req); api.KindOf(err) != api.KindAlready {
		t.Errorf("decided: %v", err)
	}
	equal(t, "history", m.happened(), []string{eventForceApply, eventVoid})
}

// TestDecisionsAreTended: a mysqld that was started before a decision is restarted, a leader's, or one that is not
// ready, is not touched here.
func TestDecisionsAreTended(t *testing.T) {
	m := newMember(t)
	m.s.CarryOutDecisions(t.Context())
	m.settings.Voids = []config.Void{{GTID: "u:7", Index: 9}}
	m.s.CarryOutDecisions(t.Context())
	if len(m.calls) > 0 {
		t.Errorf("none runs: %q", m.calls)
	}
	m.follows(3)
	m.s.CarryOutDecisions(t.Context())
	equal(t, "done", m.calls, []string{"restart"})
}

// TestWhyNotTolerant: only what rows and keys have kept from being applied may be applied tolerantly.
func TestWhyNotTolerant(t *testing.T) {
	for _, c := range []struct {
		number    int
		statement string
		may       bool
	}{{1452, "", true}, {1451, "", true}, {1032, "", true}, {1062, "", true}, {3819, "", false},
		{1452, "ALTER TABLE t", false}, {1146, "", false}} {
		b := &api.BlockedView{ApplyErrorView: api.ApplyErrorView{Number: c.number, Statement: c.statement}}
		if err := whyNotTolerant(b); (err == nil) != c.may {
			t.Errorf("%d %s: %v", c.number, c.statement, err)
		}
	}
}

// TestWhyNotVoid: nothing is given up that a node may have, that is decided already, or that something else depends on.
func TestWhyNotVoid(t *testing.T) {
	for _, c := range []struct {
		name    string
		unknown []string
		without []string
		done    bool
		xa      bool
		want    api.Kind // empty: it may be done
	}{
		{name: "all nodes answer"},
		{name: "one may have it", unknown: []string{"a"}, want: api.KindNotReady},
		{name: "one of two is named", unknown: []string{"a", "b"}, without: []string{"a"}, want: api.KindNotReady},
		{name: "both are", unknown: []string{"a", "b"}, without: []string{"b", "a"}},
		{name: "one that answers is named", without: []string{"a"}, want: api.KindInvalid},
		{name: "part of an XA transaction", xa: true, want: api.KindConflict},
		{name: "decided", done: true, want: api.KindAlready},
	} {
		b := &api.BlockedView{Unknown: c.unknown, ApplyErrorView: api.ApplyErrorView{Index: 7, XA: c.xa}}
		got := api.Kind("")
		if err := whyNotVoid(b, c.without, c.done); err != nil {
			got = err.Kind
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
