package report

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// checkTicks checks what holds for all ticks: few, rising, around the values.
func checkTicks(t interface{ Fatalf(string, ...any) }, ticks []float64, lo, hi float64) {
	if len(ticks) < 3 || len(ticks) > maxTicks {
		t.Fatalf("%v to %v: %d ticks %v", lo, hi, len(ticks), ticks)
	}
	step := ticks[1] - ticks[0]
	if ticks[0] > lo+step*1e-6 || ticks[len(ticks)-1] < hi-1e-6*max(step, math.Abs(hi)) {
		t.Fatalf("%v to %v is not covered by %v", lo, hi, ticks)
	}
	for i := 1; i < len(ticks); i++ {
		if ticks[i] <= ticks[i-1] {
			t.Fatalf("%v to %v: not rising: %v", lo, hi, ticks)
		}
	}
}

// measured is v, or 0 for what no measured value comes near.
func measured(v float64) float64 {
	if math.Abs(v) < 1/largest {
		return 0
	}
	return v
}

func TestLinearTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := math.Pow(10, rapid.Float64Range(-12, 15).Draw(t, "size"))
		lo := measured(rapid.Float64Range(-1, 1).Draw(t, "lo") * size)
		hi := lo + measured(rapid.Float64Range(0, 2).Draw(t, "span")*size)
		checkTicks(t, linearTicks(lo, hi, rapid.IntRange(6, maxTicks).Draw(t, "most")), lo, hi)
	})
	for _, c := range []struct {
		lo, hi float64
		want   []float64
	}{
		{0, 0, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		{0, 0.3, []float64{0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3}},
		{0, 1000, []float64{0, 200, 400, 600, 800, 1000}},
		{-70, 12, []float64{-80, -60, -40, -20, 0, 20}},
		{-5, -5, []float64{-5, -4, -3, -2, -1, 0}},
	} {
		if got := linearTicks(c.lo, c.hi, 7); !slices.Equal(got, c.want) {
			t.Errorf("%v to %v: %v, want %v", c.lo, c.hi, got, c.want)
		}
	}
}

func TestLogTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := math.Pow(10, rapid.Float64Range(-200, 200).Draw(t, "lo"))
		hi := lo * math.Pow(10, rapid.OneOf(rapid.Float64Range(0, 3), rapid.Float64Range(0, 90)).Draw(t, "decades"))
		ticks := logTicks(lo, hi)
		checkTicks(t, ticks, lo, hi)
		if ticks[0] <= 0 {
			t.Fatalf("%v to %v: %v", lo, hi, ticks)
		}
	})
	if got := logTicks(90, 23000); !slices.Equal(got, []float64{50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000,
		50000}) {
		t.Error(got)
	}
}

func TestPositionAxis(t *testing.T) {
	// Numbers of threads are the ticks themselves, evenly spaced on a logarithmic axis.
	a := positionAxis([]float64{256, 1, 4, 16, 64, 1}, true)
	if !slices.Equal(a.labels, []string{"1", "4", "16", "64", "256"}) {
		t.Error(a.labels)
	}
	a.to = 400
	for i, v := range a.ticks {
		if got := a.at(v); math.Abs(got-float64(i)*100) > 1e-9 {
			t.Errorf("%v is at %v", v, got)
		}
	}
	var seconds []float64
	for i := range 300 {
		seconds = append(seconds, float64(i))
	}
	if a := positionAxis(seconds, false); a.lo != 0 || a.hi != 300 ||
		!slices.Equal(a.labels, []string{"0", "50", "100", "150", "200", "250", "300"}) {
		t.Error(a)
	}
	rapid.Check(t, func(t *rapid.T) {
		log := rapid.Bool().Draw(t, "log")
		from := -1e6
		if log {
			from = 1e-6
		}
		values := rapid.SliceOfN(rapid.Float64Range(from, 1e6), 1, 40).Draw(t, "values")
		a := positionAxis(values, log)
		if !(a.lo < a.hi) || a.lo > slices.Min(values) || a.hi < slices.Max(values) || len(a.ticks) != len(a.labels) ||
			len(a.ticks) > maxTicks {
			t.Fatalf("%+v", a)
		}
	})
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", -2: "−2", 999: "999", 1000: "1,000", -1234567: "−1,234,567", 0.25: "0.25", 12.345: "12.35",
		0.000012: "1.2e-05", 1e21: "1e+21", 999.9: "999.9",
	} {
		if got := number(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
	if got := tickLabels([]float64{0, 0.5, 1, 1.5}, false); !slices.Equal(got, []string{"0", "0.5", "1.0", "1.5"}) {
		t.Error(got)
	}
	if got := tickLabels([]float64{-5e5, 0, 5e5, 1e6}, false); !slices.Equal(got, []string{"−0.5M", "0", "0.5M", "1.0M"}) {
		t.Error(got)
	}
}
