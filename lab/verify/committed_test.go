package verify

import (
	"fmt"
	"slices"
	"testing"
)

// loggedRows of two columns, each a transaction of its own.
func loggedRows(pairs ...[2]any) (out []LoggedRow) {
	for i, p := range pairs {
		out = append(out, LoggedRow{int64(i + 1), []string{fmt.Sprint(p[0]), fmt.Sprint(p[1])}})
	}
	return out
}

func counts(o Outcome, client, value int64) CausalOp {
	return CausalOp{Span: Span{Client: int(client), Outcome: o, Begin: value, End: value + 1}, Key: client, Write: true,
		Value: value}
}

// TestResolveCausal: an unanswered write took effect if the log has it, and never does otherwise. All nodes may lack
// the same, and a read may show what was never committed: without the log the missing answer would explain both.
func TestResolveCausal(t *testing.T) {
	read := func(value int64) CausalOp {
		return CausalOp{Span: Span{Client: 2, Outcome: Acked, Begin: 10, End: 11}, Key: 1, Value: value}
	}
	for _, c := range []struct {
		name      string
		ops       []CausalOp
		log       []LoggedRow
		held      int64
		want      []Kind
		byMistake []Kind // what is found without the log
	}{
		{"as answered", []CausalOp{counts(Acked, 1, 1), read(1)}, loggedRows([2]any{1, 1}), 1, nil, nil},
		{"not answered, committed", []CausalOp{counts(Acked, 1, 1), counts(Unknown, 1, 2), read(2)},
			loggedRows([2]any{1, 1}, [2]any{1, 2}), 2, nil, nil},
		{"not answered, not committed", []CausalOp{counts(Acked, 1, 1), counts(Unknown, 1, 2), read(1)},
			loggedRows([2]any{1, 1}), 1, nil, nil},

		{"committed, and on no node", []CausalOp{counts(Acked, 1, 1), counts(Unknown, 1, 2)},
			loggedRows([2]any{1, 1}, [2]any{1, 2}), 1, []Kind{Lost}, nil},
		{"shown, and never committed", []CausalOp{counts(Acked, 1, 1), counts(Unknown, 1, 2), read(2)},
			loggedRows([2]any{1, 1}), 1, []Kind{Resurrected}, nil},
		{"on the nodes, and never committed", []CausalOp{counts(Acked, 1, 1), counts(Unknown, 1, 2)},
			loggedRows([2]any{1, 1}), 2, []Kind{Resurrected}, nil},
		{"answered, and not in the log", []CausalOp{counts(Acked, 1, 1)}, nil, 1, []Kind{Lost, Resurrected}, nil},
		{"refused, and in the log", []CausalOp{counts(Acked, 1, 1), counts(Failed, 1, 2), counts(Acked, 1, 3)},
			loggedRows([2]any{1, 1}, [2]any{1, 2}, [2]any{1, 3}), 3, []Kind{Resurrected}, nil},
		{"in the log, and never sent", []CausalOp{counts(Acked, 1, 1)}, loggedRows([2]any{1, 1}, [2]any{7, 4}), 1,
			[]Kind{Lost, Resurrected}, nil},
	} {
		p := causalPart{set: &Set{}, held: map[string]map[int64]int64{"n1": {1: c.held}}}
		p.history.ops = c.ops
		if got := kinds(p.judge().Problems); !slices.Equal(got, c.byMistake) {
			t.Errorf("%s, without the log: %v", c.name, got)
		}
		p.set.committed = &Committed{Rows: map[string][]LoggedRow{"counters": c.log}, End: 1e9}
		if got := kinds(p.judge().Problems); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %q", c.name, p.judge().Problems, c.want)
		}
		p.set.committed.Why = "not read whole"
		if got := kinds(p.judge().Problems); !slices.Equal(got, c.byMistake) {
			t.Errorf("%s, with a part of the log: %v", c.name, got)
		}
	}
}

