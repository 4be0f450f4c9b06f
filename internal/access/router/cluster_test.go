package router

import (
	"context"
	"database/sql"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/mysql/mysqlwire"
)

// fakeCluster shows what the test says and notes what it is asked to do.
type fakeCluster struct {
	mu    sync.Mutex
	view  api.ClusterView
	event []api.Event
	err   error
	asked []string
}

func (f *fakeCluster) View(context.Context) (api.ClusterView, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, "view")
	return f.view, f.err
}

func (f *fakeCluster) History(context.Context) ([]api.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, "history")
	return f.event, f.err
}

func (f *fakeCluster) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

// answers of a server to the router's questions.
func answers(grants ...string) map[string][]string {
	return map[string][]string{"SHOW GRANTS": grants, whoAsks: {hex.EncodeToString([]byte("dba@%"))}}
}

// everything is a line that gives what is asked for.
const everything = "GRANT REPLICATION CLIENT ON *.* TO `dba`@`%`"

func clusterView() api.ClusterView {
	lag, bytes := 0.25, uint64(7)
	since := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	return api.ClusterView{Cluster: "shop", Generation: 2, Term: 5, Leader: "n1", CommitIndex: 42,
		Pause:    &api.PauseView{Since: since},
		Failover: api.FailoverView{To: "n2", Seconds: 0.3, HostLostSeconds: 1.8},
		Members: []api.MemberView{
			{Name: "n1", Role: "leader", State: "healthy", Raft: api.RaftView{Voter: true, Weight: 100, Term: 5, Last: 43,
				Commit: 42, Applied: 42, Durable: 40, Zone: "a"},
				MySQL:  &api.MySQLView{Host: "h1", Port: 3306, Version: "9.7.4", LagSeconds: &lag, LagBytes: &bytes},
				Daemon: api.DaemonView{API: "h1:8008"}, Router: api.RouterView{TiedSessions: map[string]int{"user locks": 3}}},
			{Name: "n2", Role: "logger", State: "down", Reason: "silent", Warnings: []string{"one", "two"},
				Router: api.RouterView{TiedSessions: map[string]int{"XA": 1}}},
		}}
}

// cells is a whole result set, NULL as "-".
func cells(t *testing.T, c *sql.Conn, q string) (columns []string, rows [][]string) {
	t.Helper()
	rs, err := c.QueryContext(t.Context(), q)
	if err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	defer rs.Close()
	if columns, err = rs.Columns(); err != nil {
		t.Fatal(err)
	}
	for rs.Next() {
		values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rs.Scan(into...); err != nil {
			t.Fatal(err)
		}
		row := make([]string, len(columns))
		for i, v := range values {
			if row[i] = "-"; v.Valid {
				row[i] = v.String
			}
		}
		rows = append(rows, row)
	}
	if rs.Err() != nil {
		t.Fatal(rs.Err())
	}
	return columns, rows
}

