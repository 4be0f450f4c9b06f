package sqlkind

import (
	"bytes"
	"strings"
)

// Verb is the first word of a statement, as far as it matters to the session that runs it.
type Verb uint8

const (
	VerbNone  Verb = iota
	VerbOther      // may commit
	VerbRead       // SELECT and the like: commits only if it calls what writes
	VerbWrite      // INSERT and the like: commits when each statement does
	VerbBegin
	VerbRollback
	VerbCommit
	VerbSet
	VerbUse
	VerbShow // never commits
)

// Effect is what a statement, or a prepared one when it is executed, does to the session that runs it.
type Effect struct {
	Verb    Verb
	Reason  string // not empty: what stays in the session that cannot be carried over
	Several bool   // more than one statement
	Once    bool   // leaves something that holds for the next statement or transaction only
	Calls   bool   // may write although it reads
	Global  bool   // SET of what does not belong to the session
	Reads   bool   // SET of a value that is worked out from other state
	Doubt   bool   // the first word stands in a version comment: it may be another one
	Tables  bool   // may read a table, which may be a view whose function writes
	EndsXA  bool   // one of the statements is XA COMMIT or XA ROLLBACK
}

// UserVariables is the reason of a session that has some.
const UserVariables = "user variables (@x)"

// EffectOf looks at a text for what it does to a session; noBackslash is the sql_mode NO_BACKSLASH_ESCAPES. It knows
// words and no grammar: in doubt, it reports that the session cannot be carried over. It does not see what a routine or
// a trigger does. It does not allocate, unless there is a reason that is not a constant.
func EffectOf(sql []byte, noBackslash bool) Effect {
	e := EffectScanner{scanner: scanner{plainBackslash: noBackslash}}
	e.scan(sql)
	e.end()
	return e.Effect
}

// EffectScanner is EffectOf for a text that comes in parts. Effect is what was found so far.
type EffectScanner struct {
	Effect
	scanner scanner
	kept    [2 * longWord]byte // begins with n bytes that have to be looked at once more
	n       int

	words  int  // of the present statement
	ended  bool // nothing of a next statement has been read after a semicolon
	last   bool // the word before the present place is harmless before a parenthesis
	sysvar bool // two @ were just read
	dot    bool // a dot was just read: the next word is the second part of a name
	value  bool // SET: after a =, up to the next comma
	sets   bool // one of the statements is SET or USE
	wraps  bool // begins with a word that another statement may follow
	load   bool // begins with LOAD
	xa     bool // the present statement begins with XA
}

// NewEffectScanner returns one that has read nothing.
func NewEffectScanner(noBackslash bool) *EffectScanner {
	return &EffectScanner{scanner: scanner{plainBackslash: noBackslash, ahead: lookahead}}
}

// Write looks at the next part of the text.
func (e *EffectScanner) Write(p []byte) {
	if e.n > 0 {
		n := copy(e.kept[e.n:], p)
		rest := e.scan(e.kept[:e.n+n])
		if n == len(p) {
			e.n = copy(e.kept[:], rest)
			return
		}
		p = p[n-len(rest):]
	}
	e.n = copy(e.kept[:], e.scan(p))
}

// Finish is called after the last part.
func (e *EffectScanner) Finish() {
	e.scanner.ahead = 0
	e.scan(e.kept[:e.n])
	e.end()
}

func (e *EffectScanner) end() {
	if e.Several && e.sets {
		e.mark("SET or USE among several statements")
	}
}

// scan returns what of p has to be looked at once more, in front of the next part.
func (e *EffectScanner) scan(p []byte) (rest []byte) {
	s := &e.scanner
	s.src, s.pos = p, max(s.pos-len(s.src), 0)
	for t := s.next(); t.kind != tokenEnd; t = s.next() {
		switch {
		case t.quote != 0:
			e.quoted(t)
		case t.kind == tokenOther:
			e.other(t.text[0])
		default:
			e.word(t)
		}
	}
	return p[min(s.pos, len(p)):]
}

