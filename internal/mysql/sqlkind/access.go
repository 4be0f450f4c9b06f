package sqlkind

// Access is what a statement needs of the server that runs it.
type Access uint8

const (
	// Write is whatever is not known to be one of the others: it needs the server that takes writes.
	Write Access = iota
	// Read changes nothing, locks nothing, and says the same on every server that has the same data.
	Read
	// ReadOnlyTransaction is START TRANSACTION READ ONLY, with or without a snapshot.
	ReadOnlyTransaction
	// Diagnosis asks for what the statement before it has left: SHOW WARNINGS, @@warning_count, FOUND_ROWS() and the
	// like. It belongs where that one ran.
	Diagnosis
)

// String gives the access's name in lower case.
func (a Access) String() string {
	return [...]string{"write", "read", "read-only-transaction", "diagnosis"}[a]
}

// AccessOf tells what the statement sql needs, by its tokens; noBackslash is the sql_mode NO_BACKSLASH_ESCAPES. It errs
// towards Write: several statements in one text, variables, calls of functions that are not known to be the server's
// own and harmless, locking reads, and whatever reads the server's own tables are Write. It does not allocate. What a
// view does it cannot see.
func AccessOf(sql []byte, noBackslash bool) Access {
	if misleads(sql) {
		return Write
	}
	s := accessScanner{scanner: scanner{src: sql, plainBackslash: noBackslash}}
	switch t := s.next(); {
	case t.is("SELECT"), t.is("TABLE"), t.is("VALUES"), t.is("WITH"), t.op('('):
		s.prev = t
		return s.query()
	case t.is("START"):
		return s.start()
	case t.is("SHOW"):
		return s.show()
	}
	return Write
}

// misleads: the second byte of a character can look like a backslash or a backtick in GBK, Big5 and SJIS.
func misleads(sql []byte) bool {
	for i := 1; i < len(sql); i++ {
		if (sql[i] == '\\' || sql[i] == '`') && sql[i-1] >= 0x80 {
			return true
		}
	}
	return false
}

type accessScanner struct {
	scanner
	prev token
	dot  bool // a dot stands before prev
	end  int  // of prev in the text
}

// query continues after the first word of a SELECT.
func (s *accessScanner) query() Access {
	found := Read
	for s.end = s.pos; ; s.end = s.pos {
		t := s.next()
		afterDot := s.prev.op('.')
		switch {
		case t.kind == tokenEnd:
			return found
		case t.op(';'):
			if s.next().kind != tokenEnd {
				return Write
			}
			return found
		case t.op('@'):
			if !s.countsMessages() {
				return Write
			}
			found, t = Diagnosis, token{kind: tokenNumber}
		case t.op('('):
			if !s.opens() {
				return Write
			}
		case (t.kind == tokenWord || t.kind == tokenName || t.quote == '"') && OwnSchema(t.text):
			return Write
		case t.kind != tokenWord || afterDot:
		case t.among(writing[:]...):
			return Write
		case t.is("FOUND_ROWS"), t.is("ROW_COUNT"):
			found = Diagnosis
		}
		s.dot, s.prev = afterDot, t
	}
}

// countsMessages continues after the first @ of a variable, and reports whether the variable is @@warning_count or
// @@error_count.
func (s *accessScanner) countsMessages() bool {
	if !s.takes('@') {
		return false
	}
	t := s.next()
	if t.is("SESSION") || t.is("LOCAL") {
		if !s.takes('.') {
			return false
		}
		t = s.next()
	}
	return t.is("WARNING_COUNT") || t.is("ERROR_COUNT")
}

// OwnSchema reports whether a schema holds what each server says of itself.
func OwnSchema(name []byte) bool {
	return token{kind: tokenWord, text: name}.among(ownSchemas[:]...)
}

var ownSchemas = [...]string{"INFORMATION_SCHEMA", "PERFORMANCE_SCHEMA", "MYSQL", "SYS"}

// UsedSchema returns the name after USE, if the statement is a USE statement.
func UsedSchema(sql []byte) []byte {
	s := scanner{src: sql}
	s.next()
	return s.next().text
}

