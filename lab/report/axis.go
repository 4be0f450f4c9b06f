package report

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	maxTicks = 10
	// beyond it, and below 1/largest, is no measured value, and ticks would come near the limits of numbers
	largest = 1e100
	minus   = "−"
)

// usable reports whether v can stand on an axis.
func usable(v float64, log bool) bool {
	if math.IsNaN(v) || math.Abs(v) > largest {
		return false
	}
	return !log || v > 1/largest
}

// axis maps values to coordinates.
type axis struct {
	log      bool
	lo, hi   float64 // the values at from and to; lo < hi
	from, to float64
	ticks    []float64
	labels   []string
}

func (a axis) at(v float64) float64 {
	lo, hi := a.lo, a.hi
	if a.log {
		lo, hi, v = math.Log(lo), math.Log(hi), math.Log(v)
	}
	return a.from + (v-lo)/(hi-lo)*(a.to-a.from)
}

// clamp moves v to the nearest value on the axis.
func (a axis) clamp(v float64) float64 { return max(a.lo, min(a.hi, v)) }

// valueAxis is for the given values, all of them usable: its ends are round numbers, and zero is among them unless it
// is logarithmic.
func valueAxis(values []float64, log bool) axis {
	a := axis{log: log}
	switch {
	case log && len(values) == 0:
		a.ticks = logTicks(1, 10)
	case log:
		a.ticks = logTicks(slices.Min(values), slices.Max(values))
	default:
		lo, hi := 0.0, 0.0
		for _, v := range values {
			lo, hi = min(lo, v), max(hi, v)
		}
		a.ticks = linearTicks(lo, hi, 7)
	}
	a.lo, a.hi = a.ticks[0], a.ticks[len(a.ticks)-1]
	for _, v := range values {
		a.lo, a.hi = min(a.lo, v), max(a.hi, v)
	}
	a.labels = tickLabels(a.ticks, log)
	return a
}

// positionAxis is for the X of the points, all of them usable: it ends where they end. Few different ones become the
// ticks themselves.
func positionAxis(values []float64, log bool) axis {
	present := slices.Compact(slices.Sorted(slices.Values(values)))
	a := axis{log: log}
	switch {
	case len(present) == 0:
		a.lo, a.hi, a.ticks = 1, 10, nil
		return a
	case len(present) == 1 && log:
		a.lo, a.hi = present[0]/2, present[0]*2
	case len(present) == 1:
		around := math.Abs(present[0]) / 2
		if around < 1/largest {
			around = 1
		}
		a.lo, a.hi = present[0]-around, present[0]+around
	default:
		a.lo, a.hi = present[0], present[len(present)-1]
	}
	if len(present) <= maxTicks {
		a.ticks = present
		for _, v := range present {
			a.labels = append(a.labels, number(v))
		}
		return a
	}
	round := linearTicks(a.lo, a.hi, maxTicks)
	if log {
		round = logTicks(a.lo, a.hi)
	}
	slack := (a.hi - a.lo) / 20
	for _, v := range round {
		if v >= a.lo-slack && v <= a.hi+slack {
			a.ticks = append(a.ticks, v)
		}
	}
	if !log && len(a.ticks) > 0 {
		a.lo, a.hi = min(a.lo, a.ticks[0]), max(a.hi, a.ticks[len(a.ticks)-1])
	}
	a.ticks = slices.DeleteFunc(a.ticks, func(v float64) bool { return v < a.lo || v > a.hi })
	a.labels = tickLabels(a.ticks, log)
	return a
}

// linearTicks returns 3 to most multiples of 1, 2 or 5 times a power of ten; most is at least 6. The first is at most
// lo, the last at least hi, but for rounding.
func linearTicks(lo, hi float64, most int) []float64 {
	if span := hi - lo; span <= 1e-9*max(math.Abs(lo), math.Abs(hi)) {
		// One value: show it between zero and itself.
		lo, hi = min(0, lo), max(0, hi)
		if hi-lo < 1/largest {
			lo, hi = 0, 1
		}
	}
	for power := math.Floor(math.Log10((hi - lo) / float64(most))); ; power++ {
		for _, digit := range []float64{1, 2, 5} {
			if ticks := multiples(lo, hi, digit, power); len(ticks) <= most {
				return ticks
			}
		}
	}
}

