package verify

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// shape of the judged workload: 2 tables, every 4th write in both.
var shape = Shape{Tables: 2, PairEvery: 4}

// logOf makes a log of one writer with these outcomes.
// problems without a log.
func (m *mixedPart) problems(nodes map[string]mixedView) []Problem {
	p, _ := m.judgeViews(nodes, nil)
	return p
}

func logOf(outcomes ...Outcome) *Log {
	l := NewLog(1)
	for _, o := range outcomes {
		seq := l.Begin(0)
		if o != Pending {
			l.Settle(0, seq, o)
		}
	}
	return l
}

// rowsOf makes the rows of a node that holds these sequence numbers, completely.
func rowsOf(seqs ...int64) Rows {
	r := Rows{{}, {}}
	for _, s := range seqs {
		for _, t := range tablesOf(Attempt{0, s}, shape.Tables, shape.PairEvery) {
			r[t][Attempt{0, s}]++
		}
	}
	return r
}

func kinds(problems []Problem) []Kind {
	var out []Kind
	for _, p := range problems {
		if !slices.Contains(out, p.Kind) {
			out = append(out, p.Kind)
		}
	}
	slices.Sort(out)
	return out
}

func TestJudgeRows(t *testing.T) {
	log := logOf(Acked, Unknown, Failed, Acked, Pending, Acked) // seq 4 writes to both tables
	good := func() Rows { return rowsOf(1, 4, 6) }
	withUnknown := func() Rows { return rowsOf(1, 2, 4, 5, 6) }
	torn := good()
	delete(torn[tablesOf(Attempt{0, 4}, 2, 4)[1]], Attempt{0, 4})
	stranger := good()
	stranger[0][Attempt{0, 7}] = 1
	otherWriter := good()
	otherWriter[1][Attempt{3, 1}] = 1
	wrongTable := good()
	wrongTable[1-tablesOf(Attempt{0, 1}, 2, 4)[0]][Attempt{0, 1}] = 1

	for _, c := range []struct {
		name string
		a, b Rows
		want []Kind
	}{
		{"exactly the acknowledged", good(), good(), nil},
		{"unknown ones on all nodes", withUnknown(), withUnknown(), nil},
		{"acknowledged missing everywhere", rowsOf(1, 4), rowsOf(1, 4), []Kind{Lost}},
		{"acknowledged missing on one", good(), rowsOf(1, 4), []Kind{Lost, Diverged}},
		{"doubled everywhere", rowsOf(1, 1, 4, 6), rowsOf(1, 1, 4, 6), []Kind{Doubled}},
		{"doubled on one", good(), rowsOf(1, 4, 6, 6), []Kind{Doubled}},
		{"unknown doubled", rowsOf(1, 2, 2, 4, 6), rowsOf(1, 2, 2, 4, 6), []Kind{Doubled}},
		{"unknown on one node only", good(), rowsOf(1, 2, 4, 6), []Kind{Diverged}},
		{"pending on one node only", rowsOf(1, 4, 5, 6), good(), []Kind{Diverged}},
		{"refused but there", rowsOf(1, 3, 4, 6), rowsOf(1, 3, 4, 6), []Kind{Resurrected}},
		{"transaction torn", torn, torn, []Kind{Torn}},
		{"never attempted", stranger, stranger, []Kind{Resurrected}},
		{"writer unknown", otherWriter, good(), []Kind{Resurrected}},
		{"in a table it does not write to", wrongTable, wrongTable, []Kind{Resurrected}},
		{"nothing at all", rowsOf(), rowsOf(), []Kind{Lost}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := kinds(JudgeRows(log, shape, map[string]Rows{"n1": c.a, "n2": c.b}))
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) {
				t.Fatalf("found %q, want %q", got, c.want)
			}
			for _, p := range JudgeRows(log, shape, map[string]Rows{"n1": c.a, "n2": c.b}) {
				if text := fmt.Sprintf("writer %d seq %d", p.Attempt.Writer, p.Attempt.Seq); !strings.Contains(p.Detail, text) {
					t.Errorf("%q is filed under %v", p, p.Attempt)
				}
			}
		})
	}
}

func TestJudgeEqual(t *testing.T) {
	for _, c := range []struct {
		name string
		b    map[string]string
		want int
	}{
		{"equal", map[string]string{"t": "1", "u": "2"}, 0},
		{"other checksum", map[string]string{"t": "1", "u": "3"}, 1},
		{"table missing", map[string]string{"t": "1"}, 1},
		{"table too many", map[string]string{"t": "1", "u": "2", "v": "0"}, 1},
		{"empty value is not absence", map[string]string{"t": "1", "u": "2", "v": ""}, 1},
	} {
		got := JudgeEqual("checksum", map[string]map[string]string{"n1": {"t": "1", "u": "2"}, "n2": c.b})
		if len(got) != c.want {
			t.Errorf("%s: %v, want %d problems", c.name, got, c.want)
		}
	}
}

