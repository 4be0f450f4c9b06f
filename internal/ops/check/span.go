package check

import (
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// span is a range of a table: the rows after one key, up to and with another. A nil key is an open end.
type span struct {
	t        *table
	from, to []string // as column.fetched reads them
}

// condition selects the rows of the span. Comparing rows, (a,b) > (1,2), would not use the index.
func (s span) condition() string {
	var all []string
	if s.t.where != "" {
		all = append(all, "("+s.t.where+")")
	}
	if s.from != nil {
		all = append(all, s.t.first(">=", s.from), "("+s.t.beyond(">", s.from, false)+")")
	}
	if s.to != nil {
		all = append(all, s.t.first("<=", s.to), "("+s.t.beyond("<", s.to, true)+")")
	}
	if all == nil {
		return ""
	}
	return " WHERE " + strings.Join(all, " AND ")
}

// first is a condition on the first column alone, which the optimizer takes for sure.
func (t *table) first(op string, key []string) string {
	return quoteName(t.key[0].name) + " " + op + " " + t.key[0].literal(key[0])
}

// beyond is a condition on all columns: a > 1 OR (a = 1 AND b > 2), and with equal also the key itself.
func (t *table) beyond(op string, key []string, equal bool) string {
	var alternatives []string
	prefix := ""
	for i, c := range t.key {
		name, value := quoteName(c.name), c.literal(key[i])
		last := i == len(t.key)-1
		o := op
		if last && equal {
			o += "="
		}
		alternatives = append(alternatives, "("+prefix+name+" "+o+" "+value+")")
		prefix += name + " = " + value + " AND "
	}
	return strings.Join(alternatives, " OR ")
}

// exactly selects the row with a key.
func (t *table) exactly(key []string) string {
	var all []string
	for i, c := range t.key {
		all = append(all, quoteName(c.name)+" = "+c.literal(key[i]))
	}
	return " WHERE " + strings.Join(all, " AND ")
}

// order sorts along the key.
func (t *table) order() string {
	var names []string
	for _, c := range t.key {
		names = append(names, quoteName(c.name))
	}
	return " ORDER BY " + strings.Join(names, ", ")
}

// keyColumns reads the key, as k0, k1, …
func (t *table) keyColumns() string {
	var out []string
	for _, c := range t.key {
		out = append(out, c.fetched())
	}
	return strings.Join(out, ", ")
}

// sumQuery hashes the span: the number of rows and the hashes of all of them. Without a key rows may be the same twice,
// which XOR would not see: those are added up, in two halves of 64 bits.
func (s span) sumQuery() string {
	if s.t.key != nil {
		return "SELECT COUNT(*), COALESCE(HEX(BIT_XOR(" + s.t.hash() + ")), '')" + s.t.from() + s.condition()
	}
	half := func(at string) string {
		return "COALESCE(SUM(CAST(CONV(HEX(SUBSTR(" + s.t.hash() + "," + at + ",8)),16,10) AS UNSIGNED)),0)"
	}
	return "SELECT COUNT(*), CONCAT(" + half("1") + ",'/'," + half("9") + ")" + s.t.from() + s.condition()
}

// rowsQuery reads key and hash of every row.
func (s span) rowsQuery() string {
	return "SELECT HEX(" + s.t.hash() + "), " + s.t.keyColumns() + s.t.from() + s.condition()
}

// boundQuery reads the key of the last of so many rows of a span.
func (s span) boundQuery(offset string) string {
	return "SELECT " + s.t.keyColumns() + s.t.from() + s.condition() + s.t.order() + " LIMIT 1 OFFSET " + offset
}

func fromHex(s string) ([]byte, error) { return hex.DecodeString(s) }

func printable(b []byte) bool {
	return utf8.Valid(b) && strings.IndexFunc(string(b), func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

func asciiOnly(b []byte) bool {
	return printable(b) && strings.IndexFunc(string(b), func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}
