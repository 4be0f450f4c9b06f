package node

import (
	"testing"
	"time"
)

// A node that is seeded again and again for what it could not apply waits longer each time, and begins afresh after
// some hours.
func TestNextHeal(t *testing.T) {
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	var heals []time.Time
	if got := nextHeal(heals, at); !got.Equal(at) {
		t.Errorf("the first: %v", got)
	}
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute,
		healLongest, healLongest} {
		heals = append(heals, at)
		if got := nextHeal(heals, at).Sub(at); got != want {
			t.Errorf("after %d: %v, want %v", i+1, got, want)
		}
	}
	if got := nextHeal([]time.Time{at.Add(time.Hour)}, at); !got.Equal(at) {
		t.Errorf("by a clock that was ahead: %v", got)
	}
	later := at.Add(healMemory + time.Second)
	if got := nextHeal(heals, later); !got.Equal(later) {
		t.Errorf("after hours: %v", got)
	}
}
