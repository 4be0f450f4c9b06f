package verify

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// Vanished: a row that a node had shown was not there later.
	Vanished Kind = "row that was shown vanished"
	// Disorder: a row was shown without an earlier one of the same session.
	Disorder Kind = "rows shown out of order"
)

// views is what is known while one view after the other is judged.
type views struct {
	findings
	part   Part
	writes map[Attempt]SeenWrite
	nodes  map[string]*nodeViews
	ever   map[Attempt]string // all rows that were shown, and by which node first
}

// nodeViews is what one node has shown so far.
type nodeViews struct {
	shown map[Attempt]string // rows as of its last view, and the life of its mysqld that showed them
	late  map[Attempt]bool   // not shown, although a later one of the same writer was
}

// JudgeViews checks what nodes showed of the rows of writers, each of which wrote one after the other.
//
//   - A row that any node showed is there at the end, on all nodes.
//   - One life of a mysqld never shows less than it has shown. A later life may lag for a time; that is counted.
//   - A node that shows a row shows all rows whose commit its writer had been told before it wrote that row. A row
//     without an answer may appear later; that is counted.
//   - Nothing is shown that was refused, or not attempted yet, or twice.
//
// Views of one node must be in the order in which they were made.
func JudgeViews(writes []SeenWrite, all []View, held map[string]Rows) Part {
	v := &views{part: Part{Figures: map[string]int64{"views": int64(len(all))}}, writes: map[Attempt]SeenWrite{},
		nodes: map[string]*nodeViews{}, ever: map[Attempt]string{}}
	for _, w := range writes {
		v.writes[Attempt{w.Client, w.Seq}] = w
	}
	for _, view := range all {
		if v.nodes[view.Node] == nil {
			v.nodes[view.Node] = &nodeViews{map[Attempt]string{}, map[Attempt]bool{}}
		}
		for writer, w := range view.Writers {
			v.judge(view, writer, w)
		}
	}
	v.judgeEnd(held)
	v.part.Problems = v.all()
	return v.part
}

func (v *views) report(k Kind, node string, a Attempt, format string, args ...any) {
	v.findings.report(k, node, a, fmt.Sprintf("writer %d seq %d: ", a.Writer, a.Seq)+format, args...)
}

// judge looks at what one view had of one writer.
func (v *views) judge(view View, writer int, w WriterView) {
	n, at := v.nodes[view.Node], time.Duration(view.Begin)
	for _, seq := range w.Twice {
		v.report(Doubled, view.Node, Attempt{writer, seq}, "shown twice at %v", at)
	}
	for seq := w.From + 1; seq <= max(w.To, w.From+viewWindow); seq++ {
		a := Attempt{writer, seq}
		if _, missing := slices.BinarySearch(w.Missing, seq); missing || seq > w.To {
			v.judgeAbsent(view, a)
			if missing && v.writes[a].Outcome == Acked {
				v.report(Disorder, view.Node, a, "acknowledged, and not shown at %v, but seq %d was", at, w.To)
			}
			n.late[a] = missing
			continue
		}
		switch wrote, ok := v.writes[a]; {
		case !ok || wrote.Begin > view.End:
			v.report(Resurrected, view.Node, a, "shown at %v, was not attempted", at)
		case wrote.Outcome == Failed:
			v.report(Resurrected, view.Node, a, "shown at %v, was refused", at)
		}
		if n.late[a] {
			v.part.Figures["rows without an answer that came late"]++
			n.late[a] = false
		}
		n.shown[a] = view.Server
		if _, known := v.ever[a]; !known {
			v.ever[a] = view.Node
		}
	}
}

// judgeAbsent looks at a row that is not in a view, whether the node has shown it before.
func (v *views) judgeAbsent(view View, a Attempt) {
	n := v.nodes[view.Node]
	server, was := n.shown[a]
	switch {
	case !was:
		return
	case server == view.Server:
		v.report(Vanished, view.Node, a, "shown before and not at %v, by the same mysqld", time.Duration(view.Begin))
	default:
		v.part.Figures["rows that a restarted mysqld did not show at once"]++
	}
	delete(n.shown, a)
}

// judgeEnd compares all that was ever shown, and what clients were told, with what the nodes hold.
func (v *views) judgeEnd(held map[string]Rows) {
	v.part.Figures["rows shown"] = int64(len(v.ever))
	for _, node := range slices.Sorted(maps.Keys(held)) {
		rows := held[node][0]
		for _, a := range sortedAttempts(v.ever) {
			if rows[a] == 0 {
				v.report(Vanished, node, a, "shown by %s, not there at the end", orName(v.ever[a]))
			}
		}
		for _, a := range sortedAttempts(v.writes) {
			if v.writes[a].Outcome == Acked && rows[a] == 0 {
				v.report(Lost, node, a, "not there at the end")
			}
		}
		for _, a := range sortedAttempts(rows) {
			if w, ok := v.writes[a]; !ok || w.Outcome == Failed {
				v.report(Resurrected, node, a, "there at the end")
			}
			if rows[a] > 1 {
				v.report(Doubled, node, a, "%d rows at the end", rows[a])
			}
		}
	}
}

// orName of a node; an empty name is the server at the read-write address.
func orName(node string) string {
	if node == "" {
		return "the leader"
	}
	return node
}

func sortedAttempts[T any](m map[Attempt]T) []Attempt {
	return slices.SortedFunc(maps.Keys(m), compareAttempts)
}
