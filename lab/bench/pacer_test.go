package bench

import (
	"testing"
	"time"
)

func TestBetween(t *testing.T) {
	const ms = time.Millisecond
	var all []paced
	for i := range 100 { // one each 10 ms that takes 2 ms; those due from 300 to 490 wait for 500
		p := paced{due: time.Duration(i) * 10 * ms}
		if p.done = p.due + 2*ms; i >= 30 && i < 50 {
			p.done = 500 * ms
		}
		p.failed = i == 60
		all = append(all, p)
	}
	all = append(all, paced{due: 1000 * ms, done: 1300 * ms, open: true}, paced{due: 1100 * ms, done: 1102 * ms})
	for _, c := range []struct {
		name     string
		from, to time.Duration
		want     window
	}{
		{"before", 0, 300 * ms, window{P99: 2 * ms, Longest: 10 * ms, Done: 30}},
		{"the stall", 300 * ms, 500 * ms, window{P99: 200 * ms, Longest: 200 * ms, Done: 20}},
		{"across", 200 * ms, 550 * ms, window{P99: 200 * ms, Longest: 208 * ms, Done: 35}},
		{"a failure is no commit", 580 * ms, 640 * ms, window{P99: 2 * ms, Longest: 20 * ms, Done: 6, Failed: 1}},
		{"open at the end", 1000 * ms, 1100 * ms, window{P99: 300 * ms, Longest: 100 * ms, Done: 1}},
		{"nothing", 2000 * ms, 2100 * ms, window{Longest: 100 * ms}},
	} {
		if got := between(all, c.from, c.to); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
