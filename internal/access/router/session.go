package router

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"trireme/internal/base/nbio"
	"trireme/internal/mysql/mysqlwire"
	"trireme/internal/mysql/sqlkind"
)

// inBytes is what each session keeps of its client's bytes; statements that do not fit are passed on in parts.
const inBytes = 4096

// pieceBytes is how much of an answer, or of a long statement, is passed on at once. The buffers are shared: an idle
// session has none.
const pieceBytes = 32 << 10

var pieces = sync.Pool{New: func() any { return new([pieceBytes]byte) }}

// session is a client whose commands are followed, so that it can go on at another server. One goroutine runs it: the
// protocol takes turns, so it reads from the one side whose turn it is. Others only close its server (link.abort) and
// wake it.
type session struct {
	r      *Router
	port   *port
	tcp    *nbio.Conn
	from   netip.AddrPort // the client's
	client net.Conn       // tcp, or TLS on it
	link   *link          // the present server; nil: none
	server net.Conn       // link's, or TLS on it
	login  *login
	seen   uint64 // router's views when the present server was last found in order
	next   byte   // number of the packet with which the router would speak to the client now
	legacy bool   // EOF packets instead of CLIENT_DEPRECATE_EOF's
	attrs  bool   // CLIENT_QUERY_ATTRIBUTES
	active bool   // counted in Router.active
	state  state
	trace  trace      // at the present server
	split  *splitting // on the splitting port
	wish   wishes
	known  known

	buf     [inBytes]byte
	r0      int // buf[r0:r1] was read and not passed on
	r1      int
	tiedBy  atomic.Pointer[string] // state.reason, after the last command; nil: it was empty
	firstID uint32                 // connection id that the client was told at its login
	places  atomic.Pointer[places] // where it is connected, for who kills it
	doubt   bool                   // the server may answer a command that has no answer
	rang    atomic.Bool            // somebody wants it to look at its server
	busy    atomic.Bool            // it waits for its server only, and has passed on all that its client has said
	// telling is the server of which it passes something on to its client at this moment, while it is active; nil once
	// it has been counted out.
	telling atomic.Pointer[link]
}

func newSession(r *Router, l *link, in *login, client, server net.Conn) *session {
	caps := in.response.Capabilities
	s := &session{r: r, port: l.port, tcp: l.client, from: l.from, client: client, link: l, server: server, login: in,
		seen: r.views.Load(), legacy: caps&mysqlwire.CapDeprecateEOF == 0,
		attrs: caps&mysqlwire.CapQueryAttributes&in.greeting.Capabilities != 0,
		trace: r.points.begin(l.target, in.greeting.ConnectionID), wish: r.cfg.wishes(in.response.User),
		// init_connect may have changed it since: the worse is taken
		state: state{status: in.status | mysqlwire.StatusAutocommit}}
	if l.port == &r.split {
		s.split = &splitting{}
	}
	s.firstID = in.greeting.ConnectionID
	s.places.Store(&places{{l.target, s.firstID}})
	return s
}

// ring makes the session look at its server, if it waits for its client.
func (s *session) ring() {
	s.rang.Store(true)
	_ = s.tcp.SetReadDeadline(time.Unix(1, 0))
}

// midwayRings is how often, about each roundPause, a client may be found silent in the middle of a command that no
// server takes any more: 30 s, mysqld's net_read_timeout.
const midwayRings = 6

// fromClient reads more from the client; idle says that nothing is under way, so that a ring is answered. In the middle
// of a command the server limits the time of a silent client; without a server, the router does.
func (s *session) fromClient(b []byte, idle bool) (int, error) {
	for silent := 0; ; {
		n, err := s.client.Read(b)
		if n > 0 || err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		_ = s.tcp.SetReadDeadline(time.Time{})
		switch {
		case !s.rang.Swap(false):
		case idle:
			if err := s.look(); err != nil {
				return 0, err
			}
		case s.alone():
			if s.link == nil || s.link.cut.Load() {
				s.leave() // nothing of it is under way anywhere
			}
			if silent++; silent > midwayRings {
				return 0, errEnd
			}
		}
	}
}

// alone says that no server waits for the rest of a command.
func (s *session) alone() bool {
	if s.link == nil || s.link.cut.Load() {
		return true
	}
	_, err := s.link.server.Peek()
	return !errors.Is(err, syscall.EAGAIN)
}

