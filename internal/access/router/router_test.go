package router

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	_, _ = routerKey() // so that no test waits for it
	goleak.VerifyTestMain(m)
}

// limit is how long a test waits for anything.
const limit = 10 * time.Second

// server is a stand-in for mysqld: it greets with its name and then echoes, like anything that speaks first.
type server struct {
	net.Listener
	name   string
	wg     sync.WaitGroup
	open   atomic.Int64
	ended  context.Context // its end closes the connections too
	finish context.CancelFunc
}

func newServer(t testing.TB, name string) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, l, name)
}

func serve(t testing.TB, l net.Listener, name string) *server {
	s := &server{Listener: l, name: name}
	s.ended, s.finish = context.WithCancel(context.Background())
	s.wg.Go(s.loop)
	t.Cleanup(s.stop)
	return s
}

func (s *server) stop() {
	_ = s.Listener.Close()
	s.finish()
	s.wg.Wait()
}

func (s *server) loop() {
	for {
		c, err := s.Accept()
		if err != nil {
			return
		}
		s.open.Add(1)
		s.wg.Go(func() {
			defer s.open.Add(-1)
			defer c.Close()
			defer context.AfterFunc(s.ended, func() { _ = c.Close() })()
			fmt.Fprintf(c, "%s\n", s.name)
			_, _ = io.Copy(c, c)
		})
	}
}

func (s *server) target(epoch string) Target {
	return Target{Name: s.name, Addr: s.Addr().String(), Epoch: epoch}
}

func start(t testing.TB, cfg Config) *Router {
	t.Helper()
	cfg.RWListen, cfg.ROListen = cmp.Or(cfg.RWListen, "127.0.0.1:0"), cmp.Or(cfg.ROListen, "127.0.0.1:0")
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r := New(cfg)
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

type client struct {
	*net.TCPConn
	t testing.TB
}

func dial(t testing.TB, addr string) client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(limit))
	return client{c.(*net.TCPConn), t}
}

// greeting reads the line that the server begins with.
func (c client) greeting() string {
	c.t.Helper()
	var line []byte
	var b [1]byte
	for {
		if _, err := io.ReadFull(c, b[:]); err != nil {
			c.t.Fatalf("reading the greeting after %q: %v", line, err)
		}
		if b[0] == '\n' {
			return string(line)
		}
		line = append(line, b[0])
	}
}

func (c client) echo(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil {
		c.t.Fatal(err)
	}
	if string(got) != text {
		c.t.Fatalf("sent %q, got %q", text, got)
	}
}

// ended waits for the connection's end, in whatever form.
func (c client) ended() {
	c.t.Helper()
	n, err := c.Read(make([]byte, 1))
	var timeout net.Error
	if n != 0 || err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		c.t.Fatalf("connection goes on: %d bytes, %v", n, err)
	}
}

// errPacket reads a MySQL error packet and its end.
func (c client) errPacket() (code uint16, text string) {
	c.t.Helper()
	all, err := io.ReadAll(c)
	if err != nil {
		c.t.Fatal(err)
	}
	if len(all) < 7 || int(all[0])|int(all[1])<<8|int(all[2])<<16 != len(all)-4 || all[3] != 0 || all[4] != 0xff {
		c.t.Fatalf("not one error packet: %x", all)
	}
	return binary.LittleEndian.Uint16(all[5:]), string(all[7:])
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	eventuallyWithin(t, limit, what, ok)
}