// opens reports whether a parenthesis after prev is part of the syntax, or of a call that changes nothing.
func (s *accessScanner) opens() bool {
	switch s.prev.kind {
	case tokenOther:
		return s.prev.text[0] != '.'
	case tokenNumber:
		return false
	case tokenWord:
		if s.dot {
			return false
		}
		// A space in front of the parenthesis makes a call of a stored function of a call of some of the server's own.
		return s.prev.among(opening[:]...) || s.pos == s.end+1 && s.prev.among(functions[:]...)
	}
	return false
}

// start continues after START.
func (s *accessScanner) start() Access {
	if !s.next().is("TRANSACTION") {
		return Write
	}
	readOnly := false
	for {
		t := s.next()
		switch {
		case t.is("WITH"):
			if !s.next().is("CONSISTENT") || !s.next().is("SNAPSHOT") {
				return Write
			}
		case t.is("READ"):
			if !s.next().is("ONLY") {
				return Write
			}
			readOnly = true
		case t.op(','):
		case t.op(';') && s.next().kind != tokenEnd:
			return Write
		case t.kind == tokenEnd, t.op(';'):
			if readOnly {
				return ReadOnlyTransaction
			}
			return Write
		default:
			return Write
		}
	}
}

// show continues after SHOW.
func (s *accessScanner) show() Access {
	for range 5 { // COUNT ( * ) WARNINGS
		switch t := s.next(); {
		case t.is("WARNINGS"), t.is("ERRORS"):
			for t.kind != tokenEnd {
				if t = s.next(); t.op(';') {
					return Write
				}
			}
			return Diagnosis
		case t.is("COUNT"), t.op('('), t.op('*'), t.op(')'):
		default:
			return Write
		}
	}
	return Write
}

// writing are words that make a query need the server that takes writes.
var writing = [...]string{"INTO", "FOR", "LOCK", "UPDATE", "DELETE", "INSERT", "PROCEDURE", "SQL_CALC_FOUND_ROWS",
	"LAST_INSERT_ID"}

// opening are words after which a parenthesis calls nothing.
var opening = [...]string{
	"IN", "AS", "FROM", "JOIN", "WHERE", "AND", "OR", "NOT", "XOR", "ON", "USING", "BY", "HAVING", "SELECT", "DISTINCT",
	"ALL", "ANY", "SOME", "EXISTS", "UNION", "EXCEPT", "INTERSECT", "THEN", "ELSE", "WHEN", "CASE", "BETWEEN", "LIKE",
	"REGEXP", "RLIKE", "IS", "DIV", "MOD", "INTERVAL", "INDEX", "KEY", "PARTITION", "OVER", "LATERAL", "ROW", "VALUES",
	"LIMIT", "OFFSET", "AGAINST", "BINARY", "STRAIGHT_JOIN", "RECURSIVE", "CHAR", "DECIMAL", "VARCHAR", "DATETIME", "TIME",
}

