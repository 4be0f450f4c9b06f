package vip

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestSpread: every address has one holder, no two nodes differ by more than one, and nothing moves without need.
func TestSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var addrs []netip.Addr
		holders := map[netip.Addr]uint64{}
		for i := range rapid.IntRange(0, 7).Draw(t, "addresses") {
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			addrs = append(addrs, a)
			if id := rapid.Uint64Range(0, 5).Draw(t, "holder"); id != 0 {
				holders[a] = id
			}
		}
		candidates := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 5), 0, 5, rapid.ID).Draw(t, "candidates")
		got := Spread(addrs, holders, candidates)
		if len(candidates) == 0 {
			if len(got) != 0 {
				t.Fatalf("%v without candidates", got)
			}
			return
		}
		load := map[uint64]int{}
		for _, a := range addrs {
			if !slices.Contains(candidates, got[a]) {
				t.Fatalf("%v is given to %d, not one of %v", a, got[a], candidates)
			}
			load[got[a]]++
		}
		least, most := len(addrs), 0
		for _, id := range candidates {
			least, most = min(least, load[id]), max(most, load[id])
		}
		if len(addrs) > 0 && most > least+1 {
			t.Fatalf("uneven: %v", got)
		}
		if again := Spread(addrs, got, candidates); len(addrs) > 0 && !equal(again, got) {
			t.Fatalf("moves without need: %v, then %v", got, again)
		}
	})
}

func equal(a, b map[netip.Addr]uint64) bool {
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return len(a) == len(b)
}
