package router

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"trireme/internal/mysql/mysqlwire"
	"trireme/internal/mysql/sqlkind"
)

// followerPause is how long a session whose follower could not be had reads from the leader before it looks for one
// again.
const followerPause = time.Second

var (
	errNoReads   = errors.New("this router cannot tell what its servers have applied")
	errElsewhere = errors.New("the follower does not take this statement")
)

// splitting is what a session on the splitting port has besides: a second server. Between two commands outside of a
// transaction the leader is the one in use, so that all that holds for sessions (boundaries, resuming) holds for it; a
// read turns to the follower and back. Each side gets what was set at the other when it is used again.
type splitting struct {
	other side
	here  made      // of the side in use
	last  bool      // the last statement ran on the follower: what it left is asked for there
	owed  []string  // user variables that only the follower has (carryVariables)
	spoke bool      // the last command did: how long the client is idle is counted there
	again time.Time // when a follower may be looked for
}

// side is a server that is not in use.
type side struct {
	link   *link
	server net.Conn
	trace  trace
	seen   uint64
	status uint16
	made   made
}

// made is what a server has of what the session has set.
type made struct {
	sets            []string
	schema, options []byte
}

func (st *state) made() made {
	return made{sets: slices.Clone(st.sets), schema: st.schema, options: st.options}
}

// turn swaps the two sides.
func (s *session) turn() {
	sp, o := s.split, s.split.other
	sp.other = side{s.link, s.server, s.trace, s.seen, s.state.status, sp.here}
	s.link, s.server, s.trace, s.seen, s.state.status, sp.here = o.link, o.server, o.trace, o.seen, o.status, o.made
	s.state.following = !s.state.following
}

// leaveFollower makes the leader the side in use; with give the follower is given up.
func (s *session) leaveFollower(give bool) {
	if give {
		s.drop()
		s.state.moved()
	}
	if s.link == nil {
		s.split.here, s.state.status = made{}, s.state.status&^mysqlwire.StatusInTransaction
	}
	s.turn()
}

// dropFollower gives the follower up, whichever side is in use.
func (s *session) dropFollower() {
	if !s.state.following {
		s.turn()
	}
	if s.state.inTransaction() {
		s.forgetTransaction()
	}
	s.leaveFollower(true)
}

// steer carries out a command of the splitting port where it belongs.
func (s *session) steer(c byte, length int) error {
	if c == comStmtClose && length >= 5 {
		return s.closeBoth()
	}
	if c == comResetConnection || !understood(c) {
		s.dropFollower()
		s.split.owed = nil
	}
	if s.state.following && s.state.inTransaction() && s.commits(c, length) {
		s.commitFollower()
	}
	need, mode := s.access(c, length)
	if need != sqlkind.Diagnosis {
		if err := s.carryVariables(c); err != nil {
			return err
		}
	}
	if s.state.boundary() {
		if (need != sqlkind.Write || mode == accessReadOnly && sendsText(c)) && s.toFollower(c, length, need) {
			again, err := s.read(c, length, need)
			if s.state.following && s.state.boundary() {
				s.leaveFollower(false)
			}
			if err != nil || !again {
				return err
			}
		}
		if s.catchUp() != nil {
			s.drop() // and opened again, with all that was set
		}
	}
	if err := s.carryVariables(c); err != nil { // the follower did not take a question about its diagnostics
		return err
	}
	if mode == accessReadOnly && need == sqlkind.Write && sendsText(c) && !s.state.following {
		return s.settle(s.answerError(&mysqlwire.ServerError{Code: erOptionPreventsStatement, State: "HY000",
			Message: "Trireme: access_mode is read_only, and no follower can take this statement now"}))
	}
	if s.split.spoke = s.state.following; !keepsDiagnostics(c) {
		s.split.last = s.state.following
	}
	err := s.lead(c, length)
	if s.state.following && s.state.reason != "" {
		return errEnd // it stays on a server that the session leaves
	}
	if s.state.following && s.state.boundary() {
		s.leaveFollower(s.link == nil)
	}
	return err
}

// keepsDiagnostics reports whether a command leaves what is known of the statement before it (measured with 9.7).
func keepsDiagnostics(c byte) bool {
	switch c {
	case comPing, comStatistics, comInitDB, comSetOption, comStmtSendLong, comStmtReset:
		return true
	}
	return false
}

