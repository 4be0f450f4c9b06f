package bench

import (
	"errors"
	"fmt"
)

// drainSample is how a replica with a backlog stood at one moment.
type drainSample struct {
	second float64 // since it was let go
	left   int64   // transactions that it had not applied
	rows   float64 // that its server has changed since it started
}

// drain is how fast a backlog was applied.
type drain struct {
	StartUp float64 // seconds until the first of it was applied
	Whole   float64 // seconds until the last of it was, start-up included
	TPS     float64 // while between 90 % and 10 % of it were left
	Rows    float64 // changed per second in that time
}

var errDrain = errors.New("the backlog's end was not seen as it should be")

// drained computes the rates of a backlog of n transactions. The samples are in the order of time. A replica may be
// restarted in their midst: its count of rows begins at 0 again, and what it had not made durable is left once more.
// That time counts: the rate is taken from when 90 % were left for the first time until 10 % were left for the last
// time.
func drained(n int64, samples []drainSample) (d drain, err error) {
	high, low := 0.9*float64(n), 0.1*float64(n)
	from, to := -1, -1
	rows := make([]float64, len(samples))
	for i, s := range samples {
		if i > 0 {
			if rows[i] = rows[i-1] + s.rows; s.rows >= samples[i-1].rows {
				rows[i] -= samples[i-1].rows
			}
		}
		if s.left >= n && from < 0 {
			d.StartUp = s.second
		}
		if float64(s.left) <= high && from < 0 {
			from = i
		}
		if float64(s.left) > low {
			to = i
		}
	}
	switch {
	case from < 0 || samples[len(samples)-1].left != 0:
		return d, fmt.Errorf("%w: after %d samples it is not applied", errDrain, len(samples))
	case to < 0:
		return d, fmt.Errorf("%w: it was applied before the first look; make it larger", errDrain)
	}
	if samples[0].left < n { // it was under way when the server could be asked first
		d.StartUp = samples[0].second
	}
	begin, end := crossing(samples, rows, from, high), crossing(samples, rows, to+1, low)
	for i := len(samples) - 1; i >= 0 && samples[i].left == 0; i-- {
		d.Whole = samples[i].second
	}
	took := end.second - begin.second
	if took <= 0 {
		return d, fmt.Errorf("%w: it was applied between two looks; make it larger", errDrain)
	}
	d.TPS, d.Rows = (begin.left-end.left)/took, (end.rows-begin.rows)/took
	return d, nil
}

// point between two samples.
type point struct{ second, left, rows float64 }

// crossing is where the straight line from the sample before i to sample i meets the level.
func crossing(samples []drainSample, rows []float64, i int, level float64) point {
	b := point{samples[i].second, float64(samples[i].left), rows[i]}
	if i == 0 {
		return b
	}
	a := point{samples[i-1].second, float64(samples[i-1].left), rows[i-1]}
	part := 1.0
	if a.left > b.left {
		part = (a.left - level) / (a.left - b.left)
	}
	return point{a.second + part*(b.second-a.second), level, a.rows + part*(b.rows-a.rows)}
}
