package tpcc

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestHistogram compares quantiles with those of the sorted values.
func TestHistogram(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var parts [2]histogram
	var all []time.Duration
	for i := range 20_000 {
		d := time.Duration(r.ExpFloat64() * float64(30*time.Millisecond))
		if i == 0 {
			d = 3 * time.Hour // beyond no bucket
		}
		all = append(all, d)
		parts[i%2].add(d)
	}
	parts[0].merge(&parts[1])
	slices.Sort(all)
	l := parts[0].latency()
	for _, c := range []struct {
		got  time.Duration
		rank int
	}{{l.P50, 10_000}, {l.P95, 19_000}, {l.P99, 19_800}} {
		want := all[c.rank-1]
		if diff := c.got - want; max(diff, -diff) > want/50 {
			t.Errorf("rank %d: %v, want %v", c.rank, c.got, want)
		}
	}
	if l.Max != 3*time.Hour || l.Average < 500*time.Millisecond || l.Average > 600*time.Millisecond {
		t.Errorf("max %v, average %v", l.Max, l.Average)
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
