package campaign

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// String is the verdict for a terminal.
func (v Verdict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s, %s, MySQL %s, seed %d\n", v.System, v.Shape, v.Ground.MySQL, v.Seed)
	for _, k := range kinds {
		if line := v.kindLine(k); line != "" {
			fmt.Fprintln(&b, line)
		}
	}
	fmt.Fprintf(&b,
		"%d faults in %.0f minutes (%.1f a minute; %d more were missed): %d leader kills, %d partitions, %d power losses\n",
		v.Faults, v.Minutes, float64(v.Faults)/max(v.Minutes, 1.0/60), v.Missed, v.LeaderKills, v.Partitions, v.PowerLosses)
	fmt.Fprintf(&b,
		"During %d of them a majority was intact, so writes had to continue; %d times without writes, and waits for recovery, were not judged, because the machine had no CPU to spare\n", v.Demanded, v.Unjudged)
	var spent []string
	for _, p := range slices.Sorted(maps.Keys(v.Seconds)) {
		spent = append(spent, fmt.Sprintf("%s %.0f s", p, v.Seconds[p]))
	}
	fmt.Fprintf(&b, "Time: %s\n", strings.Join(spent, ", "))
	fmt.Fprintf(&b, "%d writes: %d acknowledged, %d without an answer, %d refused; everything compared %d times\n",
		v.Writes.Attempts, v.Writes.Acked, v.Writes.Unknown, v.Writes.Failed, v.Checks)
	if v.Unread > 0 {
		fmt.Fprintf(&b, "%d of these could look up nothing in the log\n", v.Unread)
	}
	if v.Undecided > 0 {
		fmt.Fprintf(&b, "%d histories were too hard to decide within the checkers' limits: see the transcript\n", v.Undecided)
	}
	switch gaps := v.gaps(); {
	case v.OK():
		fmt.Fprintln(&b,
			"VERDICT: nothing acknowledged is lost, all nodes are equal, and the cluster recovered from every fault.")
	case len(v.Violations) == 0:
		fmt.Fprintf(&b, "VERDICT: NOT SHOWN: %s.\n", strings.Join(gaps, ", "))
	default:
		fmt.Fprintf(&b, "VERDICT: %d VIOLATIONS\n", len(v.Violations))
		for _, text := range v.Violations {
			fmt.Fprintf(&b, "  %s\n", text)
		}
	}
	if v.Kept != "" {
		fmt.Fprintf(&b, "Logs, histories and the transcript: %s\nThe same faults again: %s\n", v.Kept, v.Repeat)
	}
	if v.Interrupted {
		fmt.Fprintln(&b, "Interrupted; this is what was done until then.")
	}
	return b.String()
}

// kindLine counts one kind by whom it hit; empty if it did not happen.
func (v Verdict) kindLine(k kind) string {
	var whom []string
	for _, w := range []Whom{Leader, Follower, Logger, Majority, All} {
		if n := v.Counts[string(k.name)+" "+string(w)]; n > 0 {
			whom = append(whom, fmt.Sprintf("%d %s", n, w))
		}
	}
	if len(whom) == 0 {
		return ""
	}
	return fmt.Sprintf("  %-12s %s", k.name, strings.Join(whom, ", "))
}
