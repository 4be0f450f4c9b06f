package gtid

import (
	"slices"
	"sort"
)

// contains reports whether gno lies in one of e's intervals.
func (e *sidIntervals) contains(gno int64) bool { return holds(e.list, interval{gno, gno}) }

// holds reports whether all of iv lies in list, whose intervals are maximal: one of them must hold the whole of it.
func holds(list []interval, iv interval) bool {
	i := sort.Search(len(list), func(k int) bool { return list[k].last >= iv.first })
	return i < len(list) && list[i].first <= iv.first && list[i].last >= iv.last
}

// add puts iv in, joined with all that it overlaps or touches. GNOs end at MaxGNO, so +1 does not overflow.
func (e *sidIntervals) add(iv interval) {
	from := sort.Search(len(e.list), func(k int) bool { return e.list[k].last+1 >= iv.first })
	to := from
	for to < len(e.list) && e.list[to].first <= iv.last+1 {
		iv.first = min(iv.first, e.list[to].first)
		iv.last = max(iv.last, e.list[to].last)
		to++
	}
	e.list = slices.Replace(e.list, from, to, iv)
}

// mergeLists returns the union of a and b in a new slice.
func mergeLists(a, b []interval) []interval {
	out := make([]interval, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		var iv interval
		if len(b) == 0 || (len(a) > 0 && a[0].first <= b[0].first) {
			iv, a = a[0], a[1:]
		} else {
			iv, b = b[0], b[1:]
		}
		if n := len(out); n > 0 && iv.first <= out[n-1].last+1 {
			out[n-1].last = max(out[n-1].last, iv.last)
		} else {
			out = append(out, iv)
		}
	}
	return out
}

// subtractLists returns what is in a and not in b, in a new slice.
func subtractLists(a, b []interval) []interval {
	var out []interval
	for _, iv := range a {
		for len(b) > 0 && b[0].last < iv.first {
			b = b[1:]
		}
		// An interval of b may reach into the next one of a, so b itself only moves above.
		for _, cut := range b {
			if cut.first > iv.last {
				break
			}
			if cut.first > iv.first {
				out = append(out, interval{iv.first, cut.first - 1})
			}
			iv.first = cut.last + 1
		}
		if iv.first <= iv.last {
			out = append(out, iv)
		}
	}
	return out
}

// intersectLists returns what is both in a and in b, in a new slice.
func intersectLists(a, b []interval) []interval {
	var out []interval
	for len(a) > 0 && len(b) > 0 {
		iv := interval{max(a[0].first, b[0].first), min(a[0].last, b[0].last)}
		if iv.first <= iv.last {
			out = append(out, iv)
		}
		if a[0].last < b[0].last {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return out
}
