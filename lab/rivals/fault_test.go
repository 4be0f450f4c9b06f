package rivals

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"trireme/internal/ops/demo"
)

var (
	_ Breaker  = (*trireme)(nil)
	_ Breaker  = (*mgr)(nil)
	_ Breaker  = (*innodbCluster)(nil)
	_ Operated = (*replication)(nil)
	_ Dark     = (*trireme)(nil)
	_ Dark     = (*naive)(nil)
	_ Dark     = (*brokenMGR)(nil)
	_ Witness  = (*trireme)(nil)
	_ Witness  = (*replication)(nil)
	_ Witness  = (*mgr)(nil)
	_ Mortal   = (*trireme)(nil)
	_ Mortal   = (*mgr)(nil)
	_ Mortal   = (*replication)(nil)
)

// TestKillable: a process is killed once.
func TestKillable(t *testing.T) {
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	if err := kill(c.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := kill(c.Process.Pid); err == nil {
		t.Error("it is killed again while it dies, or before it is reaped")
	}
	if err := kill(0); err == nil {
		t.Error("nothing is killed, and that is no error")
	}
}

// TestChoosePrimary: clients are led to the primary of the newest view in which a majority is ONLINE, by fresh answers
// only. A restart of the server is a new term.
func TestChoosePrimary(t *testing.T) {
	members := map[string]*server{}
	for i, name := range []string{"n1", "n2", "n3"} {
		members[name] = &server{host: &host{name: name}, proc: &demo.Process{PID: i + 1}}
	}
	now := time.Now()
	primary := func(view int) memberView {
		return memberView{at: now, state: "ONLINE", primary: true, members: 3, online: 3, view: view}
	}
	with := func(v memberView, change func(*memberView)) memberView {
		change(&v)
		return v
	}
	secondary := memberView{at: now, state: "ONLINE", members: 3, online: 3, view: 1}
	for _, c := range []struct {
		what  string
		views map[string]memberView
		want  string // empty: no host
	}{
		{"one primary", map[string]memberView{"n1": primary(1), "n2": secondary}, "n1"},
		{"two, of which one is of an old view", map[string]memberView{"n1": primary(1), "n2": primary(2)}, "n2"},
		{"cut off from the others", map[string]memberView{"n1": with(primary(1), func(v *memberView) { v.online = 1 }),
			"n2": secondary}, ""},
		{"an old answer",
			map[string]memberView{"n1": with(primary(1), func(v *memberView) { v.at = now.Add(-2 * mgrFresh) })}, ""},
		{"writes are not open yet", map[string]memberView{"n1": with(primary(1), func(v *memberView) { v.readOnly = true })},
			""},
		{"expelled", map[string]memberView{"n1": with(primary(1), func(v *memberView) { v.state = "ERROR" })}, ""},
	} {
		b := &brokenMGR{mgr: &mgr{}, views: map[*server]memberView{}}
		for name, v := range c.views {
			b.views[members[name]] = v
		}
		b.choose()
		if got := b.leader; got.Open != (c.want != "") || got.Open && got.Name != c.want {
			t.Errorf("%s: %+v, want %q", c.what, got, c.want)
		}
	}
	b := &brokenMGR{mgr: &mgr{}, views: map[*server]memberView{members["n1"]: primary(1)}}
	b.choose()
	b.choose()
	before := b.leader.Term
	members["n1"].proc = &demo.Process{PID: 9}
	b.choose()
	if before != 1 || b.leader.Term != 2 {
		t.Errorf("term %d, after a restart %d", before, b.leader.Term)
	}
}

// TestUnknownFaults are refused with a reason before anything happens.
func TestUnknownFaults(t *testing.T) {
	m := &brokenMGR{mgr: &mgr{rival: rival{site: &site{}}}}
	for _, f := range []Fault{KillDaemon, StopDaemon, KillHost, StopMySQL, AddNode, LoseHost, Partition} {
		if err := m.Can(f); !errors.Is(err, ErrNotHere) {
			t.Errorf("%s of a member without a network: %v", f, err)
		}
	}
	for _, f := range []Fault{KillMySQL, EndNode, StopHost, Switchover} {
		if err := m.Can(f); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}