// TestResolveLevels: the same for the workload levels; a write that was committed must be shown at BEFORE only by what
// was answered, but the nodes must hold it.
func TestResolveLevels(t *testing.T) {
	write := func(o Outcome, value int64) LevelOp {
		return LevelOp{Span: Span{Client: 1, Outcome: o, Begin: value, End: value + 1}, Key: 1, Write: true, Value: value}
	}
	for _, c := range []struct {
		name string
		log  []LoggedRow
		held int64
		want []Kind
	}{
		{"committed", loggedRows([2]any{1, 1}, [2]any{1, 2}), 2, nil},
		{"not committed", loggedRows([2]any{1, 1}), 1, nil},
		{"committed, and on no node", loggedRows([2]any{1, 1}, [2]any{1, 2}), 1, []Kind{Lost}},
		{"on the nodes, and never committed", loggedRows([2]any{1, 1}), 2, []Kind{Resurrected}},
	} {
		p := levelsPart{set: &Set{}, held: map[string]map[int64]int64{"n1": {1: c.held}}}
		p.history.ops = []LevelOp{write(Acked, 1), write(Unknown, 2)}
		if got := p.judge().Problems; len(got) > 0 {
			t.Errorf("%s, without the log: %v", c.name, got)
		}
		p.set.committed = &Committed{Rows: map[string][]LoggedRow{"leveled": c.log}, End: 1e9}
		if v := p.judge(); !slices.Equal(kinds(v.Problems), c.want) || v.Figures["unanswered that were looked up"] != 1 {
			t.Errorf("%s: %v, want %q", c.name, v, c.want)
		}
	}
}

// TestResolveAppends: all elements of a transaction stand in the log, in one transaction, or none.
func TestResolveAppends(t *testing.T) {
	txn := func(o Outcome, elements ...int64) Txn {
		out := Txn{Span: Span{Client: 1, Begin: 1, End: 2, Outcome: o}}
		for _, e := range elements {
			out.Ops = append(out.Ops, ListOp{Key: e, Append: e}) // a list each
		}
		return out
	}
	row := func(trx, e int64) LoggedRow { return LoggedRow{trx, []string{fmt.Sprint(e), fmt.Sprint(e)}} }
	for _, c := range []struct {
		name string
		txn  Txn
		log  []LoggedRow
		ends []int64
		want []Kind
	}{
		{"as answered", txn(Acked, 1, 2), []LoggedRow{row(1, 1), row(1, 2)}, []int64{1, 2}, nil},
		{"not answered, committed", txn(Unknown, 1, 2), []LoggedRow{row(1, 1), row(1, 2)}, []int64{1, 2}, nil},
		{"not answered, not committed", txn(Unknown, 1, 2), nil, nil, nil},

		{"not answered, committed, and on no node", txn(Unknown, 1, 2), []LoggedRow{row(1, 1), row(1, 2)}, nil, []Kind{Lost}},
		{"not answered, on the nodes, and never committed", txn(Unknown, 1), nil, []int64{1}, []Kind{G1a}},
		{"in two transactions of the log", txn(Unknown, 1, 2), []LoggedRow{row(1, 1), row(2, 2)}, []int64{1, 2},
			[]Kind{Broken}},
		{"answered, and not in the log", txn(Acked, 1), nil, []int64{1}, []Kind{Lost}},
		{"refused, and in the log", txn(Failed, 1), []LoggedRow{row(1, 1)}, nil, []Kind{Resurrected}},
		{"in the log, and never sent", txn(Acked, 1), []LoggedRow{row(1, 1), row(2, 9)}, []int64{1}, []Kind{Resurrected}},
	} {
		p := newAppendPart(&Set{})
		l := p.levels[0]
		final := Txn{Span: Span{Begin: 3, End: 4, Outcome: Acked}, Node: "n1"}
		for _, e := range c.ends {
			final.Ops = append(final.Ops, ListOp{Key: e, List: []int64{e}})
		}
		l.history.ops, l.finals = []Txn{c.txn}, []Txn{final}
		p.set.committed = &Committed{Rows: map[string][]LoggedRow{l.table: c.log}, End: 1e9}
		if got := p.judge().Problems; !slices.Equal(kinds(got), c.want) {
			t.Errorf("%s: %v, want %q", c.name, got, c.want)
		}
		if p.set.committed = nil; c.txn.Outcome == Unknown && len(p.judge().Problems) > 0 {
			t.Errorf("%s, without the log: %v", c.name, p.judge().Problems)
		}
	}
}