func (e *EffectScanner) mark(reason string) {
	if e.Reason == "" {
		e.Reason = reason
	}
}

// begin is called at what cannot stand between two statements.
func (e *EffectScanner) begin() {
	if e.ended {
		e.ended, e.Several, e.words = false, true, 0
	}
}

func (e *EffectScanner) quoted(t token) {
	e.sysvar, e.dot, e.last = false, false, t.quote == '\'' // names of functions may be quoted
	switch {
	case t.quote == '`' && e.Verb == VerbSet:
		e.mark("SET with a quoted name")
	case t.quote == '"' && !e.scanner.plainBackslash && bytes.IndexByte(t.text, '\\') >= 0:
		e.Tables = true // with ANSI_QUOTES the name may end here, and more follow
	}
	e.begin()
}

// other looks at a byte outside of words and quotes.
func (e *EffectScanner) other(c byte) {
	if c <= ' ' {
		return
	}
	e.sysvar = false
	e.dot = e.dot && (c == '/' || c == '*' || c == '-')
	if e.Verb == VerbSet {
		e.assign(c)
	}
	switch c {
	case '@':
		e.begin()
		if e.sysvar = e.scanner.at(0) == '@'; e.sysvar {
			e.scanner.pos++
		} else {
			e.mark(UserVariables)
		}
	case '.':
		e.dot, e.last = true, true
	case ';':
		e.ended = true
	case '(':
		e.begin()
		e.Calls = e.Calls || !e.last
		e.last = true
	case '/', '*', '-':
	default:
		e.last = true
	}
}

// assign looks at a byte of a SET outside of words and quotes.
func (e *EffectScanner) assign(c byte) {
	switch c {
	case '=':
		e.value = true
	case ',':
		e.value = false
		if e.Global {
			e.mark("SET of global and session variables in one statement")
		}
	case '(':
		e.Reads = true
	case '@':
		e.Reads = e.Reads || e.value
	}
}

// word looks at the first letters of a word, or at a number.
func (e *EffectScanner) word(t token) {
	var letters [longWord]byte
	w := letters[:0]
	if t.kind == tokenWord {
		w = letters[:min(len(t.text), longWord)]
		for i := range w {
			w[i] = fold[t.text[i]]
		}
	}
	e.begin()
	e.words++
	e.last = harmless(w) && !e.dot
	sysvar := e.sysvar
	e.dot, e.sysvar = false, false
	switch e.words {
	case 1:
		e.Doubt = e.Doubt || e.scanner.versioned
		e.xa = string(w) == "XA"
		e.statement(w)
	case 2:
		e.EndsXA = e.EndsXA || e.xa && (string(w) == "COMMIT" || string(w) == "ROLLBACK")
	}
	switch e.Verb {
	case VerbSet:
		e.setWord(w, sysvar)
	case VerbCommit:
		if e.words > 1 && string(w) != "WORK" { // AND CHAIN begins another transaction
			e.Verb = VerbOther
		}
	}
	switch string(w) {
	case "TEMPORARY":
		e.mark("temporary tables")
	case "GET_LOCK", "SERVICE_GET_READ", "SERVICE_GET_WRIT":
		e.mark("user locks")
	case "SQL_CALC_FOUND_R":
		e.Once = true
	case "INTO":
		e.Calls = true
	case "FROM", "TABLE":
		e.Tables = true
	case "INSERT", "UPDATE", "DELETE", "REPLACE":
		e.Calls = e.Calls || e.wraps
	case "DATA", "XML":
		if e.load && e.words == 2 && !e.Several {
			e.Verb = VerbWrite
		}
	}
}