func TestJudgeMixed(t *testing.T) {
	state := func() *mixedPart {
		m := newMixedPart(&Set{}, kindBank)
		m.objects = map[string]presence{"table d1": present, "row d1": present, "table d2": absent, "user u": maybe}
		for _, s := range []struct {
			after   presence
			outcome Outcome
			objects []string
		}{
			{present, Acked, []string{"column d1.c"}}, // ALTER
			{present, Acked, []string{"grant a"}},
			{present, Unknown, []string{"grant a"}}, // the same again
			{present, Acked, []string{"user a2"}},   // CREATE USER IF NOT EXISTS
			{present, Unknown, []string{"column d3.c"}},
			{present, Unknown, []string{"grant b"}},
			{present, Failed, []string{"column d4.c"}},
			{present, Acked, []string{"grant c"}},
			{absent, Acked, []string{"user c", "grant c"}}, // DROP USER
		} {
			m.attempt(s.after, "", s.objects...)(s.outcome)
		}
		m.xa = map[string]*xaState{
			"committed":  {Prepared: Acked, Commit: true, Resolved: true, Tried: true},
			"rolledback": {Prepared: Acked, Resolved: true, Tried: true},
			"unprepared": {Prepared: Failed, Commit: true},
			"unclear":    {Prepared: Unknown, Commit: true, Gone: true, Tried: true},
		}
		return m
	}
	good := func() mixedView {
		return mixedView{Accounts: bankAccounts, Sum: bankAccounts * bankBalance,

			Objects: map[string]bool{"table d1": true, "row d1": true, "column d1.c": true, "grant a": true, "user a2": true},
			XARows:  map[string]bool{"committed": true}}
	}
	for _, c := range []struct {
		name   string
		change func(*mixedView, *mixedPart)
		want   []Kind
	}{
		{"as it should be", func(*mixedView, *mixedPart) {}, nil},
		{"maybe there", func(v *mixedView, _ *mixedPart) { v.Objects["user u"] = true; v.XARows["unclear"] = true }, nil},
		{"money lost", func(v *mixedView, _ *mixedPart) { v.Sum-- }, []Kind{Broken}},
		{"account lost", func(v *mixedView, _ *mixedPart) { v.Accounts-- }, []Kind{Broken}},
		{"created table missing", func(v *mixedView, _ *mixedPart) { delete(v.Objects, "table d1") }, []Kind{Lost}},
		{"row missing: an old DROP IF EXISTS ran again", func(v *mixedView, _ *mixedPart) { delete(v.Objects, "row d1") },
			[]Kind{Lost}},
		{"dropped table back", func(v *mixedView, _ *mixedPart) { v.Objects["table d2"] = true }, []Kind{Resurrected}},
		{"table from nowhere", func(v *mixedView, _ *mixedPart) { v.Objects["table d9"] = true }, []Kind{Resurrected}},
		{"ALTER lost", func(v *mixedView, _ *mixedPart) { delete(v.Objects, "column d1.c") }, []Kind{Lost}},
		{"GRANT lost", func(v *mixedView, _ *mixedPart) { delete(v.Objects, "grant a") }, []Kind{Lost}},
		{"CREATE USER IF NOT EXISTS lost", func(v *mixedView, _ *mixedPart) { delete(v.Objects, "user a2") }, []Kind{Lost}},
		{"ALTER and GRANT without an answer, there", func(v *mixedView, _ *mixedPart) {
			v.Objects["column d3.c"], v.Objects["grant b"] = true, true
		}, nil},
		{"ALTER refused, there", func(v *mixedView, _ *mixedPart) { v.Objects["column d4.c"] = true }, []Kind{Resurrected}},
		{"a privilege that outlives its account", func(v *mixedView, _ *mixedPart) { v.Objects["grant c"] = true },
			[]Kind{Resurrected}},
		{"a privilege that was not granted", func(v *mixedView, _ *mixedPart) { v.Objects["grant x"] = true },
			[]Kind{Resurrected}},
		{"XA COMMIT lost", func(v *mixedView, _ *mixedPart) { delete(v.XARows, "committed") }, []Kind{Lost}},
		{"XA rolled back but there", func(v *mixedView, _ *mixedPart) { v.XARows["rolledback"] = true },
			[]Kind{Resurrected}},
		{"XA never prepared but there", func(v *mixedView, _ *mixedPart) { v.XARows["unprepared"] = true },
			[]Kind{Resurrected}},
		{"XA still prepared", func(v *mixedView, _ *mixedPart) { v.Prepared = []string{"unclear"} }, []Kind{Broken}},
		{"XA PREPARE lost", func(v *mixedView, m *mixedPart) { m.xa["committed"].Gone = true }, []Kind{Lost}},
		{"XA prepared, never decided, gone", func(v *mixedView, m *mixedPart) {
			m.xa["rolledback"] = &xaState{Prepared: Acked}
			m.noteGone(nil)
		}, []Kind{Lost}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, m := good(), state()
			c.change(&v, m)
			if got := kinds(m.problems(map[string]mixedView{"n1": v})); !slices.Equal(got, c.want) {
				t.Fatalf("found %q, want %q", got, c.want)
			}
		})
	}
}

func TestLogCounts(t *testing.T) {
	l := NewLog(2)
	for _, o := range []Outcome{Acked, Unknown, Failed} {
		l.Settle(1, l.Begin(1), o)
	}
	l.Begin(0)
	if got, want := l.Counts(), (Counts{Attempts: 4, Acked: 1, Unknown: 2, Failed: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestSettleTwicePanics(t *testing.T) {
	l := logOf(Acked)
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	l.Settle(0, 1, Failed)
}

func TestReportCountsEveryProblem(t *testing.T) {
	r := Report{Nodes: []string{"n1"}}
	if !r.OK() {
		t.Fatal("no problems but not OK")
	}
	for i := range maxPrinted + 5 {
		r.Problems = append(r.Problems, Problem{Kind: Lost, Node: "n1", Detail: fmt.Sprint(i)})
	}
	if s := r.String(); r.OK() || !strings.Contains(s, "25 PROBLEMS") || !strings.Contains(s, "and 5 more") {
		t.Fatalf("report hides problems: %s", s)
	}
}
