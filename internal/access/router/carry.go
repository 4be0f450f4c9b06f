package router

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"trireme/internal/api"
	"trireme/internal/mysql/mysqlwire"
	"trireme/internal/mysql/sqlkind"
)

// Outcomes finds out what became of a statement whose answer was lost.
type Outcomes interface {
	// Reached asks a target's own node for an index of the log at or above all that the target's sessions had been
	// answered when it was called; 0: it does not tell.
	Reached(ctx context.Context, t Target) (index uint64, err error)
	// Outcome answers api.OutcomeUnknown when ctx ends.
	Outcome(ctx context.Context, sent api.OutcomeQuery) api.OutcomeResult
}

// A session whose server ended by itself waits for a view that explains it: for lostGrace, and for HoldTimeout if the
// server's node does not say, each confirmEvery, that it serves.
const (
	lostGrace    = 3 * time.Second
	confirmEvery = time.Second
)

// look sees whether the present server is still there. It drops the link when it is not and the session can go on
// without; otherwise the session ends, and the client is told why if it can be.
func (s *session) look() error {
	if said := s.saidElsewhere(); said != nil {
		_, _ = s.client.Write(said)
		return errEnd
	}
	l := s.link
	if l == nil {
		return nil
	}
	said, seen := []byte(nil), s.r.views.Load()
	ended := l.cut.Load()
	if !ended {
		said, ended = s.peek()
	}
	switch {
	case !ended && said == nil:
		s.seen = seen
		return nil
	case said != nil && !shutsDown(said): // mysqld says why it closes: its time-outs
		if s.idleHere() && says(said, erIdle) {
			s.drop()
			s.state.moved()
			return nil
		}
		_, _ = s.client.Write(said)
		return errEnd
	}
	if s.closedAlone(l) {
		return errEnd
	}
	if s.state.reason != "" {
		s.tell(s.notPortable())
		return errEnd
	}
	if !s.state.boundary() {
		s.leave() // what was open is lost, whenever the client asks
	}
	s.drop()
	return nil
}

// idleHere says that the server in use has nothing to say of how long the client was idle: its last command ran on the
// follower.
func (s *session) idleHere() bool {
	return s.split != nil && !s.state.following && s.split.spoke && s.state.reason == "" && s.state.boundary()
}

// saidElsewhere is what the follower, on which the last command ran, says of its own accord: that the client was idle
// for too long.
func (s *session) saidElsewhere() []byte {
	if !s.idleHere() || s.split.other.link == nil || s.split.other.link.cut.Load() {
		return nil
	}
	s.turn()
	defer s.turn()
	if said, _ := s.peek(); says(said, erIdle) {
		return said
	}
	return nil
}

// closedAlone says that somebody has closed this one connection, with KILL mostly: no view explains its end.
func (s *session) closedAlone(l *link) bool {
	switch {
	case l.cut.Load() || s.r.views.Load() != s.seen:
		return false
	case s.r.cfg.Confirm == nil || l.port.readOnly:
		return !s.r.awaitNews(s.seen, lostGrace)
	}
	ctx, cancel := context.WithTimeout(s.r.ctx, s.r.cfg.HoldTimeout)
	defer cancel()
	for ctx.Err() == nil {
		if s.r.awaitNews(s.seen, confirmEvery) {
			return false
		}
		if s.r.cfg.Confirm(ctx, l.target) == nil {
			return !l.cut.Load() && s.r.views.Load() == s.seen // a view may have overtaken the answer
		}
	}
	return true
}

// shutsDown says that a server's last words are that it shuts down.
func shutsDown(packet []byte) bool { return says(packet, mysqlwire.CodeServerShutdown) }

// erIdle is ER_CLIENT_INTERACTION_TIMEOUT: wait_timeout or interactive_timeout is over.
const erIdle = 4031

// says says that a server's last words are an error of that code.
func says(packet []byte, code uint16) bool {
	if len(packet) <= mysqlwire.HeaderLen || !mysqlwire.IsERR(packet[mysqlwire.HeaderLen:]) {
		return false
	}
	e, err := mysqlwire.ParseERR(packet[mysqlwire.HeaderLen:])
	return err == nil && e.Code == code
}

