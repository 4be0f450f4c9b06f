package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// String is a difference in a sentence, and what to do about it.
func (d Difference) String() string {
	var b strings.Builder
	switch d.Kind {
	case KindMissing:
		fmt.Fprintf(&b, "%s is missing", d.Table)
	case KindExtra:
		fmt.Fprintf(&b, "%s should not be there", d.Table)
	case KindDefinition:
		fmt.Fprintf(&b, "%s is defined differently", d.Table)
	default:
		fmt.Fprintf(&b, "%s: rows differ", d.Table)
	}
	if len(d.Wrong) > 0 {
		fmt.Fprintf(&b, " on %s", strings.Join(d.Wrong, ", "))
	}
	if d.Details != "" {
		fmt.Fprintf(&b, "; %s", d.Details)
	}
	if d.Key != "" {
		rows := "rows"
		if d.Count == 1 {
			rows = "row"
		}
		fmt.Fprintf(&b, ": %d %s, (%s) after (%s) up to (%s)", d.Count, rows, d.Key,
			orEnd(d.From, "the start"), orEnd(d.To, "the end"))
	}
	for _, r := range d.Rows {
		fmt.Fprintf(&b, "\n  (%s):", r.Key)
		for _, name := range sortedKeys(r.Hash) {
			h := r.Hash[name]
			fmt.Fprintf(&b, " %s %s", name, h[:min(len(h), 12)])
		}
		if len(r.Columns) > 0 {
			fmt.Fprintf(&b, "; columns %s", strings.Join(r.Columns, ", "))
		}
	}
	if len(d.Rows) < d.Count {
		fmt.Fprintf(&b, "\n  … and %d more", d.Count-len(d.Rows))
	}
	return b.String()
}

func orEnd(s, end string) string {
	if s == "" {
		return end
	}
	return s
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
