package check

import (
	"context"
	"strings"
)

// accountTables are the tables of accounts and rights. MySQL does not lock them for a reader, so they are compared
// whole. Left out are the accounts of Trireme and of the server itself, which each node makes with a salt of its own,
// and times, which say when a node did so.
var accountTables = map[string]string{
	"user": "User", "db": "User", "tables_priv": "User", "columns_priv": "User", "procs_priv": "User",
	"proxies_priv": "User", "role_edges": "TO_USER", "default_roles": "USER", "global_grants": "USER",
	"password_history": "User",
}

// accountTables reads their columns.
func (n *node) accountTables(ctx context.Context) ([]*table, error) {
	rows, err := n.rows(ctx, readLimit,
		"SELECT TABLE_NAME AS t, COLUMN_NAME AS name, DATA_TYPE AS type, IS_NULLABLE AS n FROM information_schema.COLUMNS"+
			" WHERE TABLE_SCHEMA = 'mysql' AND TABLE_NAME IN ('user','db','tables_priv','columns_priv','procs_priv','proxies_priv','role_edges','default_roles','global_grants',"+
			"'password_history') ORDER BY TABLE_NAME, ORDINAL_POSITION")
	if err != nil {
		return nil, err
	}
	var out []*table
	for _, r := range rows {
		if len(out) == 0 || out[len(out)-1].name != r["t"] {
			who := accountTables[r["t"]]
			out = append(out, &table{schema: "mysql", name: r["t"], keyless: "accounts cannot be locked",
				where: who + ` NOT LIKE 'trireme\\_%' AND ` + who + " NOT LIKE 'mysql.%' AND " + who + " <> 'root'"})
		}
		t := out[len(out)-1]
		kind := strings.ToLower(r["type"])
		if kind == "timestamp" {
			continue
		}
		t.columns = append(t.columns, column{name: r["name"], dataType: kind, nullable: r["n"] == "YES"})
		t.definition += r["name"] + "\n"
	}
	return out, nil
}
