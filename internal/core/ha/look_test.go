package ha

import (
	"testing"
	"time"
)

// TestNextLook: while mysqld serves, Decide is asked again well before the lease of the last view ends. Otherwise a lease
// that is renewed a moment after that view is not seen before the guard acts.
func TestNextLook(t *testing.T) {
	const limit = 250 * time.Millisecond
	for _, c := range []struct {
		phase      Phase
		left, want time.Duration
	}{
		{PhaseNone, -time.Second, limit},
		{PhaseFencing, -time.Second, limit},
		{PhaseOpen, 10 * time.Second, limit},
		{PhaseOpen, 800 * time.Millisecond, 200 * time.Millisecond},
		{PhaseOpen, 100 * time.Millisecond, 25 * time.Millisecond}, // one grace: the lease was lost a moment ago
		{PhasePromoting, 100 * time.Millisecond, 25 * time.Millisecond},
		{PhaseHandover, 100 * time.Millisecond, 25 * time.Millisecond},
		{PhaseOpen, time.Millisecond, time.Millisecond},
		{PhaseOpen, -time.Second, time.Millisecond},
	} {
		v := View{Now: time.Hour, Raft: Raft{LeaseUntil: time.Hour + c.left}, Serving: Serving{Phase: c.phase}}
		if got := NextLook(v, limit); got != c.want {
			t.Errorf("phase %d with %v left of the lease: %v, want %v", c.phase, c.left, got, c.want)
		}
	}
}
