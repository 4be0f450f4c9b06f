package report

import (
	"math"
	"slices"
	"time"
)

// clockSteps are the distances between ticks of an axis of times, in seconds.
var clockSteps = []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400}

// clockAxis is positionAxis for times: it has its ticks at full minutes, hours, days.
func clockAxis(values []float64) axis {
	a := axis{lo: 0, hi: 60}
	if len(values) > 0 {
		a.lo, a.hi = slices.Min(values), slices.Max(values)
	}
	if a.hi-a.lo < 1 {
		a.lo, a.hi = a.lo-30, a.hi+30
	}
	step := clockSteps[len(clockSteps)-1]
	for _, s := range clockSteps {
		if (a.hi-a.lo)/s < maxTicks-1 {
			step = s
			break
		}
	}
	for (a.hi-a.lo)/step >= maxTicks-1 {
		step *= 2
	}
	for v := math.Ceil(a.lo/step) * step; v <= a.hi; v += step {
		a.ticks = append(a.ticks, v)
		a.labels = append(a.labels, clockLabel(v, step, a.hi-a.lo))
	}
	return a
}

// clockLabel is as exact as the step needs, and names the day where there are several.
func clockLabel(v, step, span float64) string {
	form := "15:04"
	switch {
	case step >= 86400:
		form = "Jan 2"
	case span > 86400:
		form = "Jan 2 15:04"
	case step < 60:
		form = "15:04:05"
	}
	return clockTime(v).Format(form)
}

func clockTime(v float64) time.Time { return time.Unix(int64(math.Floor(v)), 0).UTC() }

// position writes a place on the X axis.
func (c Chart) position(v float64) string {
	if c.Clock && math.Abs(v) < 1e11 {
		return clockTime(v).Format("2006-01-02 15:04:05")
	}
	return number(v)
}