// A privileged session sees the cluster, outside of a transaction and within, and nothing but the question for its
// rights reaches its server.
func TestShowCluster(t *testing.T) {
	f := &fakeCluster{view: clusterView(), event: []api.Event{{Kind: "fence", Node: "n1", Message: "old"},
		{Kind: "switchover", Node: "n2", Term: 5, Message: "new", From: "n1", To: "n2", GapMS: 12.5,
			Time: time.Date(2026, 3, 4, 5, 6, 7, 8_000_000, time.UTC)}}}
	_, from, _, c := wireSession(t, Config{Cluster: f})
	from.set(func(w *wireServer) {
		w.rows = answers("GRANT USAGE ON *.* TO `dba`@`%`", "GRANT PROCESS ON *.* TO `dba`@`%`")
	})
	columns, rows := cells(t, c, "SHOW TRIREME STATUS")
	if want :=
		"cluster generation term leader commit_index pause_since pause_until failover_to failover_seconds failover_host_lost_seconds failover_problem commit_rules tied_sessions"; strings.Join(columns, " ") != want {
		t.Errorf("columns %q", columns)
	}
	if want := `shop 2 5 n1 42 2026-03-04T05:06:07.000Z - n2 0.3 1.8 - - {"user locks":3}`; len(rows) != 1 ||
		strings.Join(rows[0], " ") != want {
		t.Errorf("rows %q", rows)
	}
	run(t, c, "START TRANSACTION")
	columns, rows = cells(t, c, "/* x */ show trireme members; -- y")
	if want :=
		"name role state lag_seconds lag_bytes voter weight zone term last commit applied durable host port version read_only api reason warnings"; strings.Join(columns, " ") != want {
		t.Errorf("columns %q", columns)
	}
	want := []string{"n1 leader healthy 0.25 7 1 100 a 5 43 42 42 40 h1 3306 9.7.4 0 h1:8008 - -",
		"n2 logger down - - 0 0 - - - - - - - - - - - silent one; two"}
	if len(rows) != 2 || strings.Join(rows[0], " ") != want[0] || strings.Join(rows[1], " ") != want[1] {
		t.Errorf("rows %q", rows)
	}
	columns, rows = cells(t, c, "SHOW TRIREME HISTORY LIMIT 1")
	if want := "time kind node term index message gap_ms from to cause gtids"; strings.Join(columns, " ") != want {
		t.Errorf("columns %q", columns)
	}
	if want := "2026-03-04T05:06:07.008Z switchover n2 5 - new 12.5 n1 n2 - -"; len(rows) != 1 ||
		strings.Join(rows[0], " ") != want {
		t.Errorf("rows %q", rows)
	}
	if columns, rows = cells(t, c, "SHOW TRIREME HISTORY LIMIT 0"); len(columns) != 11 || len(rows) != 0 {
		t.Errorf("%q %q", columns, rows)
	}
	run(t, c, "COMMIT")
	if got := from.take(); !slices.Equal(got, []string{"SHOW GRANTS", "START TRANSACTION", "SHOW GRANTS", "SHOW GRANTS",
		"SHOW GRANTS", "COMMIT"}) {
		t.Errorf("the server was sent %q", got)
	}
	f.err = context.DeadlineExceeded
	_, err := c.QueryContext(t.Context(), "SHOW TRIREME STATUS")
	wantError(t, err, codeUnknown)
	f.err, f.view = nil, api.ClusterView{}
	if columns, rows = cells(t, c, "SHOW TRIREME MEMBERS"); len(columns) != 20 || len(rows) != 0 {
		t.Errorf("no node: %q %q", columns, rows)
	}
}

// What mysqld says of the account decides, and what is refused asks nothing of the cluster.
func TestClusterIsRefused(t *testing.T) {
	f := &fakeCluster{view: clusterView()}
	_, from, _, c := wireSession(t, Config{Cluster: f})
	for _, tc := range []struct {
		grants, statement string
		code              uint16
	}{
		{"", "SHOW TRIREME STATUS", codePrivilege},
		{"GRANT SUPER ON *.* TO `a`@`%`", "SHOW TRIREME STATUS", codePrivilege},
		{everything, "SHOW TRIREME", codeParse},
		{everything, "SHOW TRIREME STATUS; SELECT 1", codeNotSupported},
	} {
		from.set(func(w *wireServer) { w.rows = answers(tc.grants) })
		_, err := c.ExecContext(t.Context(), tc.statement)
		wantError(t, err, tc.code)
	}
	from.set(func(w *wireServer) { w.rows = answers(everything) })
	_, err := c.PrepareContext(t.Context(), "SHOW TRIREME STATUS")
	wantError(t, err, codePrepared)
	from.set(func(w *wireServer) { w.fail = map[string]uint16{"SHOW GRANTS": 1820} })
	_, err = c.ExecContext(t.Context(), "SHOW TRIREME STATUS")
	wantError(t, err, 1820)
	if asked := f.take(); len(asked) != 0 {
		t.Errorf("the cluster was asked: %q", asked)
	}
	from.take()
	run(t, c, "SHOW TABLES", "CALL trireme.switchover('n2')", "CALL p()", "SELECT 1; SHOW TRIREME STATUS")
	if got := from.take(); len(got) != 4 {
		t.Errorf("the server was sent %q", got)
	}
}