// need fills buf until n bytes are there, n <= inBytes.
func (s *session) need(n int, idle bool) error {
	if s.r1-s.r0 >= n {
		return nil
	}
	if s.r0 > 0 {
		s.r1 = copy(s.buf[:], s.buf[s.r0:s.r1])
		s.r0 = 0
	}
	for s.r1 < n {
		k, err := s.fromClient(s.buf[s.r1:], idle)
		s.r1 += k
		if err != nil && s.r1 < n {
			return err
		}
	}
	return nil
}

// errEnd ends a session without more being said.
var errEnd = errors.New("session ended")

// run carries out the client's commands until one side ends the session.
func (s *session) run() {
	defer s.leave()
	for {
		if err := s.need(5, true); err != nil {
			return
		}
		if err := s.command(); err != nil {
			return
		}
	}
}

// header reads the header of the client's packet in buf.
func (s *session) header() (length int) {
	length, seq := mysqlwire.ParseHeader(s.buf[s.r0:])
	s.next = seq + 1
	return length
}

// command carries out the command whose first bytes are in buf.
func (s *session) command() error {
	length := s.header()
	c := s.buf[s.r0+4]
	switch {
	case length == 0:
		return errEnd
	case c == comQuit:
		if s.link != nil {
			_, _ = s.server.Write(s.buf[s.r0 : s.r0+5])
		}
		return errEnd
	case length < shortest[c]:
		return errors.Join(s.tell(&mysqlwire.ServerError{Code: codeMalformed, State: "HY000",
			Message: "Malformed communication packet."}), errEnd)
	case s.doubt && !silent(c):
		if err := s.inStep(); err != nil {
			return err
		}
	}
	if err := s.need(min(4+length, inBytes), true); err != nil { // nothing of it is under way yet
		return err
	}
	if done, err := s.own(c, length); done {
		return s.settle(err)
	}
	if done, err := s.kill(c, length); done {
		return err
	}
	if s.split != nil {
		return s.steer(c, length)
	}
	return s.lead(c, length)
}

// codeMalformed is ER_MALFORMED_PACKET.
const codeMalformed = 1835

// inStep makes sure that the server has not answered a command that has no answer: the client would take that for the
// answer to its next command, and the router too. Such a session ends.
func (s *session) inStep() error {
	s.doubt = false
	if s.link == nil {
		return nil
	}
	_ = s.link.server.SetDeadline(time.Now().Add(s.r.cfg.HoldTimeout))
	defer func() { _ = s.link.server.SetDeadline(time.Time{}) }()
	conn := mysqlwire.NewConn(s.server, mysqlwire.DefaultMaxPacket)
	if err := conn.WritePacket([]byte{comStatistics}); err != nil {
		return nil // the server is lost, which the command will find
	}
	p, err := conn.ReadPacket()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, mysqlwire.ErrSequence):
		return errEnd
	case err != nil || !mysqlwire.IsERR(p):
		return nil
	}
	said, err := mysqlwire.ParseERR(p)
	if err != nil {
		return err
	}
	return errors.Join(s.tell(said), errEnd)
}

// levelOfNext is the level of the account that COM_CHANGE_USER names; of one whose name has not come whole, the
// router's highest.
func (s *session) levelOfNext() Level {
	user, _, whole := bytes.Cut(s.buf[min(s.r0+5, s.r1):s.r1], []byte{0})
	if !whole && s.r.cfg.waits() {
		return BeforeAndAfter
	}
	return s.r.cfg.level(string(user))
}

