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
	// Rows of some are there, and the marks of the first so many, but of those that are left out.
	there := func(marks int64, without int64, numbers ...int64) map[int64]LargeRows {
		out := map[int64]LargeRows{}
		for n := int64(1); n <= marks; n++ {
			if n != without {
				out[n] = LargeRows{Mark: true}
			}
		}
		for _, n := range numbers {
			out[n] = LargeRows{5, 5, n <= marks && n != without}
		}
		return out
	}
	torn, other, alone := there(1, 0, 1), there(1, 0, 1), there(0, 0)
	torn[1] = LargeRows{4, 4, true}
	other[1] = LargeRows{5, 4, true}
	alone[1] = LargeRows{Mark: true}
	for _, c := range []struct {
		name string
		all  []LargeTrx
		held map[int64]LargeRows
		want []Kind
	}{
		{"nothing", nil, nil, nil},
		{"the last three", large(Acked, Acked, Acked, Acked, Acked), there(5, 0, 3, 4, 5), nil},
		{"one refused: what it was to delete is there", large(Acked, Acked, Acked, Failed, Acked), there(5, 4, 1, 3, 5), nil},
		{"one without an answer, there", large(Acked, Acked, Acked, Unknown), there(4, 0, 2, 3, 4), nil},
		{"one without an answer, not there", large(Acked, Acked, Acked, Unknown), there(3, 0, 1, 2, 3), nil},
		{"one without an answer, deleted meanwhile", large(Acked, Unknown, Unknown, Unknown, Acked, Acked, Acked),
			there(7, 0, 5, 6, 7), nil},
		{"one without an answer, not deleted but never there", large(Unknown), there(0, 0), nil},

		{"lost", large(Acked), there(0, 0), []Kind{Lost}},
		{"lost, and the later one refused", large(Acked, Acked, Acked, Failed), there(3, 1, 2, 3), []Kind{Lost}},
		{"lost, and the later one not there", large(Acked, Acked, Acked, Unknown), there(3, 1, 2, 3), []Kind{Lost}},
		{"its rows lost, and one without an answer, which was not committed, was to delete them",
			large(Acked, Acked, Acked, Unknown, Acked, Acked, Acked), there(7, 4, 5, 6, 7), []Kind{Lost}},
		{"lost with its mark, after one without an answer", large(Acked, Acked, Acked, Unknown, Acked, Acked, Acked),
			there(7, 1, 5, 6, 7), []Kind{Lost}},
		{"half of it", large(Acked), torn, []Kind{Torn}},
		{"its rows without its mark", large(Acked), there(0, 0, 1), []Kind{Torn}},
		{"its mark without its rows, not answered", large(Unknown), alone, []Kind{Torn}},
		{"other contents", large(Acked), other, []Kind{Broken}},
		{"refused, and there", large(Failed), there(1, 0, 1), []Kind{Resurrected}},
		{"refused, and its mark is there", large(Failed), alone, []Kind{Resurrected}},
		{"never attempted", large(Acked), there(1, 0, 1, 9), []Kind{Resurrected}},
		{"deleted, and there", large(Acked, Acked, Acked, Acked), there(4, 0, 1, 2, 3, 4), []Kind{Resurrected}},
		{"inserted but not deleted", large(Acked, Acked, Acked, Unknown), there(4, 0, 1, 2, 3, 4), []Kind{Torn}},
	} {
		got := kinds(JudgeLarge(c.all, map[string]map[int64]LargeRows{"n1": c.held}).Problems)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: found %q, want %q", c.name, got, c.want)
		}
	}
}

// TestLargeProperty: a node that did what was acknowledged, and some of what was not answered, passes; with one row
// less it does not, nor without a mark.
func TestLargeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 6))
		var all []LargeTrx
		held := map[int64]LargeRows{}
		for n := int64(1); n <= 1+rng.Int64N(20); n++ {
			x := LargeTrx{Span: Span{Outcome: Outcome(1 + rng.IntN(3))}, Number: n, Rows: 2 + rng.IntN(10)}
			all = append(all, x)
			if x.Outcome == Acked || x.Outcome == Unknown && rng.IntN(2) == 0 {
				held[n] = LargeRows{x.Rows, x.Rows, true}
				if before, ok := held[n-largeKept]; ok {
					held[n-largeKept] = LargeRows{Mark: before.Mark}
				}
			}
		}
		nodes := map[string]map[int64]LargeRows{"n1": held}
		if p := JudgeLarge(all, nodes); len(p.Problems) > 0 {
			t.Fatal(p.Problems)
		}
		for n, l := range held {
			if l.Rows == 0 {
				continue
			}
			held[n] = LargeRows{l.Rows - 1, l.Right - 1, true}
			if p := JudgeLarge(all, nodes); len(p.Problems) == 0 {
				t.Fatal("a missing row was not found")
			}
			held[n] = LargeRows{l.Rows, l.Right, false}
			if p := JudgeLarge(all, nodes); len(p.Problems) == 0 {
				t.Fatal("a missing mark was not found")
			}
			break
		}
	})
}
