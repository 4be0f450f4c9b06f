package advise

import (
	"slices"
	"strings"
	"testing"
)

// TestSessionDependent: a table whose stored values, indexes or constraints depend on the session is named, with each
// of them.
func TestSessionDependent(t *testing.T) {
	tables := []Table{
		{Name: "d.plain", Expressions: []Expression{{"the column a", "(`x` DIV 3)"},
			{"the column b", "concat(`a/b`,_utf8mb4'1/2',_utf8mb4'it\\'s /')"}}},
		{Name: "d.divides", Expressions: []Expression{{"the index k", "(`a` / 3)"},
			{"the column s", "concat(_utf8mb4'x',(`a` / `b`))"}, {"the column u", "concat(`aes_decrypt(`)"}}},
		{Name: "d.checks", Expressions: []Expression{{"the constraint c", "(`a` = (`b` / 3))"}}},
		{Name: "d.encrypts", Expressions: []Expression{{"the column e", "aes_encrypt(`aes_decrypt(`,_utf8mb4'/')"}}},
	}
	var got []string
	for _, f := range Judge(Facts{Tables: tables}) {
		if f.Code == SessionDependent {
			got = append(got, f.Where)
			if f.Where == "d.divides" &&
				!strings.HasPrefix(f.What, "the column s, the index k: the value depends on div_precision_increment of") {
				t.Error(f.What)
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"d.checks", "d.divides", "d.encrypts"}) {
		t.Errorf("%v", got)
	}
}
