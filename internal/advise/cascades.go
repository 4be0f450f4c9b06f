package advise

import (
	"fmt"
	"slices"
	"strings"
)

// nativeForeignKeys is the server's setting; servers before 9.6 have none, and do as with ON.
const nativeForeignKeys = "innodb_native_foreign_keys"

// cascades names the tables whose cascades the leader may write so that no follower can apply them (docs/mysql.md).
func cascades(f Facts) []Finding {
	if len(f.Nodes) == 0 || f.Nodes[0].Settings[nativeForeignKeys] != "OFF" {
		return nil
	}
	below := map[string][]string{}
	for _, t := range f.Tables {
		below[t.Name] = t.Cascades
	}
	var out []Finding
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

// cycle is a shortest way from a table along below back to it, both ends included; nil: there is none.
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
