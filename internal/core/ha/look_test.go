package ha

import (
	"testing"
	"time"
)

// TestNextLook: while the guard watches, Decide is asked again well before it acts, and before the lease of the last
// view ends. Otherwise a lease that is renewed a moment after that view is not seen in time.
func TestNextLook(t *testing.T) {
	const limit, now, grace = 250 * time.Millisecond, time.Hour, 100 * time.Millisecond
	for _, c := range []struct {
		name        string
		lease       time.Duration // what the view's has left
		guard, want time.Duration
	}{
		{"nothing is served", -time.Second, 0, limit},
		{"a handover that is drained, without a lease", -time.Second, 0, limit},
		{"a long lease", 10 * time.Second, now + 10*time.Second + grace, limit},
		{"a lease", 800 * time.Millisecond, now + 800*time.Millisecond + grace, 200 * time.Millisecond},
		{"a lease that was lost a moment ago", grace, now + 2*grace, 25 * time.Millisecond},
		{"a short step under a long lease", 800 * time.Millisecond, now + 40*time.Millisecond, 10 * time.Millisecond},
		{"the end of a lease", time.Millisecond, now + grace, time.Millisecond},
		{"a lease that has ended", -grace / 2, now + grace/2, time.Millisecond},
	} {
		v := View{Now: now, Raft: Raft{LeaseUntil: now + c.lease}}
		if got := NextLook(v, c.guard, limit); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
