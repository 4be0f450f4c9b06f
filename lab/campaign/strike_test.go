package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/lab/faultfs"
	"trireme/lab/rivals"
)

// fake is a system of three data nodes and two loggers that takes down what is done to it. Methods that are not here
// are not called.
type fake struct {
	rivals.Breakable
	done   []string
	fail   string // Do of this host fails
	absent string // it is not a member
	loses  bool   // its disks, without power
	alarms []rivals.Alarm
}

func (f *fake) Names() []string { return []string{"n1", "n2", "n3"} }

func (f *fake) Do(_ context.Context, what rivals.Fault, host string) error {
	if host == f.fail {
		return errors.New("it has no mysqld")
	}
	f.done = append(f.done, fmt.Sprintf("%s %s", what, host))
	return nil
}

func (f *fake) Undo(_ context.Context, what rivals.Fault, host string) error {
	f.done = append(f.done, fmt.Sprintf("end of %s %s", what, host))
	return nil
}

func (f *fake) CutPower(hosts []string) ([]string, error) {
	if slices.Contains(hosts, f.absent) {
		return nil, fmt.Errorf("%v: %w", hosts, rivals.ErrAbsent)
	}
	f.done = append(f.done, "dark "+strings.Join(hosts, " "))
	if f.loses {
		return hosts[:1], nil
	}
	return nil, nil
}

func (f *fake) GivePower(hosts []string) error {
	f.done = append(f.done, "light "+strings.Join(hosts, " "))
	return nil
}

// TestVictims: roles are told by who leads, and which of several it is by the pick.
func TestVictims(t *testing.T) {
	s := system{Breakable: &fake{}, all: []string{"l1", "l2", "n1", "n2", "n3"}, grips: newGrips()}
	for _, c := range []struct {
		whom Whom
		pick uint32
		want string
	}{
		{Leader, 0, "n2"}, {Follower, 0, "n1"}, {Follower, 1, "n3"}, {Logger, 0, "l1"}, {Logger, 3, "l2"},
		{Majority, 0, "n2 l1 l2"}, {Majority, 2, "n2 n1 n3"}, {All, 0, "n2 l1 l2 n1 n3"},
	} {
		f := Fault{Kind: KillHost, Whom: c.whom, Pick: c.pick}
		got := s.victims(f, "n2")
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s, pick %d: %v, want %s", c.whom, c.pick, got, c.want)
		}
		if role := s.role(f, got, "n2"); role != c.whom {
			t.Errorf("%v is a %s, not a %s", got, role, c.whom)
		}
	}
	s.all = s.Names()
	f := Fault{Kind: KillDaemon, Whom: Logger}
	if got := s.victims(f, "n2"); s.role(f, got, "n2") != Follower {
		t.Errorf("without loggers %v is hit, a %s", got, s.role(f, got, "n2"))
	}
}

// TestStrikes: what lasts ends in its time, whatever began first; a fault that cannot be made is missed.
func TestStrikes(t *testing.T) {
	made := &fake{}
	s := system{Breakable: made, all: made.Names(), grips: newGrips()}
	ctx := t.Context()
	strikes := []*strike{
		s.hit(ctx, Fault{Kind: StopHost, Whom: Leader, Hold: 60 * time.Millisecond}, rivals.Lead{Name: "n1"}),
		s.hit(ctx, Fault{Kind: Power, Whom: Majority, Hold: 20 * time.Millisecond}, rivals.Lead{Name: "n1"}),
		s.hit(ctx, Fault{Kind: KillMySQL, Whom: Leader}, rivals.Lead{Name: "n1"}),
	}
	if err := endAll(ctx, strikes); err != nil {
		t.Fatal(err)
	}
	want := []string{"host frozen n1", "dark n1 n2", "mysqld killed n1", "light n1 n2", "end of host frozen n1"}
	if !slices.Equal(made.done, want) {
		t.Errorf("%q, want %q", made.done, want)
	}
	made.fail = "n1"
	missed := s.hit(ctx, Fault{Kind: KillMySQL, Whom: Leader}, rivals.Lead{Name: "n1"})
	some := s.hit(ctx, Fault{Kind: KillGroup, Whom: All}, rivals.Lead{Name: "n1"})
	if err := endAll(ctx, []*strike{missed, some}); err != nil || !errors.Is(missed.err, errMissed) || some.err != nil ||
		!slices.Equal(some.hosts, []string{"n2", "n3"}) {
		t.Errorf("%v, %v, %v %v", err, missed.err, some.err, some.hosts)
	}
	made.absent = "n2" // another fault has it replaced just then
	missed = s.hit(ctx, Fault{Kind: Power, Whom: Leader}, rivals.Lead{Name: "n2"})
	if err := endAll(ctx, []*strike{missed}); err != nil || !errors.Is(missed.err, errMissed) {
		t.Errorf("%v, %v", err, missed.err)
	}
}

