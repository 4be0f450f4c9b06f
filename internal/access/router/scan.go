package router

import "strings"

// scanner reads the text of a statement, in as many parts as it comes, and looks for what it may leave in a session. It
// knows quotes, comments and words, and no grammar: in doubt, it reports that the session cannot be carried over. It
// does not see what a routine or a trigger does.
type scanner struct {
	noBackslash bool // \ is a letter like others between quotes (NO_BACKSLASH_ESCAPES)

	mode    scanMode
	quote   byte
	escaped bool
	prev    byte // byte before, in plain text
	dashes  int  // just read
	at      bool // one @ was just read
	sysvar  bool // two @ were just read
	dot     bool // a dot was just read: the next word is the second part of a name
	version bool // within /*!, which the server may pass over
	value   bool // SET: after a =, up to the next comma
	word    [16]byte
	n       int  // letters of the word that is being read; more than fit count, and are dropped
	ended   bool // nothing of a next statement has been read after a semicolon
	words   int  // of the present statement
	last    bool // the word before the present place is harmless before a parenthesis

	verb    verb
	several bool   // more than one statement
	reason  string // not empty: what stays in the session that cannot be carried over
	once    bool   // leaves something that holds for the next statement or transaction only
	calls   bool   // may write although it reads
	global  bool   // SET of what does not belong to the session
	sets    bool   // one of the statements is SET or USE
	reads   bool   // SET of a value that is worked out from other state
	wraps   bool   // begins with a word that another statement may follow
	load    bool   // begins with LOAD
	doubt   bool   // the first word stands in a version comment: it may be another one
	tables  bool   // may read a table, which may be a view whose function writes
	xa      bool   // the present statement begins with XA
	endsXA  bool   // one of the statements is XA COMMIT or XA ROLLBACK
}

type scanMode int

const (
	scanPlain scanMode = iota
	scanQuoted
	scanLine    // from # or -- to the end of the line
	scanOpening // after /*
	scanComment // up to */
	scanVersion // digits after /*!
)

// verb is the first word of a statement, as far as it matters.
type verb int

const (
	verbNone  verb = iota
	verbOther      // may commit
	verbRead       // SELECT and the like: commits only if it calls what writes
	verbWrite      // INSERT and the like: commits when each statement does
	verbBegin
	verbRollback
	verbCommit
	verbSet
	verbUse
	verbShow // never commits
)

// userVariables is the reason of a session that has some.
const userVariables = "user variables (@x)"

func (s *scanner) write(p []byte) {
	for _, c := range p {
		if s.mode == scanPlain {
			s.plain(c)
		} else {
			s.other(c)
		}
	}
}

// finish is called after the last part.
func (s *scanner) finish() {
	s.endWord()
	if s.several && s.sets {
		s.mark("SET or USE among several statements")
	}
}

func (s *scanner) other(c byte) {
	switch s.mode {
	case scanQuoted:
		switch {
		case s.escaped:
			s.escaped = false
		case c == '\\' && s.quote != '`' && !s.noBackslash:
			s.escaped = true
			s.tables = s.tables || s.quote == '"' // with ANSI_QUOTES the name may end here, and more follow
		case c == s.quote:
			s.mode = scanPlain
		}
	case scanLine:
		if c == '\n' {
			s.mode = scanPlain
		}
	case scanOpening:
		if s.mode, s.prev = scanComment, c; c == '!' {
			s.mode, s.prev, s.version = scanVersion, 0, true
		}
	case scanVersion: // what follows the number is executed
		if c < '0' || c > '9' {
			s.mode, s.prev = scanPlain, 0
			s.plain(c)
		}
	case scanComment:
		if s.prev == '*' && c == '/' {
			s.mode, c = scanPlain, 0
		}
		s.prev = c
	}
}

