package bench

import (
	"slices"
	"testing"
	"time"
)

func TestHeartbeatLag(t *testing.T) {
	base := time.Now()
	at := func(ms int) time.Time { return base.Add(time.Duration(ms) * time.Millisecond) }
	var h heartbeats
	if got := h.lag(0, at(500)); got != 0 {
		t.Errorf("nothing written yet: %v", got)
	}
	for _, ms := range []int{50, 100, 150} {
		h.add(at(ms))
	}
	for _, c := range []struct {
		seen, ms int
		want     time.Duration
	}{
		{3, 400, 0},                      // it shows everything
		{4, 400, 0},                      // and more than was acknowledged
		{2, 160, 10 * time.Millisecond},  // lacks the one of 150
		{0, 160, 110 * time.Millisecond}, // lacks them all
		{2, 140, 0},                      // was asked before it was acknowledged
	} {
		if got := h.lag(c.seen, at(c.ms)); got != c.want {
			t.Errorf("shows %d at %d ms: lag %v, want %v", c.seen, c.ms, got, c.want)
		}
	}
}

func TestLagStatistics(t *testing.T) {
	base := time.Now()
	var samples []lagSample
	for i := range 100 { // 10 a second; 0 to 99 ms, with a peak in second 4
		s := lagSample{base.Add(time.Duration(i) * 100 * time.Millisecond), time.Duration(i) * time.Millisecond, "n2"}
		if i == 45 {
			s.lag = 2 * time.Second
		}
		samples = append(samples, s)
	}
	p50, p99, longest := lagOf(samples)
	if p50 != 50*time.Millisecond || p99 != 99*time.Millisecond || longest != 2*time.Second {
		t.Errorf("%v %v %v", p50, p99, longest)
	}
	if a, b, c := lagOf(nil); a+b+c != 0 {
		t.Errorf("of nothing: %v %v %v", a, b, c)
	}
	if got := lagBackAt(samples, 100*time.Millisecond); !got.Equal(base.Add(4500 * time.Millisecond)) {
		t.Errorf("back after %v", got.Sub(base))
	}
	if got := lagBackAt(samples, time.Minute); !got.IsZero() {
		t.Errorf("never away, back at %v", got)
	}
	if got, want := lagSeries(samples, base), []float64{.009, .019, .029, .039, 2, .059, .069, .079, .089, .099}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	gap := []lagSample{{base, 1, "n2"}, {base.Add(2 * time.Second), time.Second, "n2"}}
	if got := lagSeries(gap, base); len(got) != 3 || got[1] != 0 || got[2] != 1 {
		t.Errorf("with a second without samples: %v", got)
	}
}
