package gtid

import (
	"fmt"
	"slices"
	"sort"
)

// Set is a set of GTIDs. The zero value is empty and ready for use.
//
// A Set is a handle on its intervals, as a slice is on its elements: after `b := a` a change to one may show in the
// other. Clone gives an independent set; Union, Subtract and Intersect always do. Reading one Set from several
// goroutines is safe, changing it needs a lock.
type Set struct {
	sids []sidIntervals // ordered by SID.Compare; none has an empty list
	// hot is the index in sids that Add touched last: a stream of transactions comes from one server.
	hot int
}

// sidIntervals holds the GNOs of one SID.
type sidIntervals struct {
	SID
	list []interval // ascending, disjoint, not adjacent
}

// interval is closed.
type interval struct{ first, last int64 }

// SetOf makes a set of the given GTIDs.
func SetOf(gtids ...GTID) Set {
	var s Set
	for _, g := range gtids {
		s.Add(g)
	}
	return s
}

// Add puts g into s and reports whether it was not there before. Adding the GNO after the highest one of the SID
// that was added to last takes constant time and does not allocate. It panics when g.GNO is not in 1..MaxGNO:
// a GTID from outside is checked where it is parsed.
func (s *Set) Add(g GTID) bool {
	if g.GNO < 1 || g.GNO > MaxGNO {
		panic(fmt.Sprintf("gtid: Add of sequence number %d", g.GNO))
	}
	e := s.entry(g.SID)
	if n := len(e.list); n > 0 {
		if last := &e.list[n-1]; g.GNO > last.last {
			if g.GNO == last.last+1 {
				last.last = g.GNO
			} else {
				e.list = append(e.list, interval{g.GNO, g.GNO})
			}
			return true
		}
	}
	if e.contains(g.GNO) {
		return false
	}
	e.add(interval{g.GNO, g.GNO})
	return true
}

// AddRange puts all of r into s. It panics unless 1 <= First <= Last <= MaxGNO.
func (s *Set) AddRange(r Range) {
	if r.First < 1 || r.Last < r.First || r.Last > MaxGNO {
		panic(fmt.Sprintf("gtid: AddRange of %d-%d", r.First, r.Last))
	}
	s.entry(r.SID).add(interval{r.First, r.Last})
}

// AddSet puts all of t into s, in place.
func (s *Set) AddSet(t Set) {
	for i := range t.sids {
		from := &t.sids[i]
		to := s.entry(from.SID)
		if len(to.list) == 0 {
			to.list = slices.Clone(from.list)
			continue
		}
		to.list = mergeLists(to.list, from.list)
	}
}

// Union returns what is in s or in t.
func (s Set) Union(t Set) Set {
	u := s.Clone()
	u.AddSet(t)
	return u
}

// Subtract returns what is in s and not in t.
func (s Set) Subtract(t Set) Set { return s.combine(t, subtractLists) }

// Intersect returns what is both in s and in t.
func (s Set) Intersect(t Set) Set { return s.combine(t, intersectLists) }

// combine applies op to the lists of every SID of s.
func (s Set) combine(t Set, op func(a, b []interval) []interval) Set {
	var out Set
	for i := range s.sids {
		e := &s.sids[i]
		if list := op(e.list, t.list(e.SID)); len(list) > 0 {
			out.sids = append(out.sids, sidIntervals{e.SID, list})
		}
	}
	return out
}

// Contains reports whether g is in s.
func (s Set) Contains(g GTID) bool {
	i, ok := s.find(g.SID)
	return ok && s.sids[i].contains(g.GNO)
}

// ContainsRange reports whether all of r is in s.
func (s Set) ContainsRange(r Range) bool { return holds(s.list(r.SID), interval{r.First, r.Last}) }

// ContainsSet reports whether all of t is in s.
func (s Set) ContainsSet(t Set) bool {
	for i := range t.sids {
		e := &t.sids[i]
		mine := s.list(e.SID)
		for _, iv := range e.list {
			if !holds(mine, iv) {
				return false
			}
		}
	}
	return true
}

// Equal reports whether s and t hold the same GTIDs.
func (s Set) Equal(t Set) bool {
	return slices.EqualFunc(s.sids, t.sids, func(a, b sidIntervals) bool {
		return a.SID == b.SID && slices.Equal(a.list, b.list)
	})
}

// Empty reports whether s holds nothing.
func (s Set) Empty() bool { return len(s.sids) == 0 }

// Count is the number of GTIDs in s.
func (s Set) Count() uint64 {
	var n uint64
	for i := range s.sids {
		for _, iv := range s.sids[i].list {
			n += uint64(iv.last-iv.first) + 1
		}
	}
	return n
}

// Clone returns an independent copy.
func (s Set) Clone() Set {
	out := Set{sids: slices.Clone(s.sids), hot: s.hot}
	for i := range out.sids {
		out.sids[i].list = slices.Clone(out.sids[i].list)
	}
	return out
}

// Ranges lists s in order: by SID, then ascending; maximal, so never adjacent.
func (s Set) Ranges() []Range {
	n := 0
	for i := range s.sids {
		n += len(s.sids[i].list)
	}
	out := make([]Range, 0, n)
	for i := range s.sids {
		for _, iv := range s.sids[i].list {
			out = append(out, Range{s.sids[i].SID, iv.first, iv.last})
		}
	}
	return out
}

// SIDs lists, in order, the SIDs that s has GTIDs of.
func (s Set) SIDs() []SID {
	out := make([]SID, len(s.sids))
	for i := range s.sids {
		out[i] = s.sids[i].SID
	}
	return out
}

// Of returns the part of s that belongs to server u, under any tag.
func (s Set) Of(u UUID) Set {
	var out Set
	for i := range s.sids {
		if s.sids[i].UUID == u {
			out.sids = append(out.sids, sidIntervals{s.sids[i].SID, slices.Clone(s.sids[i].list)})
		}
	}
	return out
}

// Last is the highest GNO of sid in s, 0 if s has none of sid.
func (s Set) Last(sid SID) int64 {
	if list := s.list(sid); len(list) > 0 {
		return list[len(list)-1].last
	}
	return 0
}

// find returns the index of sid in s.sids, or where it would be.
func (s *Set) find(sid SID) (int, bool) {
	if s.hot < len(s.sids) && s.sids[s.hot].SID == sid {
		return s.hot, true
	}
	return slices.BinarySearchFunc(s.sids, sid, func(e sidIntervals, sid SID) int { return e.Compare(sid) })
}

// list returns the intervals of sid, for reading.
func (s *Set) list(sid SID) []interval {
	if i, ok := s.find(sid); ok {
		return s.sids[i].list
	}
	return nil
}

// entry returns the intervals of sid, made if need be; the caller puts at least one interval in.
func (s *Set) entry(sid SID) *sidIntervals {
	i, ok := s.find(sid)
	if !ok {
		s.sids = slices.Insert(s.sids, i, sidIntervals{SID: sid})
	}
	s.hot = i
	return &s.sids[i]
}

// FirstOf returns the lowest GNO of r that is in s; ok is false when none is.
func (s Set) FirstOf(r Range) (gno int64, ok bool) {
	list := s.list(r.SID)
	i := sort.Search(len(list), func(k int) bool { return list[k].last >= r.First })
	if i == len(list) || list[i].first > r.Last {
		return 0, false
	}
	return max(list[i].first, r.First), true
}