func eventuallyWithin(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestReadWriteGoesToLeader(t *testing.T) {
	leader, follower := newServer(t, "n1"), newServer(t, "n2")
	r := start(t, Config{})
	rw := leader.target("1")
	r.SetView(View{RW: &rw, RO: []Target{follower.target("1")}})
	for range 3 {
		c := dial(t, r.RWAddr())
		if got := c.greeting(); got != "n1" {
			t.Fatalf("read-write port led to %s", got)
		}
		c.echo("hello")
	}
	if s := r.Stats(); s.RW.Open != 3 || s.RW.Accepted != 3 || s.ByTarget["n1"] != 3 {
		t.Fatalf("stats %+v", s)
	}
}

func TestBytesPassUnchanged(t *testing.T) {
	leader := newServer(t, "n1")
	r := start(t, Config{})
	rw := leader.target("1")
	r.SetView(View{RW: &rw})
	c := dial(t, r.RWAddr())
	c.greeting()
	const size = 65 << 20
	var seed [32]byte
	sent, got := sha256.New(), sha256.New()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := io.Copy(c, io.TeeReader(io.LimitReader(rand.NewChaCha8(seed), size), sent))
		if err != nil {
			t.Error(err)
		}
		_ = c.CloseWrite() // the echo must still arrive: half-close
	})
	n, err := io.Copy(got, struct{ io.Reader }{c})
	wg.Wait()
	if err != nil || n != size {
		t.Fatalf("%d bytes came back of %d: %v", n, size, err)
	}
	if !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Fatal("bytes differ")
	}
	eventually(t, "bytes counted", func() bool {
		s := r.Stats().RW
		return s.BytesIn == size && s.BytesOut == size+uint64(len("n1\n")) && s.Open == 0
	})
}

func TestReadOnlySpreadsByFewestConnections(t *testing.T) {
	leader, a, b := newServer(t, "n1"), newServer(t, "n2"), newServer(t, "n3")
	r := start(t, Config{})
	rw := leader.target("1")
	r.SetView(View{RW: &rw, RO: []Target{a.target("1"), b.target("1")}})
	got := map[string]int{}
	var first client
	for i := range 10 {
		c := dial(t, r.ROAddr())
		got[c.greeting()]++
		if i == 0 {
			first = c
		}
	}
	if got["n2"] != 5 || got["n3"] != 5 {
		t.Fatalf("spread %v", got)
	}
	_ = first.Close()
	eventually(t, "closed connection counted", func() bool { return r.Stats().RO.Open == 9 })
	if name := dial(t, r.ROAddr()).greeting(); name != "n2" {
		t.Fatalf("the emptier follower is n2, got %s", name)
	}
}

func TestReadOnlyFallsBackToLeader(t *testing.T) {
	leader, follower := newServer(t, "n1"), newServer(t, "n2")
	r := start(t, Config{})
	rw := leader.target("1")
	r.SetView(View{RW: &rw})
	c := dial(t, r.ROAddr())
	if got := c.greeting(); got != "n1" {
		t.Fatalf("led to %s", got)
	}
	// A follower that is in the view but does not accept is skipped too.
	dead := follower.target("1")
	follower.stop()
	r.SetView(View{RW: &rw, RO: []Target{dead}})
	if got := dial(t, r.ROAddr()).greeting(); got != "n1" {
		t.Fatalf("led to %s", got)
	}
	c.echo("still joined to the leader")
	if r.Stats().RO.DialErrors == 0 {
		t.Fatal("the dead follower was not tried")
	}
}

func TestLostRoleClosesConnections(t *testing.T) {
	a, b := newServer(t, "n1"), newServer(t, "n2")
	r := start(t, Config{})
	ta, tb := a.target("1"), b.target("1")
	r.SetView(View{RW: &ta, RO: []Target{tb}})
	writer, reader := dial(t, r.RWAddr()), dial(t, r.ROAddr())
	writer.greeting()
	reader.greeting()

	// n2 takes over: a new epoch for the leader, the same incarnation.
	tb2 := b.target("2")
	r.SetView(View{RW: &tb2})
	writer.ended()
	reader.ended()
	if s := r.Stats(); s.RW.Cut != 1 || s.RO.Cut != 1 || s.RW.Open != 0 || s.RO.Open != 0 {
		t.Fatalf("stats %+v", s)
	}
	eventually(t, "servers saw it", func() bool { return a.open.Load() == 0 && b.open.Load() == 0 })
	if got := dial(t, r.RWAddr()).greeting(); got != "n2" {
		t.Fatalf("led to %s", got)
	}
}

func TestSetViewReturnsAfterClose(t *testing.T) {
	a := newServer(t, "n1")
	r := start(t, Config{})
	ta := a.target("1")
	r.SetView(View{RW: &ta})
	var clients []client
	for range 50 {
		c := dial(t, r.RWAddr())
		c.greeting()
		clients = append(clients, c)
	}
	r.SetView(View{})
	for _, c := range clients {
		_ = c.SetReadDeadline(time.Now().Add(time.Second)) // loopback needs a moment, but no other party's help
		c.ended()
	}
}

