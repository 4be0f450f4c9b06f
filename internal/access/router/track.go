package router

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"trireme/internal/mysql/mysqlwire"
	"trireme/internal/mysql/sqlkind"
)

// ready looks at a command before it is sent: what it may leave in the session, and which prepared statement it means.
func (s *session) ready(j *job) error {
	j.skip = 5
	p := s.buf[s.r0+4 : s.r0+min(4+j.length, inBytes)] // the command, as far as it is here
	switch j.command {
	case comQuery, comStmtPrepare:
		s.readyText(j, p)
	case comStmtExecute, comStmtSendLong, comStmtReset, comStmtFetch, comStmtClose:
		return s.readyStatement(j, p)
	case comInitDB:
		j.text, j.keep = bytes.Clone(p), len(p) == j.length
	case comSetOption:
		j.text, j.keep = bytes.Clone(p), true
	case comPing, comStatistics, comFieldList, comResetConnection, comProcessInfo:
	default:
		j.effect.Verb = sqlkind.VerbOther
	}
	return nil
}

func (s *session) readyText(j *job, p []byte) {
	doubt, noBackslash := false, s.state.status&statusNoBackslash != 0
	if j.command == comQuery && s.attrs {
		at, ok := parseAttributes(p)
		if !ok {
			s.state.mark("query attributes that were not followed")
			at.length, doubt = 3, true
		}
		j.skip = 4 + at.length
	}
	if len(p) < j.length || len(p) < j.skip-4 {
		j.scan, j.keep = sqlkind.NewEffectScanner(noBackslash), j.command == comStmtPrepare
		j.scan.Doubt = doubt
		return
	}
	text := p[j.skip-4:]
	j.effect = sqlkind.EffectOf(text, noBackslash)
	j.effect.Doubt = j.effect.Doubt || doubt
	j.drops = j.command == comQuery && s.drops(j.effect, text)
	if j.command == comStmtPrepare || j.effect.Sets() {
		j.text, j.keep = bytes.Clone(text), true
	}
}

// drops reports whether a statement leaves the session without a schema.
func (s *session) drops(e sqlkind.Effect, text []byte) bool {
	return e.Verb == sqlkind.VerbOther && sqlkind.DropsSchema(text, s.schema())
}

// statusNoBackslash is SERVER_STATUS_NO_BACKSLASH_ESCAPES.
const statusNoBackslash = 0x0200

// noStatement is an id that no server gives.
const noStatement = 1<<32 - 1

// readyStatement puts the present server's id in place of the one that the client knows.
func (s *session) readyStatement(j *job, p []byte) error {
	if len(p) < 5 {
		return nil // the server will say so
	}
	j.stmtID = getID(p[1:])
	j.stmt = s.state.prepared[j.stmtID]
	if j.stmt == nil {
		putID(p[1:], noStatement)
		return nil
	}
	st := j.stmt
	st.turn(s.state.following)
	if over, err := s.missing(j); over {
		return err
	}
	if st.server != 0 && st.cursored && leavesCursor(j.command, p, st) {
		if st.text == nil || st.dialect != s.state.dialect || st.long {
			j.over = true
			return s.answerError(&mysqlwire.ServerError{Code: codeReprepare, State: "HY000",
				Message: "Prepared statement needs to be re-prepared"})
		}
		if err := s.forget(st); err != nil {
			return s.lost(j, nil)
		}
	}
	if st.server == 0 && j.command != comStmtClose {
		refused, err := s.prepareAgain(st)
		if errors.Is(err, errNotPortable) {
			j.over = true
			return s.cannot()
		}
		if err != nil {
			return s.lost(j, nil)
		}
		if refused != nil {
			j.over = true
			return s.answerError(refused)
		}
	}
	putID(p[1:], st.server)
	switch j.command {
	case comStmtExecute:
		st.cursored = st.cursored || wantsCursor(p)
		j.effect, j.drops = st.effect, s.drops(st.effect, st.text)
		return s.readyExecute(j, p)
	case comStmtSendLong:
		st.long, s.state.hangs = true, true
	case comStmtClose:
		s.state.close(j.stmtID)
	}
	return nil
}

