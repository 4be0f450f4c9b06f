package tpcc

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestLatency(t *testing.T) {
	var all []time.Duration
	for _, ms := range rand.Perm(100) {
		all = append(all, time.Duration(ms+1)*time.Millisecond)
	}
	want := Latency{50500 * time.Microsecond, 50 * time.Millisecond, 95 * time.Millisecond, 99 * time.Millisecond,
		100 * time.Millisecond}
	if got := latencyOf(all); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := latencyOf(nil); got != (Latency{}) {
		t.Errorf("of nothing: %+v", got)
	}
	if got := latencyOf(all[:1]); got.P50 != got.Max || got.P99 != got.Average {
		t.Errorf("of one: %+v", got)
	}
}

func TestCents(t *testing.T) {
	for s, want := range map[string]int64{"0.00": 0, "1.07": 107, "-10.00": -1000, "9999.99": 999999, "-0.05": -5} {
		if got := cents([]byte(s)); got != want {
			t.Errorf("%s: %d", s, got)
		}
		if got := string(appendCents(nil, want)); got != s {
			t.Errorf("%d: %s, want %s", want, got, s)
		}
	}
}

// TestSpread: every warehouse has terminals, each server only its own ones' warehouses, and the shares of few terminals
// are disjoint.
func TestSpread(t *testing.T) {
	for _, terminals := range []int{1, 3, 4, 10, 16, 64} {
		cfg := Config{Warehouses: 10, Terminals: terminals, Targets: []Target{{Addr: "a"}, {Addr: "b"}, {Addr: "c"}}}
		owner := map[int]int{}
		server := map[int]string{}
		for i := range terminals {
			term := newTerminal(&cfg, i, constants{})
			for range 200 {
				w := term.warehouse()
				if w < 1 || w > 10 {
					t.Fatalf("warehouse %d", w)
				}
				if o, ok := owner[w]; ok && o != i && terminals <= 10 {
					t.Fatalf("%d terminals: %d and %d share warehouse %d", terminals, o, i, w)
				}
				if s, ok := server[w]; ok && s != term.target.Addr {
					t.Fatalf("%d terminals: warehouse %d is written at %s and %s", terminals, w, s, term.target.Addr)
				}
				owner[w], server[w] = i, term.target.Addr
			}
		}
		if len(owner) != 10 {
			t.Errorf("%d terminals use %d of 10 warehouses", terminals, len(owner))
		}
	}
}
