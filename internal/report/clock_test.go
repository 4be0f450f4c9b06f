package report

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestClockAxis(t *testing.T) {
	at := float64(time.Date(2026, 11, 23, 2, 58, 10, 0, time.UTC).Unix())
	for span, want := range map[float64]string{
		8:         "02:58:10 02:58:11 02:58:12 02:58:13 02:58:14 02:58:15 02:58:16 02:58:17 02:58:18",
		3600:      "03:00 03:10 03:20 03:30 03:40 03:50",
		6 * 3600:  "03:00 04:00 05:00 06:00 07:00 08:00",
		36 * 3600: "Nov 23 06:00|Nov 23 12:00|Nov 23 18:00|Nov 24 00:00|Nov 24 06:00|Nov 24 12:00",
	} {
		sep := " "
		if strings.Contains(want, "|") {
			sep = "|"
		}
		if a := clockAxis([]float64{at, at + span}); !slices.Equal(a.labels, strings.Split(want, sep)) {
			t.Errorf("%v: %q", span, a.labels)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 4e9), 0, 9).Draw(t, "values")
		a := clockAxis(values)
		if len(a.ticks) > maxTicks || len(a.ticks) != len(a.labels) || !(a.lo < a.hi) {
			t.Fatalf("%+v", a)
		}
		for _, v := range a.ticks {
			if v < a.lo || v > a.hi {
				t.Fatalf("%v is not on %+v", v, a)
			}
		}
	})
}

func TestClockChart(t *testing.T) {
	at := float64(time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC).Unix())
	var b strings.Builder
	d := Document{Title: "x", Blocks: []Block{Chart{Title: "c", X: "time", Y: "y", Clock: true, Series: []Series{{Name: "s", Points: []Point{{X: at, Y: 1}, {X: at + 600, Y: 2}}}},
		Events: []Event{{at + 300, "failover"}}}}}
	if err := d.HTML(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">03:06</text>", "At 2026-11-23 03:05:00: failover.", "s, 2026-11-23 03:10:00: 2"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s", want)
		}
	}
}
