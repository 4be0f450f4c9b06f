package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// lookedUp counts unanswered operations that were settled by what was committed.
func (p *Part) lookedUp(n int64) {
	if n > 0 {
		p.Figures["unanswered that were looked up"] += n
	}
}

func (p Part) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d operations, %d acknowledged, %d without an answer, %d refused", p.Workload, p.Counts.Attempts,
		p.Counts.Acked, p.Counts.Unknown, p.Counts.Failed)
	for _, k := range slices.Sorted(maps.Keys(p.Figures)) {
		fmt.Fprintf(&b, ", %d %s", p.Figures[k], k)
	}
	for _, n := range slices.Sorted(maps.Keys(p.Reads)) {
		fmt.Fprintf(&b, ", %d looks at %s", p.Reads[n], orName(n))
	}
	if p.OldestStale > 0 {
		fmt.Fprintf(&b, ", the oldest stale read by %v", p.OldestStale.Round(time.Microsecond))
	}
	switch {
	case len(p.Problems) > 0:
		fmt.Fprintf(&b, ": %d PROBLEMS", len(p.Problems))
	case len(p.Undecided) > 0:
		b.WriteString(": NOT DECIDED")
	default:
		b.WriteString(": ok")
	}
	return b.String()
}