// lead carries out a command on the server in use, which is the leader unless a transaction is open on a follower.
func (s *session) lead(c byte, length int) error {
	if c == comStmtClose && length >= 5 && s.link == nil {
		s.state.close(getID(s.buf[s.r0+5:]))
		return s.discard()
	}
	boundary := s.state.boundary()
	if found, err := s.find(); !found || err != nil {
		return err
	}
	if !understood(c) {
		level := s.wish.level
		if c == comChangeUser && !level.waits() {
			level = s.levelOfNext()
		}
		if level.waits() {
			return s.settle(s.answerError(noLevel(level)))
		}
	}
	if !understood(c) {
		return s.through()
	}
	level := Eventual
	if sendsText(c) {
		var wrong error
		if level, wrong = s.levelOf(c, length); wrong != nil {
			return s.settle(s.answerError(&mysqlwire.ServerError{Code: codeParse, State: "42000", Message: "Trireme: " +
				wrong.Error()}))
		}
		if boundary {
			if found, err := s.current(level); !found || err != nil {
				return err
			}
		}
	}
	j := job{command: c, length: length, effect: sqlkind.Effect{Verb: sqlkind.VerbShow},
		sinceTrx:   s.state.inTransaction() && !s.state.guess,
		autocommit: s.state.autocommit() || s.state.guess, level: level}
	if err := s.ready(&j); err != nil || j.over {
		return s.settle(err)
	}
	if s.unfit(&j) {
		return s.refuse(&j)
	}
	if s.reads() && j.effect.EndsXA {
		return s.settle(s.answerError(noXA))
	}
	s.keepPrepared(&j)
	return s.settle(s.perform(&j))
}

// settle ends a command: a session at a boundary may be parked again.
func (s *session) settle(err error) error {
	s.noteTie()
	s.next = 0
	if s.active && (s.state.reason != "" || s.state.boundary()) {
		s.leave()
	}
	return err
}

// noteTie tells others what ties it to its server.
func (s *session) noteTie() {
	reason := s.state.reason
	if reason == "" && s.split != nil && len(s.split.owed) > 0 {
		reason = sqlkind.UserVariables
	}
	switch by := s.tiedBy.Load(); {
	case by == nil && reason == "" || by != nil && *by == reason:
	case reason == "":
		s.tiedBy.Store(nil)
	default:
		s.tiedBy.Store(&reason)
	}
}

// find makes sure of a server for the next command. If it finds none without an error the client was told why, and the
// session goes on.
func (s *session) find() (found bool, err error) {
	boundary, waited := s.state.boundary(), false
	if boundary && s.state.reason == "" {
		waited = s.r.holding.Load()
		if refused := s.enter(); refused != nil {
			return false, s.answerError(refused)
		}
	}
	if s.link != nil {
		if err := s.look(); err != nil {
			return false, err
		}
	}
	if s.link == nil {
		if !boundary && !s.endsTransaction(s.r0) {
			return false, s.settle(s.lostTransaction())
		}
		refused, err := s.resume()
		if refused != nil {
			err = errors.Join(err, s.answerError(refused))
		}
		if err != nil || refused != nil {
			return false, s.settle(err)
		}
		waited = true
	}
	if waited && s.gone() {
		return false, errEnd
	}
	return true, nil
}

// gone reports that the client has left while its command waited. No client would read the answer, and a client that
// repeats the command elsewhere would execute it twice.
func (s *session) gone() bool {
	_ = s.tcp.SetReadDeadline(time.Time{}) // of a ring, which has been answered
	n, err := s.tcp.Peek()
	if n > 0 && s.client != net.Conn(s.tcp) && s.r1 < inBytes { // over TLS it may be the client's word that it ends
		_ = s.tcp.SetReadDeadline(time.Now().Add(time.Millisecond))
		n, err = s.client.Read(s.buf[s.r1:])
		_ = s.tcp.SetReadDeadline(time.Time{})
		s.r1 += n
		return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	}
	return n == 0 && err == nil || errors.Is(err, syscall.ECONNRESET)
}

// enter begins what is no boundary any more. While a planned switchover holds the router it waits for its end; it fails
// when that does not come in time.
func (s *session) enter() *mysqlwire.ServerError {
	if s.active || s.port.readOnly {
		return nil
	}
	ctx, cancel := context.Context(nil), context.CancelFunc(nil)
	for {
		s.active = true
		s.r.active.Add(1)
		if !s.r.holding.Load() {
			return nil
		}
		s.leave()
		if ctx == nil {
			ctx, cancel = context.WithTimeout(s.r.ctx, s.r.cfg.HoldTimeout)
			defer cancel()
		}
		if !s.r.awaitRelease(ctx, s.port) {
			return &mysqlwire.ServerError{Code: erOptionPreventsStatement, State: "HY000", Message: s.r.noTarget(s.port).text}
		}
	}
}

// leave is the end of what enter began.
func (s *session) leave() {
	if !s.active {
		return
	}
	s.active = false
	s.r.less(&s.r.active)
}

