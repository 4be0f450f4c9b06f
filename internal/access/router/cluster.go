package router

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/mysql/mysqlwire"
	"trireme/internal/mysql/sqlkind"
)

// Cluster is what sessions see of the cluster, once their server has said that their account may.
type Cluster interface {
	// View is the whole cluster.
	View(ctx context.Context) (api.ClusterView, error)
	// History is the latest events, oldest first.
	History(ctx context.Context) ([]api.Event, error)
}

// showLimit is for what is asked of a Cluster.
const showLimit = 5 * time.Second

// mayShow are the privileges of which an account needs one, and needs it for everything (*.*).
var mayShow = []string{"REPLICATION CLIENT", "PROCESS"}

// whoAsks is hexadecimal because the session chooses the character set of answers. The LIMIT stands above
// sql_select_limit.
const whoAsks = "SELECT HEX(CURRENT_USER()) LIMIT 1"

// codes of mysqld for what is wrong with a statement about the cluster.
const (
	codeUnknown   = 1105 // ER_UNKNOWN_ERROR
	codePrivilege = 1227 // ER_SPECIFIC_ACCESS_DENIED_ERROR
	codePrepared  = 1295 // ER_UNSUPPORTED_PS
)

// mayBeCluster is quick to say no. text does not begin with a blank.
func mayBeCluster(text []byte) bool {
	if len(text) < 4 {
		return false
	}
	switch text[0] {
	case 's', 'S':
		return text[1]|0x20 == 'h'
	case '/', '#', '-':
		return true
	}
	return false
}

// cluster answers a statement about the cluster, command c.
func (s *session) cluster(c byte, st sqlkind.ClusterStatement) error {
	if refused := cannotAnswer(c, st); refused != nil {
		return s.answerError(refused)
	}
	if allowed, err := s.authorize(); err != nil || !allowed {
		return err
	}
	return s.show(st)
}

// cannotAnswer says why a statement cannot be answered, for any client.
func cannotAnswer(c byte, st sqlkind.ClusterStatement) *mysqlwire.ServerError {
	switch {
	case c == comStmtPrepare:
		return &mysqlwire.ServerError{Code: codePrepared, State: "HY000",
			Message: "Trireme: this statement cannot be prepared; send it as text"}
	case st.Wrong != "":
		return &mysqlwire.ServerError{Code: codeParse, State: "42000", Message: "Trireme: " + st.Wrong}
	case st.Several:
		return &mysqlwire.ServerError{Code: codeNotSupported, State: "42000",
			Message: "Trireme: the router answers this statement; send it alone, without another one after it"}
	}
	return nil
}

// authorize asks this session's server whether its account may see the cluster. If not, without an error, the client
// was told why.
func (s *session) authorize() (allowed bool, err error) {
	defer func() {
		if s.split != nil && s.state.following && s.state.boundary() {
			s.leaveFollower(s.link == nil)
		}
	}()
	if !s.followerJudges() {
		if s.split != nil && !s.state.following && s.state.boundary() && s.catchUp() != nil {
			s.drop() // it is made again, with all that was set
		}
		if found, err := s.find(); !found || err != nil {
			return false, err
		}
	}
	if s.split != nil {
		s.split.last, s.split.spoke = s.state.following, s.state.following
	}
	refused, err := s.rights()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded): // an account statement that waits inside of mysqld has the grants locked
		return false, errors.Join(s.answerError(&mysqlwire.ServerError{Code: mysqlwire.CodeServerShutdown, State: "08S01",
			Message: fmt.Sprintf("Trireme: %s did not say within %v what this account may do; connect again",
				s.link.target.Name, s.r.cfg.HoldTimeout)}), errEnd)
	case err != nil:
		return false, s.lost(&job{command: comQuery}, nil)
	case refused != nil:
		return false, s.answerError(refused)
	}
	return true, nil
}

// followerJudges turns a splitting session to a follower while no node leads: what goes on can be seen then too.
func (s *session) followerJudges() bool {
	if s.split == nil || !s.state.boundary() || s.r.leader() != nil {
		return false
	}
	s.turn()
	if s.fit(sqlkind.Read) || s.openFollower() {
		return true
	}
	s.leaveFollower(true)
	return false
}

