package router

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/mysql/mysqlwire"
)

// A session on the splitting port behaves like one on a single server.

// While a client reads, its idle connection to the leader may be closed by wait_timeout: the session goes on, and
// writes over another one. A client that is idle itself is told so.
func TestIdleLeaderOfReads(t *testing.T) {
	s := newSplit(t, 1, Config{})
	s.run("SET a = 1", "SELECT 1")
	s.leader.timeOut()
	s.r.round()
	s.run("SELECT 2", "INSERT 1", "SELECT 3")
	s.got([]string{"SET a = 1", "SET a = 1", "INSERT 1"}, "SET a = 1", "SELECT 1", "SELECT 2", "SELECT 3")
	ends := func() bool {
		s.r.mu.Lock()
		defer s.r.mu.Unlock()
		return len(s.r.followed) == 0
	}
	s.followers[0].timeOut()
	eventually(t, "the session has ended", ends)
	if _, err := s.c.ExecContext(t.Context(), "SELECT 4"); err == nil {
		t.Error("it goes on")
	}
	s.c = s.connect(s.r.SplitAddr())
	s.run("SELECT 5", "INSERT 2")
	s.leader.timeOut()
	eventually(t, "the session has ended", ends)
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
	// After a change of leaders the id of the login still means the session, and so does its present id.
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
	for _, text := range []string{"", "KILL", "KILL QUERY", "KILL @x", "KILL 7 8", "KILL 1 + 6", "SELECT 7",
		"KILL 99999999999"} {
		if _, _, ok := parseKill([]byte(text)); ok {
			t.Error(text)
		}
	}
}

