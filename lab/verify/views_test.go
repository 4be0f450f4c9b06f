package verify

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// seen is a write of writer 0: attempt seq begins at 10*seq and ends 5 later.
func seen(seq int64, o Outcome) SeenWrite {
	return SeenWrite{Span: Span{Begin: 10 * seq, End: 10*seq + 5, Outcome: o}, Seq: seq}
}

// view shows these rows of writer 0, all of them looked at.
func view(node, server string, at int64, seqs ...int64) View {
	w := WriterView{}
	for _, s := range seqs {
		w.add(s)
	}
	return View{Span: Span{Begin: at, End: at + 1, Outcome: Acked}, Node: node, Server: server, Writers: []WriterView{w}}
}

func holds(seqs ...int64) map[string]Rows {
	rows := Rows{{}}
	for _, s := range seqs {
		rows[0][Attempt{0, s}]++
	}
	return map[string]Rows{"n1": rows}
}

func TestJudgeViews(t *testing.T) {
	four := []SeenWrite{seen(1, Acked), seen(2, Unknown), seen(3, Failed), seen(4, Acked)}
	for _, c := range []struct {
		name  string
		views []View
		held  map[string]Rows
		want  []Kind
	}{
		{"nothing shown", nil, holds(1, 4), nil},
		{"one after the other", []View{view("n1", "a", 12), view("n1", "a", 20, 1), view("n1", "a", 50, 1, 4)}, holds(1, 4),
			nil},
		{"before its answer", []View{view("n1", "a", 11, 1)}, holds(1, 4), nil},
		{"without an answer, shown", []View{view("n1", "a", 25, 1, 2), view("n1", "a", 50, 1, 2, 4)}, holds(1, 2, 4), nil},
		{"without an answer, late", []View{view("n1", "a", 50, 1, 4), view("n1", "a", 60, 1, 2, 4)}, holds(1, 2, 4), nil},
		{"a follower that lags", []View{view("n1", "a", 50, 1, 4), view("n2", "b", 51, 1), view("n2", "b", 52, 1, 4)},
			holds(1, 4), nil},
		{"lags after a restart", []View{view("n1", "a", 50, 1, 4), view("n1", "b", 60), view("n1", "b", 70, 1, 4)},
			holds(1, 4), nil},

		{"less than before", []View{view("n1", "a", 50, 1, 4), view("n1", "a", 60, 1), view("n1", "a", 70, 1, 4)},
			holds(1, 4), []Kind{Vanished}},
		{"one in the middle gone", []View{view("n1", "a", 25, 1, 2), view("n1", "a", 60, 1, 2, 4), view("n1", "a", 70, 1, 4)},
			holds(1, 2, 4), []Kind{Vanished}},
		{"shown, and not there at the end", []View{view("n1", "a", 25, 1, 2)}, holds(1, 4), []Kind{Vanished}},
		{"shown before a restart, and never again", []View{view("n1", "a", 25, 1, 2), view("n1", "b", 50, 1, 4)}, holds(1, 4),
			[]Kind{Vanished}},
		{"the earlier one missing", []View{view("n1", "a", 50, 4), view("n1", "a", 60, 1, 4)}, holds(1, 4), []Kind{Disorder}},
		{"refused, and shown", []View{view("n1", "a", 50, 1, 3, 4)}, holds(1, 4), []Kind{Resurrected, Vanished}},
		{"shown before it was sent", []View{view("n1", "a", 25, 1, 4)}, holds(1, 4), []Kind{Resurrected}},
		{"never attempted", []View{view("n1", "a", 90, 1, 4, 5)}, holds(1, 4, 5), []Kind{Resurrected}},
		{"shown twice", []View{view("n1", "a", 50, 1, 1, 4)}, holds(1, 4), []Kind{Doubled}},
		{"there twice at the end", nil, holds(1, 4, 4), []Kind{Doubled}},
		{"acknowledged, and not there", nil, holds(1), []Kind{Lost}},
		{"refused, and there", nil, holds(1, 3, 4), []Kind{Resurrected}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := JudgeViews(four, c.views, c.held)
			got, want := kinds(p.Problems), slices.Clone(c.want)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("found %q, want %q\n%v", got, want, p.Problems)
			}
		})
	}
}

