package router

import (
	"context"
	"database/sql/driver"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// slowLogin is a client that goes on with its login once it is let go.
type slowLogin struct {
	t       *testing.T
	hangUp  func() error
	greeted chan struct{}
	letGo   func()
	ended   chan loggedIn
}

type loggedIn struct {
	conn driver.Conn
	err  error
}

// pausedConn says so many packets, and then nothing until it is let go.
type pausedConn struct {
	net.Conn
	spared int
	begins func()
	letGo  chan struct{}
}

func (c *pausedConn) Write(p []byte) (int, error) {
	if c.spared > 0 {
		c.spared--
		return c.Conn.Write(p)
	}
	c.begins()
	<-c.letGo
	return c.Conn.Write(p)
}

func beginLogin(t *testing.T, addr string) *slowLogin {
	t.Helper()
	return beginLoginAt(t, addr, 0)
}

// beginLoginAt stops after so many packets of the client's.
func beginLoginAt(t *testing.T, addr string, packets int) *slowLogin {
	t.Helper()
	l := &slowLogin{t: t, greeted: make(chan struct{}), ended: make(chan loggedIn, 1)}
	paused := &pausedConn{Conn: dial(t, addr).TCPConn, spared: packets, begins: sync.OnceFunc(func() { close(l.greeted) }),
		letGo: make(chan struct{})}
	l.hangUp = paused.Conn.Close
	l.letGo = sync.OnceFunc(func() { close(paused.letGo) })
	t.Cleanup(l.letGo)
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Addr, cfg.Logger = "app", wirePassword, addr, &mysql.NopLogger{}
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) { return paused, nil }
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		conn, err := connector.Connect(t.Context())
		l.ended <- loggedIn{conn, err}
	}()
	return l
}

// awaitGreeting waits until it is in the middle of its login.
func (l *slowLogin) awaitGreeting() *slowLogin {
	l.t.Helper()
	select {
	case <-l.greeted:
	case in := <-l.ended:
		l.t.Fatalf("logging in: %v", in.err)
	}
	return l
}

// goOn ends the login.
func (l *slowLogin) goOn() (driver.Conn, error) {
	l.letGo()
	in := <-l.ended
	if in.err == nil {
		l.t.Cleanup(func() { _ = in.conn.Close() })
	}
	return in.conn, in.err
}

// in is the session, whose login must succeed; statements that it runs must, too.
func (l *slowLogin) in(statements ...string) {
	l.t.Helper()
	conn, err := l.goOn()
	if err != nil {
		l.t.Fatalf("logging in: %v", err)
	}
	for _, q := range statements {
		if _, err := conn.(driver.ExecerContext).ExecContext(l.t.Context(), q, nil); err != nil {
			l.t.Fatalf("%s: %v", q, err)
		}
	}
}

// A planned switchover that begins while a client logs in waits for that, and the session goes on at the next leader.
func TestSwitchoverWaitsForLogin(t *testing.T) {
	told := make(chan struct{}, 10)
	r, from, to, _ := wireSession(t, Config{OnQuiet: func() { told <- struct{}{} }})
	r.patience = time.Hour
	l := beginLogin(t, r.RWAddr()).awaitGreeting()
	eventually(t, "another session is followed", func() bool { return r.Stats().RW.Followed == 1 })
	if s := r.Stats(); s.RW.Tied != 0 || s.RW.Open != 2 {
		t.Errorf("%+v", s)
	}
	r.SetView(View{KeepRW: true})
	if r.Quiet() || !r.Follows() {
		t.Fatal("writes may be closed while a client logs in")
	}
	conn, err := l.goOn()
	if err != nil {
		t.Fatal(err)
	}
	<-told
	if !r.Quiet() {
		t.Error("not quiet, though no client logs in any more")
	}
	r.SetView(View{RW: to.target("2")})
	if _, err := conn.(driver.ExecerContext).ExecContext(t.Context(), "INSERT 1", nil); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(to.statements(), "INSERT 1") || len(from.statements()) > 0 {
		t.Errorf("sent %q and %q", from.statements(), to.statements())
	}
}

// A client that begins to log in and says nothing is not waited for beyond loginPatience, and the router says so by
// itself.
func TestSwitchoverDoesNotWaitForSilentLogin(t *testing.T) {
	told := make(chan struct{}, 10)
	r, _, _, _ := wireSession(t, Config{OnQuiet: func() { told <- struct{}{} }})
	beginLogin(t, r.RWAddr()).awaitGreeting()
	r.SetView(View{KeepRW: true})
	select {
	case <-told:
	case <-time.After(limit):
		t.Fatal("the leader is not told")
	}
	if !r.Quiet() || r.Stats().RW.Open != 2 {
		t.Errorf("quiet %t, %+v", r.Quiet(), r.Stats().RW)
	}
}

