package demo

import (
	"slices"
	"testing"

	"trireme/internal/mysql/gtid"
)

// TestJudgeRows: each way in which a promise can be broken is found, and nothing else.
func TestJudgeRows(t *testing.T) {
	// Of writer 0: seq 0 is a pair and acknowledged, 1 (w1) is acknowledged, 2 (w0) has no answer, 3 (w1) was refused.
	outcomes := [][]outcome{{acked, acked, unknown, refused}}
	whole := func() held {
		return held{rows: map[string]map[write]int{"w0": {{0, 0}: 1}, "w1": {{0, 0}: 1, {0, 1}: 1}}}
	}
	for name, c := range map[string]struct {
		change func(held)
		want   []string
	}{
		"as it should be":   {func(held) {}, nil},
		"without an answer": {func(h held) { h.rows["w0"][write{0, 2}] = 1 }, nil},
		"lost":              {func(h held) { delete(h.rows["w1"], write{0, 1}) }, []string{"acknowledged write lost"}},
		"twice":             {func(h held) { h.rows["w1"][write{0, 1}] = 2 }, []string{"write applied twice"}},
		"torn":              {func(h held) { delete(h.rows["w0"], write{0, 0}) }, []string{"transaction torn"}},
		"refused": {func(h held) { h.rows["w1"][write{0, 3}] = 1 },
			[]string{"write that was never committed exists"}},
		"never attempted": {func(h held) { h.rows["w0"][write{0, 4}] = 1 },
			[]string{"write that was never committed exists"}},
		"of no writer": {func(h held) { h.rows["w0"][write{7, 0}] = 1 },
			[]string{"write that was never committed exists"}},
		"in a table not its own": {func(h held) { h.rows["w0"][write{0, 1}] = 1 },
			[]string{"write that was never committed exists"}},
	} {
		h := whole()
		c.change(h)
		var got []string
		for _, p := range judgeRows(outcomes, map[string]held{"n1": h}) {
			got = append(got, p.Kind)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

// TestJudgeSums: a table that differs, or is not there, is told of the node that has another one than the first.
func TestJudgeSums(t *testing.T) {
	nodes := map[string]held{"n1": {sums: map[string]string{"demo.w0": "1", "demo.w1": "2"}},
		"n2": {sums: map[string]string{"demo.w0": "1", "demo.w1": "2"}}}
	if p := judgeSums(nodes); len(p) != 0 {
		t.Error(p)
	}
	nodes["n3"] = held{sums: map[string]string{"demo.w0": "7"}}
	if p := judgeSums(nodes); len(p) != 2 || p[0].Node != "n3" || p[1].Node != "n3" {
		t.Error(p)
	}
}

// TestEqual: what a node alone has of its own lives is set aside; of another's it is a difference.
func TestEqual(t *testing.T) {
	own := func(node uint16) string { return gtid.IncarnationUUID(1, node, 1).String() }
	sets := func(texts ...string) map[string]Executed {
		out := map[string]Executed{}
		for i, text := range texts {
			set, err := gtid.ParseSet(text)
			if err != nil {
				t.Fatal(err)
			}
			out["n"+string(rune('1'+i))] = Executed{Set: set, Node: uint16(i + 1)}
		}
		return out
	}
	common, local, err := equal(sets(own(1)+":1-5", own(1)+":1-5"))
	if err != nil || local || common.String() != own(1)+":1-5" {
		t.Error(common, local, err)
	}
	common, local, err = equal(sets(own(1)+":1-5", own(1)+":1-5,"+own(2)+":1"))
	if err != nil || !local || common.String() != own(1)+":1-5" {
		t.Error(common, local, err)
	}
	busy := sets(own(1)+":1-6", own(1)+":1-5")
	if _, local, err = equal(busy); err != nil || !local {
		t.Error(local, err)
	}
	busy["n2"] = Executed{Set: busy["n2"].Set, Node: 2, Applying: 1}
	if _, _, err = equal(busy); err == nil {
		t.Error("what n2 is applying may be what n1 alone has")
	}
	if _, _, err = equal(sets(own(1)+":1-5", own(1)+":1-6")); err == nil {
		t.Error("n2 has what n1 made and does not have")
	}
}