// The server that is to say what the account may is lost: the session goes on, and nothing was done.
func TestLostWithTheQuestion(t *testing.T) {
	f := &fakeCluster{}
	r, from, to, c := wireSession(t, Config{Cluster: f})
	from.set(func(w *wireServer) { w.hang = "SHOW GRANTS" })
	to.set(func(w *wireServer) { w.rows = answers(everything) })
	ended := make(chan error, 1)
	go func() { _, err := c.ExecContext(t.Context(), "SHOW TRIREME STATUS"); ended <- err }()
	eventually(t, "it is asked", func() bool { return slices.Contains(from.statements(), "SHOW GRANTS") })
	r.SetView(View{RW: to.target("2")})
	wantError(t, <-ended, 1213)
	if got := f.take(); len(got) != 0 {
		t.Errorf("asked %q", got)
	}
	run(t, c, "SHOW TRIREME STATUS")
}

// A server that does not say what the account may do is not waited for forever, and the client hears why.
func TestServerDoesNotSay(t *testing.T) {
	w := newWireServer(t)
	w.hang = "SHOW GRANTS"
	f := &fakeCluster{}
	r := start(t, Config{Sessions: true, Cluster: f, HoldTimeout: 2 * time.Second})
	r.SetView(View{RW: w.target("1")})
	_, err := (&split{T: t}).connect(r.RWAddr()).ExecContext(t.Context(), "SHOW TRIREME STATUS")
	if wantError(t, err, mysqlwire.CodeServerShutdown); len(f.take()) != 0 {
		t.Error("the cluster was asked")
	}
}

// On the splitting port a follower says what the account may see while no node leads.
func TestFollowerJudges(t *testing.T) {
	f := &fakeCluster{view: clusterView()}
	s := newSplit(t, 1, Config{Sessions: true, Cluster: f, ConsistencyTimeout: 50 * time.Millisecond})
	for _, w := range []*wireServer{s.leader, s.followers[0]} {
		w.set(func(w *wireServer) { w.rows = answers(everything) })
	}
	s.run("SHOW TRIREME STATUS", "START TRANSACTION READ ONLY", "SHOW TRIREME STATUS", "COMMIT")
	s.got([]string{"SHOW GRANTS"}, "START TRANSACTION READ ONLY", "SHOW GRANTS", "COMMIT")
	s.run("START TRANSACTION READ ONLY", "SET ROLE NONE", "COMMIT", "SHOW TRIREME STATUS") // roles hold on the leader too
	s.got([]string{"SET ROLE NONE", "SHOW GRANTS"}, "START TRANSACTION READ ONLY", "SET ROLE NONE", "COMMIT")
	s.r.SetView(View{RO: []Target{*s.followers[0].target("2")}})
	s.run("SHOW TRIREME STATUS", "SELECT 1")
	s.got(nil, "SHOW GRANTS", "SELECT 1")
	s.r.SetView(View{RW: s.leader.target("1"), RO: []Target{*s.followers[0].target("2")}})
	s.run("INSERT 1")
	s.got([]string{"SET ROLE NONE", "INSERT 1"})
}

// A router that was not given a cluster, and one that passes bytes on, leave these statements to the server.
func TestNoCluster(t *testing.T) {
	_, from, _, c := wireSession(t, Config{})
	run(t, c, "SHOW TRIREME STATUS")
	if got := from.take(); !slices.Equal(got, []string{"SHOW TRIREME STATUS"}) {
		t.Errorf("sent %q", got)
	}
	f := &fakeCluster{}
	r := start(t, Config{Cluster: f})
	r.SetView(View{RW: from.target("1")})
	passed := (&split{T: t}).connect(r.RWAddr())
	run(t, passed, "SHOW TRIREME STATUS")
	if got := from.take(); !slices.Equal(got, []string{"SHOW TRIREME STATUS"}) || len(f.take()) != 0 {
		t.Errorf("sent %q", got)
	}
}