// A client that has answered the greeting has work under way, for which loginPatience is no limit.
func TestSwitchoverWaitsForClientThatSpoke(t *testing.T) {
	told := make(chan struct{}, 10)
	r, _, to, _ := wireSession(t, Config{OnQuiet: func() { told <- struct{}{} }})
	r.patience = 0
	l := beginLoginAt(t, r.RWAddr(), 1).awaitGreeting()
	r.SetView(View{KeepRW: true})
	if r.Quiet() {
		t.Fatal("writes may be closed while a client that has spoken logs in")
	}
	conn, err := l.goOn()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "quiet", r.Quiet)
	<-told
	r.SetView(View{RW: to.target("2")})
	if _, err := conn.(driver.ExecerContext).ExecContext(t.Context(), "INSERT 1", nil); err != nil {
		t.Fatal(err)
	}
	if got := to.statements(); !slices.Contains(got, "INSERT 1") {
		t.Errorf("sent %q", got)
	}

	// One that goes in the middle of it is not waited for.
	l = beginLoginAt(t, r.RWAddr(), 1).awaitGreeting()
	r.SetView(View{KeepRW: true})
	if r.Quiet() {
		t.Fatal("writes may be closed while a client that has spoken logs in")
	}
	if err := l.hangUp(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "quiet", r.Quiet)
}

// A connection that is being made when the router begins to hold waits for the next leader: the switchover would not
// wait for its login.
func TestConnectionUnderWayIsHeld(t *testing.T) {
	from, to := newWireServer(t), newWireServer(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	r := start(t, Config{Sessions: true, HoldTimeout: limit, Confirm: func(ctx context.Context, t Target) error {
		if t.Epoch == "1" {
			asked <- struct{}{}
			<-answer
		}
		return nil
	}})
	r.SetView(View{RW: from.target("1")})
	l := beginLogin(t, r.RWAddr())
	<-asked
	r.SetView(View{KeepRW: true})
	close(answer)
	eventually(t, "it waits", func() bool { return r.Stats().RW.Held == 1 })
	if s := r.Stats(); s.RW.Open != 0 || !r.Quiet() {
		t.Errorf("quiet %t, %+v", r.Quiet(), s.RW)
	}
	r.SetView(View{RW: to.target("2")})
	l.in("INSERT 1")
	if got := to.statements(); !slices.Equal(got, []string{"INSERT 1"}) {
		t.Errorf("sent %q", got)
	}
}

// A login on the read-only port goes on while its server becomes the leader, and its session at a follower. One whose
// server is gone ends at once.
func TestReadOnlyLoginAndItsServersRole(t *testing.T) {
	one, two := newWireServer(t), newWireServer(t)
	at := func(name string, s *wireServer, epoch string) Target {
		return Target{Name: name, Addr: s.Addr().String(), Epoch: epoch}
	}
	r := start(t, Config{Sessions: true, HoldTimeout: limit})
	leader, next := at("n1", one, "1/1"), at("n2", two, "1/2")
	before := View{RW: &leader, RO: []Target{at("n2", two, "1")}}
	r.SetView(before)
	stays := beginLogin(t, r.ROAddr()).awaitGreeting()
	r.SetView(View{RW: &next, RO: []Target{at("n1", one, "1")}})
	stays.in("SELECT 1")
	if got := one.statements(); !slices.Equal(got, []string{"SELECT 1"}) || len(two.statements()) > 0 {
		t.Errorf("n1 was sent %q, n2 %q", got, two.statements())
	}
	r.SetView(before)
	ends := beginLogin(t, r.ROAddr()).awaitGreeting()
	r.SetView(View{RW: &leader})
	if _, err := ends.goOn(); err == nil {
		t.Error("logged in at a server that is gone")
	}
}

// What ties sessions is counted by its kind.
func TestTiedBy(t *testing.T) {
	r, _, _, c := wireSession(t, Config{})
	run(t, c, "SET @x = 1")
	for range 2 {
		beginLogin(t, r.RWAddr()).in("CREATE TEMPORARY TABLE t (id INT)", "SELECT GET_LOCK('a', 1)")
	}
	want := map[string]int{"user variables (@x)": 1, "temporary tables": 2}
	eventually(t, "they are counted", func() bool { s := r.Stats(); return s.RW.Tied == 3 && maps.Equal(s.TiedBy, want) })

	passing := start(t, Config{})
	leader, follower := newServer(t, "n1").target("1"), newServer(t, "n2").target("1")
	passing.SetView(View{RW: &leader, RO: []Target{follower}})
	dial(t, passing.RWAddr()).greeting()
	dial(t, passing.ROAddr()).greeting()
	if s := passing.Stats(); !maps.Equal(s.TiedBy, map[string]int{`router.sessions = "pass"`: 1}) || s.RO.Tied != 1 {
		t.Errorf("%+v", s)
	}
}
