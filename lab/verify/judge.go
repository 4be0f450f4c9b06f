package verify

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Rows is what one node holds of a workload: for each table, how often each attempt's row is there.
type Rows []map[Attempt]int

// MarshalJSON has "TABLE WRITER/SEQ": how often.
func (r Rows) MarshalJSON() ([]byte, error) {
	out := map[string]int{}
	for t, table := range r {
		for a, n := range table {
			out[fmt.Sprintf("%d %d/%d", t, a.Writer, a.Seq)] = n
		}
	}
	return json.Marshal(out)
}

// Kind of a broken promise.
type Kind string

const (
	// Lost: acknowledged and not there.
	Lost Kind = "acknowledged write lost"
	// Doubled: there more than once.
	Doubled Kind = "write applied twice"
	// Torn: a transaction of which some tables have the row and others do not.
	Torn Kind = "transaction torn"
	// Resurrected: refused, or never attempted, and there all the same.
	Resurrected Kind = "write that was never committed exists"
	// Diverged: nodes disagree.
	Diverged Kind = "nodes differ"
	// Broken: an invariant of the data does not hold (transfers, objects, XA).
	Broken Kind = "invariant broken"
	// Garbled: a row holds what no client can have written.
	Garbled Kind = "garbled row"
)

// Problem is one broken promise.
type Problem struct {
	Kind    Kind    `json:"kind"`
	Node    string  `json:"node,omitempty"`
	Detail  string  `json:"detail"`
	Attempt Attempt `json:"attempt,omitzero"` // the write that it is about, if it is about one
}

func (p Problem) String() string {
	if p.Node == "" {
		return fmt.Sprintf("%s: %s", p.Kind, p.Detail)
	}
	return fmt.Sprintf("%s on %s: %s", p.Kind, p.Node, p.Detail)
}

// Shape of the workload that a log belongs to.
type Shape struct {
	Tables, PairEvery int
}

// JudgeRows compares a client's log with the rows of every node. The cluster must be at rest.
func JudgeRows(log *Log, shape Shape, nodes map[string]Rows) []Problem {
	var problems []Problem
	var current Attempt
	report := func(k Kind, node, format string, args ...any) {
		problems = append(problems, Problem{k, node, fmt.Sprintf(format, args...), current})
	}
	names := slices.Sorted(maps.Keys(nodes))
	log.Each(func(a Attempt, o Outcome) {
		current = a
		tables := tablesOf(a, shape.Tables, shape.PairEvery)
		var having []string
		for _, name := range names {
			found := 0
			for _, t := range tables {
				switch n := nodes[name][t][a]; {
				case n > 1:
					report(Doubled, name, "writer %d seq %d (%s): %d rows in %s", a.Writer, a.Seq, o, n, tableName(t))
					found++
				case n == 1:
					found++
				}
			}
			switch {
			case found > 0 && found < len(tables):
				report(Torn, name, "writer %d seq %d (%s): in %d of %d tables", a.Writer, a.Seq, o, found, len(tables))
			case found == 0 && o == Acked:
				report(Lost, name, "writer %d seq %d", a.Writer, a.Seq)
			case found > 0 && o == Failed:
				report(Resurrected, name, "writer %d seq %d was refused", a.Writer, a.Seq)
			}
			if found > 0 {
				having = append(having, name)
			}
		}
		if len(having) > 0 && len(having) < len(names) {
			report(Diverged, "", "writer %d seq %d (%s) exists on %s only", a.Writer, a.Seq, o, strings.Join(having, ", "))
		}
	})
	for _, name := range names {
		problems = append(problems, strangers(log, shape, name, nodes[name])...)
	}
	return problems
}

// JudgePayloads reports the rows of each node that do not hold what their client wrote.
func JudgePayloads(nodes map[string][]WrongRow) []Problem {
	var found findings
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		for _, w := range nodes[name] {
			found.report(Garbled, name, w.Attempt, "writer %d seq %d in %s holds %q", w.Writer, w.Seq, tableName(w.Table),
				w.Payload)
		}
	}
	return found.all()
}

// apart are counts and wrong rows by node.
func apart(all map[string]held) (map[string]Rows, map[string][]WrongRow) {
	rows, wrong := map[string]Rows{}, map[string][]WrongRow{}
	for name, h := range all {
		rows[name] = h.Rows
		if len(h.wrong) > 0 {
			wrong[name] = h.wrong
		}
	}
	return rows, wrong
}

// strangers finds rows that no attempt explains: of an attempt never made, or in a table that it does not write to.
func strangers(log *Log, shape Shape, node string, rows Rows) []Problem {
	var problems []Problem
	for t, table := range rows {
		for a, n := range table {
			if n == 0 {
				continue
			}
			if _, ok := log.Outcome(a); !ok || !slices.Contains(tablesOf(a, shape.Tables, shape.PairEvery), t) {
				problems = append(problems, Problem{Resurrected, node,
					fmt.Sprintf("writer %d seq %d in %s was never attempted", a.Writer, a.Seq, tableName(t)), a})
			}
		}
	}
	return problems
}

// JudgeEqual finds nodes whose value differs from the first node's, by name: checksums, GTID sets, lists of objects.
// values: node -> item -> value.
func JudgeEqual(what string, values map[string]map[string]string) []Problem {
	var problems []Problem
	names := slices.Sorted(maps.Keys(values))
	if len(names) < 2 {
		return nil
	}
	items := map[string]bool{}
	for _, v := range values {
		for item := range v {
			items[item] = true
		}
	}
	for _, item := range slices.Sorted(maps.Keys(items)) {
		want, wantOK := values[names[0]][item]
		for _, name := range names[1:] {
			got, ok := values[name][item]
			if ok == wantOK && got == want {
				continue
			}
			problems = append(problems, Problem{Kind: Diverged, Node: name, Detail: fmt.Sprintf("%s of %s: %s, on %s: %s",
				what, item, orAbsent(got, ok), names[0], orAbsent(want, wantOK))})
		}
	}
	return problems
}

func orAbsent(s string, ok bool) string {
	if !ok {
		return "absent"
	}
	return s
}