// commits reports whether a command commits the READ ONLY transaction that is open on the follower, by itself.
func (s *session) commits(c byte, length int) bool {
	if s.r1-s.r0 < 4+length || length < 5 {
		return false
	}
	p := s.buf[s.r0+4 : s.r0+4+length]
	switch c {
	case comQuery:
		at, ok := s.attributes(p)
		return ok && sqlkind.CommitsImplicitly(p[at.length:])
	case comStmtExecute:
		st := s.state.prepared[getID(p[1:])]
		return st != nil && sqlkind.CommitsImplicitly(st.text)
	}
	return false
}

// commitFollower ends the READ ONLY transaction on the follower, so that what commits it by itself runs on the leader.
func (s *session) commitFollower() {
	if s.link != nil {
		_ = s.link.server.SetDeadline(time.Now().Add(s.r.cfg.LoginTimeout))
		status, err := s.exec(mysqlwire.NewConn(s.server, loginMaxPacket), s.query("COMMIT"))
		_ = s.link.server.SetDeadline(time.Time{})
		if s.state.status = status; err == nil && s.state.boundary() {
			s.leaveFollower(false)
			return
		}
	}
	s.dropFollower() // nothing but a snapshot is lost with it
}

// sendsText reports whether a command runs, or prepares, a statement.
func sendsText(c byte) bool { return c == comQuery || c == comStmtPrepare || c == comStmtExecute }

// access is what the next command needs, and the access_mode that holds for it. What is not here as a whole is not
// judged.
func (s *session) access(c byte, length int) (sqlkind.Access, accessMode) {
	mode := s.wish.access
	if !sendsText(c) || length < 5 || s.r1-s.r0 < 4+length {
		return sqlkind.Write, mode
	}
	p, need := s.buf[s.r0+4:s.r0+4+length], sqlkind.Write
	switch c {
	case comQuery:
		at, ok := s.attributes(p)
		if !ok {
			return need, mode
		}
		if at.access != nil {
			mode = *at.access
		}
		need = sqlkind.AccessOf(p[at.length:], s.state.status&statusNoBackslash != 0)
		if need == sqlkind.Write && s.split.last {
			if n := len(s.targets(c, length)); n > 0 && len(s.split.owed)+n <= maxSets {
				need = sqlkind.Diagnosis
			}
		}
	case comStmtPrepare:
		if s.state.keeps(len(p) - 1) { // else the session stays at the leader, which could not be told its text
			need = sqlkind.AccessOf(p[1:], s.state.status&statusNoBackslash != 0)
		}
	case comStmtExecute:
		// A cursor stays open, and parameters sent ahead are at the leader.
		if st := s.state.prepared[getID(p[1:])]; st != nil && len(p) > 5 && p[5]&^executeCounted == 0 && !st.long {
			need = st.needs()
		}
	}
	if need != sqlkind.Write && sqlkind.OwnSchema(s.schema()) {
		need = sqlkind.Write
	}
	if mode != accessReadOnly && (mode == accessReadWrite || s.state.reason != "" || !s.state.autocommit() ||
		s.state.isNull) ||
		need == sqlkind.Diagnosis && !s.split.last {
		need = sqlkind.Write
	}
	return need, mode
}

// schema is the one that names without one mean.
func (s *session) schema() []byte {
	switch p := s.state.schema; {
	case len(p) == 0:
		return []byte(s.login.response.Database)
	case p[0] == comQuery:
		return sqlkind.UsedSchema(p[1:])
	default:
		return p[1:]
	}
}

// executeCounted is COM_STMT_EXECUTE's PARAMETER_COUNT_AVAILABLE; the other flags ask for a cursor.
const executeCounted = 0x08

// needs is what a prepared statement needs, whatever sql_mode it was prepared in.
func (p *prepared) needs() sqlkind.Access {
	if !p.judged {
		p.judged, p.access = true, sqlkind.AccessOf(p.text, false)
		if sqlkind.AccessOf(p.text, true) != p.access {
			p.access = sqlkind.Write
		}
	}
	return p.access
}

// toFollower switches to a follower that is fit for a statement. If no follower is fit, the leader stays the side in
// use.
func (s *session) toFollower(c byte, length int, need sqlkind.Access) bool {
	s.turn()
	if need == sqlkind.Diagnosis {
		if s.fit(need) {
			return true
		}
		s.leaveFollower(false)
		return false
	}
	if !s.fit(need) && (time.Now().Before(s.split.again) || !s.openFollower()) {
		if time.Now().After(s.split.again) {
			s.split.again = time.Now().Add(followerPause)
		}
		s.leaveFollower(true)
		return false
	}
	ctx, cancel := context.WithTimeout(s.r.ctx, s.wish.ownWait)
	defer cancel()
	level, err := s.levelOf(c, length)
	var index, live uint64
	if err == nil {
		index, err = s.wanted(ctx, level, s.wish.ownWrites)
	}
	if err == nil {
		live, err = s.live(ctx, level)
	}
	if err == nil {
		err = s.shows(ctx, max(index, live))
	}
	if err != nil {
		s.r.cfg.Logger.Debug("router: a read goes to the leader", "follower", s.link.target.Name, "error", err)
		s.leaveFollower(false)
	}
	return err == nil
}