func (s *scanner) plain(c byte) {
	if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80 {
		s.letter(c)
		return
	}
	s.endWord()
	prev := s.prev
	s.prev = c
	s.version = s.version && !(prev == '*' && c == '/')
	if s.at && c != '@' {
		s.at = false
		s.mark(userVariables)
	}
	s.sysvar = s.sysvar && c <= ' '
	s.dot = s.dot && (c <= ' ' || c == '/' || c == '*' || c == '-' || c == '#') // a comment may stand there
	if s.verb == verbSet {
		s.assign(c)
	}
	if c == '-' {
		s.dashes++
		return
	}
	dashes := s.dashes
	s.dashes = 0
	switch {
	case c <= ' ':
		if dashes >= 2 && c != '\n' {
			s.mode = scanLine
		}
	case c == '\'' || c == '"' || c == '`':
		s.begin()
		s.mode, s.quote, s.escaped, s.last = scanQuoted, c, false, c == '\'' // names of functions may be quoted
	case c == '#':
		s.mode = scanLine
	case prev == '/' && c == '*':
		s.mode = scanOpening
	case c == '@':
		s.begin()
		s.sysvar = s.at
		s.at = !s.at
	case c == '.':
		s.dot, s.last = true, true
	case c == ';':
		s.ended = true
	case c == '(':
		s.begin()
		s.calls = s.calls || !s.last
		s.last = true
	case c != '/' && c != '*':
		s.last = true
	}
}

// assign looks at a byte of a SET outside of words and quotes.
func (s *scanner) assign(c byte) {
	switch c {
	case '=':
		s.value = true
	case ',':
		s.value = false
		if s.global {
			s.mark("SET of global and session variables in one statement")
		}
	case '(':
		s.reads = true
	case '@':
		s.reads = s.reads || s.value
	case '`':
		s.mark("SET with a quoted name")
	}
}

// begin is called at what cannot stand between two statements.
func (s *scanner) begin() {
	if s.ended {
		s.ended, s.several, s.words = false, true, 0
	}
}

func (s *scanner) letter(c byte) {
	if s.n == 0 {
		s.begin()
		s.dashes = 0
		if s.at {
			s.at = false
			s.mark(userVariables)
		}
	}
	if c >= 'a' && c <= 'z' {
		c -= 'a' - 'A'
	}
	if s.n < len(s.word) {
		s.word[s.n] = c
	}
	s.n++
	s.prev = c
}

func (s *scanner) mark(reason string) {
	if s.reason == "" {
		s.reason = reason
	}
}

// endWord looks at a word of which the first 16 letters are kept.
func (s *scanner) endWord() {
	if s.n == 0 {
		return
	}
	w := s.word[:min(s.n, len(s.word))]
	s.n = 0
	s.words++
	s.last = harmless(w) && !s.dot
	sysvar := s.sysvar
	s.dot, s.sysvar = false, false
	switch s.words {
	case 1:
		s.doubt = s.doubt || s.version
		s.xa = string(w) == "XA"
		s.statement(w)
	case 2:
		s.endsXA = s.endsXA || s.xa && (string(w) == "COMMIT" || string(w) == "ROLLBACK")
	}
	switch s.verb {
	case verbSet:
		s.setWord(string(w), sysvar)
	case verbCommit:
		if s.words > 1 && string(w) != "WORK" { // AND CHAIN begins another transaction
			s.verb = verbOther
		}
	}
	switch string(w) {
	case "TEMPORARY":
		s.mark("temporary tables")
	case "GET_LOCK", "SERVICE_GET_READ", "SERVICE_GET_WRIT":
		s.mark("user locks")
	case "SQL_CALC_FOUND_R":
		s.once = true
	case "INTO":
		s.calls = true
	case "FROM", "TABLE":
		s.tables = true
	case "INSERT", "UPDATE", "DELETE", "REPLACE":
		s.calls = s.calls || s.wraps
	case "DATA", "XML":
		if s.load && s.words == 2 && !s.several {
			s.verb = verbWrite
		}
	}
}

// setWord looks at a word of a SET after the first; sysvar: it comes after @@.
func (s *scanner) setWord(w string, sysvar bool) {
	switch w {
	case "GLOBAL", "PERSIST", "PERSIST_ONLY":
		if s.words == 2 {
			s.global = true
		} else if !s.value {
			s.mark("SET of global and session variables in one statement")
		}
	case "TRANSACTION":
		s.once = s.once || s.words == 2
	case "TRANSACTION_ISOL", "TRANSACTION_READ": // without SESSION
		if sysvar {
			s.mark("@@transaction_… for the next transaction")
		}
	case "PASSWORD", "DEFAULT": // SET DEFAULT ROLE
		if s.words == 2 {
			s.mark("SET " + w)
		}
	case "GTID_NEXT", "INSERT_ID", "LAST_INSERT_ID", "IDENTITY", "PSEUDO_THREAD_ID", "SQL_LOG_BIN", "RAND_SEED1",
		"RAND_SEED2", "COMPLETION_TYPE":
		s.mark(strings.ToLower(w))
	}
}