// TestResolveObjects: what a statement without an answer did to an object stands in the log, in mysqld's own words.
func TestResolveObjects(t *testing.T) {
	const ddlLog = "CREATE TABLE d7 (id INT PRIMARY KEY, v INT)"
	for _, c := range []struct {
		name   string
		made   []string // objects before, acknowledged
		after  presence
		text   string
		object []string
		log    Committed
		held   []string
		want   []Kind
	}{
		{"a table that was made", nil, present, ddlLog, []string{"table d7"}, Committed{Statements: []string{ddlLog}},
			[]string{"table d7"}, nil},
		{"a table that was not", nil, present, ddlLog, []string{"table d7"}, Committed{}, nil, nil},
		{"a table that was not, and an account's salt with its name", nil, present, ddlLog, []string{"table d7"},
			Committed{Statements: []string{"CREATE USER 'v1_1'@'%' IDENTIFIED WITH 'caching_sha2_password' AS '$A$005$q+d7)x'"}},
			nil, nil},
		{"a row that was written", []string{"table d7"}, present, "INSERT INTO d7 VALUES (1, 1)", []string{"row d7"},
			Committed{Rows: map[string][]LoggedRow{"d7": {{1, []string{"1", "1"}}}}}, []string{"table d7", "row d7"}, nil},
		{"an account", nil, present, "CREATE USER v1_7 IDENTIFIED BY 'v1_7'", []string{"user v1_7"},
			Committed{Statements: []string{"CREATE USER 'v1_7'@'%' IDENTIFIED WITH 'caching_sha2_password' AS '$A$005$x'"}},
			[]string{"user v1_7"}, nil},
		{"a drop of what was missing, before", []string{"table d7"}, absent, "DROP TABLE d7", []string{"table d7", "row d7"},
			Committed{Statements: []string{"DROP TABLE IF EXISTS `d7` /* generated by server */", ddlLog}}, []string{"table d7"},
			nil},

		{"a table that the log has and no node", nil, present, ddlLog, []string{"table d7"},
			Committed{Statements: []string{ddlLog}}, nil, []Kind{Lost}},
		{"a table that the log has not", nil, present, ddlLog, []string{"table d7"},
			Committed{Statements: []string{"CREATE TABLE d70 (id INT)"}}, []string{"table d7"}, []Kind{Resurrected}},
		{"a row that the log has and no node", []string{"table d7"}, present, "INSERT INTO d7 VALUES (1, 1)",
			[]string{"row d7"}, Committed{Rows: map[string][]LoggedRow{"d7": {{1, []string{"1", "1"}}}}}, []string{"table d7"},
			[]Kind{Lost}},
		{"a row of a procedure", nil, present, "CALL op3(3)", []string{"row call 3"},
			Committed{Rows: map[string][]LoggedRow{"object_rows": {{1, []string{"3", "call", "4"}}}}}, nil, []Kind{Lost}},
		{"an account that appliers left out", nil, present, "CREATE USER v1_7 IDENTIFIED BY 'v1_7'", []string{"user v1_7"},
			Committed{Statements: []string{"CREATE USER 'v1_7'@'%' IDENTIFIED WITH 'caching_sha2_password' AS '$A$005$x'"}}, nil,
			[]Kind{Lost}},
		{"a grant that appliers left out", []string{"user v1_7"}, present, "GRANT SELECT ON db.* TO v1_7",
			[]string{"grant v1_7"}, Committed{Statements: []string{"GRANT SELECT ON `db`.* TO 'v1_7'@'%'"}},
			[]string{"user v1_7"}, []Kind{Lost}},
		{"accounts that were dropped, and are there", []string{"user v1_7", "user v1_7_2"}, absent, "DROP USER v1_7, v1_7_2",
			[]string{"user v1_7", "user v1_7_2"}, Committed{Statements: []string{"DROP USER 'v1_7'@'%','v1_7_2'@'%'"}},
			[]string{"user v1_7", "user v1_7_2"}, []Kind{Resurrected}},
		{"a global privilege, another one being in the log", []string{"user v1_7"}, present, "GRANT PROCESS ON *.* TO v1_7",
			[]string{"global v1_7"}, Committed{Statements: []string{"GRANT SELECT ON `db`.* TO 'v1_7'@'%'"}},
			[]string{"user v1_7"}, nil},
		{"a global privilege that appliers left out", []string{"user v1_7"}, present, "GRANT PROCESS ON *.* TO v1_7",
			[]string{"global v1_7"}, Committed{Statements: []string{"GRANT PROCESS ON *.* TO 'v1_7'@'%'"}},
			[]string{"user v1_7"}, []Kind{Lost}},
		{"a role that was taken back, and is there", []string{"user v1_7", "granted v1_7_r v1_7"}, absent,
			"REVOKE v1_7_r FROM v1_7", []string{"granted v1_7_r v1_7"},
			Committed{Statements: []string{"REVOKE 'v1_7_r'@'%' FROM 'v1_7'@'%'"}}, []string{"user v1_7", "granted v1_7_r v1_7"},
			[]Kind{Resurrected}},
		{"a view", nil, present, "CREATE VIEW ov3 AS SELECT 1", []string{"view ov3"},
			Committed{Statements: []string{"CREATE ALGORITHM=UNDEFINED DEFINER=`u`@`%` SQL SECURITY DEFINER VIEW `ov3` AS SELECT 1"}}, nil, []Kind{Lost}},
	} {
		m := newMixedPart(&Set{}, kindDDL)
		for _, o := range c.made {
			m.objects[o] = present
		}
		m.attempt(c.after, c.text, c.object...)(Unknown)
		v := mixedView{Objects: map[string]bool{}}
		for _, o := range c.held {
			v.Objects[o] = true
		}
		nodes := map[string]mixedView{"n1": v}
		if got := m.problems(nodes); len(got) > 0 {
			t.Errorf("%s, without the log: %v", c.name, got)
		}
		if got, n := m.judgeViews(nodes, &c.log); !slices.Equal(kinds(got), c.want) || n == 0 {
			t.Errorf("%s: %v, %d looked up, want %q", c.name, got, n, c.want)
		}
	}
}

