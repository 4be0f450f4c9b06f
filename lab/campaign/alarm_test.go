package campaign

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trireme/lab/rivals"
)

func (f *fake) Alarms() []rivals.Alarm {
	out := f.alarms
	f.alarms = nil
	return out
}

// TestAlarms: a node that reports a broken rule ends the campaign even though the node is started again. A failing disk
// explains the end of a process, but never a broken rule, and only on its own host, in its step and shortly after it,
// until the system is whole again.
func TestAlarms(t *testing.T) {
	script, err := os.Create(filepath.Join(t.TempDir(), "transcript.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer script.Close()
	f := &fake{}
	sys := system{Breakable: f, all: f.Names(), grips: newGrips()}
	c := campaign{script: script, forgiven: map[string][]*strike{}}
	after := func(a rivals.Alarm, whole bool) error {
		f.alarms = []rivals.Alarm{a}
		return c.alarms(sys, whole)
	}
	if err := c.alarms(sys, true); err != nil {
		t.Fatal(err)
	}
	if err := after(rivals.Alarm{Host: "n1", What: rivals.RuleBroken, Text: "raft invariant violated: x"}, true); !errors.Is(err, errViolated) || !strings.Contains(err.Error(), "raft invariant violated: x") {
		t.Error(err)
	}
	ended := rivals.Alarm{Host: "n1", What: rivals.DaemonEnded, Text: "exit status 1"}
	for _, s := range []struct {
		kind  Kind
		alarm rivals.AlarmKind
		ok    bool
	}{
		{KillHost, rivals.DaemonEnded, false}, {Power, rivals.DaemonEnded, false}, {Power, rivals.MySQLCrashed, false},
		{DiskError, rivals.DaemonEnded, true}, {DiskFull, rivals.MySQLCrashed, true}, {DiskError, rivals.RuleBroken, false},
		{DiskSlow, rivals.DaemonEnded, false}, {Replace, rivals.DaemonEnded, true}, {Replace, rivals.RuleBroken, false},
	} {
		c.forgive([]*strike{{fault: Fault{Kind: s.kind}, hosts: []string{"n1"}}})
		if err := after(rivals.Alarm{Host: "n1", What: s.alarm}, true); (err == nil) != s.ok {
			t.Errorf("%s and %s: %v", s.kind, s.alarm, err)
		}
	}
	c.forgive([]*strike{{fault: Fault{Kind: DiskError}, hosts: []string{"n1"}}})
	other := ended
	other.Host = "n2"
	if err := after(other, false); err == nil {
		t.Error("another host's disk explains it")
	}
	if err := after(ended, false); err != nil {
		t.Error(err)
	}
	if err := errors.Join(after(ended, true), c.alarms(sys, true)); err != nil {
		t.Error(err)
	}
	if err := after(ended, true); err == nil {
		t.Error("a fault explains what happens after the system was whole")
	}
	begin := time.Now()
	fault := &strike{fault: Fault{Kind: DiskError, Hold: time.Second}, hosts: []string{"n1"}, at: begin,
		ended: begin.Add(time.Second)}
	c.forgive([]*strike{fault})
	for late, ok := range map[time.Duration]bool{time.Second: true, aftermath: true, aftermath + 2*time.Second: false} {
		a := ended
		a.At = begin.Add(late)
		if err := after(a, false); (err == nil) != ok {
			t.Errorf("%v after a disk's fault of 1 s: %v", late, err)
		}
	}
	if _, err := script.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(script)
	if err != nil || !strings.Contains(string(text), "n2: its daemon ended by itself: exit status 1 (expected: false)") {
		t.Errorf("%s %v", text, err)
	}
}
