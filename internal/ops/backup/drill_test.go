package backup

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"trireme/internal/mysql/gtid"
)

// TestEndOf: the place in the log at which a server stood, by what it has executed.
func TestEndOf(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	var sets []gtid.Set
	for range 3 {
		for range 5 {
			s.some(1)
			sets = append(sets, s.log.GTIDSet().Clone())
		}
		s.archive(to)
	}
	s.pieces(1, 900)
	s.archive(to)
	sets = append(sets, s.log.GTIDSet().Clone())
	c, err := Read(to)
	check(t, err)
	for i, set := range sets {
		at, err := c.endOf(set)
		check(t, err)
		p, err := c.Find(at)
		check(t, err)
		if !p.GTIDs.Equal(set) {
			t.Errorf("moment %d: %v, want %v", i, p.GTIDs, set)
		}
		if got, err := awaitSet(t.Context(), to, set); err != nil || got != at {
			t.Errorf("moment %d: %v, %v", i, got, err)
		}
	}
	// A server that lacks one in between, or has one of its own, stands at no moment of the log.
	holes := sets[9].Clone()
	holes = holes.Subtract(sets[5].Subtract(sets[4]))
	own := sets[9].Clone()
	own.Add(gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(99, 9, 9)}, GNO: 1})
	for _, set := range []gtid.Set{holes, own, {}} {
		if at, err := c.endOf(set); !errors.Is(err, ErrTarget) {
			t.Errorf("%v: %v, %v", set, at, err)
		}
	}
}

func TestDrillCompares(t *testing.T) {
	a := look{node: "n2", sums: map[string]string{"same": "1", "changed": "2", "lost": "3"}}
	b := look{sums: map[string]string{"same": "1", "changed": "4", "more": "5"}}
	got := fmt.Sprint(a.compare(&b))
	for _, want := range []string{"{changed has checksum 2 on n2 and 4 in", "{lost is on n2",
		"{more was restored and is not on n2}"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %q", got, want)
		}
	}
	if strings.Contains(got, "same") || len(a.compare(&a)) != 0 {
		t.Errorf("tables that are the same differ: %s", got)
	}
}

// TestDrillLeavesNothing: a drill of a backup that cannot be restored.
func TestDrillLeavesNothing(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	s.some(3)
	s.archive(to)
	scratch := t.TempDir()
	o := DrillOptions{Scratch: scratch}
	o.From, o.Port = to, 3306
	if _, err := Drill(t.Context(), o); !errors.Is(err, ErrTarget) {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
