package router

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/api"
	"trireme/internal/mysql/mysqlwire"
)

// wireServer answers the protocol like a mysqld that does what it is told and keeps no data: it remembers what it was
// sent.
type wireServer struct {
	net.Listener
	wg   sync.WaitGroup
	mu   sync.Mutex
	sent []string
	kill string              // a statement that ends its session
	hang string              // a statement that is not answered
	half string              // a statement of whose answer only the first packet comes, which announces a column
	fail map[string]uint16   // statements that end in an error, by its code
	rows map[string][]string // statements that yield rows of one column
	wide map[string][]string // statements that yield one row of several columns
	// threads is the connection id that was given last; 0: every connection has 7.
	threads uint32
	conns   []net.Conn
	// answersLong has parameters sent ahead answered, as by mysqld beyond max_allowed_packet.
	answersLong bool
	tls         *tls.Config   // offered from the next login on
	safe        int           // logins over it
	wait        time.Duration // for a login, as mysqld's connect_timeout; 0: for ever
}

const wirePassword = "wire-Pass-1"

func newWireServer(t testing.TB) *wireServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return wireServerAt(t, l)
}

func wireServerAt(t testing.TB, l net.Listener) *wireServer {
	s := &wireServer{Listener: l}
	ctx, cancel := context.WithCancel(context.Background())
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() {
				defer context.AfterFunc(ctx, func() { _ = c.Close() })()
				defer c.Close()
				s.session(ctx, c)
			})
		}
	})
	t.Cleanup(func() { cancel(); _ = l.Close(); s.wg.Wait() })
	return s
}

func (s *wireServer) session(ctx context.Context, c net.Conn) {
	s.mu.Lock()
	offered, wait, thread := s.tls, s.wait, uint32(7)
	if s.threads > 0 {
		s.threads++
		thread = s.threads
	}
	s.conns = append(s.conns, c)
	s.mu.Unlock()
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	in, err := mysqlwire.Accept(ctx, c, mysqlwire.ServerConfig{User: "app", Password: wirePassword, Version: "9.7.4",
		ConnectionID: thread, TLS: offered})
	if err != nil {
		return
	}
	if _, safe := in.NetConn().(*tls.Conn); safe {
		s.mu.Lock()
		s.safe++
		s.mu.Unlock()
	}
	w := wireConn{Session: in, status: mysqlwire.StatusAutocommit, prepared: map[byte]string{}}
	for {
		command, argument, err := in.ReadCommand()
		if errors.Is(err, mysqlwire.ErrTooLarge) {
			_ = in.WriteERR(&mysqlwire.ServerError{Code: 1153, State: "08S01",
				Message: "Got a packet bigger than 'max_allowed_packet' bytes"})
		}
		if err != nil || command == mysqlwire.ComQuit {
			return
		}
		if 1+len(argument) < shortest[command] {
			s.mu.Lock()
			s.sent = append(s.sent, "malformed")
			s.mu.Unlock()
			if err := w.WriteERR(&mysqlwire.ServerError{Code: codeMalformed, State: "HY000",
				Message: "Malformed communication packet."}); err != nil {
				return
			}
			continue
		}
		text := w.text(command, argument)
		s.mu.Lock()
		mark, marked := strings.CutPrefix(text, "SELECT '")
		if marked { // of the router's
			mark, marked = strings.CutSuffix(mark, "' LIMIT 1")
		}
		own := marked || text == readSettingsQuery
		if !own {
			s.sent = append(s.sent, text)
		}
		hang, code, kill := s.hang != "" && s.hang == text, s.fail[text], s.kill != "" && s.kill == text
		answersLong := s.answersLong
		half := s.half != "" && s.half == text
		rows, wide := s.rows[text], s.wide[text]
		if marked {
			rows = []string{mark}
		}
		s.mu.Unlock()
		if kill {
			return
		}
		if answersLong && command == comStmtSendLong {
			_ = w.WriteERR(&mysqlwire.ServerError{Code: 1153, State: "08S01",
				Message: "Got a packet bigger than 'max_allowed_packet' bytes"})
			continue
		}
		if hang || silent(command) {
			continue
		}
		if half {
			if err := w.WritePacket([]byte{1}); err != nil {
				return
			}
			continue
		}
		if wide != nil {
			row := []mysqlwire.Value{}
			for _, v := range wide {
				row = append(row, mysqlwire.Value{Text: v})
			}
			if err := w.table(len(row), [][]mysqlwire.Value{row}); err != nil {
				return
			}
			continue
		}
		if rows != nil && code == 0 {
			if err := w.result(rows); err != nil {
				return
			}
			continue
		}
		if err := w.answer(command, text, code); err != nil {
			return
		}
	}
}

// timeOut ends all sessions as mysqld does those that were idle for too long.
func (s *wireServer) timeOut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_, _ = c.Write(mysqlwire.AppendPacket(nil, 0,
			mysqlwire.AppendERR(nil, &mysqlwire.ServerError{Code: erIdle, State: "HY000", Message: "idle"})))
		_ = c.Close()
	}
	s.conns = nil
}