// codeReprepare is ER_NEED_REPREPARE.
const codeReprepare = 1615

// wantsCursor reports whether a COM_STMT_EXECUTE has CURSOR_TYPE_READ_ONLY, the only flag that makes mysqld open a
// cursor.
func wantsCursor(p []byte) bool { return len(p) > 5 && p[5]&1 != 0 }

// leavesCursor reports whether a command, of a statement that was executed with a cursor, uses it without. mysqld
// (9.7.4) answers such an execution with definitions and an OK packet instead of rows: the packets do not tell that OK
// from a row, so neither client nor router can know where the answer ends. A statement that was just prepared gives its
// rows.
func leavesCursor(command byte, p []byte, st *prepared) bool {
	return command == comStmtExecute && !wantsCursor(p) || command == comStmtSendLong && !st.cursor
}

// forget closes a statement at the present server, so that it is prepared there again.
func (s *session) forget(st *prepared) error {
	id := st.server
	st.preparedAt, st.cursor = preparedAt{}, false
	return closeAt(s.server, id)
}

// missing answers commands of a statement whose parameters, sent ahead, were lost.
func (s *session) missing(j *job) (over bool, err error) {
	if !j.stmt.missing {
		return false, nil
	}
	switch j.command {
	case comStmtSendLong:
		j.over = true
		return true, s.discard()
	case comStmtExecute:
		j.over = true
		s.state.told(j.stmt)
		return true, s.answerError(rolledBack())
	case comStmtReset:
		s.state.told(j.stmt)
	}
	return false, nil
}

// readyExecute keeps the types of the parameters, which a client need not send again, and sends them to a server that
// has not seen them.
func (s *session) readyExecute(j *job, p []byte) error {
	st := j.stmt
	e, ok := parseExecute(p, st.params, s.attrs)
	switch {
	case !ok:
		s.state.mark("parameters of a prepared statement that were not followed")
	case e.flag == 0:
	case p[e.flag] != 0:
		st.types, st.typed = append(st.types[:0], p[e.flag+1:e.flag+1+e.types]...), true
	case !st.typed && len(st.types) > 0:
		return s.insertTypes(j, p, e.flag)
	}
	return nil
}

// insertTypes sends the head of a COM_STMT_EXECUTE with the types put in, and leaves what follows them in buf as it is.
// It sends the head as a packet of its own length, with a new header.
func (s *session) insertTypes(j *job, p []byte, flag int) error {
	st := j.stmt
	if len(p) < j.length || j.length+len(st.types) > inBytes-4 {
		s.state.mark("a long execution of a prepared statement")
		j.over = true
		return s.cannot()
	}
	var whole []byte
	whole = append(whole, p[:flag]...)
	whole = append(append(whole, 1), st.types...)
	whole = append(whole, p[flag+1:]...)
	rest := bytes.Clone(s.buf[s.r0+4+j.length : s.r1])
	if 4+len(whole)+len(rest) > inBytes {
		j.over = true
		return s.cannot()
	}
	framed := mysqlwire.AppendPacket(s.buf[:0], 0, whole)
	s.r0, s.r1 = 0, len(framed)+copy(s.buf[len(framed):], rest)
	j.length, st.typed = len(whole), true
	return nil
}

// prepareHead waits for the head of an answer to COM_STMT_PREPARE and puts the id in that the client is to know the
// statement by.
func (s *session) prepareHead(j *job, piece []byte, n int) (int, error) {
	more := func(want int) error {
		if n >= want {
			return nil
		}
		k, err := io.ReadFull(s.server, piece[n:want])
		n += k
		return err
	}
	if err := more(5); err != nil || piece[4] != 0 {
		return n, err
	}
	if err := more(16); err != nil {
		return n, err
	}
	params := int(piece[11]) | int(piece[12])<<8
	if !j.keep {
		s.state.mark("a long prepared statement")
		j.text = nil // a part of it
	}
	putID(piece[5:], s.state.prepare(j.text, j.effect, getID(piece[5:]), params))
	return n, nil
}