func TestUnknownLeaderKeepsConnections(t *testing.T) {
	a := newServer(t, "n1")
	r := start(t, Config{})
	ta := a.target("1")
	r.SetView(View{RW: &ta})
	c := dial(t, r.RWAddr())
	c.greeting()
	r.SetView(View{KeepRW: true})
	c.echo("kept")
	r.SetView(View{RW: &ta})
	c.echo("kept")
	r.SetView(View{KeepRW: true})
	other := newServer(t, "n2").target("2")
	r.SetView(View{RW: &other})
	c.ended()
}

func TestHeldUntilLeaderIsKnown(t *testing.T) {
	a := newServer(t, "n1")
	r := start(t, Config{})
	var clients []client
	for range 20 {
		clients = append(clients, dial(t, r.RWAddr()))
	}
	eventually(t, "all held", func() bool { return r.Stats().RW.Held == 20 })
	ta := a.target("1")
	r.SetView(View{RW: &ta})
	for _, c := range clients {
		if got := c.greeting(); got != "n1" {
			t.Fatalf("led to %s", got)
		}
	}
	if s := r.Stats().RW; s.Held != 0 || s.Open != 20 || s.Refused != 0 {
		t.Fatalf("stats %+v", s)
	}
}

func TestNoLeaderIsSaidInTime(t *testing.T) {
	r := start(t, Config{HoldTimeout: 50 * time.Millisecond})
	for addr, want := range map[string]string{r.RWAddr(): "no leader", r.ROAddr(): "no node can serve reads"} {
		code, text := dial(t, addr).errPacket()
		if code != 1290 || !strings.Contains(text, want) || !strings.Contains(text, "50ms") {
			t.Fatalf("error %d %q", code, text)
		}
	}
	if s := r.Stats(); s.RW.Refused != 1 || s.RO.Refused != 1 {
		t.Fatalf("stats %+v", s)
	}
}

func TestBounds(t *testing.T) {
	a := newServer(t, "n1")
	r := start(t, Config{MaxConns: 3, MaxHeld: 1})
	held := dial(t, r.RWAddr())
	eventually(t, "held", func() bool { return r.Stats().RW.Held == 1 })
	if code, text := dial(t, r.RWAddr()).errPacket(); code != 1040 || !strings.Contains(text, "wait") {
		t.Fatalf("error %d %q", code, text)
	}
	ta := a.target("1")
	r.SetView(View{RW: &ta})
	held.greeting()
	eventually(t, "refused one has left", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.clients == 1 })
	dial(t, r.RWAddr()).greeting()
	dial(t, r.ROAddr()).greeting()
	if code, text := dial(t, r.RWAddr()).errPacket(); code != 1040 || !strings.Contains(text, "max_conns") {
		t.Fatalf("error %d %q", code, text)
	}
}

func TestRetriesWhileLeaderRestartsInPlace(t *testing.T) {
	a := newServer(t, "n1")
	ta := a.target("1")
	a.stop()
	r := start(t, Config{})
	r.SetView(View{RW: &ta})
	c := dial(t, r.RWAddr())
	eventually(t, "first attempt failed", func() bool { return r.Stats().RW.DialErrors > 0 })
	l, err := net.Listen("tcp", ta.Addr)
	if err != nil {
		t.Skipf("the port was taken meanwhile: %v", err)
	}
	serve(t, l, "n1")
	c.greeting()
}

// TestDialIsGivenUp: a leader whose host does not answer any more must not keep connections from the next one.
func TestDialIsGivenUp(t *testing.T) {
	silent := silentAddr(t)
	n2 := newServer(t, "n2")
	r := start(t, Config{DialTimeout: time.Hour, HoldTimeout: time.Hour})
	old := Target{Name: "n1", Addr: silent, Epoch: "1"}
	r.SetView(View{RW: &old})
	c := dial(t, r.RWAddr())
	eventually(t, "an attempt to reach n1", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.dials) == 1
	})
	target := n2.target("1")
	r.SetView(View{RW: &target})
	if got := c.greeting(); got != "n2" {
		t.Fatalf("led to %s", got)
	}
	if s := r.Stats().RW; s.DialErrors != 0 {
		t.Errorf("giving up counts as an error: %+v", s)
	}
}

