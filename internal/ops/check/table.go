package check

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// column of a table.
type column struct {
	name      string
	dataType  string // DATA_TYPE, lower case
	charset   string // of strings
	collation string
	nullable  bool
	virtual   bool
}

// table is what a check needs to know of one.
type table struct {
	schema, name string
	columns      []column
	// unique, without NULL, whole columns that can be written as literals; nil: the table has no such key
	key        []column
	keyName    string
	keyless    string // why there is no key
	rows       uint64 // as the dictionary estimates them
	definition string // equal on nodes whose tables are defined alike
	where      string // which rows count; empty: all
}

// String is schema.table as messages name it.
func (t *table) String() string { return t.schema + "." + t.name }

func (t *table) quoted() string { return quoteName(t.schema) + "." + quoteName(t.name) }

func quoteName(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }

// schemas of the server itself. Of mysql, the tables of accounts are compared (accounts.go).
const systemSchemas = "('mysql','sys','information_schema','performance_schema')"

// tables reads the definitions of everything that the account sees on a node.
func (n *node) tables(ctx context.Context) (map[string]*table, error) {
	const base = " FROM information_schema.TABLES t JOIN information_schema.COLUMNS c USING (TABLE_SCHEMA, TABLE_NAME)" +
		" WHERE t.TABLE_TYPE = 'BASE TABLE' AND t.TABLE_SCHEMA NOT IN " + systemSchemas
	list, err := n.rows(ctx, readLimit,
		"SELECT TABLE_SCHEMA AS s, TABLE_NAME AS t, COALESCE(TABLE_ROWS, 0) AS r FROM information_schema.TABLES"+
			" WHERE TABLE_TYPE = 'BASE TABLE' AND TABLE_SCHEMA NOT IN "+systemSchemas)
	if err != nil {
		return nil, err
	}
	all := map[string]*table{}
	for _, r := range list {
		t := &table{schema: r["s"], name: r["t"]}
		t.rows, _ = strconv.ParseUint(r["r"], 10, 64) // an estimate
		all[t.String()] = t
	}
	columns, err := n.rows(ctx, readLimit,
		"SELECT TABLE_SCHEMA AS s, TABLE_NAME AS t, COLUMN_NAME AS name, DATA_TYPE AS type, COLUMN_TYPE AS full, IS_NULLABLE AS n,"+
			" CHARACTER_SET_NAME AS charset, COLLATION_NAME AS collation, EXTRA AS extra, GENERATION_EXPRESSION AS gen"+base+
			" ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION")
	if err != nil {
		return nil, err
	}
	for _, r := range columns {
		t := all[r["s"]+"."+r["t"]]
		if t == nil {
			continue // made in between
		}
		c := column{name: r["name"], dataType: strings.ToLower(r["type"]), charset: r["charset"], collation: r["collation"],
			nullable: r["n"] == "YES",
			virtual:  strings.Contains(r["extra"], "VIRTUAL GENERATED")}
		t.columns = append(t.columns, c)
		t.definition += strings.Join([]string{r["name"], r["full"], r["n"], r["charset"], r["collation"], r["extra"],
			r["gen"]}, "\x00") + "\n"
	}
	indexes, err := n.rows(ctx, readLimit,
		"SELECT TABLE_SCHEMA AS s, TABLE_NAME AS t, INDEX_NAME AS i, COLUMN_NAME AS name, SUB_PART AS part, IS_VISIBLE AS visible"+
			" FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0 AND TABLE_SCHEMA NOT IN "+systemSchemas+
			" ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX")
	if err != nil {
		return nil, err
	}
	for _, group := range byIndex(indexes) {
		if t := all[group[0]["s"]+"."+group[0]["t"]]; t != nil && t.key == nil {
			t.takeKey(group)
		}
	}
	for _, t := range all {
		if t.key == nil && t.keyless == "" {
			t.keyless = "it has no primary key"
		}
	}
	return all, nil
}

// byIndex cuts the rows of STATISTICS, which are sorted, to those of one index each.
func byIndex(rows []map[string]string) [][]map[string]string {
	var out [][]map[string]string
	for i, r := range rows {
		if i == 0 || r["s"] != rows[i-1]["s"] || r["t"] != rows[i-1]["t"] || r["i"] != rows[i-1]["i"] {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], r)
	}
	return out
}

