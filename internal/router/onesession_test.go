package router

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/mysqlwire"
)

// A session on the splitting port behaves like one on a single server.

// While a client reads, its idle connection to the leader may be closed by wait_timeout: the session goes on, and writes over another one. A
// client that is idle itself is told so.
func TestIdleLeaderOfReads(t *testing.T) {
	s := newSplit(t, 1, Config{})
	s.run("SET a = 1", "SELECT 1")
	s.leader.timeOut()
	s.r.round()
	s.run("SELECT 2", "INSERT 1", "SELECT 3")
	s.got([]string{"SET a = 1", "SET a = 1", "INSERT 1"}, "SET a = 1", "SELECT 1", "SELECT 2", "SELECT 3")
	s.followers[0].timeOut()
	s.r.round()
	if _, err := s.c.ExecContext(t.Context(), "SELECT 4"); err == nil {
		t.Error("it goes on")
	}
	s.c = s.connect(s.r.SplitAddr())
	s.run("SELECT 5", "INSERT 2")
	s.leader.timeOut()
	s.r.round()
	if _, err := s.c.ExecContext(t.Context(), "SELECT 6"); err == nil {
		t.Error("the client was idle, and it goes on")
	}
}

// A KILL reaches every server that the session uses, with the id that it has there.
func TestKillReachesFollower(t *testing.T) {
	s := newSplit(t, 1, Config{})
	s.leader.set(func(w *wireServer) { w.threads = 100 })
	s.followers[0].set(func(w *wireServer) { w.threads = 200 })
	s.c = s.connect(s.r.SplitAddr())
	s.run("SELECT 1")
	killer := s.connect(s.r.SplitAddr())
	run(t, killer, "KILL QUERY 101", "kill 101;")
	s.got([]string{"KILL QUERY 101", "kill 101;"}, "SELECT 1", "KILL QUERY 201", "KILL 201")
	s.followers[0].set(func(w *wireServer) { w.fail = map[string]uint16{"KILL QUERY 201": 1095} })
	_, err := killer.ExecContext(t.Context(), "KILL QUERY 101")
	wantError(t, err, 1095)
	// Behind a change of leaders the id of the login still means the session, and the one that it has now does too.
	next := newWireServer(t)
	next.set(func(w *wireServer) { w.threads = 300 })
	s.r.SetView(View{RW: next.target("4"), RO: []Target{*s.followers[0].target("2")}})
	s.followers[0].take()
	s.run("INSERT 1")
	run(t, killer, "INSERT 2", "KILL 101", "KILL 301")
	if got := next.take(); !slices.Equal(got, []string{"INSERT 1", "INSERT 2", "KILL 301", "KILL 301"}) {
		t.Errorf("the next leader was sent %q", got)
	}
	s.got([]string{}, "KILL 201", "KILL 201")
	run(t, killer, "KILL 999") // mysqld's affair
	if got := next.take(); !slices.Equal(got, []string{"KILL 999"}) {
		t.Errorf("the next leader was sent %q", got)
	}
}

func TestParseKill(t *testing.T) {
	for text, want := range map[string]bool{"KILL 7": false, "kill query 7 ;": true, "KILL CONNECTION 7": false} {
		if query, id, ok := parseKill([]byte(text)); !ok || id != 7 || query != want {
			t.Errorf("%s: %t %d %t", text, query, id, ok)
		}
	}
	for _, text := range []string{"", "KILL", "KILL QUERY", "KILL @x", "KILL 7 8", "KILL 1 + 6", "SELECT 7", "KILL 99999999999"} {
		if _, _, ok := parseKill([]byte(text)); ok {
			t.Error(text)
		}
	}
}

