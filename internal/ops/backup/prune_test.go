package backup

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// pruneScript is a backup of three copies, at 1, 2 and 3 hours, each two segments later than the one before.
func pruneScript(t *testing.T) (s *script, to *Dir, copies []*Base) {
	t.Helper()
	s, to = newScript(t), newDir(t)
	for i := range 3 {
		s.some(6)
		s.archive(to)
		b := testBase(t, s, to, s.last()-uint64(i%2)*2, s.last()) // some with nothing that came while they were made
		b.Made = began.Add(time.Duration(i+1) * time.Hour)
		check(t, putSealed(to, b.manifest(), b))
		copies = append(copies, b)
		s.some(6)
		s.archive(to)
	}
	return s, to, copies
}

// TestPrune: what goes is what no kept copy needs: every moment from the oldest kept copy on can be restored, and no
// other object is left.
func TestPrune(t *testing.T) {
	end := began.Add(4 * time.Hour)
	for name, c := range map[string]struct {
		keep Retention
		now  time.Time
		kept int
	}{
		"one copy":                    {Retention{Copies: 1}, end, 1},
		"two copies":                  {Retention{Copies: 2}, end, 2},
		"more than there are":         {Retention{Copies: 9}, end, 3},
		"an hour":                     {Retention{For: time.Hour}, end, 1},
		"a bit more than an hour":     {Retention{For: time.Hour + 1}, end, 2},
		"longer than there was one":   {Retention{For: 1000 * time.Hour}, end, 3},
		"everything is old: the last": {Retention{For: time.Hour}, end.Add(1000 * time.Hour), 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, to, copies := pruneScript(t)
			would, err := Prune(t.Context(), to, c.keep, c.now, true)
			check(t, err)
			all, err := Read(to)
			check(t, err)
			if len(all.Bases) != 3 || len(all.Segments) != 6 {
				t.Fatalf("a dry run has left %d copies and %d segments", len(all.Bases), len(all.Segments))
			}
			p, err := Prune(t.Context(), to, c.keep, c.now, false)
			check(t, err)
			if fmt.Sprint(p) != fmt.Sprint(would) || len(p.Kept) != c.kept || len(p.Copies) != 3-c.kept {
				t.Errorf("removed %+v, would have %+v", p, would)
			}
			left, err := Read(to)
			check(t, err)
			oldest := copies[3-c.kept]
			if len(left.Bases) != c.kept || left.Bases[0].Name != oldest.Name || left.at(oldest.Last) != 0 {
				t.Errorf("left: copies %v, the log from %d on", left.Bases, left.Segments[0].First)
			}
			for index := oldest.Last; index <= s.last(); index++ {
				p, err := left.Find(Target{Index: index})
				check(t, err)
				if _, _, _, err := left.base(&p); err != nil {
					t.Errorf("entry %d: %v", index, err)
				}
			}
			v, err := Verify(t.Context(), to, nil)
			check(t, err)
			if len(v.Problems) > 0 {
				t.Errorf("%+v", v.Problems)
			}
			names, err := to.List(basePrefix)
			check(t, err)
			if slices.ContainsFunc(names,
				func(name string) bool { return c.kept < 3 && strings.Contains(name, copies[0].Name) }) {
				t.Errorf("left of a copy: %v", names)
			}
			s.some(3)
			s.archive(to) // and the archive goes on
			if v, err := Verify(t.Context(), to, nil); err != nil || len(v.Problems) > 0 {
				t.Errorf("afterwards: %+v, %v", v, err)
			}
		})
	}
}