// functions are the server's own that depend on nothing but their arguments, the data, the clock and the account.
var functions = [...]string{
	"COUNT", "SUM", "MIN", "MAX", "AVG", "GROUP_CONCAT", "STD", "STDDEV", "STDDEV_POP", "STDDEV_SAMP", "VARIANCE",
	"VAR_POP", "VAR_SAMP", "BIT_AND", "BIT_OR", "BIT_XOR", "JSON_ARRAYAGG", "JSON_OBJECTAGG", "ANY_VALUE", "GROUPING",
	"ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST", "NTILE", "LAG", "LEAD", "FIRST_VALUE", "LAST_VALUE",
	"NTH_VALUE", "COALESCE", "IFNULL", "NULLIF", "IF", "ISNULL", "GREATEST", "LEAST", "CAST", "CONVERT", "INTERVAL",
	"ABS", "CEIL", "CEILING", "FLOOR", "ROUND", "TRUNCATE", "SIGN", "SQRT", "POW", "POWER", "EXP", "LN", "LOG", "LOG2",
	"LOG10", "PI", "SIN", "COS", "TAN", "ASIN", "ACOS", "ATAN", "ATAN2", "COT", "DEGREES", "RADIANS", "RAND", "CRC32",
	"CONV", "BIN", "OCT", "HEX", "UNHEX", "BIT_COUNT", "FORMAT", "CONCAT", "CONCAT_WS", "LOWER", "UPPER", "LCASE", "UCASE",
	"LENGTH", "CHAR_LENGTH", "CHARACTER_LENGTH", "OCTET_LENGTH", "BIT_LENGTH", "SUBSTRING", "SUBSTR", "MID", "LEFT",
	"RIGHT", "LPAD", "RPAD", "TRIM", "LTRIM", "RTRIM", "REPLACE", "REPEAT", "REVERSE", "SPACE", "STRCMP", "LOCATE",
	"INSTR", "POSITION", "FIELD", "FIND_IN_SET", "ELT", "MAKE_SET", "EXPORT_SET", "ASCII", "ORD", "QUOTE", "SOUNDEX",
	"SUBSTRING_INDEX", "REGEXP_LIKE", "REGEXP_INSTR", "REGEXP_REPLACE", "REGEXP_SUBSTR", "MATCH", "TO_BASE64",
	"FROM_BASE64", "MD5", "SHA", "SHA1", "SHA2", "COMPRESS", "UNCOMPRESS", "INET_ATON", "INET_NTOA", "INET6_ATON",
	"INET6_NTOA", "UUID", "UUID_TO_BIN", "BIN_TO_UUID", "IS_UUID", "COLLATION", "CHARSET", "NOW", "CURDATE", "CURTIME",
	"CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "SYSDATE", "UTC_DATE", "UTC_TIME",
	"UTC_TIMESTAMP", "UNIX_TIMESTAMP", "FROM_UNIXTIME", "DATE", "TIMESTAMP", "YEAR", "QUARTER", "MONTH", "WEEK", "DAY",
	"HOUR", "MINUTE", "SECOND", "MICROSECOND", "DAYOFWEEK", "DAYOFMONTH", "DAYOFYEAR", "DAYNAME", "MONTHNAME", "WEEKDAY",
	"WEEKOFYEAR", "YEARWEEK", "LAST_DAY", "DATE_ADD", "DATE_SUB", "ADDDATE", "SUBDATE", "ADDTIME", "SUBTIME", "DATEDIFF",
	"TIMEDIFF", "TIMESTAMPADD", "TIMESTAMPDIFF", "DATE_FORMAT", "TIME_FORMAT", "STR_TO_DATE", "EXTRACT", "MAKEDATE",
	"MAKETIME", "PERIOD_ADD", "PERIOD_DIFF", "SEC_TO_TIME", "TIME_TO_SEC", "TO_DAYS", "FROM_DAYS", "TO_SECONDS",
	"CONVERT_TZ", "JSON_EXTRACT", "JSON_UNQUOTE", "JSON_QUOTE", "JSON_VALUE", "JSON_CONTAINS", "JSON_CONTAINS_PATH",
	"JSON_KEYS", "JSON_LENGTH", "JSON_DEPTH", "JSON_TYPE", "JSON_VALID", "JSON_ARRAY", "JSON_OBJECT", "JSON_SEARCH",
	"JSON_SET", "JSON_INSERT", "JSON_REPLACE", "JSON_REMOVE", "JSON_MERGE_PATCH", "JSON_MERGE_PRESERVE", "JSON_OVERLAPS",
	"JSON_PRETTY", "JSON_TABLE", "ST_ASTEXT", "ST_ASBINARY", "ST_ASGEOJSON", "ST_GEOMFROMTEXT", "ST_X", "ST_Y",
	"ST_DISTANCE", "ST_DISTANCE_SPHERE", "ST_CONTAINS", "ST_WITHIN", "ST_INTERSECTS", "POINT", "DATABASE", "SCHEMA",
	"USER", "CURRENT_USER", "SESSION_USER", "SYSTEM_USER", "FOUND_ROWS", "ROW_COUNT",
}
