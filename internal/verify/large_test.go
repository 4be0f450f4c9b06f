package verify

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestJudgeLarge(t *testing.T) {
	large := func(outcomes ...Outcome) []LargeTrx {
		var out []LargeTrx
		for i, o := range outcomes {
			out = append(out, LargeTrx{Span: Span{Outcome: o}, Number: int64(i + 1), Rows: 5})
		}
		return out
	}
	there := func(numbers ...int64) map[int64]LargeRows {
		out := map[int64]LargeRows{}
		for _, n := range numbers {
			out[n] = LargeRows{5, 5}
		}
		return out
	}
	torn, other := there(1), there(1)
	torn[1] = LargeRows{4, 4}
	other[1] = LargeRows{5, 4}
	for _, c := range []struct {
		name string
		all  []LargeTrx
		held map[int64]LargeRows
		want []Kind
	}{
		{"nothing", nil, nil, nil},
		{"the last three", large(Acked, Acked, Acked, Acked, Acked), there(3, 4, 5), nil},
		{"one refused: what it was to delete is there", large(Acked, Acked, Acked, Failed, Acked), there(1, 3, 5), nil},
		{"one without an answer, there", large(Acked, Acked, Acked, Unknown), there(2, 3, 4), nil},
		{"one without an answer, not there", large(Acked, Acked, Acked, Unknown), there(1, 2, 3), nil},
		{"one without an answer, deleted meanwhile", large(Acked, Failed, Failed, Unknown, Failed, Failed, Acked), there(7), nil},
		{"one without an answer, not deleted but never there", large(Unknown), there(), nil},

		{"lost", large(Acked), there(), []Kind{Lost}},
		{"lost, and the later one refused", large(Acked, Acked, Acked, Failed), there(2, 3), []Kind{Lost}},
		{"lost, and the later one not there", large(Acked, Acked, Acked, Unknown), there(2, 3), []Kind{Lost}},
		{"half of it", large(Acked), torn, []Kind{Torn}},
		{"other contents", large(Acked), other, []Kind{Broken}},
		{"refused, and there", large(Failed), there(1), []Kind{Resurrected}},
		{"never attempted", large(Acked), there(1, 9), []Kind{Resurrected}},
		{"deleted, and there", large(Acked, Acked, Acked, Acked), there(1, 2, 3, 4), []Kind{Resurrected}},
		{"inserted but not deleted", large(Acked, Acked, Acked, Unknown), there(1, 2, 3, 4), []Kind{Torn}},
	} {
		got := kinds(JudgeLarge(c.all, map[string]map[int64]LargeRows{"n1": c.held}).Problems)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: found %q, want %q", c.name, got, c.want)
		}
	}
}

// TestLargeProperty: a node that did what was acknowledged, and some of what was not answered, passes; with one row less it does not.
func TestLargeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 6))
		var all []LargeTrx
		held := map[int64]LargeRows{}
		for n := int64(1); n <= 1+rng.Int64N(20); n++ {
			x := LargeTrx{Span: Span{Outcome: Outcome(1 + rng.IntN(3))}, Number: n, Rows: 2 + rng.IntN(10)}
			all = append(all, x)
			if x.Outcome == Acked || x.Outcome == Unknown && rng.IntN(2) == 0 {
				held[n] = LargeRows{x.Rows, x.Rows}
				delete(held, n-largeKept)
			}
		}
		nodes := map[string]map[int64]LargeRows{"n1": held}
		if p := JudgeLarge(all, nodes); len(p.Problems) > 0 {
			t.Fatal(p.Problems)
		}
		for n, l := range held {
			held[n] = LargeRows{l.Rows - 1, l.Right - 1}
			if p := JudgeLarge(all, nodes); len(p.Problems) == 0 {
				t.Fatal("not found")
			}
			break
		}
	})
}