// Only what stands in front of ON *.* counts, and names that look like it do not.
func TestHolds(t *testing.T) {
	for line, want := range map[string]bool{
		"GRANT SUPER ON *.* TO `a`@`%`":                                   true,
		"GRANT SELECT, SUPER, RELOAD ON *.* TO `a`@`%` WITH GRANT OPTION": true,
		"GRANT AUDIT_ADMIN,SUPER ON *.* TO \"a\"@\"%\"":                   true,
		"GRANT ALL PRIVILEGES ON *.* TO `a`@`%`":                          true,
		"GRANT USAGE ON *.* TO `SUPER`@`%`":                               false,
		"GRANT SUPER_READ ON *.* TO `a`@`%`":                              false,
		"GRANT ALL PRIVILEGES ON `d`.* TO `a`@`%`":                        false,
		"GRANT `SUPER ON *.* TO `@`%` TO `a`@`%`":                         false,
		"GRANT `x`@`%`,SUPER ON *.* TO `a`@`%`":                           false,
		"GRANT SELECT (`b`, SUPER ON *.* TO `) ON `d`.`t` TO `a`@`%`":     false,
		"GRANT SELECT (b), SUPER ON *.* TO x) ON d.t TO a@b":              false,
		"REVOKE SUPER ON *.* FROM `a`@`%`":                                false,
		"GRANT PROXY ON ``@`` TO `root`@`localhost` WITH GRANT OPTION":    false,
		// In swe7, which a session may choose for answers, there is no backtick.
		"GRANT SELECT ON ?app?.?x,SUPER ON *.* TO y? TO ?a?@?%?": false,
		"SUPER": false, "": false,
	} {
		if got := holds(line, []string{"SUPER"}); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

// Results follow both forms of the protocol, with many packets and with none.
func TestAppendRows(t *testing.T) {
	columns := []mysqlwire.Column{{Name: "a"}, {Name: "b", Type: mysqlwire.Unsigned}, {Name: "c", Type: mysqlwire.Double}}
	row := []mysqlwire.Value{{Text: strings.Repeat("v", 300)}, {Null: true}, {Text: "0.5"}}
	for _, deprecateEOF := range []bool{true, false} {
		for _, n := range []int{0, 1, 700} {
			a := newAnswer(comQuery, deprecateEOF)
			p := mysqlwire.AppendRows(nil, 1, columns, slices.Repeat([][]mysqlwire.Value{row}, n), 2, deprecateEOF)
			used, err := a.feed(p)
			packets := 1 + len(columns) + n + 1
			if !deprecateEOF {
				packets++
			}
			if err != nil || used != len(p) || !a.done() || a.status != 2 || a.seq != byte(packets) {
				t.Errorf("%v, %d rows: %d of %d bytes, %v, packet %d of %d", deprecateEOF, n, used, len(p), err, a.seq, packets)
			}
		}
	}
}

// plainStatements are not the router's; most are known not to be by their first two letters.
var plainStatements = []string{benchQuery, "SELECT 1", "SET autocommit=0", "COMMIT", "INSERT INTO t VALUES (1)",
	"call p(1)", "SHOW TABLES", "/* app:shop */ SELECT c FROM t"}

// A statement that the router does not handle costs no memory, and little time.
func TestOwnDoesNotAllocate(t *testing.T) {
	for _, q := range plainStatements {
		s := ownSession(q)
		if n := testing.AllocsPerRun(50, func() {
			if done, _ := s.own(comQuery, s.r1-4); done {
				t.Errorf("%s is taken for the router's", q)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", q, n)
		}
	}
}

// BenchmarkOwn is the look at a statement that is not the router's.
func BenchmarkOwn(b *testing.B) {
	for _, q := range plainStatements {
		s := ownSession(q)
		b.Run(q[:min(len(q), 20)], func(b *testing.B) {
			for b.Loop() {
				if done, _ := s.own(comQuery, s.r1-4); done {
					b.Fatal(q)
				}
			}
		})
	}
}

// ownSession has a statement in its buffer.
func ownSession(q string) *session {
	s := &session{r: New(Config{Cluster: &fakeCluster{}})}
	s.r1 = copy(s.buf[:], mysqlwire.AppendPacket(nil, 0, append([]byte{comQuery}, q...)))
	return s
}