// toClient passes a part of an answer on. A client that does not read holds it up for as long as it likes.
func (s *session) toClient(p []byte) error {
	if !s.active {
		return s.write(p)
	}
	l := s.link
	s.telling.Store(l)
	if l.cut.Load() { // before it could be counted out
		s.hasLost(l)
	}
	err := s.write(p)
	s.active = s.telling.CompareAndSwap(l, nil)
	return err
}

// hasLost counts a session out that has nothing to do but to pass on what it has from a server that is cut: nothing of
// it is under way anywhere.
func (s *session) hasLost(l *link) {
	if s.telling.CompareAndSwap(l, nil) {
		s.r.less(&s.r.active)
	}
}

// job is one command on its way.
type job struct {
	command    byte
	length     int
	effect     sqlkind.Effect
	stmt       *prepared
	stmtID     uint32
	skip       int                    // bytes of its first packet before the text
	scan       *sqlkind.EffectScanner // of a text that does not fit in buf
	text       []byte                 // of a statement that may have to be repeated
	keep       bool                   // text is all of it
	drops      bool                   // it drops the present schema
	sinceTrx   bool                   // a transaction was open before it
	autocommit bool
	over       bool // answered already
	level      Level
	begin      int  // where in buf it begins
	whole      bool // it is in buf to its end
	spare      bool // a read on a follower, which the leader can take as well
	told       bool // the client has a part of the answer
}

// perform sends a command and passes its answer on.
func (s *session) perform(j *job) error {
	s.r.points.now(&s.trace, s.link.target)
	if j.scan != nil || j.effect.MayCommit(j.sinceTrx, j.autocommit) {
		s.known.wrote, s.known.by = true, s.link.target.Name
	}
	j.begin, j.whole = s.r0, s.r1-s.r0 >= 4+j.length
	fromServer, err := s.send(j)
	if err != nil {
		return err
	}
	if errors.Is(fromServer, errEndsXA) {
		return errors.Join(s.tell(noXA), errEnd)
	}
	if silent(j.command) {
		s.doubt = s.doubt || j.length > silentBytes
		return nil
	}
	a := newAnswer(j.command, !s.legacy)
	if fromServer != nil { // it may have said why it does not read on: a statement can be too long
		_ = s.link.server.SetReadDeadline(time.Now().Add(time.Second))
	}
	if fromServer, err = s.receive(j, &a); err != nil {
		return err
	}
	if fromServer != nil {
		return s.lost(j, &a)
	}
	s.learn(j, &a)
	return nil
}

// send passes a command on, all packets of it. The two errors are the server's, which is told to the client, and the
// client's, which ends the session. What the server does not take any more is read all the same.
func (s *session) send(j *job) (fromServer, err error) {
	for length, skip := j.length, j.skip; ; skip = 4 {
		if fromServer, err = s.sendPacket(j, length, skip, fromServer); err != nil {
			return fromServer, err
		}
		if length < mysqlwire.MaxPayload {
			break
		}
		if err := s.need(4, false); err != nil {
			return fromServer, err
		}
		length = s.header()
	}
	if j.scan != nil {
		j.scan.Finish()
		j.effect = j.scan.Effect
	}
	return fromServer, nil
}

// sendPacket passes one packet on, of which the first skip bytes are no text.
func (s *session) sendPacket(j *job, length, skip int, failed error) (fromServer, err error) {
	fromServer = failed
	for left := 4 + length; left > 0; skip = 0 {
		if have := min(s.r1-s.r0, left); have > 0 {
			fromServer = s.toServer(j, s.buf[s.r0:s.r0+have], skip, fromServer)
			s.r0 += have
			left -= have
			continue
		}
		piece := pieces.Get().(*[pieceBytes]byte)
		n, err := s.fromClient(piece[:min(left, pieceBytes)], false)
		if n > 0 {
			fromServer = s.toServer(j, piece[:n], skip, fromServer)
		}
		pieces.Put(piece)
		if left -= n; err != nil && left > 0 {
			return fromServer, err
		}
	}
	return fromServer, nil
}

// toServer passes a part of a command on, the first skip bytes of which are no text.
func (s *session) toServer(j *job, p []byte, skip int, failed error) error {
	if j.scan != nil && len(p) > skip {
		j.scan.Write(p[skip:])
		if j.keep && len(j.text)+len(p)-skip <= maxPreparedBytes {
			j.text = append(j.text, p[skip:]...)
		} else {
			j.keep = false
		}
	}
	if failed != nil {
		return failed
	}
	if j.scan != nil && j.scan.EndsXA && s.reads() {
		_ = s.link.server.Close() // before the server has it all
		return errEndsXA
	}
	s.link.in.Add(int64(len(p)))
	_, err := s.server.Write(p)
	return err
}

