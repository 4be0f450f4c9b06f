package sqlkind

// CommitsImplicitly says whether a statement, by its first words, commits the transaction that is open before it, as mysqld's manual lists
// them. It does not allocate.
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
	for _, w := range [...]string{"ALTER", "RENAME", "TRUNCATE", "GRANT", "REVOKE", "BEGIN", "START", "LOCK", "ANALYZE", "CHECK", "OPTIMIZE", "REPAIR",
		"FLUSH", "RESET", "INSTALL", "UNINSTALL", "IMPORT"} {
		if t.is(w) {
			return true
		}
	}
	return false
}