// wireConn is a session at a wireServer.
type wireConn struct {
	*mysqlwire.Session
	status   uint16
	prepared map[byte]string
}

// text says in words what a command is.
func (w *wireConn) text(command byte, argument []byte) string {
	switch command {
	case comStmtPrepare:
		return "prepare " + string(argument)
	case comStmtExecute:
		return "execute " + w.prepared[argument[0]]
	case comStmtSendLong:
		return "long"
	case comStmtClose:
		return "close"
	case comInitDB:
		return "schema " + string(argument)
	case comPing:
		return "ping"
	case comResetConnection:
		return "reset"
	}
	return string(argument)
}

// result answers with rows of one column.
func (w *wireConn) result(lines []string) error {
	rows := [][]mysqlwire.Value{}
	for _, line := range lines {
		rows = append(rows, []mysqlwire.Value{{Text: line}})
	}
	return w.table(1, rows)
}

func (w *wireConn) table(columns int, rows [][]mysqlwire.Value) error {
	names := slices.Repeat([]mysqlwire.Column{{Name: "c"}}, columns)
	_, err := w.NetConn().Write(mysqlwire.AppendRows(nil, w.Sequence(), names, rows, w.status, false))
	return err
}

// answer does what a statement says to the status, as mysqld would: DDL commits, also when it fails.
func (w *wireConn) answer(command byte, text string, code uint16) error {
	switch {
	case strings.HasPrefix(text, "START"):
		w.status |= mysqlwire.StatusInTransaction
	case text == "TRACK": // SERVER_SESSION_STATE_CHANGED
		w.status |= 0x4000
	case text == "COMMIT" || text == "ROLLBACK" || strings.HasPrefix(text, "CREATE"):
		w.status &^= mysqlwire.StatusInTransaction
	case strings.HasPrefix(text, "LOAD"):
		if err := w.WritePacket([]byte{0xfb, 'f'}); err != nil {
			return err
		}
		for {
			if p, err := w.ReadPacket(); err != nil || len(p) == 0 {
				break
			}
		}
	}
	switch {
	case code != 0:
		return w.WriteERR(&mysqlwire.ServerError{Code: code, State: "HY000", Message: text})
	case command == comStmtPrepare:
		id := byte(len(w.prepared) + 1)
		w.prepared[id] = text[len("prepare "):]
		if err := w.BufferPacket([]byte{0, id, 0, 0, 0, 0, 0, byte(strings.Count(text, "?")), 0, 0, 0, 0}); err != nil {
			return err
		}
		for range strings.Count(text, "?") {
			if err := w.BufferPacket([]byte("\x03def\x00")); err != nil {
				return err
			}
		}
		if strings.Contains(text, "?") {
			return w.WritePacket(mysqlwire.AppendEOF(nil, w.status))
		}
		return w.Flush()
	}
	return w.WritePacket(mysqlwire.AppendOK(nil, mysqlwire.OK{Status: w.status}))
}

func (s *wireServer) statements() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

func (s *wireServer) target(epoch string) *Target {
	return &Target{Name: "n-" + epoch, Addr: s.Addr().String(), Epoch: epoch}
}

