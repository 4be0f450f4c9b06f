package advise

import (
	"slices"
	"strings"
	"testing"
)

// TestSessionDependent: a table whose stored values or constraints divide is named, with all that does.
func TestSessionDependent(t *testing.T) {
	tables := []Table{
		{Name: "d.plain", Expressions: []Expression{{"the column a", "(`x` DIV 3)"}, {"the column b", "concat(`a/b`,_utf8mb4'1/2',_utf8mb4'it\\'s /')"}}},
		{Name: "d.divides", Expressions: []Expression{{"the index k", "(`a` / 3)"}, {"the column s", "concat(_utf8mb4'x',(`a` / `b`))"}, {"the column u", "`a`"}}},
		{Name: "d.checks", Expressions: []Expression{{"the constraint c", "(`a` = (`b` / 3))"}}},
	}
	var got []string
	for _, f := range Judge(Facts{Tables: tables}) {
		if f.Code == SessionDependent {
			got = append(got, f.Where)
			if f.Where == "d.divides" && !strings.Contains(f.What, "in the column s, the index k, and") {
				t.Error(f.What)
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"d.checks", "d.divides"}) {
		t.Errorf("%v", got)
	}
}
