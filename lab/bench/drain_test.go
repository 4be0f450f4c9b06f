package bench

import (
	"errors"
	"math"
	"testing"
)

func TestDrained(t *testing.T) {
	for _, c := range []struct {
		name    string
		n       int64
		samples []drainSample
		want    drain
	}{
		{"steady", 1000, []drainSample{{0, 1000, 50}, {1, 1000, 50}, {2, 500, 2050}, {3, 0, 4050}},
			drain{StartUp: 1, Whole: 3, TPS: 500, Rows: 2000}},
		{"slow start and end do not count", 1000, []drainSample{{0, 1000, 0}, {10, 900, 400}, {12, 100, 3600}, {20, 0, 4000}},
			drain{StartUp: 0, Whole: 20, TPS: 400, Rows: 1600}},
		{"first look when it is under way", 1000, []drainSample{{4, 700, 1200}, {5, 400, 2400}, {6, 100, 3600}, {7, 0, 4000}},
			drain{StartUp: 4, Whole: 7, TPS: 300, Rows: 1200}},
		{"first look when it has begun", 1000, []drainSample{{4, 950, 200}, {5, 900, 400}, {6, 100, 3600}, {7, 0, 4000}},
			drain{StartUp: 4, Whole: 7, TPS: 800, Rows: 3200}},
		// Crossing 900 at 1.2 s, 100 at 8.8 s: rows 400 to 2000 before the restart, then 3600 of the server that began at 0.
		{"restart that loses some", 1000, []drainSample{{1, 1000, 0}, {2, 500, 2000}, {5, 900, 0}, {6, 600, 1200},
			{8, 200, 2800}, {9, 75, 3300}, {10, 0, 3600}},
			drain{StartUp: 1, Whole: 10, TPS: 800 / 7.6, Rows: (1600 + 3200) / 7.6}},
		{"left grows for a moment", 100, []drainSample{{0, 100, 0}, {1, 50, 200}, {2, 60, 200}, {3, 0, 400}},
			drain{StartUp: 0, Whole: 3, TPS: 80 / (2 + 50.0/60 - 0.2), Rows: (200 + 200*50.0/60 - 40) / (2 + 50.0/60 - 0.2)}},
	} {
		got, err := drained(c.n, c.samples)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for i, p := range [][2]float64{{got.StartUp, c.want.StartUp}, {got.Whole, c.want.Whole}, {got.TPS, c.want.TPS},
			{got.Rows, c.want.Rows}} {
			if math.Abs(p[0]-p[1]) > 1e-6 {
				t.Errorf("%s: figure %d is %v, want %v", c.name, i, p[0], p[1])
			}
		}
	}
	for name, samples := range map[string][]drainSample{
		"none":              nil,
		"not to its end":    {{0, 100, 0}, {1, 50, 200}},
		"before first look": {{3, 5, 0}, {4, 0, 0}},
		"never began":       {{0, 100, 0}, {1, 100, 0}},
	} {
		if d, err := drained(100, samples); !errors.Is(err, errDrain) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}