// setWord looks at a word of a SET after the first; sysvar: it comes after @@.
func (e *EffectScanner) setWord(w []byte, sysvar bool) {
	switch string(w) {
	case "GLOBAL", "PERSIST", "PERSIST_ONLY":
		if e.words == 2 {
			e.Global = true
		} else if !e.value {
			e.mark("SET of global and session variables in one statement")
		}
	case "TRANSACTION":
		e.Once = e.Once || e.words == 2
	case "TRANSACTION_ISOL", "TRANSACTION_READ": // without SESSION
		if sysvar {
			e.mark("@@transaction_… for the next transaction")
		}
	case "PASSWORD", "DEFAULT": // SET DEFAULT ROLE
		if e.words == 2 {
			e.mark("SET " + string(w))
		}
	case "GTID_NEXT", "INSERT_ID", "LAST_INSERT_ID", "IDENTITY", "PSEUDO_THREAD_ID", "SQL_LOG_BIN", "RAND_SEED1",
		"RAND_SEED2", "COMPLETION_TYPE":
		e.mark(strings.ToLower(string(w)))
	}
}

// statement looks at the first word of one.
func (e *EffectScanner) statement(w []byte) {
	v := VerbOther
	switch string(w) {
	case "SELECT", "TABLE", "VALUES", "DO":
		v = VerbRead
	case "WITH", "EXPLAIN", "DESC", "DESCRIBE":
		v, e.wraps = VerbRead, true
	case "INSERT", "UPDATE", "DELETE", "REPLACE":
		v = VerbWrite
	case "BEGIN", "START":
		v = VerbBegin
	case "ROLLBACK", "SAVEPOINT", "RELEASE":
		v = VerbRollback
	case "COMMIT":
		v = VerbCommit
	case "SHOW":
		v = VerbShow
	case "LOAD":
		e.load = true
	case "SET":
		v, e.sets = VerbSet, true
	case "USE":
		v, e.sets = VerbUse, true
	case "LOCK":
		e.mark("LOCK TABLES")
	case "FLUSH", "HANDLER", "XA", "BINLOG", "CALL":
		e.mark(string(w))
	case "PREPARE":
		e.mark("statements prepared in SQL")
	}
	if e.Verb == VerbNone || v == VerbOther {
		e.Verb = v
	}
}

// harmless reports that a parenthesis after this word calls nothing that could write.
func harmless(w []byte) bool {
	switch string(w) {
	case "COUNT", "SUM", "MIN", "MAX", "AVG", "IN", "AND", "OR", "NOT", "ON", "WHERE", "FROM", "AS", "EXISTS", "COALESCE",
		"IFNULL", "IF", "CONCAT", "LOWER", "UPPER", "NOW", "DATE", "ABS", "ROUND", "LENGTH", "SELECT", "UNION", "ALL",
		"DISTINCT", "USING", "JOIN", "BY", "HAVING", "THEN", "ELSE", "WHEN", "INDEX", "SLEEP":
		return true
	}
	return false
}

// Sets reports whether it begins with SET or USE.
func (e Effect) Sets() bool { return e.Verb == VerbSet || e.Verb == VerbUse }

// MayCommit reports whether a statement whose answer was lost may have been committed, by the state of the session
// before it.
func (e Effect) MayCommit(inTransaction, autocommit bool) bool {
	if e.Doubt {
		return true
	}
	switch e.Verb {
	case VerbShow, VerbUse, VerbBegin, VerbRollback:
		return e.Several || e.Verb == VerbBegin && inTransaction // BEGIN commits what is open
	case VerbRead, VerbWrite:
		if e.Several {
			return true
		}
		return !inTransaction && autocommit && (e.Verb == VerbWrite || e.Calls)
	case VerbSet:
		return e.Several || inTransaction || autocommit && e.Calls // autocommit=1 commits what is open
	}
	return true
}

// Repeatable reports whether a statement that began outside of a transaction may be carried out twice: it certainly
// commits nothing and leaves nothing but what is followed. COMMIT has nothing to commit there. It is stricter than
// MayCommit, after which nothing is repeated.
//
// With tables, a statement that reads from tables counts as repeatable too.
func (e Effect) Repeatable(tables bool) bool {
	switch e.Verb {
	case VerbRead, VerbBegin, VerbRollback, VerbCommit, VerbSet, VerbUse, VerbShow:
		return e.Reason == "" && !e.Several && !e.Doubt && !e.Calls && (tables || !e.Tables) && !e.Global
	}
	return false
}