// fit reports whether the follower that is already in use can be read; one that cannot is given up. Its lag does not
// matter for what it says about the last statement.
func (s *session) fit(need sqlkind.Access) bool {
	if s.link == nil {
		return false
	}
	ended, seen := s.link.cut.Load(), s.r.views.Load()
	if !ended {
		said, gone := s.peek()
		ended = gone || said != nil
	}
	s.seen = seen
	if ended || need != sqlkind.Diagnosis && s.r.lagsTooFar(s.link.target.Name) || s.catchUp() != nil {
		s.drop()
		s.state.moved()
		return false
	}
	return true
}

// openFollower connects the side in use to the follower with the least to do.
func (s *session) openFollower() bool {
	ctx, cancel := context.WithTimeout(s.r.ctx, s.r.cfg.DialTimeout)
	defer cancel()
	var tried []Target
	for ctx.Err() == nil {
		t, found := s.r.chooseFollower(tried)
		if !found {
			return false
		}
		tried, s.seen = append(tried, t), s.r.views.Load()
		l, err := s.r.join(ctx, &s.r.splitReads, s.tcp, s.from, t, s)
		if l == nil {
			s.r.cfg.Logger.Debug("router: follower not reached", "node", t.Name, "error", err)
			continue
		}
		s.link = l
		if err = s.rebuild(ctx, l); err == nil {
			err = s.takeSettings(ctx)
		}
		if err == nil {
			return true
		}
		s.r.cfg.Logger.Debug("router: no session on a follower", "node", t.Name, "error", err)
		s.drop()
		s.state.moved()
	}
	return false
}

// catchUp gives the server in use what was set at the other one meanwhile.
func (s *session) catchUp() error {
	st, here := &s.state, &s.split.here
	if s.link == nil || bytes.Equal(here.schema, st.schema) && bytes.Equal(here.options, st.options) &&
		slices.Equal(here.sets, st.sets) {
		return nil
	}
	_ = s.link.server.SetDeadline(time.Now().Add(s.r.cfg.LoginTimeout))
	defer func() { _ = s.link.server.SetDeadline(time.Time{}) }()
	conn := mysqlwire.NewConn(s.server, loginMaxPacket)
	for _, payload := range s.lacking() {
		status, err := s.exec(conn, payload)
		if err != nil {
			return err
		}
		st.status = status
	}
	*here = st.made()
	return nil
}

// lacking is the commands that the server in use has not seen. A SET that is repeated moves to the end of the list, so
// what is new begins where the list does not go on as it was.
func (s *session) lacking() (commands [][]byte) {
	st, here := &s.state, s.split.here
	if !bytes.Equal(here.options, st.options) {
		commands = append(commands, st.options)
	}
	i := 0
	for _, had := range here.sets {
		if i < len(st.sets) && st.sets[i] == had {
			i++
		}
	}
	for _, text := range st.sets[i:] {
		commands = append(commands, s.query(text))
	}
	if !bytes.Equal(here.schema, st.schema) {
		commands = append(commands, s.use(st.schema))
	}
	return commands
}

// read carries out a statement on the follower, which is in use. again: it has to go to the leader, which is in use
// then, and the client has been told nothing.
func (s *session) read(c byte, length int, need sqlkind.Access) (again bool, err error) {
	j := job{command: c, length: length, effect: sqlkind.Effect{Verb: sqlkind.VerbShow},
		autocommit: s.state.autocommit(), spare: need != sqlkind.Write}
	if c == comStmtExecute && !s.preparedHere(getID(s.buf[s.r0+5:])) {
		return true, nil
	}
	if err := s.ready(&j); err != nil || j.over {
		return false, s.settle(err)
	}
	var targets []string
	if need == sqlkind.Diagnosis {
		if targets = s.targets(c, length); targets != nil {
			j.effect = sqlkind.Effect{Verb: sqlkind.VerbShow}
		}
	}
	if s.unfit(&j) {
		return false, s.refuse(&j)
	}
	begin := s.r0
	fromServer, err := s.send(&j)
	if err != nil {
		return false, err
	}
	a := newAnswer(c, !s.legacy)
	if fromServer == nil {
		fromServer, err = s.receive(&j, &a)
	}
	switch {
	case err != nil:
		return false, err
	case fromServer != nil && j.spare && !j.told:
		s.r0 = begin
		if j.stmt != nil {
			putID(s.buf[s.r0+5:], j.stmtID)
		}
		s.leaveFollower(!errors.Is(fromServer, errElsewhere))
		return true, nil
	case fromServer != nil:
		err := s.lost(&j, &a)
		s.leaveFollower(true)
		return false, s.settle(err)
	}
	s.split.last, s.split.spoke = true, true
	if !a.failed {
		s.owe(targets)
	}
	s.r.count(s.port, func(p *PortStats) { p.FollowerReads++ })
	s.learn(&j, &a)
	return false, s.settle(nil)
}

