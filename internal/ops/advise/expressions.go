package advise

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// An Expression is computed again by a follower's applier, with session variables of its own.
type Expression struct {
	What string // "the column a", "the constraint c"
	Text string // as the dictionary has it
}

// expressions reads those of stored or indexed generated columns, functional indexes and CHECK constraints.
func (s *server) expressions(ctx context.Context, f *Facts) error {
	by := f.byName()
	for _, q := range []string{
		"SELECT CONCAT(c.TABLE_SCHEMA, '.', c.TABLE_NAME) AS t, CONCAT('the column ', c.COLUMN_NAME) AS what, c.GENERATION_EXPRESSION AS x" +
			" FROM information_schema.COLUMNS c WHERE c.TABLE_SCHEMA NOT IN " + systemSchemas +
			" AND (c.EXTRA LIKE '%STORED GENERATED%' OR c.EXTRA LIKE '%VIRTUAL GENERATED%' AND c.COLUMN_KEY <> '')",
		"SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) AS t, CONCAT('the index ', INDEX_NAME) AS what, EXPRESSION AS x" +
			" FROM information_schema.STATISTICS WHERE EXPRESSION IS NOT NULL AND TABLE_SCHEMA NOT IN " + systemSchemas,
		"SELECT CONCAT(c.CONSTRAINT_SCHEMA, '.', t.TABLE_NAME) AS t, CONCAT('the constraint ', c.CONSTRAINT_NAME) AS what, c.CHECK_CLAUSE AS x" +
			" FROM information_schema.CHECK_CONSTRAINTS c JOIN information_schema.TABLE_CONSTRAINTS t USING (CONSTRAINT_SCHEMA, CONSTRAINT_NAME)" +
			" WHERE t.CONSTRAINT_TYPE = 'CHECK' AND t.ENFORCED = 'YES' AND c.CONSTRAINT_SCHEMA NOT IN " + systemSchemas,
	} {
		rows, err := s.rows(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if t := by[r["t"]]; t != nil {
				t.Expressions = append(t.Expressions, Expression{r["what"], r["x"]})
			}
		}
	}
	return nil
}

// sessions names the tables with expressions whose value depends on a session variable that the binary log does not
// carry (docs/mysql.md).
func sessions(f Facts) []Finding {
	var out []Finding
	for _, t := range f.Tables {
		var named, variables []string
		for _, x := range t.Expressions {
			if v := dependsOn(x.Text); len(v) > 0 {
				named, variables = append(named, x.What), append(variables, v...)
			}
		}
		if len(named) == 0 {
			continue
		}
		out = append(out, Finding{SessionDependent, Info, t.Name, fmt.Sprintf("%s: the value depends on %s of the session",
			list(named), list(variables)),
			"where a session sets that, a follower computes another value and no error tells, or it stops with error 3819 at a constraint",
			"leave it alone in sessions; or divide with ROUND(a / b, 2), to no more digits than every setting gives, and encrypt in the application; " +
				"`trireme check` finds values that differ"})
	}
	return out
}

// list sorts words, each once.
func list(words []string) string {
	slices.Sort(words)
	return strings.Join(slices.Compact(words), ", ")
}

// dependsOn gives the session variables on which an expression depends, and which the binary log does not carry. Names
// and texts in it do not count.
func dependsOn(expression string) (variables []string) {
	code := strings.ToLower(unquoted(expression))
	if strings.Contains(code, "/") {
		variables = append(variables, "div_precision_increment")
	}
	if strings.Contains(code, "aes_encrypt(") || strings.Contains(code, "aes_decrypt(") {
		variables = append(variables, "block_encryption_mode")
	}
	return variables
}

// unquoted is an expression without what is in quotes.
func unquoted(expression string) string {
	var out strings.Builder
	quote := byte(0)
	for i := 0; i < len(expression); i++ {
		switch c := expression[i]; {
		case quote != 0 && c == '\\' && quote != '`':
			i++
		case c == quote:
			quote = 0
		case quote != 0:
		case c == '\'' || c == '"' || c == '`':
			quote = c
		default:
			out.WriteByte(c)
		}
	}
	return out.String()
}