// What commits by itself ends a READ ONLY transaction on the follower, and runs on the leader.
func TestImplicitCommit(t *testing.T) {
	s := newSplit(t, 1, Config{})
	s.run("START TRANSACTION READ ONLY", "SELECT 1", "CREATE TABLE t", "START TRANSACTION READ ONLY", "BEGIN", "INSERT 1",
		"COMMIT",
		"START TRANSACTION READ ONLY", "START TRANSACTION READ ONLY", "COMMIT", "START TRANSACTION READ ONLY",
		"LOCK TABLES t READ")
	s.got([]string{"CREATE TABLE t", "BEGIN", "INSERT 1", "COMMIT", "LOCK TABLES t READ"},
		"START TRANSACTION READ ONLY", "SELECT 1", "COMMIT", "START TRANSACTION READ ONLY", "COMMIT",
		"START TRANSACTION READ ONLY", "COMMIT", "START TRANSACTION READ ONLY", "COMMIT", "START TRANSACTION READ ONLY",
		"COMMIT")
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
	for _, text := range []string{"XA COMMIT 'a'", "xa rollback 'a'", "SELECT 1; XA ROLLBACK 'a'",
		"/*!50000 XA */ COMMIT 'a' ONE PHASE", long} {
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

// What an error has left is told by the next answer; the router does not ask, which would take away what that has to
// say of the session.
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

// A client that waits for nothing sees at once that its server has ended the session for being idle, as it would on a
// connection of its own: pools look at their sockets and drop such connections without an error.
func TestIdleTimeoutIsSeenAtOnce(t *testing.T) {
	s := newSplit(t, 1, Config{Sessions: true})
	for _, addr := range []string{s.r.RWAddr(), s.r.SplitAddr()} {
		c := rawClient(t, addr)
		if code := say(t, c, comQuery, "INSERT 1"); code != 0 {
			t.Fatal(code)
		}
		s.leader.timeOut()
		_ = c.NetConn().SetDeadline(time.Now().Add(roundPause / 2)) // if a round came by then the next one does not
		c.ResetSequence()
		if code := hear(t, c); code != erIdle {
			t.Errorf("%s: error %d", addr, code)
		}
	}
}

// What a statement has left is asked for where it ran, also after a command that leaves it as it is, such as a ping.
func TestDiagnosticsAfterPing(t *testing.T) {
	s := newSplit(t, 1, Config{})
	s.run("INSERT 1", "SELECT 1")
	if err := s.c.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.run("SHOW WARNINGS", "SELECT @@warning_count")
	s.got([]string{"INSERT 1", "ping"}, "SELECT 1", "SHOW WARNINGS", "SELECT @@warning_count")
	s.run("SELECT @@server_id", "SHOW WARNINGS", "SELECT @@error_count")
	s.got([]string{"SELECT @@server_id", "SHOW WARNINGS", "SELECT @@error_count"})
}

// A client that pings is not idle, although its last statement ran on the follower.
func TestPingKeepsSession(t *testing.T) {
	s := newSplit(t, 1, Config{})
	s.run("SELECT 1")
	if err := s.c.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.followers[0].timeOut()
	s.run("INSERT 1", "SELECT 2")
}

// Who drops the schema that it uses has none: at every server, and at those that it is carried to.
func TestDropsItsSchema(t *testing.T) {
	for name, in := range map[string]struct{ use, drop string }{
		"text": {"USE shop", "DROP DATABASE shop"}, "several": {"USE shop", "INSERT 1; drop schema if exists `shop`"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSplit(t, 1, Config{})
			s.followers[0].set(func(w *wireServer) {
				w.fail, w.threads = map[string]uint16{"schema ": 1046}, 100 // as mysqld: no command makes a schema none
			})
			s.run("SELECT 1", in.use, "SELECT 2", in.drop, "SELECT 3")
			s.got([]string{"USE shop", in.drop}, "SELECT 1", "USE shop", "SELECT 2", "schema ", "SELECT 3")
			s.followers[0].set(func(w *wireServer) {
				if n := w.threads - 100; n != 2 {
					t.Errorf("%d logins at the follower", n)
				}
			})
			to := newWireServer(t)
			s.r.SetView(View{RW: to.target("9"), RO: []Target{*s.followers[0].target("2")}})
			s.run("INSERT 2", "USE other", "INSERT 3", "DROP DATABASE shop", "SELECT 4")
			if got := to.statements(); !slices.Equal(got, []string{"INSERT 2", "USE other", "INSERT 3", "DROP DATABASE shop"}) {
				t.Errorf("%q", got)
			}
			s.got(nil, "USE other", "SELECT 4")
		})
	}
}

// Global variables are each server's own. A session begins with the leader's, so its reads on a follower have those,
// too.
func TestReadsHaveLeadersSettings(t *testing.T) {
	s := newSplit(t, 1, Config{})
	values := slices.Repeat([]string{"1"}, len(readSettings))
	set := func(name, value string) { values[slices.Index(readSettings, name)] = value }
	rows := func(w *wireServer) {
		row := strings.Join(values, "\n")
		w.set(func(w *wireServer) { w.rows = map[string][]string{readSettingsQuery: {row}} })
	}
	set("time_zone", "SYSTEM")
	rows(s.followers[0])
	set("time_zone", "+02:00")
	set("group_concat_max_len", "4096")
	set("sql_mode", "")
	rows(s.leader)
	s.run("SET a = 1", "SELECT 1", "SELECT 2")
	s.got([]string{"SET a = 1"}, "SET a = 1", "SET SESSION sql_mode = ''", "SET SESSION time_zone = '+02:00'",
		"SET SESSION group_concat_max_len = 4096",
		"SELECT 1", "SELECT 2")
	// A value that the follower does not take costs the session nothing; one that could end its quotes is not repeated.
	s.followers[0].set(func(w *wireServer) { w.fail = map[string]uint16{"SET SESSION time_zone = '+02:00'": 1298} })
	s.c = s.connect(s.r.SplitAddr())
	s.run("SELECT 3")
	s.got(nil, "SET SESSION sql_mode = ''", "SET SESSION time_zone = '+02:00'", "SET SESSION group_concat_max_len = 4096",
		"SELECT 3")
	set("time_zone", "x', a = 'y")
	rows(s.leader)
	s.c = s.connect(s.r.SplitAddr())
	s.run("SELECT 4")
	s.got(nil, "SELECT 4")
	// Without an answer of the leader the follower is read as it is, and the leader's connection made again.
	s.leader.set(func(w *wireServer) { w.half = readSettingsQuery })
	s.c = s.connect(s.r.SplitAddr())
	s.run("SELECT 5", "INSERT 1")
	s.got([]string{"INSERT 1"}, "SELECT 5")
}