// TestResolveXA: what was not answered of an XA transaction stands in the log.
func TestResolveXA(t *testing.T) {
	for _, c := range []struct {
		name    string
		x       xaState
		log     []string
		row     bool
		want    []Kind
		without []Kind
	}{
		{"as answered", xaState{Prepared: Acked, Commit: true, Resolved: true, Tried: true},
			[]string{XAPrepared, XACommitted}, true, nil, nil},
		{"prepared without an answer, committed", xaState{Prepared: Unknown, Commit: true, Resolved: true, Tried: true},
			[]string{XAPrepared, XACommitted}, true, nil, nil},
		{"not prepared", xaState{Prepared: Unknown, Commit: true}, nil, false, nil, nil},
		{"rolled back without an answer", xaState{Prepared: Acked, Tried: true}, []string{XAPrepared, XARolledBack}, false,
			nil, nil},

		{"committed in the log, no row", xaState{Prepared: Unknown, Commit: true, Tried: true},
			[]string{XAPrepared, XACommitted}, false, []Kind{Lost}, nil},
		{"prepared in the log, and no node holds it", xaState{Prepared: Unknown, Commit: true}, []string{XAPrepared}, false,
			[]Kind{Lost}, nil},
		{"prepared in the log, to be rolled back, and no node holds it", xaState{Prepared: Unknown}, []string{XAPrepared},
			false, []Kind{Lost}, nil},
		{"a row of what was never prepared", xaState{Prepared: Unknown, Commit: true}, nil, true, []Kind{Resurrected}, nil},
		{"an answered prepare that is not in the log", xaState{Prepared: Acked, Tried: true}, []string{XARolledBack}, false,
			[]Kind{Lost}, nil},
		{"an answered decision that is not in the log", xaState{Prepared: Acked, Resolved: true, Tried: true},
			[]string{XAPrepared}, false, []Kind{Lost}, nil},
		{"another decision", xaState{Prepared: Acked, Tried: true}, []string{XAPrepared, XACommitted}, false, []Kind{Broken},
			nil},
	} {
		m := newMixedPart(&Set{}, kindXA)
		m.xa["x1"] = &c.x
		nodes := map[string]mixedView{"n1": {XARows: map[string]bool{"x1": c.row}}}
		if got := m.problems(nodes); !slices.Equal(kinds(got), c.without) {
			t.Errorf("%s, without the log: %v", c.name, got)
		}
		if got, _ := m.judgeViews(nodes, &Committed{XA: map[string][]string{"x1": c.log}}); !slices.Equal(kinds(got), c.want) {
			t.Errorf("%s: %v, want %q", c.name, got, c.want)
		}
	}
}
