package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Report is the verdict over one workload.
type Report struct {
	Counts       Counts   `json:"counts"`
	Nodes        []string `json:"nodes"`
	Tables       int      `json:"tables"`        // compared by checksum
	GTIDExecuted string   `json:"gtid_executed"` // common to all
	// Local are GTIDs that one node alone has executed outside of the log.
	Local    map[string]string `json:"local,omitempty"`
	Problems []Problem         `json:"problems"` // of all parts too
	Parts    []Part            `json:"parts,omitempty"`
	// Undecided names what a checker could not decide within its limits.
	Undecided []string `json:"undecided,omitempty"`
	// Unread: the log was not read whole, so what was not answered was not looked up in it, and why.
	Unread string `json:"unread,omitempty"`
}

// OK is true when no promise was broken, and every checker came to a verdict.
func (r Report) OK() bool { return len(r.Problems) == 0 && len(r.Undecided) == 0 }

// maxPrinted bounds how many problems String lists.
const maxPrinted = 20

func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d writes attempted: %d acknowledged, %d without an answer, %d refused", r.Counts.Attempts,
		r.Counts.Acked, r.Counts.Unknown, r.Counts.Failed)
	fmt.Fprintf(&b, "; %d tables and gtid_executed compared on %s", r.Tables, strings.Join(r.Nodes, ", "))
	for _, n := range slices.Sorted(maps.Keys(r.Local)) {
		fmt.Fprintf(&b, ", local to %s: %s", n, r.Local[n])
	}
	if r.OK() {
		b.WriteString(": every acknowledged write is there exactly once, all nodes are equal")
	} else {
		r.printProblems(&b)
	}
	if r.Unread != "" {
		b.WriteString("\n  nothing was looked up in the log: " + r.Unread)
	}
	for _, p := range r.Parts {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

func (r Report) printProblems(b *strings.Builder) {
	byKind := map[Kind]int{}
	for _, p := range r.Problems {
		byKind[p.Kind]++
	}
	fmt.Fprintf(b, ": %d PROBLEMS", len(r.Problems))
	for _, k := range slices.Sorted(maps.Keys(byKind)) {
		fmt.Fprintf(b, ", %d × %s", byKind[k], k)
	}
	for i, p := range r.Problems {
		if i == maxPrinted {
			fmt.Fprintf(b, "\n  … and %d more", len(r.Problems)-i)
			break
		}
		b.WriteString("\n  " + p.String())
	}
	for _, u := range r.Undecided {
		b.WriteString("\n  NOT DECIDED: " + u)
	}
}

// Compare finds differences between nodes at rest: table checksums, the definitions of tables, views, routines,
// triggers and events, accounts with all that they were granted, and prepared XA transactions. It returns how many
// tables were compared.
func Compare(ctx context.Context, nodes []Endpoint) ([]Problem, int, error) {
	sums, err := eachNode(ctx, nodes, Checksums)
	if err != nil {
		return nil, 0, err
	}
	problems := JudgeEqual("checksum", sums)
	defs, err := eachNode(ctx, nodes, Definitions)
	if err != nil {
		return problems, 0, err
	}
	problems = append(problems, JudgeEqual("definition", defs)...)
	accounts, err := eachNode(ctx, nodes, Accounts)
	if err != nil {
		return problems, 0, err
	}
	problems = append(problems, JudgeEqual("privileges", accounts)...)
	prepared, err := eachNode(ctx, nodes, preparedXIDs)
	if err != nil {
		return problems, 0, err
	}
	byXID := map[string]map[string]string{}
	for node, xids := range prepared {
		byXID[node] = map[string]string{}
		for _, x := range xids {
			byXID[node]["XA "+x] = "prepared"
		}
	}
	problems = append(problems, JudgeEqual("state", byXID)...)
	return problems, len(sums[nodes[0].Name]), nil
}