// peek asks the server's socket, without waiting, whether anything came while nothing was asked.
func (s *session) peek() (said []byte, ended bool) {
	n, err := s.link.server.Peek()
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return nil, false
	case err != nil || n == 0:
		return nil, true
	}
	// Over TLS it may be nothing but a session ticket.
	_ = s.link.server.SetReadDeadline(time.Now().Add(time.Millisecond))
	b := make([]byte, 1024)
	n, err = s.server.Read(b)
	_ = s.link.server.SetReadDeadline(time.Time{})
	switch {
	case n > 0:
		return b[:n], true
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, false
	}
	return nil, true
}

// drop gives the present server up.
func (s *session) drop() {
	if l := s.link; l != nil {
		l.closeServer()
		s.r.forget(l)
		s.at(nil)
		s.link, s.server = nil, nil
	}
}

// endsTransaction reports whether the command at a place in buf ends an open transaction without committing it, and
// does nothing else: then the next server may carry it out, where none is open, and its answer is as true as the lost
// server's.
func (s *session) endsTransaction(at int) bool {
	length, _ := mysqlwire.ParseHeader(s.buf[at:])
	p := s.buf[at+4 : min(at+4+length, s.r1)]
	switch {
	case p[0] == comResetConnection:
		return true
	case p[0] != comQuery || len(p) < length || s.state.unsure || s.state.following:
		return false
	}
	attr, ok := s.attributes(p)
	return ok && sqlkind.IsRollback(p[attr.length:])
}

// lostTransaction tells the client that what it had begun is gone. It does so once there is a command that has an
// answer.
func (s *session) lostTransaction() error {
	if silent(s.buf[s.r0+4]) {
		return s.answerError(nil)
	}
	said := rolledBack()
	if s.state.unsure {
		said =
			unknown("a statement failed and then the server changed: whether that statement has committed the open transaction is not known")
	}
	s.forgetTransaction()
	if s.r1-s.r0 >= 9 && s.buf[s.r0+4] == comStmtExecute {
		s.state.told(s.state.prepared[getID(s.buf[s.r0+5:])])
	}
	s.countLost(said)
	return s.answerError(said)
}

func (s *session) countLost(said *mysqlwire.ServerError) {
	s.r.count(s.port, func(p *PortStats) {
		switch {
		case said.Code == mysqlwire.CodeDeadlock:
			p.RolledBack++
		case *said != *committed() && said.Code != codeNotEverywhere:
			p.Unknown++
		}
	})
}

func (s *session) forgetTransaction() {
	s.state.status &^= mysqlwire.StatusInTransaction
	s.state.once, s.state.unsure, s.state.guess = false, false, false
	s.state.moved()
}

func rolledBack() *mysqlwire.ServerError {
	return &mysqlwire.ServerError{Code: mysqlwire.CodeDeadlock, State: "40001",
		Message: "Trireme: the server changed and the transaction was rolled back; repeat it"}
}

func unknown(text string) *mysqlwire.ServerError {
	return &mysqlwire.ServerError{Code: mysqlwire.CodeServerUnavailable, State: "08007", Message: "Trireme: " + text}
}

// again says that a command whose server was lost while it was under way can be carried out at the next one, as if it
// had come just now: the session is as it was before it, nothing of its answer was heard, and it was not sent (a is
// nil) or commits nothing wherever it has got to. An error would be taken for one of the transaction before, by who
// ends that with more than its COMMIT.
func (s *session) again(j *job, a *answer) bool {
	switch {
	case s.state.reason != "" || s.state.following:
		return false
	case a == nil: // a statement that was to be prepared there first
		return j.stmt != nil && s.state.boundary()
	case a.began() || !j.whole:
		return false
	case !s.state.boundary() && !s.endsTransaction(j.begin):
		return false
	}
	switch j.command {
	case comQuery, comStmtExecute:
		return j.effect.Repeatable(s.replays(j))
	case comPing, comInitDB, comSetOption, comStatistics, comStmtPrepare, comStmtReset, comResetConnection:
		return true
	}
	return false
}

// replays reports whether a command is a read that may be done again, by Config.ReplayReads. Every word of it is known
// to change nothing; a view may still call a function that writes.
func (s *session) replays(j *job) bool {
	switch {
	case !s.r.cfg.ReplayReads || sqlkind.OwnSchema(s.schema()):
		return false
	case j.command == comStmtExecute:
		return j.stmt != nil && j.stmt.needs() == sqlkind.Read
	}
	p := s.buf[j.begin+4 : j.begin+4+j.length]
	at, ok := s.attributes(p)
	return ok && sqlkind.AccessOf(p[at.length:], s.state.status&statusNoBackslash != 0) == sqlkind.Read
}