// learn takes over what a command that was answered has done to the session.
func (s *session) learn(j *job, a *answer) {
	st := &s.state
	ran := j.command == comQuery || j.command == comStmtExecute
	if a.hasStatus {
		st.status, st.unsure, st.guess = a.status, false, false
	}
	if a.insertID != 0 {
		st.insertID = a.insertID
	}
	if ran {
		if j.effect.Reason != "" {
			st.mark(j.effect.Reason)
		}
		// SET TRANSACTION waits for the next transaction, whatever else is set or shown before that.
		waits := j.effect.Sets() || j.effect.Verb == sqlkind.VerbShow
		st.once = j.effect.Once || st.once && waits
	}
	s.r.points.answered(&s.trace, j.transactions())
	if j.stmt != nil {
		j.stmt.followed(j.command, a)
		st.hangs = st.hangs || j.stmt.cursor
	}
	if a.failed {
		if ran || j.command == comStmtFetch {
			s.failed(j)
		}
		return
	}
	if j.drops {
		st.schema = noSchema
	}
	switch j.command {
	case comQuery:
		if j.effect.Reason == "" && !j.effect.Several {
			st.ran(j.effect, j.text, j.keep)
		}
	case comInitDB:
		if st.schema = j.text; !j.keep {
			st.mark("a long name of a schema")
		}
	case comSetOption:
		st.options = j.text
	case comResetConnection:
		st.reset()
		s.wish, s.known.token = s.r.cfg.wishes(s.login.response.User), 0
	}
	if s.split != nil && (j.drops || j.effect.Sets() || j.command == comInitDB ||
		j.command == comSetOption ||
		j.command == comResetConnection) {
		s.split.here = st.made()
	}
}

// transactions is how many a command may have committed, at most.
func (j *job) transactions() int {
	switch e := j.effect; {
	case j.command == comStmtPrepare || !e.MayCommit(j.sinceTrx, j.autocommit):
		return 0
	case e.Several || e.Doubt || e.Verb == sqlkind.VerbOther || e.Verb == sqlkind.VerbNone:
		return countless
	}
	return 1
}

// followed notes what lasts of a prepared statement's command.
func (p *prepared) followed(command byte, a *answer) {
	switch command {
	case comStmtExecute:
		p.long, p.cursor = false, a.hasStatus && a.status&mysqlwire.StatusCursorExists != 0
	case comStmtReset:
		p.long, p.cursor = false, false
	case comStmtFetch:
		p.cursor = p.cursor && (!a.hasStatus || a.status&mysqlwire.StatusLastRowSent == 0)
	}
}

// failed: the packet of an error has no flags, so what is left of the transaction is not known. A deadlock of rows
// rolls back, one of metadata does not, DDL that fails has committed what was open before, and without autocommit a
// statement that fails may begin a transaction. Until the next answer tells, one counts as open. The server is not
// asked: its answer would take away what the client's next one has to tell of the session (session tracking).
func (s *session) failed(j *job) {
	e := j.effect
	// SET changes nothing of this unless it sets autocommit, or calls what does.
	sets := e.Verb == sqlkind.VerbSet && !e.Calls && !e.Several &&
		!strings.Contains(strings.ToLower(string(j.text)), "autocommit")
	if !j.sinceTrx && !s.state.inTransaction() && j.autocommit &&
		(sets || !e.Several && e.Reason == "" && e.Verb != sqlkind.VerbSet) {
		return
	}
	s.state.unsure = s.state.unsure || !sets && e.MayCommit(true, true)
	s.state.status |= mysqlwire.StatusInTransaction
	s.state.guess = true
}