func TestViewsCountWhatIsNoProblem(t *testing.T) {
	writes := []SeenWrite{seen(1, Unknown), seen(2, Acked)}
	p := JudgeViews(writes, []View{view("n1", "a", 40, 2), view("n1", "a", 50, 1, 2), view("n1", "b", 60, 1),
		view("n1", "b", 70, 1, 2)}, holds(1, 2))
	if len(p.Problems) > 0 || p.Figures["rows without an answer that came late"] != 1 ||
		p.Figures["rows that a restarted mysqld did not show at once"] != 1 {
		t.Fatalf("%+v", p)
	}
}

// TestRowsBelowTheWindow: what a view did not look at is not missing.
func TestRowsBelowTheWindow(t *testing.T) {
	var writes []SeenWrite
	var seqs []int64
	for s := int64(1); s <= 3*viewWindow; s++ {
		writes, seqs = append(writes, seen(s, Acked)), append(seqs, s)
	}
	high := View{Span: Span{Begin: 9000, End: 9001}, Node: "n1", Server: "a",
		Writers: []WriterView{{From: 2 * viewWindow, To: 3 * viewWindow}}}
	if p := JudgeViews(writes, []View{view("n1", "a", 8000, seqs...), high}, holds(seqs...)); len(p.Problems) > 0 {
		t.Fatal(p.Problems)
	}
	high.Writers[0].To--
	if p := JudgeViews(writes, []View{view("n1", "a", 8000, seqs...), high}, holds(seqs...)); !slices.Equal(kinds(p.Problems), []Kind{Vanished}) {
		t.Fatal(p.Problems)
	}
}

// TestViewsProperty: nodes that apply one log, each at its own pace, and begin again from an older place after a
// restart, pass; with one row taken out of it, or one of its views cut, they do not.
func TestViewsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 5))
		var writes []SeenWrite
		var log, acked []int64
		for seq := int64(1); seq <= 5+rng.Int64N(40); seq++ {
			w := seen(seq, []Outcome{Acked, Acked, Acked, Unknown, Failed}[rng.IntN(5)])
			writes = append(writes, w)
			if w.Outcome == Acked || w.Outcome == Unknown && rng.IntN(2) == 0 {
				log = append(log, seq)
			}
			if w.Outcome == Acked {
				acked = append(acked, seq)
			}
		}
		if len(acked) == 0 {
			return
		}
		var all []View
		life := map[string]string{"n1": "a", "n2": "a"}
		place := map[string]int{}
		for at := int64(1000); at < 1040; at++ { // all have been written
			node := []string{"n1", "n2"}[rng.IntN(2)]
			if rng.IntN(10) == 0 {
				life[node], place[node] = life[node]+"'", rng.IntN(place[node]+1)
			}
			place[node] = min(len(log), place[node]+rng.IntN(8))
			all = append(all, view(node, life[node], at, log[:place[node]]...))
		}
		all = append(all, view("n1", life["n1"], 1100, log...))
		if p := JudgeViews(writes, all, holds(log...)); len(p.Problems) > 0 {
			t.Fatal(p.Problems)
		}
		switch rapid.IntRange(0, 2).Draw(t, "fault") {
		case 0:
			log = log[1:]
		case 1:
			all = append(all, view("n1", life["n1"], 1200, log[:len(log)-1]...))
		case 2:
			if i := slices.Index(log, acked[0]); i == len(log)-1 {
				return
			}
			all = append(all,
				view("n3", "c", 1200, slices.DeleteFunc(slices.Clone(log), func(s int64) bool { return s == acked[0] })...))
		}
		if p := JudgeViews(writes, all, holds(log...)); len(p.Problems) == 0 {
			t.Fatal("not found")
		}
	})
}
