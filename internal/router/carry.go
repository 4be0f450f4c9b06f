package router

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"trireme/internal/mysqlwire"
)

// Outcome is what became of a statement whose answer was lost.
type Outcome int

const (
	OutcomeUnknown Outcome = iota
	OutcomeCommitted
	OutcomeNotCommitted // for good
)

// Sent is a statement that may have been committed, and whose answer was lost.
type Sent struct {
	Node   string // Target's Name
	Epoch  string // and Epoch
	Thread uint32 // connection id at that server
	Commit uint64 // Config.CommitIndex when the statement was sent: what it committed lies behind that in the log
}

// Outcomes finds out what became of a statement. It answers OutcomeUnknown when ctx ends.
type Outcomes interface {
	Outcome(ctx context.Context, sent Sent) Outcome
}

// lostGrace is how long a session whose server ended by itself waits for a new view that explains it.
const lostGrace = 3 * time.Second

// look sees whether the present server is still there. It drops the link when it is not and the session can go on without; otherwise
// the session ends, and the client is told why if it can be.
func (s *session) look() error {
	l := s.link
	if l == nil {
		return nil
	}
	said := []byte(nil)
	ended := l.cut.Load()
	if !ended {
		said, ended = s.peek()
	}
	switch {
	case !ended && said == nil:
		return nil
	case said != nil: // mysqld says why it closes: its time-outs
		_, _ = s.client.Write(said)
		return errEnd
	}
	if !l.cut.Load() && s.r.views.Load() == s.seen && !s.r.awaitNews(s.seen, lostGrace) {
		return errEnd // somebody closed this one connection
	}
	if s.state.reason != "" {
		s.tell(0, s.notPortable())
		return errEnd
	}
	s.drop()
	return nil
}

// peek asks the server's socket, without waiting, whether anything came while nothing was asked.
func (s *session) peek() (said []byte, ended bool) {
	n, err := s.link.peek()
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
		s.link, s.server = nil, nil
	}
}

// lostTransaction tells the client that what it had begun is gone.
func (s *session) lostTransaction() error {
	s.forgetTransaction()
	s.r.count(s.port, func(p *PortStats) { p.RolledBack++ })
	return s.answerError(rolledBack())
}

func (s *session) forgetTransaction() {
	s.state.status &^= mysqlwire.StatusInTransaction
	s.state.once = false
	s.state.moved()
}

func rolledBack() *mysqlwire.ServerError {
	return &mysqlwire.ServerError{Code: mysqlwire.CodeDeadlock, State: "40001",
		Message: "Trireme: the server changed and the transaction was rolled back; repeat it"}
}

// lost answers a command whose server was lost while it was under way. a is nil when it was not sent.
func (s *session) lost(j *job, a *answer) error {
	l := s.link
	sent := Sent{Node: l.target.Name, Epoch: l.target.Epoch, Thread: s.thread, Commit: j.commit}
	s.drop()
	j.over = true
	seq := byte(1)
	if a != nil {
		if !a.whole() {
			return errEnd // in the middle of a packet: nothing can be said
		}
		if a.began() {
			seq = a.seq + 1
		}
	}
	if a == nil {
		if err := s.discard(); err != nil {
			return err
		}
	}
	if s.state.mark(j.effect.reason); s.state.reason != "" {
		s.tell(seq, s.notPortable())
		return errEnd
	}
	if silent(j.command) {
		s.forgetTransaction()
		return nil
	}
	said := rolledBack()
	if a != nil && j.effect.mayCommit(j.sinceTrx, j.autocommit) {
		said = s.outcome(j, a, sent)
	}
	s.forgetTransaction()
	if said == nil {
		return s.write(mysqlwire.AppendPacket(nil, seq, mysqlwire.AppendOK(nil, mysqlwire.OK{Status: s.state.status})))
	}
	s.r.count(s.port, func(p *PortStats) {
		if said.Code == mysqlwire.CodeDeadlock {
			p.RolledBack++
		} else {
			p.Unknown++
		}
	})
	return s.tell(seq, said)
}

// outcome words what became of a statement that may have been committed; nil: it was, and an OK says all about it.
func (s *session) outcome(j *job, a *answer, sent Sent) *mysqlwire.ServerError {
	known := OutcomeUnknown
	if o := s.r.cfg.Outcomes; o != nil && !j.effect.several {
		ctx, cancel := context.WithTimeout(s.r.ctx, s.r.cfg.HoldTimeout)
		known = o.Outcome(ctx, sent)
		cancel()
	}
	text := "the outcome of this statement is not known: the server changed while it was under way; look before you repeat it"
	switch {
	case known == OutcomeNotCommitted:
		return rolledBack()
	case known == OutcomeCommitted && j.effect.verb == verbCommit && !a.began():
		return nil
	case known == OutcomeCommitted:
		text = "this statement was committed; its result was lost with the server. Do not repeat it"
	}
	return &mysqlwire.ServerError{Code: mysqlwire.CodeServerUnavailable, State: "08007", Message: "Trireme: " + text}
}

