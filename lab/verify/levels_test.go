package verify

import (
	"slices"
	"testing"
)

// TestJudgeLevels: what reads at BEFORE and AFTER have to show, what none can show, and what is left at the end.
func TestJudgeLevels(t *testing.T) {
	write := func(begin, end, value int64, after bool, o Outcome) LevelOp {
		return LevelOp{Span: Span{Client: 1, Begin: begin, End: end, Outcome: o}, Key: 1, Write: true, Value: value,
			After: after}
	}
	read := func(begin, value int64, before, after bool) LevelOp {
		return LevelOp{Span: Span{Client: 9, Begin: begin, End: begin + 5, Outcome: Acked}, Key: 1, Value: value,
			Before: before, After: after}
	}
	good := map[string]map[int64]int64{"n1": {1: 3}, "n2": {1: 4}}
	for _, c := range []struct {
		name string
		ops  []LevelOp
		held map[string]map[int64]int64
		want []Kind
	}{
		{"before all", []LevelOp{read(5, 0, true, true)}, good, nil},
		{"BEFORE, of the one that was answered", []LevelOp{read(25, 1, true, false)}, good, nil},
		{"BEFORE, of what was not answered yet", []LevelOp{read(35, 1, true, false), read(35, 2, true, false)}, good, nil},
		{"BEFORE without an older one", []LevelOp{read(25, 0, true, false)}, good, []Kind{NotCurrent}},
		{"BEFORE without the newest", []LevelOp{read(45, 1, true, false)}, good, []Kind{NotCurrent}},
		{"BEFORE without what was answered at EVENTUAL", []LevelOp{read(65, 2, true, false)}, good, []Kind{NotCurrent}},
		{"AFTER, without what was answered at EVENTUAL", []LevelOp{read(65, 2, false, true)}, good, nil},
		{"AFTER without what was answered at AFTER", []LevelOp{read(65, 1, false, true)}, good, []Kind{NotCurrent}},
		{"both, without either", []LevelOp{read(65, 1, true, true)}, good, []Kind{NotCurrent}},
		{"no level", []LevelOp{read(65, 0, false, false)}, good, nil},
		{"what has no answer may be there", []LevelOp{read(85, 4, true, true), read(85, 3, true, true)}, good, nil},
		{"before it was tried", []LevelOp{read(45, 3, false, false)}, good, []Kind{Resurrected}},
		{"from nowhere", []LevelOp{read(85, 7, false, false)}, good, []Kind{Resurrected}},
		{"refused", []LevelOp{{Span: Span{Begin: 85, Outcome: Failed}, Key: 1, Before: true}}, good, nil},
		{"lost", nil, map[string]map[int64]int64{"n1": {1: 3}, "n2": {1: 2}}, []Kind{Lost}},
		{"lost with its row", nil, map[string]map[int64]int64{"n1": {}}, []Kind{Lost}},
		{"never written", nil, map[string]map[int64]int64{"n1": {1: 5}}, []Kind{Resurrected}},
		{"a counter of no client", nil, map[string]map[int64]int64{"n1": {1: 3, 2: 1}}, []Kind{Resurrected}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ops := append([]LevelOp{write(10, 20, 1, true, Acked), write(30, 40, 2, true, Acked), write(55, 60, 3, false, Acked),
				write(70, 80, 4, true, Unknown)}, c.ops...)
			if got := kinds(JudgeLevels(ops, c.held).Problems); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