// wireSession is one session through a router that leads to the first of two servers.
func wireSession(t *testing.T, cfg Config) (r *Router, from, to *wireServer, c *sql.Conn) {
	t.Helper()
	from, to = newWireServer(t), newWireServer(t)
	cfg.Sessions, cfg.HoldTimeout = true, limit
	r = start(t, cfg)
	r.SetView(View{RW: from.target("1")})
	db, err := sql.Open("mysql", fmt.Sprintf("app:%s@tcp(%s)/", wirePassword, r.RWAddr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if c, err = db.Conn(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return r, from, to, c
}

func wantError(t *testing.T, err error, code uint16) {
	t.Helper()
	var e *mysql.MySQLError
	if !errors.As(err, &e) || e.Number != code {
		t.Fatalf("error %v, want %d", err, code)
	}
}

// An idle session goes on at the new leader with what it had set, in the order in which it was set.
func TestIdleSessionIsCarried(t *testing.T) {
	r, from, to, c := wireSession(t, Config{})
	run(t, c, "SET a = 1", "SET b = 2", "SET a = 1", "USE d", "INSERT 1")
	r.SetView(View{RW: to.target("2")})
	if s := r.Stats(); s.ByTarget["n-1"] != 0 {
		t.Fatalf("the old server has connections: %+v", s)
	}
	run(t, c, "INSERT 2")
	if want := []string{"SET b = 2", "SET a = 1", "USE d", "INSERT 2"}; !slices.Equal(to.statements(), want) {
		t.Errorf("sent %q, want %q", to.statements(), want)
	}
	if s := r.Stats().RW; s.Carried != 1 || s.Followed != 1 {
		t.Errorf("%+v", s)
	}
	if slices.Contains(from.statements(), "INSERT 2") {
		t.Error("sent to the old server")
	}
}

// What is lost with a server is told so that it is repeated only if it cannot have been committed.
func TestLostWithItsServer(t *testing.T) {
	for name, c := range map[string]struct {
		before   []string
		hang     string
		outcomes Outcomes
		want     uint16 // 0: an OK
	}{
		"a transaction":                  {[]string{"START TRANSACTION", "INSERT 1"}, "", nil, 1213},
		"a statement of a transaction":   {[]string{"START TRANSACTION"}, "INSERT 1", nil, 1213},
		"SELECT":                         {nil, "SELECT 1 FROM t", nil, 1213},
		"SELECT of a function":           {nil, "SELECT f(1)", nil, 3168},
		"autocommit":                     {nil, "INSERT 1", nil, 3168},
		"COMMIT":                         {[]string{"START TRANSACTION"}, "COMMIT", nil, 3168},
		"COMMIT that is committed":       {[]string{"START TRANSACTION"}, "COMMIT", told(api.Committed), 0},
		"COMMIT that is not":             {[]string{"START TRANSACTION"}, "COMMIT", told(api.NotCommitted), 1213},
		"autocommit that is committed":   {nil, "INSERT 1", told(api.Committed), 3168},
		"autocommit that is not":         {nil, "INSERT 1", told(api.NotCommitted), 1213},
		"COMMIT that begins another":     {[]string{"START TRANSACTION"}, "COMMIT AND CHAIN", told(api.Committed), 3168},
		"several":                        {nil, "INSERT 1; INSERT 2", told(api.NotCommitted), 1213},
		"DDL in the midst of one":        {[]string{"START TRANSACTION"}, "CREATE TABLE t", nil, 3168},
		"autocommit=1 in the midst of 1": {[]string{"START TRANSACTION"}, "SET autocommit=1", nil, 3168},
	} {
		t.Run(name, func(t *testing.T) {
			r, from, to, conn := wireSession(t, Config{Outcomes: c.outcomes})
			run(t, conn, c.before...)
			from.mu.Lock()
			from.hang = c.hang
			from.mu.Unlock()
			ended := make(chan error, 1)
			if c.hang != "" {
				go func() { _, err := conn.ExecContext(t.Context(), c.hang); ended <- err }()
				eventually(t, "it is under way", func() bool { return slices.Contains(from.statements(), c.hang) })
			}
			r.SetView(View{RW: to.target("2")})
			if c.hang == "" {
				_, err := conn.ExecContext(t.Context(), "COMMIT")
				ended <- err
			}
			if err := <-ended; c.want != 0 || err != nil {
				wantError(t, err, c.want)
			}
			run(t, conn, "INSERT 2")
			if got := to.statements(); !slices.Equal(got, []string{"INSERT 2"}) {
				t.Errorf("sent to the new server: %q", got)
			}
		})
	}
}

type told api.OutcomeResult

func (o told) Reached(context.Context, Target) (uint64, error) { return 42, nil }

func (o told) Outcome(_ context.Context, sent api.OutcomeQuery) api.OutcomeResult {
	if sent.Node != "n-1" || sent.Epoch != "1" || sent.Thread != 7 {
		return api.OutcomeUnknown
	}
	return api.OutcomeResult(o)
}

// Held sessions begin nothing: the next command waits for the switchover's end. A transaction that is open goes on.
func TestHeldSession(t *testing.T) {
	quiet := make(chan struct{}, 10)
	r, from, to, c := wireSession(t, Config{OnQuiet: func() { quiet <- struct{}{} }})
	run(t, c, "START TRANSACTION")
	r.SetView(View{KeepRW: true})
	run(t, c, "INSERT 1")
	if r.Quiet() {
		t.Fatal("quiet with a transaction open")
	}
	run(t, c, "COMMIT")
	<-quiet
	done := make(chan error, 1)
	go func() { _, err := c.ExecContext(t.Context(), "INSERT 2"); done <- err }()
	eventually(t, "the next statement waits", func() bool { return r.Stats().RW.Held == 1 })
	if !r.Quiet() {
		t.Fatal("not quiet")
	}
	r.SetView(View{RW: to.target("2")})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := to.statements(); !slices.Equal(got, []string{"INSERT 2"}) || slices.Contains(from.statements(), "INSERT 2") {
		t.Errorf("sent %q and %q", from.statements(), got)
	}
}

// A session with something that cannot be restored ends when its server does, with the reason.
func TestTiedSession(t *testing.T) {
	r, _, to, c := wireSession(t, Config{})
	run(t, c, "SET @x = 1")
	eventually(t, "it is known", func() bool { return r.Stats().RW.Tied == 1 })
	r.SetView(View{RW: to.target("2")})
	eventually(t, "it has ended", func() bool { return r.Stats().RW.NotCarried == 1 })
	if _, err := c.ExecContext(t.Context(), "INSERT 1"); err == nil || len(to.statements()) > 0 {
		t.Errorf("error %v, sent %q", err, to.statements())
	}
}

// run executes statements that must succeed.
func run(t *testing.T, c *sql.Conn, statements ...string) {
	t.Helper()
	for _, q := range statements {
		if _, err := c.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// offer has it take TLS from the next login on.
func (s *wireServer) offer(c *tls.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tls = c
}