// notPortable tells why a session ends.
func (s *session) notPortable() *mysqlwire.ServerError {
	s.r.count(s.port, func(p *PortStats) { p.NotCarried++ })
	return &mysqlwire.ServerError{Code: mysqlwire.CodeServerShutdown, State: "08S01",
		Message: "Trireme: the server changed, and this session cannot be carried over: it has " + s.state.reason + "; connect again"}
}

// cannot ends a session that turns out not to be portable only now.
func (s *session) cannot() error {
	s.tell(1, s.notPortable())
	return errEnd
}

// answerError answers the command in buf with an error of the router's own.
func (s *session) answerError(e *mysqlwire.ServerError) error {
	c := s.buf[s.r0+4]
	if err := s.discard(); err != nil || silent(c) {
		return err
	}
	return s.tell(1, e)
}

func (s *session) tell(seq byte, e *mysqlwire.ServerError) error {
	return s.write(mysqlwire.AppendPacket(nil, seq, mysqlwire.AppendERR(nil, e)))
}

func (s *session) write(p []byte) error {
	_, err := s.client.Write(p)
	return err
}

// resume finds the server that the view names, logs in and makes the session's state anew. refused is for the client, whose session
// goes on; an error ends it.
func (s *session) resume() (refused *mysqlwire.ServerError, err error) {
	ctx, cancel := context.WithTimeout(s.r.ctx, s.r.cfg.HoldTimeout)
	defer cancel()
	s.drop()
	for {
		seen := s.r.views.Load()
		l, no := s.r.connect(ctx, s.port, s.tcp, s)
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
		if server, ok := errors.AsType[*mysqlwire.ServerError](err); ok && server.Code != mysqlwire.CodeServerShutdown {
			_ = s.answerError(&mysqlwire.ServerError{Code: mysqlwire.CodeServerShutdown, State: "08S01",
				Message: "Trireme: this session could not be carried over to another server: " + server.Error()})
			return nil, errEnd
		}
		s.r.cfg.Logger.Debug("router: a session was not carried over yet", "node", l.target.Name, "error", err)
		if !s.r.pause(retryPause) {
			return nil, errEnd
		}
	}
}

// rebuild logs in and repeats what the session has set.
func (s *session) rebuild(ctx context.Context, l *link) error {
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	conn := l.wire()
	tls := backendTLS
	if !s.login.secure {
		tls = nil
	}
	greeting, ok, err := mysqlwire.LoginAs(ctx, conn, s.login.response, s.login.password, tls)
	if err != nil {
		return err
	}
	if want := s.login.response.Capabilities & s.login.greeting.Capabilities &^ mysqlwire.CapSSL; want&^greeting.Capabilities != 0 {
		return &mysqlwire.ServerError{Code: mysqlwire.CodeHandshake, State: "08S01", Message: "it offers less of the protocol than the one before"}
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = l.server.SetDeadline(deadline)
		defer func() { _ = l.server.SetDeadline(time.Time{}) }()
	}
	status := ok.Status
	for _, payload := range s.repeat() {
		if status, err = s.exec(conn, payload); err != nil {
			return fmt.Errorf("%.80s: %w", payload[1:], err)
		}
	}
	nc, rest, err := conn.Detach()
	if err != nil || len(rest) > 0 {
		return errors.Join(err, errAnswer)
	}
	s.server, s.thread = nc, greeting.ConnectionID
	s.state.status = status
	s.state.moved()
	return nil
}

// repeat is the commands that make the state anew.
func (s *session) repeat() (commands [][]byte) {
	st := &s.state
	if st.options != nil {
		commands = append(commands, st.options)
	}
	for _, text := range st.sets {
		commands = append(commands, s.query(text))
	}
	if st.insertID != 0 {
		commands = append(commands, s.query("SET last_insert_id = "+strconv.FormatUint(st.insertID, 10)))
	}
	if len(st.schema) > 0 && st.schema[0] == comQuery {
		return append(commands, s.query(string(st.schema[1:])))
	} else if st.schema != nil {
		commands = append(commands, st.schema)
	}
	return commands
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

// prepareAgain prepares a statement at the present server, when it is used there for the first time.
func (s *session) prepareAgain(st *prepared) (*mysqlwire.ServerError, error) {
	conn := mysqlwire.NewConn(s.server, mysqlwire.DefaultMaxPacket)
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