// statement looks at the first word of one.
func (s *scanner) statement(w []byte) {
	v := verbOther
	switch string(w) {
	case "SELECT", "TABLE", "VALUES", "DO":
		v = verbRead
	case "WITH", "EXPLAIN", "DESC", "DESCRIBE":
		v, s.wraps = verbRead, true
	case "INSERT", "UPDATE", "DELETE", "REPLACE":
		v = verbWrite
	case "BEGIN", "START":
		v = verbBegin
	case "ROLLBACK", "SAVEPOINT", "RELEASE":
		v = verbRollback
	case "COMMIT":
		v = verbCommit
	case "SHOW":
		v = verbShow
	case "LOAD":
		s.load = true
	case "SET":
		v, s.sets = verbSet, true
	case "USE":
		v, s.sets = verbUse, true
	case "LOCK":
		s.mark("LOCK TABLES")
	case "FLUSH", "HANDLER", "XA", "BINLOG", "CALL":
		s.mark(string(w))
	case "PREPARE":
		s.mark("statements prepared in SQL")
	}
	if s.verb == verbNone || v == verbOther {
		s.verb = v
	}
}

// harmless reports that a parenthesis after this word calls nothing that could write.
func harmless(w []byte) bool {
	switch string(w) {
	case "COUNT", "SUM", "MIN", "MAX", "AVG", "IN", "AND", "OR", "NOT", "ON", "WHERE", "FROM", "AS", "EXISTS", "COALESCE",
		"IFNULL", "IF",
		"CONCAT", "LOWER", "UPPER", "NOW", "DATE", "ABS", "ROUND", "LENGTH", "SELECT", "UNION", "ALL", "DISTINCT", "USING",
		"JOIN", "BY", "HAVING", "THEN", "ELSE", "WHEN", "INDEX", "SLEEP":
		return true
	}
	return false
}

// effect is what one statement, or a prepared one when it is executed, does to a session.
type effect struct {
	verb    verb
	reason  string
	several bool
	once    bool
	calls   bool
	global  bool
	reads   bool
	doubt   bool
	tables  bool
	endsXA  bool
}

func (s *scanner) effect() effect {
	e := effect{verb: s.verb, reason: s.reason, several: s.several, once: s.once, calls: s.calls, global: s.global,
		reads: s.reads, doubt: s.doubt, tables: s.tables, endsXA: s.endsXA}
	if s.at {
		e.reason = userVariables
	}
	return e
}

// mayCommit reports whether a statement whose answer was lost may have been committed, by the state of the session
// before it.
func (e effect) mayCommit(inTransaction, autocommit bool) bool {
	if e.doubt {
		return true
	}
	switch e.verb {
	case verbShow, verbUse, verbBegin, verbRollback:
		return e.several || e.verb == verbBegin && inTransaction // BEGIN commits what is open
	case verbRead, verbWrite:
		if e.several {
			return true
		}
		return !inTransaction && autocommit && (e.verb == verbWrite || e.calls)
	case verbSet:
		return e.several || inTransaction || autocommit && e.calls // autocommit=1 commits what is open
	}
	return true
}

// repeatable reports whether a statement that began outside of a transaction may be carried out twice: it certainly
// commits nothing and leaves nothing but what is followed. COMMIT has nothing to commit there. It is stricter than
// mayCommit, after which nothing is repeated.
//
// With tables, a statement that reads from tables counts as repeatable too.
func (e effect) repeatable(tables bool) bool {
	switch e.verb {
	case verbRead, verbBegin, verbRollback, verbCommit, verbSet, verbUse, verbShow:
		return e.reason == "" && !e.several && !e.doubt && !e.calls && (tables || !e.tables) && !e.global
	}
	return false
}
