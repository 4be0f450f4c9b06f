package verify

import (
	"fmt"
	"maps"
	"slices"
)

// Limits of what a report holds: the rest is counted.
const (
	maxKindPrinted = 20   // problems of one kind in one workload
	maxStale       = 1000 // stale reads
)

// findings of one checker. A broken server breaks thousands of operations; a report describes the first of each kind.
type findings struct {
	problems []Problem
	kinds    map[Kind]int
}

func (f *findings) report(k Kind, node string, a Attempt, format string, args ...any) {
	if f.kinds == nil {
		f.kinds = map[Kind]int{}
	}
	if f.kinds[k]++; f.kinds[k] <= maxKindPrinted {
		f.problems = append(f.problems, Problem{k, node, fmt.Sprintf(format, args...), a})
	}
}

// all problems, those that were only counted in one line for each kind.
func (f *findings) all() []Problem {
	out := f.problems
	for _, k := range slices.Sorted(maps.Keys(f.kinds)) {
		if n := f.kinds[k]; n > maxKindPrinted {
			out = append(out, Problem{Kind: k, Detail: fmt.Sprintf("%d more", n-maxKindPrinted)})
		}
	}
	return out
}

// addStale adds stale reads to a part, which keeps the first and counts all.
func (p *Part) addStale(reads ...StaleRead) {
	if len(reads) == 0 {
		return
	}
	p.Figures["stale reads"] += int64(len(reads))
	for _, r := range reads {
		p.OldestStale = max(p.OldestStale, r.Age)
	}
	p.Stale = append(p.Stale, reads[:min(len(reads), maxStale-len(p.Stale))]...)
}
