package campaign

import (
	"math"
	"testing"
	"time"
)

// TestLoad: shares of pressure and of stolen time between two times, from what the kernel counts.
func TestLoad(t *testing.T) {
	zero := time.Unix(1000, 0)
	sample := func(second int, psi, stat string) loadSample {
		return parseLoad(zero.Add(time.Duration(second)*time.Second), psi, stat)
	}
	l := &loads{}
	if got := l.between(zero, zero.Add(time.Second)); got.known || got.starved() {
		t.Errorf("%v without a sample", got)
	}
	l.add(sample(0, "some avg10=1.0 avg60=1.0 avg300=1.0 total=1000000\nfull avg10=0.0 total=9\n", "cpu  100 0 0 100 0 0 0 0 50 0\ncpu0 1 2\n"))
	l.add(sample(10, "some avg10=1.0 avg60=1.0 avg300=1.0 total=6000000\n", "cpu  900 100 200 600 0 0 0 400 50 0\n"))
	l.add(sample(20, "some avg10=1.0 avg60=1.0 avg300=1.0 total=15000000\n", "cpu  1900 100 200 1600 0 0 0 400 50 0\n"))
	for _, c := range []struct {
		from, to        int
		pressure, steal float64
		starved         bool
	}{
		{0, 9, 0.5, 0.2, true}, {10, 19, 0.9, 0, true}, {0, 19, 0.7, 0.1, false},
	} {
		got := l.between(zero.Add(time.Duration(c.from)*time.Second), zero.Add(time.Duration(c.to)*time.Second))
		if !got.known || math.Abs(got.pressure-c.pressure) > 0.001 || math.Abs(got.steal-c.steal) > 0.01 || got.starved() != c.starved {
			t.Errorf("from %d to %d: %v, want %+v", c.from, c.to, got, c)
		}
	}
}
