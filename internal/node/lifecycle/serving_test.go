package lifecycle

import (
	"testing"
	"time"

	"trireme/internal/core/ha"
)

// A step with a limit of its own, longer than the lease, gives mysqld no time beyond the lease; nor does it end the
// guard's watch before.
func TestGuardStep(t *testing.T) {
	const now, proven = time.Hour, time.Hour + 900*time.Millisecond
	var s Serving
	s.Promote(7)
	s.BeginStep(now + 2*time.Second)
	if end := s.StepEnd(proven); end != proven {
		t.Errorf("a drain is given %v beyond the lease", end-proven)
	}
	limit := now + 100*time.Millisecond
	s.BeginStep(limit)
	if end := s.StepEnd(proven); end != limit {
		t.Errorf("a step of 100 ms is given until %v before the end of the lease", proven-end)
	}
}

// TestServing: what a member serves from its promotion to its end, by the steps on the way: whether it takes writes,
// and until when the guard lets mysqld live.
func TestServing(t *testing.T) {
	const proven, step = 9 * time.Second, 3 * time.Second
	var s Serving
	canceled := 0
	for _, c := range []struct {
		name   string
		do     func()
		phase  ha.Phase
		writes bool
		until  time.Duration // -1: the guard is told nothing
	}{
		{"nothing", func() {}, ha.PhaseNone, false, 0},
		{"promoted", func() { s.Promote(7); s.Run(func() { canceled++ }, nil) }, ha.PhasePromoting, false, -1},
		{"is opened", func() { s.BeginStep(step) }, ha.PhasePromoting, false, step},
		{"open", s.Open, ha.PhaseOpen, true, proven},
		{"handed over", s.HandOver, ha.PhaseHandover, true, proven},
		{"is closed", func() { s.BeginClosing() }, ha.PhaseHandover, false, proven},
		{"another term's", func() { s.NoteDrained(6) }, ha.PhaseHandover, false, proven},
		{"drained", func() { s.NoteDrained(7) }, ha.PhaseHandover, false, 0},
		{"taken back", s.TakeBack, ha.PhaseHandover, false, proven},
		{"open again", s.Open, ha.PhaseOpen, true, proven},
		{"too late", func() { s.NoteDrained(7); s.BeginClosing() }, ha.PhaseOpen, true, proven},
		{"fenced", s.Fence, ha.PhaseFencing, false, -1},
		{"over", s.End, ha.PhaseNone, false, 0},
	} {
		c.do()
		until, told := s.GuardUntil(0, proven)
		if _, late := s.GuardUntil(proven, proven); late != (c.until == 0) {
			t.Errorf("%s: a moment that has passed is told: %v", c.name, late)
		}
		if !told {
			until = -1
		}
		if s.Phase() != c.phase || s.TakesWrites() != c.writes || until != c.until {
			t.Errorf("%s: phase %v, takes writes: %v, guarded until %v; %+v", c.name, s.Phase(), s.TakesWrites(), until, c)
		}
	}
	if canceled != 1 || s.View() != (ha.Serving{}) {
		t.Errorf("what was under way was cancelled %d times; %+v is left", canceled, s.View())
	}
}