// takeBack makes the next command of what was under way.
func (s *session) takeBack(j *job, a *answer) {
	if a != nil {
		s.r0 = j.begin
	}
	if j.stmt != nil {
		putID(s.buf[s.r0+5:], j.stmtID)
	}
	s.state.moved() // a transaction that it ends is lost once the next server has ended it
}

// lost answers a command whose server was lost while it was under way, unless the next server can. a is nil when it was
// not sent.
func (s *session) lost(j *job, a *answer) error {
	l := s.link
	if s.closedAlone(l) {
		return errEnd
	}
	sent := api.OutcomeQuery{Node: l.target.Name, Epoch: l.target.Epoch, Thread: s.trace.thread, Index: s.trace.base}
	if s.trace.since < countless && j.transactions() <= 1 {
		sent.Sole, sent.Others = true, s.trace.since
	}
	s.known.by = ""
	s.drop()
	s.leave() // what is left is to tell the client, if it reads
	j.over = true
	if s.again(j, a) {
		s.takeBack(j, a)
		return nil
	}
	switch {
	case a == nil:
		if silent(j.command) {
			return s.answerError(nil)
		}
		if err := s.discard(); err != nil {
			return err
		}
	case !a.whole():
		return errEnd // in the middle of a packet: nothing can be said
	}
	said := rolledBack()
	if a != nil && j.command != comStmtPrepare {
		s.state.mark(j.effect.Reason)
		if j.effect.MayCommit(j.sinceTrx, j.autocommit) {
			said = s.outcome(j, a, sent)
		}
	}
	s.forgetTransaction()
	s.state.told(j.stmt)
	if (said == nil || *said == *committed()) && j.level.after() {
		said = cmp.Or(s.waitOnAll(), said)
	}
	switch {
	case said == nil:
		const kept = mysqlwire.StatusAutocommit | statusNoBackslash // of flags that announce more in the packet none is true
		ok := mysqlwire.AppendOK(nil, mysqlwire.OK{Status: s.state.status & kept})
		if err := s.write(mysqlwire.AppendPacket(nil, s.next, ok)); err != nil {
			return err
		}
	case s.state.reason != "" && *said != *committed() && said.Code != codeNotEverywhere:
		s.tell(s.notPortable())
	default:
		s.countLost(said)
		s.tell(said)
	}
	if s.state.reason != "" {
		return errEnd
	}
	return nil
}

// outcome words what became of a statement that may have been committed; nil: it was, and an OK says all about it.
func (s *session) outcome(j *job, a *answer, sent api.OutcomeQuery) *mysqlwire.ServerError {
	known := api.OutcomeUnknown
	if o := s.r.cfg.Outcomes; o != nil && !s.port.readOnly { // a follower's log has nothing of its own
		ctx, cancel := context.WithTimeout(s.r.ctx, s.r.cfg.HoldTimeout)
		known = o.Outcome(ctx, sent)
		cancel()
	}
	switch {
	case known == api.NotCommitted:
		return rolledBack()
	case known == api.Committed && j.effect.Verb == sqlkind.VerbCommit && !a.began():
		return nil
	case known == api.Committed:
		return committed()
	}
	return unknown(
		"the outcome of this statement is not known: the server changed while it was under way; look before you repeat it")
}

// committed is told of a statement whose result, its counts and ids, was lost: an OK would have to make them up.
func committed() *mysqlwire.ServerError {
	return &mysqlwire.ServerError{Code: mysqlwire.CodeServerUnavailable, State: "HY000",
		Message: "Trireme: this statement was committed; its result was lost with the server. Do not repeat it"}
}

// notPortable tells why a session ends.
func (s *session) notPortable() *mysqlwire.ServerError {
	s.r.count(s.port, func(p *PortStats) { p.NotCarried++ })
	return &mysqlwire.ServerError{Code: mysqlwire.CodeServerShutdown, State: "08S01",
		Message: "Trireme: the server changed, and this session cannot be carried over: it has " + s.state.reason +
			"; connect again"}
}

// cannot ends a session that turns out not to be portable only now.
func (s *session) cannot() error {
	s.tell(s.notPortable())
	return errEnd
}

// answerError answers the command in buf with an error of the router's own, unless it is one without an answer:
// parameters that are not sent then are missed when the statement is executed.
func (s *session) answerError(e *mysqlwire.ServerError) error {
	c := s.buf[s.r0+4]
	if silent(c) && s.r1-s.r0 >= 9 {
		id := getID(s.buf[s.r0+5:])
		if c == comStmtClose {
			s.state.close(id)
		} else if st := s.state.prepared[id]; st != nil {
			st.missing = true
		}
	}
	if err := s.discard(); err != nil || silent(c) {
		return err
	}
	return s.tell(e)
}

