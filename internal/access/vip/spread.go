package vip

import (
	"net/netip"
	"slices"
)

// Spread chooses the node that should hold each read address: evenly over the candidates, with as few moves as
// possible. holders are the nodes that hold an address now; without candidates no node should hold one. The candidates'
// order decides between equals.
func Spread(addrs []netip.Addr, holders map[netip.Addr]uint64, candidates []uint64) map[netip.Addr]uint64 {
	if len(candidates) == 0 {
		return nil
	}
	out := map[netip.Addr]uint64{}
	load := map[uint64]int{}
	most := (len(addrs) + len(candidates) - 1) / len(candidates)
	for _, a := range addrs {
		if id, held := holders[a]; held && slices.Contains(candidates, id) && load[id] < most {
			out[a] = id
			load[id]++
		}
	}
	least := func() uint64 {
		return slices.MinFunc(candidates, func(x, y uint64) int { return load[x] - load[y] })
	}
	for _, a := range addrs {
		if _, given := out[a]; !given {
			id := least()
			out[a] = id
			load[id]++
		}
	}
	// Two nodes may still differ by more than one: those that kept the most give some to one that has nothing.
	for _, a := range slices.Backward(addrs) {
		if id := least(); load[out[a]] > load[id]+1 {
			load[out[a]]--
			out[a] = id
			load[id]++
		}
	}
	return out
}
