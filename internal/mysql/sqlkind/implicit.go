package sqlkind

import "bytes"

// CommitsImplicitly reports whether a statement, by its first words, commits the transaction that is open before it, as
// mysqld's manual lists them. It does not allocate.
func CommitsImplicitly(sql []byte) bool {
	s := scanner{src: sql}
	t := s.next()
	switch {
	case t.is("CREATE"), t.is("DROP"):
		return !s.next().is("TEMPORARY")
	case t.is("SET"):
		return s.next().is("PASSWORD")
	case t.is("LOAD"), t.is("CACHE"):
		return s.next().is("INDEX")
	}
	return t.among(committing[:]...)
}

var committing = [...]string{"ALTER", "RENAME", "TRUNCATE", "GRANT", "REVOKE", "BEGIN", "START", "LOCK", "ANALYZE",
	"CHECK", "OPTIMIZE", "REPAIR", "FLUSH", "RESET", "INSTALL", "UNINSTALL", "IMPORT"}

// DropsSchema reports whether one of the statements in a text is DROP DATABASE of a schema, whose name is written as
// there. It does not allocate.
func DropsSchema(sql, schema []byte) bool {
	s := scanner{src: sql}
	for t := s.next(); t.kind != tokenEnd; {
		if t.is("DROP") {
			if t = s.next(); t.is("DATABASE") || t.is("SCHEMA") {
				if t = s.next(); t.is("IF") {
					s.next()
					t = s.next()
				}
				if t.kind != tokenOther && bytes.Equal(t.text, schema) {
					return true
				}
			}
		}
		for t.kind != tokenEnd && !t.op(';') {
			t = s.next()
		}
		if t.op(';') {
			t = s.next()
		}
	}
	return false
}
