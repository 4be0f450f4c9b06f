package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/lab"
)

// fake is a system of three data nodes and two loggers that takes down what is done to it. Methods that are not here are not called.
type fake struct {
	lab.Breakable
	done   []string
	fail   string // Do of this host fails
	alarms []lab.Alarm
}

func (f *fake) Names() []string { return []string{"n1", "n2", "n3"} }

func (f *fake) Do(_ context.Context, what lab.Fault, host string) error {
	if host == f.fail {
		return errors.New("it has no mysqld")
	}
	f.done = append(f.done, fmt.Sprintf("%s %s", what, host))
	return nil
}

func (f *fake) Undo(_ context.Context, what lab.Fault, host string) error {
	f.done = append(f.done, fmt.Sprintf("end of %s %s", what, host))
	return nil
}

func (f *fake) CutPower(hosts []string) error {
	f.done = append(f.done, "dark "+strings.Join(hosts, " "))
	return nil
}

func (f *fake) GivePower(hosts []string) error {
	f.done = append(f.done, "light "+strings.Join(hosts, " "))
	return nil
}

// TestVictims: roles are told by who leads, and which of several it is by the pick.
func TestVictims(t *testing.T) {
	s := system{&fake{}, []string{"l1", "l2", "n1", "n2", "n3"}}
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

// TestStrikes: what lasts ends in its time, whatever began first; a fault that cannot be made is missed and not counted; leader kills are counted by what came of
// them.
func TestStrikes(t *testing.T) {
	made := &fake{}
	s := system{made, made.Names()}
	ctx := t.Context()
	strikes := []*strike{
		s.hit(ctx, Fault{Kind: StopHost, Whom: Leader, Hold: 60 * time.Millisecond}, "n1"),
		s.hit(ctx, Fault{Kind: Power, Whom: Majority, Hold: 20 * time.Millisecond}, "n1"),
		s.hit(ctx, Fault{Kind: KillMySQL, Whom: Leader}, "n1"),
	}
	if err := endAll(ctx, strikes); err != nil {
		t.Fatal(err)
	}
	want := []string{"host frozen n1", "dark n1 n2", "mysqld killed n1", "light n1 n2", "end of host frozen n1"}
	if !slices.Equal(made.done, want) {
		t.Errorf("%q, want %q", made.done, want)
	}
	made.fail = "n1"
	missed := s.hit(ctx, Fault{Kind: KillMySQL, Whom: Leader}, "n1")
	some := s.hit(ctx, Fault{Kind: KillGroup, Whom: All}, "n1")
	if err := endAll(ctx, []*strike{missed, some}); err != nil || !errors.Is(missed.err, errMissed) || some.err != nil {
		t.Errorf("%v, %v, %v", err, missed.err, some.err)
	}
	b := batch{counts: Part{Counts: map[string]int{}}}
	b.count(append(strikes, missed, some), lab.Lead{Name: "n1", Term: 3}, lab.Lead{Name: "n2", Term: 4})
	c := b.counts
	if c.Faults != 4 || c.Missed != 1 || c.LeaderKills != 2 || c.PowerLosses != 1 || c.Partitions != 0 || c.Counts["kill-mysqld leader"] != 1 || c.Counts["power majority"] != 1 {
		t.Errorf("%+v", c)
	}
	b = batch{counts: Part{Counts: map[string]int{}}}
	b.count(strikes[2:], lab.Lead{Name: "n1", Term: 3}, lab.Lead{Name: "n1", Term: 3})
	if b.counts.LeaderKills != 0 {
		t.Error("a kill that nobody noticed counts as one of the leader")
	}
}
