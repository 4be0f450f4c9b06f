package router

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/mysql/mysqlwire"
)

// rawSession is a client that says what a test wants said, byte by byte.
func rawSession(t *testing.T, cfg Config) (r *Router, from, to *wireServer, c *mysqlwire.Client) {
	t.Helper()
	from, to = newWireServer(t), newWireServer(t)
	cfg.Sessions = true
	if cfg.HoldTimeout == 0 {
		cfg.HoldTimeout = limit
	}
	r = start(t, cfg)
	r.SetView(View{RW: from.target("1")})
	return r, from, to, rawClient(t, r.RWAddr())
}

// rawClient logs in where a router listens.
func rawClient(t *testing.T, addr string) *mysqlwire.Client {
	t.Helper()
	c, err := mysqlwire.Login(t.Context(), dial(t, addr), mysqlwire.ClientConfig{User: "app", Password: wirePassword,
		Attributes: []mysqlwire.Attribute{{Name: "_client_name", Value: "pymysql"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.NetConn().SetDeadline(time.Now().Add(limit))
	return c
}

// say sends a command and returns the code of its answer; 0 is an OK.
func say(t *testing.T, c *mysqlwire.Client, command byte, text string) uint16 {
	t.Helper()
	if err := c.WriteCommand(command, []byte(text)); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if silent(command) {
		return 0
	}
	return hear(t, c)
}

func hear(t *testing.T, c *mysqlwire.Client) uint16 {
	t.Helper()
	p, err := c.ReadPacket()
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case mysqlwire.IsOK(p):
		return 0
	case mysqlwire.IsERR(p):
		e, err := mysqlwire.ParseERR(p)
		if err != nil {
			t.Fatal(err)
		}
		return e.Code
	}
	t.Fatalf("neither OK nor an error: %q", p)
	return 0
}

// prepare prepares a statement of up to one parameter and returns its id.
func prepare(t *testing.T, c *mysqlwire.Client, text string) []byte {
	t.Helper()
	if err := c.WriteCommand(comStmtPrepare, []byte(text)); err != nil {
		t.Fatal(err)
	}
	p, err := c.ReadPacket()
	if err != nil || len(p) != 12 || p[0] != 0 {
		t.Fatalf("%s: %q, %v", text, p, err)
	}
	id := bytes.Clone(p[1:5])
	for range 2 * min(int(p[7]), 1) {
		if _, err := c.ReadPacket(); err != nil {
			t.Fatal(err)
		}
	}
	return id
}

func executeOf(id []byte) string { return string(id) + "\x00\x01\x00\x00\x00" }

// turn is SetView as far as it has come before sessions are rung: they find out with their next command.
func turn(r *Router, v View) {
	r.mu.Lock()
	r.view = v
	cut := r.unlinkForbidden()
	r.announce()
	r.mu.Unlock()
	for _, l := range cut {
		l.closeServer()
	}
}

// That a transaction was lost is told to the first command that has an answer: one without must not take it away.
func TestLostTransactionBehindSilentCommand(t *testing.T) {
	for name, command := range map[string]byte{"COM_STMT_CLOSE": comStmtClose,
		"COM_STMT_SEND_LONG_DATA": comStmtSendLong} {
		t.Run(name, func(t *testing.T) {
			r, _, to, c := rawSession(t, Config{})
			id := prepare(t, c, "INSERT 0")
			say(t, c, comQuery, "START TRANSACTION")
			say(t, c, comQuery, "INSERT 1")
			turn(r, View{RW: to.target("2")})
			say(t, c, command, string(id)+"\x00\x00data")
			if got := say(t, c, comQuery, "INSERT 2"); got != 1213 {
				t.Errorf("the next statement of a transaction that was lost: answer %d; sent %q", got, to.statements())
			}
			if got := say(t, c, comQuery, "INSERT 3"); got != 0 {
				t.Errorf("answer %d", got)
			}
			if got := to.statements(); !slices.Equal(got, []string{"INSERT 3"}) {
				t.Errorf("sent %q", got)
			}
		})
	}
}

// A ROLLBACK of a transaction that was lost asks for what has happened: the next server carries it out, where it ends
// nothing. What asks for more, or for less, is told that all is gone.
func TestRollbackOfLostTransaction(t *testing.T) {
	for text, want := range map[string]uint16{"ROLLBACK": 0, "rollback work;": 0, "ROLLBACK TO s": 1213,
		"ROLLBACK AND CHAIN": 1213, "ROLLBACK RELEASE": 1213, "/* why */ ROLLBACK": 1213} {
		for _, underWay := range []bool{false, true} {
			r, from, to, c := rawSession(t, Config{})
			say(t, c, comQuery, "START TRANSACTION")
			say(t, c, comQuery, "INSERT 1")
			from.mu.Lock()
			from.hang = text
			from.mu.Unlock()
			if !underWay {
				turn(r, View{RW: to.target("2")})
			}
			if err := c.WriteCommand(comQuery, []byte(text)); err != nil {
				t.Fatal(err)
			}
			if underWay {
				eventually(t, "it is under way", func() bool { return slices.Contains(from.statements(), text) })
				r.SetView(View{RW: to.target("2")})
			}
			if got := hear(t, c); got != want {
				t.Errorf("%s, under way %t: answer %d, want %d", text, underWay, got, want)
			}
			say(t, c, comQuery, "INSERT 2")
			sent := []string{text, "INSERT 2"}
			if want != 0 {
				sent = sent[1:]
			}
			if got := to.statements(); !slices.Equal(got, sent) {
				t.Errorf("%s, under way %t: sent %q", text, underWay, got)
			}
			r.SetView(View{KeepRW: true})
			eventually(t, "nothing is open any more", r.Quiet)
		}
	}
}

// The client of a ROLLBACK that no server can carry out is told so, and the transaction stays lost for the next
// statement.
func TestRollbackWithoutLeader(t *testing.T) {
	for _, underWay := range []bool{false, true} {
		r, from, to, c := rawSession(t, Config{HoldTimeout: 500 * time.Millisecond})
		from.hang = "ROLLBACK"
		say(t, c, comQuery, "START TRANSACTION")
		if !underWay {
			turn(r, View{})
		}
		if err := c.WriteCommand(comQuery, []byte("ROLLBACK")); err != nil {
			t.Fatal(err)
		}
		if underWay {
			eventually(t, "it is under way", func() bool { return slices.Contains(from.statements(), "ROLLBACK") })
			turn(r, View{})
		}
		if got := hear(t, c); got != 1290 {
			t.Errorf("answer %d", got)
		}
		r.SetView(View{RW: to.target("2")})
		if got := say(t, c, comQuery, "INSERT 1"); got != 1213 {
			t.Errorf("the next statement: answer %d, sent %q", got, to.statements())
		}
		if got := say(t, c, comQuery, "INSERT 2"); got != 0 {
			t.Errorf("answer %d", got)
		}
	}
}

// After an error that may have committed the transaction the router does not say that it was rolled back.
func TestRollbackBehindError(t *testing.T) {
	r, from, to, c := rawSession(t, Config{})
	from.fail = map[string]uint16{"CREATE TABLE t": 1050}
	say(t, c, comQuery, "START TRANSACTION")
	if got := say(t, c, comQuery, "CREATE TABLE t"); got != 1050 {
		t.Fatalf("answer %d", got)
	}
	turn(r, View{RW: to.target("2")})
	if got := say(t, c, comQuery, "ROLLBACK"); got != 3168 {
		t.Errorf("answer %d", got)
	}
}

// Parameters sent ahead that a server has not got are not left out of the execution: the client is told to begin again.
func TestLostLongData(t *testing.T) {
	for name, lose := range map[string]func(r *Router, to *wireServer){
		"with their server": func(r *Router, to *wireServer) { r.SetView(View{RW: to.target("2")}) },
		"with no server":    func(r *Router, to *wireServer) { r.SetView(View{}) },
	} {
		t.Run(name, func(t *testing.T) {
			r, _, to, c := rawSession(t, Config{HoldTimeout: 50 * time.Millisecond})
			id := prepare(t, c, "INSERT ?")
			if name == "with their server" {
				say(t, c, comStmtSendLong, string(id)+"\x00\x00first")
				say(t, c, comPing, "")
			}
			lose(r, to)
			say(t, c, comStmtSendLong, string(id)+"\x00\x00second")
			if name == "with no server" {
				if got := say(t, c, comPing, ""); got != 1213 && got != 1290 {
					t.Errorf("answer %d", got)
				}
				r.SetView(View{RW: to.target("2")})
			}
			first := say(t, c, comStmtExecute, executeOf(id)+"\x00\x01\xfc\x00")
			if slices.Contains(to.statements(), "execute INSERT ?") && !slices.Contains(to.statements(), "long") {
				t.Errorf("executed without its parameter: answer %d, sent %q", first, to.statements())
			}
			say(t, c, comStmtSendLong, string(id)+"\x00\x00all")
			if got := say(t, c, comStmtExecute, executeOf(id)+"\x00\x01\xfc\x00"); got != 0 ||
				!slices.Contains(to.statements(), "long") {
				t.Errorf("answer %d, sent %q", got, to.statements())
			}
		})
	}
}

// The rest of a client's file is no commands, when the server that asked for it is gone.
func TestLostWithinLocalFile(t *testing.T) {
	r, from, to, c := rawSession(t, Config{})
	if err := c.WriteCommand(comQuery, []byte("LOAD DATA LOCAL")); err != nil {
		t.Fatal(err)
	}
	if p, err := c.ReadPacket(); err != nil || p[0] != 0xfb {
		t.Fatalf("%q, %v", p, err)
	}
	if err := c.WritePacket([]byte("1,2,3")); err != nil {
		t.Fatal(err)
	}
	r.SetView(View{RW: to.target("2")})
	for _, p := range []string{"first", "\x03DROP TABLE t", "\x03DROP TABLE u", ""} {
		if err := c.WritePacket([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	if got := hear(t, c); got != 3168 {
		t.Errorf("answer %d", got)
	}
	if got := say(t, c, comQuery, "INSERT 1"); got != 0 {
		t.Errorf("answer %d", got)
	}
	if got := to.statements(); !slices.Equal(got, []string{"INSERT 1"}) {
		t.Errorf("sent %q", got)
	}
	if slices.Contains(from.statements(), "INSERT 1") {
		t.Error("sent to the server that is gone")
	}
}

// An error tells nothing of the transaction: DDL that fails has committed it all the same, so what follows may have
// been committed by itself.
func TestTransactionBehindError(t *testing.T) {
	for _, code := range []uint16{1050, 1213, 1205} {
		r, from, to, c := rawSession(t, Config{})
		from.fail = map[string]uint16{"CREATE TABLE t": code, "INSERT bad": code}
		from.hang = "INSERT 2"
		say(t, c, comQuery, "START TRANSACTION")
		if got := say(t, c, comQuery, "CREATE TABLE t"); got != code {
			t.Fatalf("answer %d", got)
		}
		if err := c.WriteCommand(comQuery, []byte("INSERT 2")); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is under way", func() bool { return slices.Contains(from.statements(), "INSERT 2") })
		r.SetView(View{RW: to.target("2")})
		if got := hear(t, c); got != 3168 {
			t.Errorf("a statement after DDL that failed: answer %d", got)
		}
	}
}

// A deadlock of metadata locks leaves the transaction open.
func TestTransactionBehindDeadlock(t *testing.T) {
	r, from, to, c := rawSession(t, Config{})
	from.fail = map[string]uint16{"INSERT bad": 1213}
	say(t, c, comQuery, "START TRANSACTION")
	if got := say(t, c, comQuery, "INSERT bad"); got != 1213 {
		t.Fatalf("answer %d", got)
	}
	r.SetView(View{RW: to.target("2")})
	if got := say(t, c, comQuery, "INSERT 2"); got != 1213 {
		t.Errorf("the rest of a transaction goes to another server: answer %d", got)
	}
}

// A statement that was prepared in one schema stays in it.
func TestPreparedKeepsItsSchema(t *testing.T) {
	r, _, to, c := rawSession(t, Config{})
	say(t, c, comInitDB, "a")
	id := prepare(t, c, "INSERT 1")
	say(t, c, comQuery, "USE b")
	r.SetView(View{RW: to.target("2")})
	if got := say(t, c, comStmtExecute, executeOf(id)); got != 0 {
		t.Fatalf("answer %d", got)
	}
	if got := to.statements(); !slices.Equal(got, []string{"USE b", "schema a", "prepare INSERT 1", "USE b",
		"execute INSERT 1"}) {
		t.Errorf("sent %q", got)
	}
}

// A statement that was prepared under another character set or sql_mode might mean something else: the session does not
// go on with it.
func TestPreparedKeepsItsDialect(t *testing.T) {
	r, _, to, c := rawSession(t, Config{})
	say(t, c, comQuery, "SET NAMES latin1")
	kept := prepare(t, c, "INSERT 1")
	say(t, c, comQuery, "SET a = 1")
	r.SetView(View{RW: to.target("2")})
	if got := say(t, c, comStmtExecute, executeOf(kept)); got != 0 {
		t.Fatalf("answer %d", got)
	}
	say(t, c, comQuery, "SET sql_mode = 'ANSI_QUOTES'")
	r.SetView(View{RW: to.target("3")})
	if got := say(t, c, comStmtExecute, executeOf(kept)); got != 1053 {
		t.Errorf("answer %d", got)
	}
}

// SETs are repeated so that each finds what it found before.
func TestSetsInOrder(t *testing.T) {
	r, _, to, c := rawSession(t, Config{})
	sets := []string{"SET a = 1", "SET b = @@a", "SET a = 2", "SET a = 1", "SET c = 1", "SET c = 2", "SET c = 1",
		"SET a = @@GLOBAL.a"}
	for _, q := range sets {
		say(t, c, comQuery, q)
	}
	r.SetView(View{RW: to.target("2")})
	say(t, c, comPing, "")
	want := []string{"SET a = 1", "SET b = @@a", "SET a = 2", "SET a = 1", "SET c = 2", "SET c = 1", "SET a = @@GLOBAL.a",
		"ping"}
	if got := to.statements(); !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
}

// COM_RESET_CONNECTION gives the server's defaults, not those of the login.
func TestResetIsRepeated(t *testing.T) {
	r, _, to, c := rawSession(t, Config{})
	say(t, c, comQuery, "SET @x = 1")
	say(t, c, comResetConnection, "")
	say(t, c, comQuery, "SET a = 1")
	eventually(t, "it is free again", func() bool { return r.Stats().RW.Tied == 0 && r.Stats().RW.Followed == 1 })
	r.SetView(View{RW: to.target("2")})
	say(t, c, comPing, "")
	if got, want := to.statements(), []string{"reset", "SET a = 1", "ping"}; !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
}

// What SET TRANSACTION says waits for the next transaction, however many other commands come before that.
func TestSetTransactionWaits(t *testing.T) {
	r, _, to, c := rawSession(t, Config{})
	say(t, c, comQuery, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
	say(t, c, comPing, "")
	say(t, c, comQuery, "SET a = 1")
	r.SetView(View{RW: to.target("2")})
	if got := say(t, c, comQuery, "START TRANSACTION"); got != 1213 {
		t.Errorf("answer %d", got)
	}
}

// A client that leaves while its command waits has perhaps said it again elsewhere: it is not carried out.
func TestClientGoneWhileHeld(t *testing.T) {
	r, from, to, c := rawSession(t, Config{})
	r.SetView(View{KeepRW: true})
	if err := c.WriteCommand(comQuery, []byte("INSERT 1")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it waits", func() bool { return r.Stats().RW.Held == 1 })
	_ = c.Close()
	r.SetView(View{RW: to.target("2")})
	eventually(t, "the session is gone", func() bool { return r.Stats().RW.Followed == 0 })
	if slices.Contains(from.statements(), "INSERT 1") || slices.Contains(to.statements(), "INSERT 1") {
		t.Errorf("carried out: %q, %q", from.statements(), to.statements())
	}
}

// A session that was closed by itself, by KILL, ends with its statement under way: an error would have it repeated.
func TestKilledStatement(t *testing.T) {
	_, from, _, c := rawSession(t, Config{Confirm: func(context.Context, Target) error { return nil }})
	from.kill = "SELECT 1"
	if err := c.WriteCommand(comQuery, []byte("SELECT 1")); err != nil {
		t.Fatal(err)
	}
	if p, err := c.ReadPacket(); err == nil {
		t.Errorf("answer %q", p)
	}
}

// laterKnown knows an outcome once it is closed.
type laterKnown chan struct{}

func (o laterKnown) Reached(context.Context, Target) (uint64, error) { return 42, nil }

func (o laterKnown) Outcome(ctx context.Context, _ api.OutcomeQuery) api.OutcomeResult {
	select {
	case <-o:
	case <-ctx.Done():
	}
	return api.NotCommitted
}

// A statement whose outcome is being looked for is under way at no server: a planned switchover does not wait for it.
func TestOutcomeIsNotUnderWay(t *testing.T) {
	known := make(laterKnown)
	r, from, to, c := rawSession(t, Config{Outcomes: known, HoldTimeout: 3 * limit})
	from.set(func(w *wireServer) { w.hang = "INSERT 1" })
	if err := c.WriteCommand(comQuery, []byte("INSERT 1")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is under way", func() bool { return slices.Contains(from.statements(), "INSERT 1") })
	r.SetView(View{KeepRW: true})
	if r.Quiet() {
		t.Error("quiet with a statement under way")
	}
	r.SetView(View{RW: to.target("2")})
	r.SetView(View{KeepRW: true})
	eventually(t, "nothing is under way", r.Quiet)
	close(known)
	if got := hear(t, c); got != 1213 {
		t.Errorf("answer %d", got)
	}
	r.SetView(View{RW: to.target("2")})
	mustPing(t, c)
	eventually(t, "nothing is under way", func() bool { return r.active.Load() == 0 })
}

// A server whose node is silent may be lost: its session waits for the view that says so, and goes on.
func TestSilentNode(t *testing.T) {
	var lost atomic.Bool
	var asked atomic.Int32
	var news func()
	r, from, to, c := rawSession(t, Config{Confirm: func(context.Context, Target) error {
		switch {
		case !lost.Load():
			return nil
		case asked.Add(1) < 3:
			return errors.New("no answer")
		}
		news() // the view overtakes the answer
		return nil
	}})
	news = func() { r.SetView(View{RW: to.target("2")}) }
	from.kill = "SELECT 1 FROM t"
	lost.Store(true)
	if err := c.WriteCommand(comQuery, []byte("SELECT 1 FROM t")); err != nil {
		t.Fatal(err)
	}
	if got := hear(t, c); got != 1213 {
		t.Errorf("answer %d", got)
	}
}

// What a server says when it does not read a statement to its end reaches the client.
func TestErrorBeforeTheEnd(t *testing.T) {
	_, _, _, c := rawSession(t, Config{})
	// wireServer takes 1 MiB.
	if err := c.WriteCommand(comQuery, bytes.Repeat([]byte("x"), 4<<20)); err != nil {
		t.Fatal(err)
	}
	if got := hear(t, c); got != 1153 {
		t.Errorf("answer %d", got)
	}
}

// If a client leaves while its server is at work, the session does not stay there, as with pass: GET_LOCK would wait
// forever. A session that has more to say stays.
func TestClientGoesWhileItsServerWorks(t *testing.T) {
	r, from, _, c := rawSession(t, Config{})
	from.mu.Lock()
	from.hang = "SELECT GET_LOCK('l', -1)"
	from.mu.Unlock()
	if err := c.WriteCommand(comQuery, []byte(from.hang)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server works", func() bool { return slices.Contains(from.statements(), from.hang) })
	r.round()
	if r.Stats().RW.Open != 1 {
		t.Fatal("it was ended with its client there")
	}
	_ = c.NetConn().Close()
	eventually(t, "the server hears of it", func() bool { r.round(); return r.Stats().RW.Open == 0 })
}

// What a client has said before it ended its side is carried out, and answered.
func TestClientEndsItsSide(t *testing.T) {
	r, from, _, c := rawSession(t, Config{})
	two := mysqlwire.AppendPacket(mysqlwire.AppendPacket(nil, 0, []byte("\x03UPDATE 1")), 0, []byte("\x03UPDATE 2"))
	if _, err := c.NetConn().Write(two); err != nil {
		t.Fatal(err)
	}
	if err := c.NetConn().(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	r.round()
	want := mysqlwire.AppendPacket(nil, 1, mysqlwire.AppendOK(nil, mysqlwire.OK{Status: mysqlwire.StatusAutocommit}))
	if got, err := io.ReadAll(c.NetConn()); err != nil || !bytes.Equal(got, slices.Concat(want, want)) {
		t.Errorf("%q, %v", got, err)
	}
	if got := from.statements(); !slices.Contains(got, "UPDATE 2") {
		t.Error(got)
	}
	eventually(t, "it is gone", func() bool { return r.Stats().RW.Open == 0 })
}

// Who waits for a planned switchover's end is released when its server is known not to lead any more: it would begin
// there otherwise, and be cut in the middle.
func TestReleasedBehindTheCut(t *testing.T) {
	r := New(Config{})
	defer r.Close()
	from, to := Target{Name: "a", Epoch: "1"}, Target{Name: "b", Epoch: "2"}
	r.SetView(View{RW: &from})
	r.SetView(View{KeepRW: true})
	cut, early := false, false
	r.dials[&attempt{port: &r.rw, target: from, cancel: func() { cut, early = true, !r.holding.Load() }}] = struct{}{}
	r.SetView(View{RW: &to})
	if !cut || early || r.holding.Load() {
		t.Errorf("cut %t, released before that %t, held %t", cut, early, r.holding.Load())
	}
}