// reads says that the server in use is a follower, or is treated as one.
func (s *session) reads() bool { return s.port.readOnly || s.state.following }

// A follower holds the XA transactions that the leader has prepared, and its mysqld would end one of them for any
// session, although it is read-only.
var (
	errEndsXA = errors.New("XA COMMIT or XA ROLLBACK on a follower")
	noXA      = &mysqlwire.ServerError{Code: erOptionPreventsStatement, State: "HY000",
		Message: "Trireme: XA COMMIT and XA ROLLBACK belong to the leader, not to a follower; use port 6446"}
)

// receive passes the answer on until it ends.
func (s *session) receive(j *job, a *answer) (fromServer, err error) {
	piece := pieces.Get().(*[pieceBytes]byte)
	defer pieces.Put(piece)
	first := s.next
	s.busy.Store(s.r0 == s.r1)
	defer s.busy.Store(false)
	for !a.done() {
		n, err := s.server.Read(piece[:])
		if n > 0 && j.command == comStmtPrepare && !a.prepared && a.state == expectPrepare {
			if n, err = s.prepareHead(j, piece[:], n); err != nil {
				return err, nil
			}
		}
		used, bad := a.feed(piece[:n])
		if n > 0 {
			s.next = a.seq + 1
		}
		s.link.out.Add(int64(used))
		if bad != nil || used < n {
			return nil, s.garbage(j.command)
		}
		if j.elsewhere(a) {
			return errElsewhere, nil
		}
		if a.done() {
			if taken, err := s.hold(j, a, first, piece[:n]); taken {
				return nil, err
			}
		}
		if n > 0 {
			j.told = true
			if err := s.toClient(piece[:n]); err != nil {
				return nil, err
			}
		}
		if a.done() {
			return nil, nil
		}
		if err != nil {
			return err, nil
		}
		if a.local() {
			if fromServer, err := s.localFile(); fromServer != nil || err != nil {
				return fromServer, err
			}
			a.resume()
		}
	}
	return nil, nil
}

// garbage ends a session whose server sends an answer that was not asked for.
func (s *session) garbage(command byte) error {
	s.r.cfg.Logger.Warn("router: a server's answer is not understood, its connection is closed",
		"node", s.link.target.Name, "command", command)
	return errAnswer
}

// localFile passes the client's file on, up to the empty packet after it. It reads the file to its end even if the
// server does not take it any more: the client does not know that, and the lines of the file are not commands.
func (s *session) localFile() (fromServer, err error) {
	s.busy.Store(false)
	for full := false; ; {
		if err := s.need(4, false); err != nil {
			return nil, err
		}
		length := s.header()
		if fromServer, err = s.sendPacket(&job{}, length, 0, fromServer); err != nil {
			return fromServer, err
		}
		if length == 0 && !full { // an empty packet after a full one only ends that
			return fromServer, nil
		}
		full = length == mysqlwire.MaxPayload
	}
}

// discard reads the present command to its end without passing it on.
func (s *session) discard() error {
	for {
		if err := s.need(4, false); err != nil {
			return err
		}
		length := s.header()
		s.r0 += 4
		if err := s.skip(length); err != nil || length < mysqlwire.MaxPayload {
			return err
		}
	}
}

func (s *session) skip(left int) error {
	for left > 0 {
		if err := s.need(1, false); err != nil {
			return err
		}
		n := min(left, s.r1-s.r0)
		s.r0 += n
		left -= n
	}
	return nil
}

// through gives the rest of the connection up to be passed on as bytes: the session cannot be carried over any more.
func (s *session) through() error {
	s.leave()
	l := s.link
	if !s.r.untie(l, "a command that is not followed, such as COM_CHANGE_USER") {
		return errEnd
	}
	l.tap = s.login.tap()
	s.login = nil // with the password
	_ = s.tcp.SetReadDeadline(time.Time{})
	l.c, l.s, l.early = s.client, s.server, s.buf[s.r0:s.r1]
	l.run(s.r)
	return errEnd
}