// takeKey makes an index the key that the table is walked along, if it can be one.
func (t *table) takeKey(parts []map[string]string) {
	var key []column
	for _, p := range parts {
		i := slices.IndexFunc(t.columns, func(c column) bool { return c.name == p["name"] })
		switch {
		case p["visible"] != "YES" || i < 0 || t.columns[i].nullable || t.columns[i].virtual:
			return // not every row has its place in it, or it cannot be forced
		case p["part"] != "":
			t.keyless = "its key " + p["i"] + " holds only the beginnings of columns"
			return
		case !t.columns[i].comparable():
			t.keyless = "its key " + p["i"] + " has a column of type " + t.columns[i].dataType
			return
		}
		key = append(key, t.columns[i])
	}
	t.key, t.keyName, t.keyless = key, parts[0]["i"], ""
}

// hash is an expression: SHA-256 of all columns of a row, 32 bytes, never NULL. Every value is followed by a comma;
// none that is not of a known form has one inside, as strings have their length in front and long values are hashes.
// NULL is the letter N, which no value is.
func (t *table) hash() string {
	var parts []string
	for _, c := range t.columns {
		if !c.virtual {
			parts = append(parts, c.hashed())
		}
	}
	return "UNHEX(SHA2(CONCAT_WS(','," + strings.Join(parts, ",") + "),256))"
}

func (c column) hashed() string {
	e := c.form()
	if c.nullable {
		return "IFNULL(" + e + ",'N')"
	}
	return e
}

// form is a column as text that differs whenever the value does.
func (c column) form() string {
	q := quoteName(c.name)
	switch c.dataType {
	case "float", "double": // a FLOAT by itself shows six digits, DOUBLE(M,D) those of its definition
		return "CAST(" + q + " AS DOUBLE)"
	case "bit", "enum", "set":
		return "CAST(" + q + " AS UNSIGNED)"
	case "char", "varchar", "binary", "varbinary":
		return "CONCAT(LENGTH(" + q + "),':',CAST(" + q + " AS BINARY))"
	case "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year", "date", "time", "datetime", "timestamp":
		return "CAST(" + q + " AS CHAR)"
	}
	return "SHA2(" + q + ",256)" // of whatever length
}

// comparable: a value of the column can be written into a statement so that it is the same.
func (c column) comparable() bool {
	switch c.dataType {
	case "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year", "date", "time", "datetime", "timestamp",
		"enum", "set",
		"char", "varchar", "binary", "varbinary":
		return true
	}
	return false
}

// fetched is the expression by which a value of a key is read.
func (c column) fetched() string {
	q := quoteName(c.name)
	switch c.dataType {
	case "char", "varchar", "binary", "varbinary":
		return "HEX(CAST(" + q + " AS BINARY))"
	case "enum", "set":
		return "CAST(" + q + " AS UNSIGNED)"
	}
	return "CAST(" + q + " AS CHAR)"
}

// literal writes what fetched has read.
func (c column) literal(v string) string {
	switch c.dataType {
	case "char", "varchar":
		return "_" + c.charset + " X'" + v + "' COLLATE " + c.collation
	case "binary", "varbinary":
		return "X'" + v + "'"
	case "date", "time", "datetime", "timestamp":
		return "'" + v + "'"
	}
	return v
}

// shown is a value of a key as people read it.
func (c column) shown(v string) string {
	switch c.dataType {
	case "char", "varchar":
		if b, err := fromHex(v); err == nil && (asciiOnly(b) && !strings.HasPrefix(c.charset, "utf16") &&
			c.charset != "utf32" && c.charset != "ucs2" ||
			printable(b) && strings.HasPrefix(c.charset, "utf8")) {
			return "'" + string(b) + "'"
		}
		return "0x" + v
	case "binary", "varbinary":
		return "0x" + v
	case "date", "time", "datetime", "timestamp":
		return "'" + v + "'"
	}
	return v
}

// keyNames are the columns of the key as people read them.
func (t *table) keyNames() string {
	var names []string
	for _, c := range t.key {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

func (t *table) shown(key []string) string {
	if key == nil {
		return ""
	}
	var out []string
	for i, v := range key {
		out = append(out, t.key[i].shown(v))
	}
	return strings.Join(out, ", ")
}

// from is the FROM clause, along the key.
func (t *table) from() string {
	if t.key == nil {
		return " FROM " + t.quoted()
	}
	return fmt.Sprintf(" FROM %s FORCE INDEX (%s)", t.quoted(), quoteName(t.keyName))
}
