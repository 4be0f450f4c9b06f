package verify

import (
	"slices"
	"testing"
)

// TestJudgeObjects: what was made is there, what was dropped is not, and objects have done what they do.
func TestJudgeObjects(t *testing.T) {
	known := map[string]presence{"view ov1": present, "procedure op1": present, "comment op1": present,
		"function of1": present, "trigger ot1": absent, "table oi1": present,
		"event oe1": maybe, "row call 1": present, "row trigger 1": present, "row oi1": present, "row view 1": maybe}
	there := []string{"view ov1", "procedure op1", "comment op1", "function of1", "row call 1", "row trigger 1",
		"table oi1", "row oi1"}
	for _, c := range []struct {
		name string
		more []string
		lack string
		want []Kind
	}{
		{"all as it should be", nil, "", nil},
		{"what has no answer is there", []string{"event oe1", "row view 1"}, "", nil},
		{"no view", nil, "view ov1", []Kind{Lost}},
		{"no procedure", nil, "procedure op1", []Kind{Lost}},
		{"a procedure as it was before", nil, "comment op1", []Kind{Lost}},
		{"no function", nil, "function of1", []Kind{Lost}},
		{"a trigger that was dropped", []string{"trigger ot1"}, "", []Kind{Resurrected}},
		{"a trigger that did not fire", nil, "row trigger 1", []Kind{Lost}},
		{"a call that did nothing", nil, "row call 1", []Kind{Lost}},
		{"a row with another value", []string{"row call 1 with 7"}, "row call 1", []Kind{Lost, Resurrected}},
		{"an event of no client", []string{"event oe2"}, "", []Kind{Resurrected}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMixedPart(&Set{}, kindObjects)
			m.objects = known
			v := mixedView{Objects: map[string]bool{}}
			for _, o := range append(slices.Clone(there), c.more...) {
				v.Objects[o] = o != c.lack
			}
			delete(v.Objects, c.lack)
			if got := kinds(m.problems(map[string]mixedView{"n1": v})); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
