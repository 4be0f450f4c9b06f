package verify

import (
	"slices"
	"testing"
)

// TestJudgeCausal: what a read has to show, what it cannot show, and what is left at the end.
func TestJudgeCausal(t *testing.T) {
	write := func(key, value int64, o Outcome) CausalOp {
		return CausalOp{Span: Span{Client: int(key), Outcome: o}, Key: key, Write: true, Value: value}
	}
	read := func(key, value, own, told int64) CausalOp {
		return CausalOp{Span: Span{Client: 9, Outcome: Acked}, Key: key, Value: value, Own: own, Told: told}
	}
	good := map[string]map[int64]int64{"n1": {1: 3}, "n2": {1: 4}}
	for _, c := range []struct {
		name string
		ops  []CausalOp
		held map[string]map[int64]int64
		want []Kind
	}{
		{"old, and nothing was promised", []CausalOp{read(1, 0, 0, 0)}, good, nil},
		{"its own", []CausalOp{read(1, 3, 3, 0)}, good, nil},
		{"after a token, newer", []CausalOp{read(1, 4, 0, 2)}, good, nil},
		{"without its own", []CausalOp{read(1, 2, 3, 0)}, good, []Kind{NotCausal}},
		{"older than the token", []CausalOp{read(1, 2, 0, 3)}, good, []Kind{NotCausal}},
		{"no row after a token", []CausalOp{read(1, 0, 0, 1)}, good, []Kind{NotCausal}},
		{"refused", []CausalOp{{Span: Span{Outcome: Failed}, Key: 1, Told: 3}}, good, nil},
		{"from nowhere", []CausalOp{read(1, 5, 0, 0)}, good, []Kind{Resurrected}},
		{"lost", nil, map[string]map[int64]int64{"n1": {1: 3}, "n2": {1: 2}}, []Kind{Lost}},
		{"lost with its row", nil, map[string]map[int64]int64{"n1": {}}, []Kind{Lost}},
		{"never written", nil, map[string]map[int64]int64{"n1": {1: 5}}, []Kind{Resurrected}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ops := append([]CausalOp{write(1, 1, Acked), write(1, 3, Acked), write(1, 4, Unknown)}, c.ops...)
			if got := kinds(JudgeCausal(ops, c.held).Problems); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