// preparedHere makes sure that the follower, which is in use, knows a statement; if it does not take it the leader is
// in use afterwards.
func (s *session) preparedHere(id uint32) bool {
	st := s.state.prepared[id]
	if st == nil {
		return true // the server will say so
	}
	if st.turn(s.state.following); st.server != 0 {
		return true
	}
	if st.dialect != s.state.dialect || st.missing {
		s.leaveFollower(false)
		return false
	}
	refused, err := s.prepareAgain(st)
	if refused == nil && err == nil {
		return true
	}
	s.leaveFollower(err != nil)
	return false
}

// keepPrepared prepares at the leader what is prepared on the follower only, before a SET by which its text would come
// to mean something else.
func (s *session) keepPrepared(j *job) {
	if s.split == nil || s.state.following || j.effect.Verb != sqlkind.VerbSet ||
		!containsAny(strings.ToLower(string(j.text)), dialectWords) {
		return
	}
	for _, st := range s.state.prepared {
		if st.turn(false); st.server != 0 || st.dialect != s.state.dialect {
			continue
		}
		if _, err := s.prepareAgain(st); err != nil {
			return // the server is lost, which the SET will find
		}
	}
}

// unfit reports that a statement leaves something that would exist on the follower only.
func (s *session) unfit(j *job) bool { return s.state.following && j.effect.Reason != "" }

// refuse answers such a statement. What is open goes on.
func (s *session) refuse(j *job) error {
	return s.settle(s.answerError(&mysqlwire.ServerError{Code: codeNotSupported, State: "42000",
		Message: "Trireme: " + j.effect.Reason +
			" cannot be had on a follower; use a transaction without READ ONLY, or ROUTER SET access_mode = 'auto'"}))
}

// codeNotSupported is ER_NOT_SUPPORTED_YET.
const codeNotSupported = 1235

// elsewhere says that the follower has refused what the leader will take: a view or a trigger that writes, an account
// that has not come there yet.
func (j *job) elsewhere(a *answer) bool {
	if !j.spare || j.told || !a.done() || !a.failed {
		return false
	}
	switch a.code {
	case 1290, 1792, 1836, mysqlwire.CodeServerShutdown: // read_only in its forms
		return true
	}
	return false
}

// closeBoth closes a prepared statement wherever it is prepared.
func (s *session) closeBoth() error {
	id := getID(s.buf[s.r0+5:])
	if st := s.state.prepared[id]; st != nil {
		st.turn(s.state.following)
		_ = closeAt(s.server, st.server) // a connection that is lost has no statements
		_ = closeAt(s.split.other.server, st.other.server)
		s.state.close(id)
	}
	return s.settle(s.discard())
}

func closeAt(server net.Conn, id uint32) error {
	if server == nil || id == 0 {
		return nil
	}
	p := []byte{comStmtClose, 0, 0, 0, 0}
	putID(p[1:], id)
	_, err := server.Write(mysqlwire.AppendPacket(nil, 0, p))
	return err
}

// chooseFollower picks the follower with the fewest connections among those that do not lag too far.
func (r *Router) chooseFollower(tried []Target) (Target, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leastLoaded(append(tried, r.laggardsLocked()...))
}

// laggardsLocked are the followers beyond Config.MaxLag.
func (r *Router) laggardsLocked() (ts []Target) {
	for _, t := range r.view.RO {
		if r.lagsTooFar(t.Name) {
			ts = append(ts, t)
		}
	}
	return ts
}

// lagsTooFar reports whether a follower lags further than reads may.
func (r *Router) lagsTooFar(name string) bool {
	lags := r.lags.Load()
	return r.cfg.MaxLag > 0 && lags != nil && (*lags)[name] > r.cfg.MaxLag
}

// SetLags sets how far the followers lag, by name; one that is not named counts as current. It is for the splitting
// port.
func (r *Router) SetLags(lags map[string]time.Duration) { r.lags.Store(&lags) }
