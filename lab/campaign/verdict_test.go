package campaign

import (
	"strings"
	"testing"
)

// TestVerdict: that nothing is lost is said only of faults that were made, compared and decided.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		part Part
		want string
	}{
		{Part{Faults: 3, Checks: 1}, "nothing acknowledged is lost"},
		{Part{}, "NOT SHOWN: no fault was made, nothing was compared"},
		{Part{Missed: 3, Checks: 1}, "NOT SHOWN: no fault was made."},
		{Part{Faults: 3}, "NOT SHOWN: nothing was compared"},
		{Part{Faults: 3, Checks: 1, Undecided: 2}, "NOT SHOWN: 2 histories were not decided"},
		{Part{Violations: []string{"a write is lost"}}, "VERDICT: 1 VIOLATIONS\n  a write is lost"},
	} {
		v := Verdict{Part: c.part}
		got := v.String()
		if !strings.Contains(got, c.want) || strings.Count(got, "VERDICT") != 1 ||
			v.OK() != strings.HasPrefix(c.want, "nothing") {
			t.Errorf("%+v: %v\n%s", c.part, v.OK(), got)
		}
	}
}