// TestOverlaps: if two faults hold the same thing, the end of one is not the end of the other; a member is added again
// after all others have ended.
func TestOverlaps(t *testing.T) {
	made := &fake{}
	s := system{Breakable: made, all: made.Names(), grips: newGrips()}
	const soon, later = 5 * time.Millisecond, 10 * time.Millisecond
	if err := endAll(t.Context(), []*strike{
		s.hit(t.Context(), Fault{Kind: Replace, Whom: Leader}, rivals.Lead{Name: "n3"}),
		s.hit(t.Context(), Fault{Kind: StopMySQL, Whom: Leader, Hold: soon}, rivals.Lead{Name: "n1"}),
		s.hit(t.Context(), Fault{Kind: StopHost, Whom: All, Hold: later}, rivals.Lead{Name: "n1"}),
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{"node replaced n3", "mysqld frozen n1", "host frozen n1", "host frozen n2", "host frozen n3",
		"end of host frozen n1", "end of host frozen n2", "end of host frozen n3", "end of node replaced n3"}
	if !slices.Equal(made.done, want) {
		t.Errorf("%q, want %q", made.done, want)
	}
	g := newGrips()
	one, both := [][2]string{link("n2", "n1")}, [][2]string{link("n1", "n2"), link("n1", "n3")}
	g.take(one)
	g.take(both)
	if free := g.drop(one); len(free) != 0 {
		t.Errorf("%v is restored under a fault", free)
	}
	if free := g.drop(both); !slices.Equal(free, both) {
		t.Errorf("%v is restored, want %v", free, both)
	}
	full, slow := faultfs.Full(""), faultfs.Fault{Ops: faultfs.Fsync, Delay: time.Second}
	g.spoil("n1", full)
	if now := g.spoil("n1", slow); !slices.Equal(now, []faultfs.Fault{full, slow}) {
		t.Errorf("with a second fault the disk has %v", now)
	}
	if left := g.mend("n1", full); !slices.Equal(left, []faultfs.Fault{slow}) {
		t.Errorf("after one fault's end the disk has %v", left)
	}
}

// TestCount: what counts is what came of a fault.
func TestCount(t *testing.T) {
	before, next := rivals.Lead{Name: "n1", Term: 3}, rivals.Lead{Name: "n2", Term: 4}
	at := time.Now()
	kill := func(hosts ...string) *strike {
		return &strike{fault: Fault{Kind: KillMySQL}, whom: Leader, hosts: hosts, lead: before, at: at}
	}
	cut := func(d time.Duration) *strike {
		return &strike{fault: Fault{Kind: Isolate}, whom: Leader, hosts: []string{"n1"}, at: at, ended: at.Add(d)}
	}
	dark := func(lost ...string) *strike {
		return &strike{fault: Fault{Kind: Power}, whom: Leader, hosts: []string{"n1"}, lost: lost, at: at,
			ended: at.Add(time.Second)}
	}
	for _, c := range []struct {
		what    string
		strikes []*strike
		after   rivals.Lead
		want    [4]int // faults, leader kills, partitions, power losses
	}{
		{"a leader", []*strike{kill("n1")}, next, [4]int{1, 1, 0, 0}},
		{"a leader, unnoticed", []*strike{kill("n1")}, before, [4]int{1, 0, 0, 0}},
		{"a leader that is hit twice", []*strike{kill("n1"), kill("n1", "n3")}, next, [4]int{2, 1, 0, 0}},
		{"two leaders, one after the other", []*strike{kill("n1"), {fault: Fault{Kind: KillMySQL}, hosts: []string{"n2"},
			lead: next}}, rivals.Lead{Name: "n1", Term: 5}, [4]int{2, 2, 0, 0}},
		{"all but the leader, who was dead", []*strike{kill("n2", "n3")}, next, [4]int{1, 0, 0, 0}},
		{"a leader who was dead", []*strike{{fault: Fault{Kind: KillMySQL}, hosts: []string{"n1"}, lead: before,
			err: errMissed}}, next, [4]int{}},
		{"a partition that lasted", []*strike{cut(leastPartition)}, next, [4]int{1, 0, 1, 0}},
		{"a short one", []*strike{cut(leastPartition - 1)}, next, [4]int{1, 0, 0, 0}},
		{"disks without power", []*strike{dark("n1")}, next, [4]int{1, 0, 0, 1}},
		{"disks that lost nothing", []*strike{dark()}, next, [4]int{1, 0, 0, 0}},
	} {
		b := batch{counts: Part{Counts: map[string]int{}}}
		b.count(c.strikes, c.after)
		if p := b.counts; [4]int{p.Faults, p.LeaderKills, p.Partitions, p.PowerLosses} != c.want {
			t.Errorf("%s: %+v, want %v", c.what, p, c.want)
		}
	}
	p := Part{Faults: 3, LeaderKills: 2, Partitions: 1, PowerLosses: 1, Counts: map[string]int{"power all": 1}, Checks: 1}
	p.discount()
	if p.Uncounted != 3 || p.Faults+p.LeaderKills+p.Partitions+p.PowerLosses+len(p.Counts) != 0 || p.Checks != 1 ||
		p.empty() {
		t.Errorf("%+v", p)
	}
}