func (s *session) tell(e *mysqlwire.ServerError) error {
	return s.write(mysqlwire.AppendPacket(nil, s.next, mysqlwire.AppendERR(nil, e)))
}

func (s *session) write(p []byte) error {
	_, err := s.client.Write(p)
	return err
}

// resume finds the server that the view names, logs in and restores the session's state. refused is an error for the
// client, whose session continues; err ends the session.
func (s *session) resume() (refused *mysqlwire.ServerError, err error) {
	ctx, cancel := context.WithTimeout(s.r.ctx, s.r.cfg.HoldTimeout)
	defer cancel()
	s.drop()
	for {
		seen := s.r.views.Load()
		l, no := s.r.connect(ctx, s.port, s.tcp, s.from, s)
		if l == nil {
			if s.r.ctx.Err() != nil {
				return nil, errEnd
			}
			return &mysqlwire.ServerError{Code: no.code, State: "HY000", Message: no.text}, nil
		}
		s.link, s.seen = l, seen
		err := s.rebuild(ctx, l)
		if err == nil {
			s.r.count(s.port, func(p *PortStats) { p.Carried++ })
			return nil, nil
		}
		s.drop()
		if !passes(err) {
			return nil, errors.Join(s.answerError(&mysqlwire.ServerError{Code: mysqlwire.CodeServerShutdown, State: "08S01",
				Message: "Trireme: this session could not be carried over to another server: " + err.Error()}), errEnd)
		}
		s.r.cfg.Logger.Debug("router: a session was not carried over yet", "node", l.target.Name, "error", err)
		if !s.r.pause(retryPause) {
			return nil, errEnd
		}
		if server, ok := errors.AsType[*mysqlwire.ServerError](err); ok && ctx.Err() != nil {
			return server, nil
		}
	}
}

// passes reports whether what keeps a session from going on at a server may be over in a moment: the server ends, or is
// full.
func passes(err error) bool {
	if server, ok := errors.AsType[*mysqlwire.ServerError](err); ok {
		switch server.Code {
		case mysqlwire.CodeServerShutdown, mysqlwire.CodeTooManyConns, erTooManyUserConnections, erUserLimitReached,
			erOfflineMode:
			return true
		}
		return false
	}
	for _, never := range []error{mysqlwire.ErrMalformed, mysqlwire.ErrSequence, mysqlwire.ErrTooLarge,
		mysqlwire.ErrAuthPlugin, errAnswer} {
		if errors.Is(err, never) {
			return false
		}
	}
	return true
}

// Errors of a server that has no room for another session now.
const (
	erTooManyUserConnections = 1203
	erUserLimitReached       = 1226
	erOfflineMode            = 3032
)

// rebuild logs in and repeats what the session has set.
func (s *session) rebuild(ctx context.Context, l *link) error {
	ctx, cancel := context.WithTimeout(ctx, s.r.cfg.LoginTimeout)
	defer cancel()
	conn := l.wire()
	as := s.login.response
	if bytes.Equal(s.state.schema, noSchema) {
		as.Database = ""
		as.Capabilities &^= mysqlwire.CapConnectWithDB
	}
	greeting, ok, err := mysqlwire.LoginAs(ctx, conn, as, s.login.password, s.r.backend(l.target).secrecy(s.login))
	if err != nil {
		return err
	}
	if want := s.login.response.Capabilities & s.login.greeting.Capabilities &^ mysqlwire.CapSSL; want&^greeting.Capabilities != 0 {
		return &mysqlwire.ServerError{Code: mysqlwire.CodeHandshake, State: "08S01",
			Message: "it offers less of the protocol than the one before"}
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = l.server.SetDeadline(deadline)
		defer func() { _ = l.server.SetDeadline(time.Time{}) }()
	}
	status := ok.Status | mysqlwire.StatusAutocommit // as after the first login
	for _, payload := range s.repeat() {
		if status, err = s.exec(conn, payload); err != nil {
			return fmt.Errorf("%.80s: %w", payload[1:], err)
		}
	}
	nc, rest, err := conn.Detach()
	if err != nil || len(rest) > 0 {
		return errors.Join(err, errAnswer)
	}
	s.server, s.trace = nc, s.r.points.begin(l.target, greeting.ConnectionID)
	s.at(&place{l.target, greeting.ConnectionID})
	s.state.status = status
	s.state.moved()
	if s.split != nil {
		s.split.here = s.state.made()
	}
	return nil
}