// TestPruneKeeps: nothing goes while a copy is taken, or somebody reads, or nothing could be restored; what cannot be
// read stays; and what is missing beyond what was pruned is damage still.
func TestPruneKeeps(t *testing.T) {
	_, to, copies := pruneScript(t)
	count := func() int {
		names, err := to.List("")
		check(t, err)
		return len(names)
	}
	before := count()
	l, err := to.Lock(lockBase)
	check(t, err)
	if _, err := Prune(t.Context(), to, Retention{Copies: 1}, began, false); !errors.Is(err, ErrLocked) {
		t.Errorf("while a copy is taken: %v", err)
	}
	check(t, l.Close())
	if n := count(); n != before {
		t.Errorf("%d objects of %d", n, before)
	}

	// The newest copy is damaged: it does not count.
	good, err := os.ReadFile(to.path(copies[2].manifest()))
	check(t, err)
	check(t, os.WriteFile(to.path(copies[2].manifest()), good[1:], 0o600))
	p, err := Prune(t.Context(), to, Retention{Copies: 1}, began, false)
	check(t, err)
	if len(p.Kept) != 1 || p.Kept[0] != copies[1].Name {
		t.Errorf("kept: %v", p.Kept)
	}
	if _, err := os.Stat(to.path(copies[2].manifest())); err != nil {
		t.Error(err)
	}
	check(t, os.WriteFile(to.path(copies[2].manifest()), good, 0o600))

	c, err := Read(to)
	check(t, err)
	check(t, to.Remove(c.Segments[0].Name()))
	if v, err := Verify(t.Context(), to, nil); err != nil || len(v.Problems) == 0 {
		t.Errorf("a segment that was not pruned is gone: %+v, %v", v, err)
	}
	for i := range c.Segments[1:] {
		check(t, to.Remove(c.Segments[i+1].Name()))
	}
	before = count()
	if _, err := Prune(t.Context(), to, Retention{Copies: 1}, began, false); !errors.Is(err, ErrTarget) {
		t.Errorf("nothing can be restored: %v", err)
	}
	if n := count(); n != before {
		t.Errorf("%d objects of %d", n, before)
	}
}

// TestPruneWithin: a copy keeps the log in which a transaction begins that is under way where its own log begins.
func TestPruneWithin(t *testing.T) {
	s, to := newScript(t), newDir(t)
	s.some(6)
	s.archive(to)
	testBase(t, s, to, 3, 3)
	s.some(6)
	s.pieces(1, 900)
	s.applied.Store(s.last() - 1)
	s.archive(to)
	end := s.last() // of the transaction
	s.some(3)
	b := testBase(t, s, to, end, end)
	s.archive(to)
	p, err := Prune(t.Context(), to, Retention{Copies: 1}, began, false)
	check(t, err)
	v, err := Verify(t.Context(), to, nil)
	check(t, err)
	if p.Segments != 1 || len(p.Copies) != 1 || v.Restorable[b.Name].Stretch != (Stretch{b.Last, s.last()}) ||
		len(v.Problems) > 0 {
		t.Errorf("removed %+v, left %+v", p, v)
	}
}

// TestMomentsAreTold: Verify tells the moments that Read tells, and Prune the first one of what is left.
func TestMomentsAreTold(t *testing.T) {
	s, to := newScript(t), newDir(t)
	var copies []*Base
	for i := range 2 {
		s.some(6)
		s.archive(to)
		b := testBase(t, s, to, s.last(), s.last())
		c, err := Read(to)
		check(t, err)
		b.Made = c.Reached.Newest.Add(time.Duration(i-3) * time.Hour)
		check(t, putSealed(to, b.manifest(), b))
		copies = append(copies, b)
	}
	s.some(6)
	s.archive(to)
	c, err := Read(to)
	check(t, err)
	v, err := Verify(t.Context(), to, nil)
	check(t, err)
	var since []time.Time
	for i, b := range copies {
		stretch, err := c.Restorable(&c.Bases[i])
		check(t, err)
		from, until := c.Moments(&c.Bases[i], stretch)
		if r := v.Restorable[b.Name]; from.IsZero() || !r.Since.Equal(from) || !r.Until.Equal(until) {
			t.Errorf("verify tells %+v of %s, not %v to %v", r, b.Name, from, until)
		}
		since = append(since, from)
	}
	for keep, want := range map[int]time.Time{2: since[0], 1: since[1]} {
		p, err := Prune(t.Context(), to, Retention{Copies: keep}, began, true)
		check(t, err)
		if !p.Since.Equal(want) {
			t.Errorf("with %d copies the first moment is told as %v, not %v", keep, p.Since, want)
		}
	}
}