// What commits by itself ends a READ ONLY transaction on the follower, and runs on the leader.
func TestImplicitCommit(t *testing.T) {
	s := newSplit(t, 1, Config{})
	s.run("START TRANSACTION READ ONLY", "SELECT 1", "CREATE TABLE t", "START TRANSACTION READ ONLY", "BEGIN", "INSERT 1", "COMMIT",
		"START TRANSACTION READ ONLY", "START TRANSACTION READ ONLY", "COMMIT", "START TRANSACTION READ ONLY", "LOCK TABLES t READ")
	s.got([]string{"CREATE TABLE t", "BEGIN", "INSERT 1", "COMMIT", "LOCK TABLES t READ"},
		"START TRANSACTION READ ONLY", "SELECT 1", "COMMIT", "START TRANSACTION READ ONLY", "COMMIT",
		"START TRANSACTION READ ONLY", "COMMIT", "START TRANSACTION READ ONLY", "COMMIT", "START TRANSACTION READ ONLY", "COMMIT")
}

// With sql_auto_is_null a SELECT may mean the row that was inserted last, which the leader knows.
func TestAutoIsNull(t *testing.T) {
	s := newSplit(t, 1, Config{})
	s.run("SET sql_auto_is_null = 1", "INSERT 1", "SELECT * FROM t WHERE id IS NULL")
	s.got([]string{"SET sql_auto_is_null = 1", "INSERT 1", "SELECT * FROM t WHERE id IS NULL"})
}

// XA COMMIT and XA ROLLBACK reach no follower: its mysqld would end what the leader has prepared.
func TestNoEndOfXAOnReadPorts(t *testing.T) {
	s := newSplit(t, 1, Config{Sessions: true})
	onLeader := s.c
	long := "/* " + strings.Repeat("x", 2*inBytes) + " */ XA /* y */ ROLLBACK 'a'"
	for _, text := range []string{"XA COMMIT 'a'", "xa rollback 'a'", "SELECT 1; XA ROLLBACK 'a'", "/*!50000 XA */ COMMIT 'a' ONE PHASE", long} {
		c := s.connect(s.r.ROAddr())
		if _, err := c.ExecContext(t.Context(), text); !isCode(err, erOptionPreventsStatement) {
			t.Errorf("%.30s: %v", text, err)
		}
		for _, sent := range s.followers[0].take() {
			if strings.Contains(strings.ToUpper(sent), "XA") {
				t.Errorf("the follower was sent %.40q", sent)
			}
		}
	}
	s.c = s.connect(s.r.ROAddr())
	s.run("XA RECOVER", "SELECT 'XA ROLLBACK'")
	s.c = onLeader
	s.run("XA COMMIT 'a'")
	s.got([]string{"XA COMMIT 'a'"}, "XA RECOVER", "SELECT 'XA ROLLBACK'")
}

func isCode(err error, code uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == code
}

// A result may have more columns than a table: 65,535.
func TestWideResult(t *testing.T) {
	columns, row := make([]mysqlwire.Column, 5000), make([]mysqlwire.Value, 5000)
	for _, deprecateEOF := range []bool{true, false} {
		a := newAnswer(comQuery, deprecateEOF)
		p := mysqlwire.AppendRows(nil, 1, columns, [][]mysqlwire.Value{row}, 2, deprecateEOF)
		if used, err := a.feed(p); err != nil || used != len(p) || !a.done() {
			t.Errorf("%t: %d of %d bytes, %v", deprecateEOF, used, len(p), err)
		}
	}
}

// What an error has left is told by the next answer; the router does not ask, which would take away what that has to say of the session.
func TestNothingIsAskedAfterAnError(t *testing.T) {
	r, from, to, c := wireSession(t, Config{})
	from.set(func(w *wireServer) { w.fail = map[string]uint16{"CREATE TABLE t": 1050, "SET b = 1": 1193} })
	run(t, c, "START TRANSACTION")
	_, err := c.ExecContext(t.Context(), "CREATE TABLE t")
	wantError(t, err, 1050)
	run(t, c, "SELECT 1")
	if got := from.take(); !slices.Equal(got, []string{"START TRANSACTION", "CREATE TABLE t", "SELECT 1"}) {
		t.Errorf("the server was sent %q", got)
	}
	_, err = c.ExecContext(t.Context(), "SET b = 1")
	wantError(t, err, 1193)
	r.SetView(View{RW: to.target("2")})
	run(t, c, "INSERT 1") // nothing was open
}