// repeat returns the commands that restore the state.
func (s *session) repeat() (commands [][]byte) {
	st := &s.state
	if st.cleared {
		commands = append(commands, []byte{comResetConnection})
	}
	if st.options != nil {
		commands = append(commands, st.options)
	}
	for _, text := range st.sets {
		commands = append(commands, s.query(text))
	}
	if st.insertID != 0 {
		commands = append(commands, s.query("SET last_insert_id = "+strconv.FormatUint(st.insertID, 10)))
	}
	if st.schema != nil && !bytes.Equal(st.schema, noSchema) {
		commands = append(commands, s.use(st.schema))
	}
	return commands
}

// noSchema is state.schema of a session whose schema it has dropped itself. As a command it fails: a server where the
// session has one must be logged in to once more.
var noSchema = []byte{comInitDB}

// use is the command that makes a schema the present one: state.schema, or nil for the login's.
func (s *session) use(schema []byte) []byte {
	switch {
	case schema == nil:
		return append([]byte{comInitDB}, s.login.response.Database...)
	case schema[0] == comQuery:
		return s.query(string(schema[1:]))
	}
	return schema
}

func (s *session) query(text string) []byte {
	p := []byte{comQuery}
	if s.attrs {
		p = append(p, 0, 1)
	}
	return append(p, text...)
}

// exec runs a command that yields no rows.
func (s *session) exec(conn *mysqlwire.Conn, payload []byte) (uint16, error) {
	conn.ResetSequence()
	if err := conn.WritePacket(payload); err != nil {
		return 0, err
	}
	p, err := conn.ReadPacket()
	if err != nil {
		return 0, err
	}
	if mysqlwire.IsERR(p) {
		e, err := mysqlwire.ParseERR(p)
		if err != nil {
			return 0, err
		}
		return 0, e
	}
	return mysqlwire.Status(p, !s.legacy && len(p) >= 7)
}

// prepareAgain prepares a statement at the present server, when it is used there for the first time. It keeps the
// schema that it was prepared in; under another character set or sql_mode it might become another statement.
func (s *session) prepareAgain(st *prepared) (*mysqlwire.ServerError, error) {
	if st.dialect != s.state.dialect {
		s.state.mark("a prepared statement that is older than its sql_mode or character set")
		return nil, errNotPortable
	}
	conn := mysqlwire.NewConn(s.server, mysqlwire.DefaultMaxPacket)
	// Without a schema of its own it names one for each table, and any will do.
	elsewhere := !bytes.Equal(st.schema, s.state.schema) && (st.schema != nil || s.login.response.Database != "")
	if elsewhere {
		if _, err := s.exec(conn, s.use(st.schema)); err != nil {
			return asRefused(err)
		}
	}
	refused, err := s.prepareOn(conn, st)
	if elsewhere && err == nil {
		if _, err = s.exec(conn, s.use(s.state.schema)); err != nil {
			s.state.mark("a schema that is gone")
			return nil, errNotPortable
		}
	}
	return refused, err
}

// errNotPortable: the session cannot go on at this server, for the reason in its state.
var errNotPortable = errors.New("session cannot be carried over")

// asRefused takes a server's own error out of the connection's.
func asRefused(err error) (*mysqlwire.ServerError, error) {
	if server, ok := errors.AsType[*mysqlwire.ServerError](err); ok {
		return server, nil
	}
	return nil, err
}

func (s *session) prepareOn(conn *mysqlwire.Conn, st *prepared) (*mysqlwire.ServerError, error) {
	conn.ResetSequence()
	if err := conn.WritePacket(append([]byte{comStmtPrepare}, st.text...)); err != nil {
		return nil, err
	}
	a := newAnswer(comStmtPrepare, !s.legacy)
	for first := true; a.state != answerDone; first = false {
		p, err := conn.ReadPacket()
		if err != nil {
			return nil, err
		}
		if first && mysqlwire.IsERR(p) {
			return mysqlwire.ParseERR(p)
		}
		if first && len(p) >= 12 {
			st.server, st.params = getID(p[1:]), int(p[7])|int(p[8])<<8
		}
		a.packet = len(p)
		if err := a.step(p[:min(len(p), headBytes)]); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
