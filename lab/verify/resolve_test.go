package verify

import (
	"slices"
	"testing"
)

// TestResolveRegisters: the journal settles what was not answered, so that a history without a possible order is found
// although an unanswered write could explain it; and it is held to what was answered.
func TestResolveRegisters(t *testing.T) {
	for _, c := range []struct {
		name    string
		ops     []RegisterOp
		journal map[int64]int64
		want    []Kind
	}{
		{"all as answered", []RegisterOp{writeAt(0, 1, 1), casAt(2, 3, 1, 2, true), casAt(4, 5, 1, 3, false),
			readAt(6, 7, 2)}, map[int64]int64{1: 1, 2: 1}, nil},
		{"not answered, there and seen", []RegisterOp{as(Unknown, writeAt(0, 1, 1)), readAt(2, 3, 0), readAt(5, 6, 1)},
			map[int64]int64{1: 1}, nil},
		{"not answered, not there, not seen", []RegisterOp{writeAt(0, 1, 1), as(Unknown, writeAt(2, 3, 2)), readAt(4, 5, 1)},
			map[int64]int64{1: 1}, nil},
		{"a compare-and-set that was not answered, there",
			[]RegisterOp{writeAt(0, 1, 1), as(Unknown, casAt(2, 3, 1, 2, false)), readAt(4, 5, 2)}, map[int64]int64{1: 1, 2: 1},
			nil},

		{"seen, and never committed", []RegisterOp{writeAt(0, 1, 1), as(Unknown, writeAt(2, 3, 2)), readAt(4, 5, 2)},
			map[int64]int64{1: 1}, []Kind{NotLinear}},
		{"a compare-and-set that was not answered cannot have found its value",
			[]RegisterOp{writeAt(0, 1, 1), writeAt(2, 3, 2),
				as(Unknown, casAt(4, 5, 1, 3, false))}, map[int64]int64{1: 1, 2: 1, 3: 1}, []Kind{NotLinear}},
		{"acknowledged, not there", []RegisterOp{writeAt(0, 1, 1), writeAt(2, 3, 2), readAt(4, 5, 2)}, map[int64]int64{2: 1},
			[]Kind{Lost}},
		{"overwritten, and lost all the same", []RegisterOp{writeAt(0, 1, 1), writeAt(2, 3, 2)}, map[int64]int64{2: 1},
			[]Kind{Lost}},
		{"twice", []RegisterOp{writeAt(0, 1, 1)}, map[int64]int64{1: 2}, []Kind{Doubled}},
		{"refused, and there", []RegisterOp{as(Failed, writeAt(0, 1, 1))}, map[int64]int64{1: 1}, []Kind{Resurrected}},
		{"never written", []RegisterOp{writeAt(0, 1, 1)}, map[int64]int64{1: 1, 9: 1}, []Kind{Resurrected}},
		{"it said that it had changed nothing", []RegisterOp{writeAt(0, 1, 1), casAt(2, 3, 5, 2, false)},
			map[int64]int64{1: 1, 2: 1}, []Kind{Broken}},
	} {
		p := registerPart{set: &Set{}, journals: map[string]map[int64]int64{"n1": c.journal}, end: 1e9}
		p.history.ops = c.ops
		v := p.judge()
		if got := kinds(v.Problems); !slices.Equal(got, c.want) || len(v.Undecided) > 0 {
			t.Errorf("%s: %v, want %q", c.name, v.Problems, c.want)
		}
	}
	p := registerPart{set: &Set{}}
	p.history.ops = []RegisterOp{writeAt(0, 1, 1), as(Unknown, writeAt(2, 3, 2)), readAt(4, 5, 2)}
	if v := p.judge(); len(v.Problems) > 0 {
		t.Errorf("without a journal: %v", v.Problems)
	}
}

// TestRegistersOfEachNodeAreJudged: what a node holds at the end counts as a read after all others, even if no client
// has met that node.
func TestRegistersOfEachNodeAreJudged(t *testing.T) {
	for _, c := range []struct {
		name string
		held map[int64]int64 // by n2
		want bool
	}{{"the same", map[int64]int64{1: 2}, true}, {"what was overwritten", map[int64]int64{1: 1}, false},
		{"nothing", nil, false}, {"what was not written", map[int64]int64{1: 9}, false}} {
		p := registerPart{set: &Set{}}
		p.history.ops = []RegisterOp{writeAt(0, 1, 1), writeAt(2, 3, 2)}
		p.finals = finalReads(p.history.ops, map[string]map[int64]int64{"n1": {1: 2}, "n2": c.held}, 1e15, 1e15+1)
		if v := p.judge(); (len(v.Problems) == 0) != c.want || len(v.Undecided) > 0 {
			t.Errorf("%s: %v", c.name, v.Problems)
		}
	}
}