// silentAddr is an address that leaves connections unanswered: of a listener whose queue is full.
func silentAddr(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { _ = c.Close() })
	}
}

func TestHold(t *testing.T) {
	a, b := newServer(t, "n1"), newServer(t, "n2")
	r := start(t, Config{})
	ta, tb := a.target("1"), b.target("2")
	r.SetView(View{RW: &ta, RO: []Target{b.target("1")}})
	open := dial(t, r.RWAddr())
	open.greeting()

	r.Hold(t.Context())
	waiting := dial(t, r.RWAddr())
	eventually(t, "held", func() bool { return r.Stats().RW.Held == 1 })
	open.echo("an open connection is not touched")
	dial(t, r.ROAddr()).greeting() // reads go on
	r.SetView(View{RW: &ta})       // same leader: who waits looks at it, and waits again
	eventually(t, "still held", func() bool { return r.Stats().RW.Held == 1 })
	r.SetView(View{}) // no leader for a moment
	r.SetView(View{RW: &tb})
	if got := waiting.greeting(); got != "n2" {
		t.Fatalf("led to %s", got)
	}
	open.ended()

	t.Run("Resume", func(t *testing.T) {
		r.Hold(t.Context())
		c := dial(t, r.RWAddr())
		eventually(t, "held", func() bool { return r.Stats().RW.Held == 1 })
		r.Resume()
		c.greeting()
	})
	t.Run("context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r.Hold(ctx)
		c := dial(t, r.RWAddr())
		eventually(t, "held", func() bool { return r.Stats().RW.Held == 1 })
		cancel()
		c.greeting()
	})
}

func TestServerCloseReachesClient(t *testing.T) {
	a := newServer(t, "n1")
	r := start(t, Config{})
	ta := a.target("1")
	r.SetView(View{RW: &ta})
	c := dial(t, r.RWAddr())
	c.greeting()
	_ = c.CloseWrite() // the echo server ends its side when it sees this
	c.ended()
	eventually(t, "forgotten", func() bool { return r.Stats().RW.Open == 0 })
}

func TestPortInUse(t *testing.T) {
	a := newServer(t, "n1")
	for _, cfg := range []Config{
		{RWListen: a.Addr().String(), ROListen: "127.0.0.1:0"},
		{RWListen: "127.0.0.1:0", ROListen: a.Addr().String()},
	} {
		r := New(cfg)
		err := r.Start()
		if err == nil || !strings.Contains(err.Error(), "is in use") {
			t.Fatalf("error %v", err)
		}
		_ = r.Close()
	}
}

// TestViewsUnderLoad changes the view all the time while clients come and go. Every client must end up with an answer
// of a node that was in some view, and nothing may be left at the end.
func TestViewsUnderLoad(t *testing.T) {
	nodes := []*server{newServer(t, "n1"), newServer(t, "n2"), newServer(t, "n3")}
	r := start(t, Config{})
	stop := make(chan struct{})
	var changer, wg sync.WaitGroup
	changer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				rw := nodes[0].target("end")
				r.SetView(View{RW: &rw})
				r.Resume()
				return
			default:
			}
			rw := nodes[i%3].target(fmt.Sprint(i / 7))
			v := View{RW: &rw, RO: []Target{nodes[(i+1)%3].target(""), nodes[(i+2)%3].target("")}}
			if i%5 == 0 {
				v.RW = nil
			}
			r.SetView(v)
			if i%11 == 0 {
				r.Hold(t.Context())
			}
		}
	})
	var served atomic.Int64
	for range 8 {
		wg.Go(func() {
			for i := range 60 {
				addr := r.RWAddr()
				if i%2 == 0 {
					addr = r.ROAddr()
				}
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.SetDeadline(time.Now().Add(limit))
				var b [3]byte
				if _, err := io.ReadFull(c, b[:]); err == nil {
					served.Add(1)
				} else if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
					t.Errorf("a client got no answer and no end: %+v", r.Stats())
				}
				_ = c.Close()
			}
		})
	}
	eventually(t, "some served", func() bool { return served.Load() > 50 })
	close(stop)
	changer.Wait()
	wg.Wait()
	dial(t, r.RWAddr()).greeting()
}
