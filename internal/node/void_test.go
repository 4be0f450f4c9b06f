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
