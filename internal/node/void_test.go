package node

import (
	"errors"
	"testing"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/gtid"
)

// TestTakeVoids: a decision is written down before mysqld is fed. Data that has the transaction already does not
// follow it.
func TestTakeVoids(t *testing.T) {
	g := gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(5, 1, 1)}, GNO: 7}
	has, later := gtid.SetOf(g), gtid.GTID{SID: g.SID, GNO: 8}
	decided := func(d *testDir) { d.cluster.Voids = []config.Void{{GTID: g.String(), Index: 9}} }
	open := func(n *Node) int {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.newVoidsLocked())
	}

	n := newTestNode(t, decided)
	if !n.declaredVoid(g) || n.declaredVoid(later) || n.followsVoid(g) || open(n) != 1 {
		t.Error("it is decided, and not taken up yet")
	}
	if err := n.takeVoids(has); !errors.Is(err, errHoldsVoid) || n.followsVoid(g) {
		t.Errorf("data that has it: %v", err)
	}
	if err := n.takeVoids(gtid.Set{}); err != nil || !n.followsVoid(g) || open(n) != 0 {
		t.Errorf("taken up: %v", err)
	}
	if err := n.takeVoids(has); err != nil {
		t.Errorf("executed since, as it is void: %v", err)
	}
	again := newTestNode(t, decided, func(d *testDir) { d.cfg.Dir = n.cfg.Dir })
	if !again.followsVoid(g) || open(again) != 0 {
		t.Error("forgotten by a restart")
	}
	if err := again.forgetData(); err != nil || again.followsVoid(g) {
		t.Errorf("new data follows nothing yet: %v", err)
	}
}

// TestTakeTolerant: a decision to apply a transaction tolerantly is taken up in the same way. That it is void, decided
// later, is another one, and wins.
func TestTakeTolerant(t *testing.T) {
	g := gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(5, 1, 1)}, GNO: 7}
	n := newTestNode(t,
		func(d *testDir) { d.cluster.DeclareVoid(config.Void{GTID: g.String(), Index: 9, Tolerant: true}) })
	if n.declaredVoid(g) || n.followsTolerant(g) {
		t.Error("consumers of the change stream get it as it is, and it is not taken up yet")
	}
	if err := n.takeVoids(gtid.SetOf(g)); !errors.Is(err, errHoldsVoid) {
		t.Errorf("data that has it already: %v", err)
	}
	if err := n.takeVoids(gtid.Set{}); err != nil || !n.followsTolerant(g) || n.followsVoid(g) {
		t.Errorf("taken up: %v", err)
	}
	n.mu.Lock()
	n.Settings().DeclareVoid(config.Void{GTID: g.String(), Index: 9})
	open := len(n.newVoidsLocked())
	n.mu.Unlock()
	if open != 1 {
		t.Errorf("%d decisions to take up", open)
	}
	if err := n.takeVoids(gtid.Set{}); err != nil || n.followsTolerant(g) || !n.followsVoid(g) || !n.declaredVoid(g) {
		t.Errorf("void: %v", err)
	}
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