// rights asks the server in use for the account's, with its active roles. refused is for the client; an error is the
// connection's.
func (s *session) rights() (refused *mysqlwire.ServerError, err error) {
	_ = s.link.server.SetDeadline(time.Now().Add(s.r.cfg.HoldTimeout))
	defer func() { _ = s.link.server.SetDeadline(time.Time{}) }()
	conn := mysqlwire.NewConn(s.server, mysqlwire.DefaultMaxPacket)
	held := false
	if err = aligned(func(query string, row func(string)) error { return s.ask(conn, query, row) }); err == nil {
		err = s.ask(conn, "SHOW GRANTS", func(line string) { held = held || holds(line, mayShow) })
	}
	if err == nil && !held {
		return noPrivilege(mayShow), nil
	}
	return asRefused(err)
}

// noPrivilege tells an account that it has none of the privileges, as mysqld would.
func noPrivilege(needed []string) *mysqlwire.ServerError {
	return &mysqlwire.ServerError{Code: codePrivilege, State: "42000", Message: fmt.Sprintf(
		"Access denied; you need (at least one of) the %s privilege(s) for this operation", strings.Join(needed, ", "))}
}

// ask has the server in use answer a query of the router's own, and calls row with the first value of each row. A
// *mysqlwire.ServerError is the server's answer.
func (s *session) ask(conn *mysqlwire.Conn, query string, row func(string)) error {
	status, err := ask(conn, s.query(query), !s.legacy, row)
	if err == nil {
		s.state.status = status
	}
	return err
}

// ask is session.ask for a command that is framed already.
func ask(conn *mysqlwire.Conn, command []byte, deprecateEOF bool, row func(string)) (status uint16, err error) {
	conn.ResetSequence()
	if err := conn.WritePacket(command); err != nil {
		return 0, err
	}
	return readAnswer(conn, deprecateEOF, func(p []byte, columns int) error {
		if columns == 0 {
			return nil
		}
		values, err := mysqlwire.ParseRow(p, columns)
		if err != nil || len(values) == 0 {
			return errors.Join(errAnswer, err)
		}
		row(values[0].Text)
		return nil
	})
}

// readAnswer reads the answer to a COM_QUERY and calls each for its packets; columns is not 0 where one is a row. An
// ERR packet is the error.
func readAnswer(conn *mysqlwire.Conn, deprecateEOF bool, each func(p []byte, columns int) error) (status uint16,
	err error) {
	a, columns := newAnswer(comQuery, deprecateEOF), 0
	for a.state != answerDone {
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
		was := a.state
		a.packet = len(p)
		if err := a.step(p[:min(len(p), headBytes)]); err != nil {
			return 0, err
		}
		of := 0
		switch {
		case a.state == answerLocal:
			return 0, errAnswer
		case was == expectFirst && a.state == expectSkipped:
			columns = a.skip
		case was == expectRow && a.state == expectRow:
			of = columns
		}
		if err := each(p, of); err != nil {
			return 0, err
		}
	}
	return a.status, nil
}

// holds reports whether a line of SHOW GRANTS gives one of the privileges for everything. Names, which anybody may
// choose, stand between quotes there if they are more than a word, and quotes are something else, such as "?", if the
// session has chosen a character set for answers that lacks them: so what ON *.* follows with nothing but letters of
// privileges in front of it is mysqld's own.
func holds(line string, privileges []string) bool {
	list, found := strings.CutPrefix(line, "GRANT ")
	if !found {
		return false
	}
	if list, _, found = strings.Cut(list, " ON *.* TO "); !found || strings.ContainsFunc(list, notOfPrivileges) {
		return false
	}
	for p := range strings.SplitSeq(list, ",") {
		if p = strings.TrimSpace(p); p == "ALL PRIVILEGES" || slices.Contains(privileges, p) {
			return true
		}
	}
	return false
}

func notOfPrivileges(r rune) bool {
	return (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != ' ' && r != ','
}

// show answers with a result set.
func (s *session) show(st sqlkind.ClusterStatement) error {
	ctx, cancel := context.WithTimeout(s.r.ctx, showLimit)
	defer cancel()
	var t table
	var err error
	if st.Verb == sqlkind.ShowHistory {
		var events []api.Event
		if events, err = s.r.cfg.Cluster.History(ctx); err == nil {
			t = historyTable(events, st.Limit)
		}
	} else {
		var v api.ClusterView
		if v, err = s.r.cfg.Cluster.View(ctx); err == nil && st.Verb == sqlkind.ShowStatus {
			t = statusTable(v)
		} else if err == nil {
			t = membersTable(v)
		}
	}
	if err != nil {
		return s.answerError(&mysqlwire.ServerError{Code: codeUnknown, State: "HY000", Message: "Trireme: " + err.Error()})
	}
	if err := s.discard(); err != nil {
		return err
	}
	return s.write(mysqlwire.AppendRows(nil, s.next, t.columns, t.rows, s.ownStatus(), !s.legacy))
}