// multiples of digit*10^power from the last at or below lo to the first at or above hi; not many more than maxTicks of
// them.
func multiples(lo, hi, digit, power float64) []float64 {
	step := digit * math.Pow(10, power)
	const rounding = 1e-9 // of a step: 0.3/0.1 is below 3
	first, last := math.Floor(lo/step+rounding), math.Ceil(hi/step-rounding)
	var ticks []float64
	for i := first; i <= last && len(ticks) <= maxTicks; i++ {
		v := i * step
		if power < 0 && power > -300 {
			v = i * digit / math.Pow(10, -power) // 0.3 and not 0.30000000000000004
		}
		ticks = append(ticks, v+0) // no -0
	}
	return ticks
}

// logTicks is linearTicks for a logarithmic axis; lo and hi are positive.
func logTicks(lo, hi float64) []float64 {
	if hi <= lo*(1+1e-6) {
		lo, hi = lo/2, hi*2
	}
	for _, digits := range [][]float64{{1, 2, 5}, {1}} {
		ticks := decades(lo, hi, digits, 1)
		if len(ticks) < 3 {
			return linearTicks(lo, hi, 6) // less than a step: the axis is nearly linear here
		}
		if len(ticks) <= maxTicks {
			return ticks
		}
	}
	for every := 2; ; every++ {
		if ticks := decades(lo, hi, []float64{1}, every); len(ticks) <= maxTicks {
			return ticks
		}
	}
}

// decades returns digits times powers of ten around lo to hi, every n-th power.
func decades(lo, hi float64, digits []float64, every int) []float64 {
	var ticks []float64
	first := int(math.Floor(math.Floor(math.Log10(lo))/float64(every))) * every
	for e := first; ; e += every {
		for _, d := range digits {
			v := d * math.Pow(10, float64(e))
			if v <= lo {
				ticks = ticks[:0]
			}
			ticks = append(ticks, v)
			if v >= hi {
				return ticks
			}
		}
	}
}

// tickLabels writes evenly spaced ticks with the same unit and number of decimals, others as they come.
func tickLabels(ticks []float64, log bool) []string {
	labels := make([]string, len(ticks))
	if log || len(ticks) < 2 {
		for i, v := range ticks {
			labels[i] = number(v)
		}
		return labels
	}
	size := max(math.Abs(ticks[0]), math.Abs(ticks[len(ticks)-1]))
	unit, suffix := 1.0, ""
	if size >= 1e9 {
		unit, suffix = 1e9, "G"
	} else if size >= 1e6 {
		unit, suffix = 1e6, "M"
	}
	decimals := max(0, int(math.Ceil(-math.Log10((ticks[1]-ticks[0])/unit)-1e-9)))
	for i, v := range ticks {
		switch {
		case v == 0:
			labels[i] = "0"
		case size >= 1e15 || decimals > 6:
			labels[i] = number(v)
		default:
			whole, fraction, dot := strings.Cut(strconv.FormatFloat(v/unit, 'f', decimals, 64), ".")
			labels[i] = commas(whole)
			if dot {
				labels[i] += "." + fraction
			}
			labels[i] += suffix
		}
	}
	return labels
}

// number writes v as people read it: about four digits, commas between thousands.
func number(v float64) string {
	if v < 0 {
		return minus + number(-v)
	}
	switch {
	case v == 0:
		return "0"
	case v >= 1e15 || v < 1e-4:
		return strconv.FormatFloat(v, 'g', 4, 64)
	case v >= 1000:
		return commas(strconv.FormatFloat(v, 'f', 0, 64))
	case v == math.Trunc(v): // at most three digits
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	decimals := 3 - int(math.Floor(math.Log10(v)))
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(v, 'f', decimals, 64), "0"), ".")
}

func commas(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = minus, digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}
