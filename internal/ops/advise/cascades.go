package advise

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// nativeForeignKeys is the server's setting; servers before 9.6 have none, and do as with ON.
const nativeForeignKeys = "innodb_native_foreign_keys"

// cascades names the tables whose cascades the leader may write so that no follower can apply them (docs/mysql.md).
func cascades(f Facts) []Finding {
	out := append(deletedParents(f), unseenTriggers(f)...)
	if len(f.Nodes) == 0 || f.Nodes[0].Settings[nativeForeignKeys] != "OFF" {
		return out
	}
	below := map[string][]string{}
	for _, t := range f.Tables {
		below[t.Name] = t.Cascades
	}
	for _, t := range f.Tables {
		what := ""
		switch path := cycle(below, t.Name); {
		case len(path) > 0:
			what = "foreign keys with cascades lead from it back to it: " + strings.Join(path, ", ")
		case t.Triggers && len(t.Cascades) > 0:
			what = fmt.Sprintf("it has triggers, and changes of it cascade to %s", strings.Join(t.Cascades, ", "))
		default:
			continue
		}
		out = append(out, Finding{UnsafeCascade, Warn, t.Name, what,
			"with innodb_native_foreign_keys=OFF the leader may write events that stop every follower with error 1032 or 1452",
			"remove innodb_native_foreign_keys from mysql.options on all nodes and restart them (trireme restart), or drop the cascade"})
	}
	return out
}

// unseenTriggers says that what follows from triggers was not looked for: mysqld shows them only to who has the right.
func unseenTriggers(f Facts) []Finding {
	if !f.Blind || !slices.ContainsFunc(f.Tables, func(t Table) bool { return len(t.Cascades) > 0 }) {
		return nil
	}
	return []Finding{{UnsafeCascade, Info, "triggers",
		"the account may not see all triggers, so tables with cascades and triggers may be missing here",
		"the leader may write events that stop every follower with error 1032 or 1452",
		"GRANT TRIGGER ON *.* to the account"}}
}

// deletedParents names the tables with a trigger that deletes, before a row is deleted, the row's parent: its cascade
// deletes the row first, and the binary log has it twice.
func deletedParents(f Facts) (out []Finding) {
	by := f.byName()
	for _, parent := range f.Tables {
		for _, name := range parent.Cascades {
			child := by[name]
			if child == nil ||
				!slices.ContainsFunc(child.BeforeDelete, func(text string) bool { return deletes(text, parent.Name) }) {
				continue
			}
			out = append(out, Finding{UnsafeCascade, Warn, child.Name,
				fmt.Sprintf("a BEFORE DELETE trigger of it deletes from %s, which cascades back to it", parent.Name),
				"the leader may write events that stop every follower with error 1032; they are then copied from another node",
				"delete the parent in the application, not in a trigger of its child"})
		}
	}
	return out
}

// deletes reports whether a trigger's text may delete from a table, by its words.
func deletes(text, table string) bool {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '$'
	})
	_, bare, _ := strings.Cut(strings.ToLower(table), ".")
	return slices.Contains(words, "delete") && slices.Contains(words, bare)
}

// cycle returns a shortest path along below from a table back to itself, both ends included; nil if there is no cycle.
func cycle(below map[string][]string, from string) []string {
	seen := map[string]bool{}
	for ways := [][]string{{from}}; len(ways) > 0; ways = ways[1:] {
		for _, next := range below[ways[0][len(ways[0])-1]] {
			way := append(slices.Clone(ways[0]), next)
			if next == from {
				return way
			}
			if !seen[next] {
				seen[next] = true
				ways = append(ways, way)
			}
		}
	}
	return nil
}
