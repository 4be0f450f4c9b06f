package router

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trireme/internal/mysql/mysqlwire"
)

// hear1 reads a packet, such as the server's greeting, if one comes.
func hear1(c io.Reader) {
	var head [mysqlwire.HeaderLen]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return
	}
	length, _ := mysqlwire.ParseHeader(head[:])
	_, _ = io.CopyN(io.Discard, c, int64(length))
}

// drip sends bytes one at a time, and says whether somebody listens for longer than any login may take.
func drip(c net.Conn, p []byte) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(hostileWait + 5*time.Second); time.Now().Before(end); <-tick.C {
		b := p[:1]
		if p = p[1:]; len(p) == 0 {
			p = []byte{7}
		}
		if _, err := c.Write(b); err != nil {
			return nil
		}
	}
	return errors.New("is still listened to")
}

// cutConn is the way of a TLS handshake that is cut: so many of what the client says at once come through, and half of
// the next.
type cutConn struct {
	net.Conn
	whole int
}

func (c *cutConn) Write(p []byte) (int, error) {
	if c.whole--; c.whole >= 0 {
		return c.Conn.Write(p)
	}
	_, _ = c.Conn.Write(p[:len(p)/2])
	return 0, io.ErrClosedPipe
}

// cutTLS asks for TLS and begins with it.
func cutTLS(c net.Conn, whole int) {
	hear1(c)
	_, _ = c.Write(mysqlwire.AppendPacket(nil, 1,
		mysqlwire.AppendSSLRequest(nil, mysqlwire.Response{Capabilities: mysqlwire.CapProtocol41 | mysqlwire.CapSSL})))
	_ = tls.Client(&cutConn{c, whole}, &tls.Config{InsecureSkipVerify: true}).Handshake()
}

// hostileWait is for a login in these tests.
const hostileWait = time.Second

// hostileClients do in place of a login what no client does, and then wait for the connection's end.
var hostileClients = map[string]func(c *net.TCPConn) error{
	"silent":                func(*net.TCPConn) error { return nil },
	"silent after greeting": func(c *net.TCPConn) error { hear1(c); return nil },
	"speaks first": func(c *net.TCPConn) error {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n")
		return nil
	},
	"garbage after greeting": func(c *net.TCPConn) error {
		hear1(c)
		_, _ = c.Write(bytes.Repeat([]byte{0xFF}, 100))
		return nil
	},
	"announces 16 MiB": func(c *net.TCPConn) error {
		hear1(c)
		_, _ = c.Write([]byte{0xFE, 0xFF, 0xFF, 1})
		return nil
	},
	"announces 200 KiB": func(c *net.TCPConn) error {
		hear1(c)
		_, _ = c.Write([]byte{0, 0x20, 3, 1, 1})
		return nil
	},
	"sends 64 MiB": func(c *net.TCPConn) error {
		hear1(c)
		_, _ = c.Write(bytes.Repeat([]byte{0xFF}, 64<<20))
		return nil
	},
	"an empty packet": func(c *net.TCPConn) error { hear1(c); _, _ = c.Write([]byte{0, 0, 0, 1}); return nil },
	"half a packet, then FIN": func(c *net.TCPConn) error {
		hear1(c)
		_, _ = c.Write([]byte{9, 0, 0, 1, 1})
		return c.CloseWrite()
	},
	"FIN at once":   func(c *net.TCPConn) error { return c.CloseWrite() },
	"reset at once": func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) },
	"never reads":   func(c *net.TCPConn) error { return c.SetReadBuffer(1) },
	"TLS without being asked": func(c *net.TCPConn) error {
		_, _ = c.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3})
		return nil
	},
	"TLS, cut in its hello":  func(c *net.TCPConn) error { cutTLS(c, 0); return nil },
	"TLS, cut after that":    func(c *net.TCPConn) error { cutTLS(c, 1); return nil },
	"TLS, cut and then FIN":  func(c *net.TCPConn) error { cutTLS(c, 0); return c.CloseWrite() },
	"garbage, byte by byte":  func(c *net.TCPConn) error { hear1(c); return drip(c, []byte{7}) },
	"a login, byte by byte":  func(c *net.TCPConn) error { hear1(c); return drip(c, []byte{0, 0x20, 0, 1, 0, 2, 0, 0}) },
	"a login without an end": func(c *net.TCPConn) error { hear1(c); _, _ = c.Write(response(0)); return nil },
	"an unknown user":        func(c *net.TCPConn) error { return wrongLogin(c, "nobody", wirePassword) },
	"a wrong password":       func(c *net.TCPConn) error { return wrongLogin(c, "app", "wrong") },
	"a request for a log":    func(c *net.TCPConn) error { hear1(c); _, _ = c.Write(dumpCommand); return nil },
	"commands before a login": func(c *net.TCPConn) error {
		hear1(c)
		_, _ = c.Write(bytes.Repeat(packet(0, comPing), 1000))
		return nil
	},
	"a login in one, and more": func(c *net.TCPConn) error {
		hear1(c)
		_, _ = c.Write(append(response(0), dumpCommand...))
		return nil
	},
}

func wrongLogin(c net.Conn, user, password string) error {
	_, err := mysqlwire.Login(context.Background(), c, mysqlwire.ClientConfig{User: user, Password: password})
	if !mysqlwire.IsServerCode(err, mysqlwire.CodeAccessDenied) {
		return fmt.Errorf("answer %w", err)
	}
	return nil
}

// logInFollowed is a session that is followed where sessions are.
func logInFollowed(t *testing.T, addr string) *mysqlwire.Client {
	t.Helper()
	c, err := mysqlwire.Login(t.Context(), dial(t, addr), sealing)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.NetConn().SetDeadline(time.Now().Add(3 * limit))
	return c
}

// sealing is a login that the router takes the password of.
var sealing = mysqlwire.ClientConfig{User: "app", Password: wirePassword,
	Attributes: []mysqlwire.Attribute{{Name: "_client_name", Value: "pymysql"}}}

// keyMade has the router's key made, which takes its time, before a test's clients have little of it.
func keyMade(t *testing.T) {
	t.Helper()
	if _, err := routerKey(); err != nil {
		t.Fatal(err)
	}
}

// clientsOf is how many clients a router has, in whatever phase.
func clientsOf(r *Router) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clients
}

// Whatever a client does before it has logged in, it is let go when its time is over, nothing of it is left, and others
// are served meanwhile. Where sessions are followed that is the router's time: its server here would wait forever.
// Where bytes are passed on it is the server's, and a client that does not go when its server has is let go too.
func TestHostileClients(t *testing.T) {
	keyMade(t)
	for name, way := range map[string]struct {
		cfg        Config
		serverWait time.Duration
	}{
		"passed on": {Config{}, hostileWait},
		"followed":  {Config{Sessions: true, LoginTimeout: hostileWait, TLS: testTLS(t)}, 0},
		"split":     {Config{SplitListen: "127.0.0.1:0", LoginTimeout: hostileWait, TLS: testTLS(t)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			leader, follower := newWireServer(t), newWireServer(t)
			for _, s := range []*wireServer{leader, follower} {
				s.set(func(w *wireServer) { w.wait = way.serverWait })
			}
			r := start(t, way.cfg)
			r.SetView(View{RW: leader.target("1"), RO: []Target{*follower.target("2")}})
			addrs := []string{r.RWAddr(), r.ROAddr()}
			if way.cfg.SplitListen != "" {
				addrs = []string{r.SplitAddr()}
			}
			var honest []*mysqlwire.Client
			for _, addr := range addrs {
				honest = append(honest, logInFollowed(t, addr))
			}
			var wg sync.WaitGroup
			for hostile, talk := range hostileClients {
				for _, addr := range addrs {
					c := dial(t, addr)
					wg.Go(func() {
						if err := endured(c, talk); err != nil {
							t.Errorf("%s: %v", hostile, err)
						}
					})
				}
			}
			gone := make(chan struct{})
			go func() { wg.Wait(); close(gone) }()
			for others := true; others; {
				for i, addr := range addrs {
					if got := say(t, honest[i], comQuery, "SELECT 1"); got != 0 {
						t.Fatalf("answer %d", got)
					}
					eventually(t, "others are let in", func() bool { return comesIn(t, addr) })
				}
				select {
				case <-gone:
					others = false
				default:
				}
			}
			eventually(t, "the router has no other client", func() bool {
				st := r.Stats()
				return clientsOf(r) == len(addrs) && st.RW.Open+st.RO.Open+st.Split.Open == len(addrs)
			})
		})
	}
}

// endured has a client do what it does, and waits until the other side ends. It does not close the connection then.
func endured(c client, talk func(*net.TCPConn) error) error {
	_ = c.SetDeadline(time.Now().Add(hostileWait + limit))
	if err := talk(c.TCPConn); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("is still connected")
	}
	return nil
}

// comesIn reports whether a client can log in, and goes again.
func comesIn(t *testing.T, addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = mysqlwire.Login(t.Context(), c, mysqlwire.ClientConfig{User: "app", Password: wirePassword})
	return err == nil
}

// words are what a server says in place of its part of a login: first before the client has said anything, and then to
// each packet of the client, with that packet's successor's number, which skew is added to.
type words struct {
	first, then []byte // then is a payload
	skew        byte
	mute        bool // then is not said
	drip        bool // first comes byte by byte, without an end
}

// hostileServers are what no mysqld is.
func hostileServers() map[string]words {
	greeting := mysqlwire.AppendPacket(nil, 0,
		mysqlwire.AppendGreeting(nil, mysqlwire.Greeting{Version: "9.7.4", Nonce: bytes.Repeat([]byte{'n'}, 20),
			Plugin:       mysqlwire.PluginCachingSHA2,
			Capabilities: mysqlwire.CapProtocol41 | 1<<15 | 1<<19 | 1<<20 | 1<<21}))
	to := func(p ...byte) words { return words{first: greeting, then: p} }
	return map[string]words{
		"garbage":                        {first: []byte{9, 0, 0, 0, 'g', 'a', 'r', 'b', 'a', 'g', 'e', '.', '.'}},
		"nothing":                        {mute: true},
		"an empty packet":                {first: []byte{0, 0, 0, 0}},
		"half a greeting":                {first: greeting[:len(greeting)/2], mute: true},
		"a greeting of 16 MiB":           {first: []byte{0xFF, 0xFF, 0xFF, 0}, mute: true},
		"a greeting, byte by byte":       {first: []byte{0, 4, 0, 0, 10}, drip: true},
		"a greeting with a wrong number": {first: append([]byte{greeting[0], 0, 0, 7}, greeting[4:]...), mute: true},
		"nothing after the greeting":     {first: greeting, mute: true},
		"empty":                          to(),
		"0":                              to(0),
		"an OK without an end":           to(0, 0, 0),
		"half an error":                  to(0xff),
		"an error":                       to(0xff, 0x15, 4, '#', '2', '8'),
		"another plugin, without a name": to(0xfe),
		"another plugin, without an end": to(0xfe, 'x'),
		"the same again, without nonce":  to(append([]byte{0xfe}, "caching_sha2_password\x00"...)...),
		"another plugin":                 to(append([]byte{0xfe}, "sha256_password\x00nonce"...)...),
		"more":                           to(1),
		"fast, again and again":          to(1, mysqlwire.CachingFastOK),
		"full, again and again":          to(1, mysqlwire.CachingFull),
		"another factor":                 to(2, 'x', 0),
		"what is no key": to(append([]byte{1},
			"-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n"...)...),
		"wrong numbers": {first: greeting, then: []byte{1, mysqlwire.CachingFull}, skew: 5},
		"300 KiB":       to(make([]byte, 300<<10)...),
	}
}

// serveWords is such a server.
func serveWords(t *testing.T, w words) net.Listener {
	return handled(t, func(c net.Conn) {
		_ = c.SetDeadline(time.Now().Add(hostileWait + limit))
		if w.drip {
			_ = drip(c, w.first)
		} else if _, err := c.Write(w.first); err != nil {
			return
		}
		for {
			var head [mysqlwire.HeaderLen]byte
			if _, err := io.ReadFull(c, head[:]); err != nil {
				return
			}
			length, seq := mysqlwire.ParseHeader(head[:])
			if _, err := io.CopyN(io.Discard, c, int64(length)); err != nil {
				return
			}
			if w.mute {
				continue
			}
			if _, err := c.Write(mysqlwire.AppendPacket(nil, seq+1+w.skew, w.then)); err != nil {
				return
			}
		}
	})
}

// A server whose part of a login is garbage, comes too slowly or not at all costs who logs in no more than the login's
// time, also a session that goes on there from another server; a client that says nothing has no longer either.
func TestLoginOfGarbage(t *testing.T) {
	type door struct {
		name    string
		r       *Router
		carried *mysqlwire.Client
	}
	var doors []door
	keyMade(t)
	for name, w := range hostileServers() {
		bad := &Target{Name: "bad", Addr: serveWords(t, w).Addr().String(), Epoch: "2"}
		r := start(t, Config{Sessions: true, LoginTimeout: hostileWait, HoldTimeout: 2 * hostileWait})
		r.SetView(View{RW: newWireServer(t).target("1")})
		carried := logInFollowed(t, r.RWAddr())
		r.SetView(View{RW: bad})
		doors = append(doors, door{name, r, carried})
	}
	var wg sync.WaitGroup
	for _, d := range doors {
		wg.Go(func() {
			c, err := net.Dial("tcp", d.r.RWAddr())
			if err != nil {
				t.Error(err)
				return
			}
			_ = c.SetDeadline(time.Now().Add(hostileWait + limit))
			_, err = mysqlwire.Login(context.Background(), c, sealing)
			if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: login: %v", d.name, err)
			}
		})
		silent := dial(t, d.r.RWAddr())
		wg.Go(func() {
			if err := endured(silent, hostileClients["silent"]); err != nil {
				t.Errorf("%s: a silent client: %v", d.name, err)
			}
		})
		wg.Go(func() {
			err := d.carried.WriteCommand(comPing, nil)
			var p []byte
			if err == nil {
				p, err = d.carried.ReadPacket()
			}
			if errors.Is(err, os.ErrDeadlineExceeded) || err == nil && !mysqlwire.IsERR(p) {
				t.Errorf("%s: a session that is carried over: %q, %v", d.name, p, err)
			}
			_ = d.carried.Close()
		})
	}
	wg.Wait()
	for _, d := range doors {
		eventually(t, d.name+": nothing is left", func() bool { return clientsOf(d.r) == 0 && d.r.Stats().RW.Open == 0 })
	}
}

// hostileAnswers are to SELECTs what no mysqld answers; ends says that the server then closes.
func hostileAnswers() map[string]struct {
	said []byte
	ends bool
} {
	rows := benchAnswer(3)
	noise := make([]byte, 100<<10)
	_, _ = rand.NewChaCha8([32]byte{9}).Read(noise)
	numbers := bytes.Clone(rows)
	numbers[3] = 99
	type said = struct {
		said []byte
		ends bool
	}
	cat := func(p ...[]byte) []byte { return bytes.Join(p, nil) }
	column, eof := packet(2, append([]byte{3}, make([]byte, 40)...)...), packet(3, mysqlwire.AppendEOF(nil, 2)...)
	return map[string]said{
		"half a header":                      {[]byte{1, 0}, true},
		"a header":                           {[]byte{1, 0, 0, 1}, false},
		"an empty packet":                    {packet(1), false},
		"an OK without an end":               {packet(1, 0, 0, 0), false},
		"half an error":                      {packet(1, 0xff), false},
		"no number of columns":               {packet(1, 0xfe, 1, 2, 3, 4, 5, 6, 7, 8), false},
		"too many columns":                   {packet(1, 0xfd, 0xff, 0xff, 0xff), false},
		"a long number of columns":           {packet(1, noise[:99]...), false},
		"columns and no more":                {packet(1, 200), true},
		"empty columns":                      {cat(packet(1, 2), packet(2), packet(3), packet(4)), false},
		"no EOF after the columns":           {cat(packet(1, 1), column, packet(3, 1, 'x'), packet(4, 1, 'x')), false},
		"an empty row":                       {cat(packet(1, 1), column, eof, packet(4)), false},
		"a row of 16 MiB that does not come": {cat(packet(1, 1), column, eof, []byte{0xff, 0xff, 0xff, 4}, noise), false},
		"half a row":                         {rows[:len(rows)-60], true},
		"wrong numbers":                      {numbers, false},
		"something after the end":            {cat(rows, []byte("more")), false},
		"a second answer":                    {cat(rows, rows), false},
		"more results that do not come": {packet(1,
			mysqlwire.AppendOK(nil, mysqlwire.OK{Status: mysqlwire.StatusMoreResults})...), true},
		"a wish for a file":               {packet(1, 0xfb, '/', 'x'), false},
		"a file, and more":                {cat(packet(1, 0xfb, '/', 'x'), noise), false},
		"noise":                           {noise, false},
		"noise in the middle of a result": {cat(rows[:len(rows)/2], noise), false},
		"noise, and the end":              {cat(rows[:len(rows)/2], noise), true},
		"nothing":                         {nil, true},
	}
}

// A server that answers with garbage, at its beginning or in the middle of a result, ends the session that has asked
// for that, or leaves it waiting as long as client and server do: no other one hears anything of it.
func TestHostileAnswers(t *testing.T) {
	answers := hostileAnswers()
	serve := func() *Target {
		l := handled(t, func(c net.Conn) {
			s, err := mysqlwire.Accept(t.Context(), c, mysqlwire.ServerConfig{User: "app", Password: wirePassword,
				Version: "9.7.4"})
			if err != nil {
				return
			}
			for {
				command, argument, err := s.ReadCommand()
				if err != nil {
					return
				}
				_, name, _ := strings.Cut(string(argument), " /* ")
				a, bad := answers[strings.TrimSuffix(name, " */")]
				if _, err := c.Write(a.said); bad && (err != nil || a.ends) {
					return
				}
				if !bad && command != comStmtClose {
					err = s.WriteOK()
				}
				if err != nil {
					return
				}
			}
		})
		return &Target{Name: "bad", Addr: l.Addr().String(), Epoch: "1"}
	}
	for _, split := range []bool{false, true} {
		t.Run(fmt.Sprintf("split %t", split), func(t *testing.T) {
			cfg := Config{Sessions: true, HoldTimeout: limit}
			if split {
				cfg.SplitListen = "127.0.0.1:0"
			}
			r := start(t, cfg)
			leader := serve()
			r.SetView(View{RW: leader, RO: []Target{*serve()}})
			addr := r.RWAddr()
			if split {
				addr = r.SplitAddr()
			}
			honest := logInFollowed(t, addr)
			var wg sync.WaitGroup
			for name := range answers {
				for _, command := range []byte{comQuery, comStmtPrepare, comPing} {
					c := logInFollowed(t, addr)
					wg.Go(func() {
						defer c.Close()
						if err := c.WriteCommand(command, []byte("SELECT 1 /* "+name+" */")); err != nil {
							t.Errorf("%s: %v", name, err)
						}
						_ = c.NetConn().SetReadDeadline(time.Now().Add(200 * time.Millisecond)) // who is left without an end to it goes
						_, _ = io.Copy(io.Discard, c.NetConn())
					})
				}
			}
			gone := make(chan struct{})
			go func() { wg.Wait(); close(gone) }()
			for others := true; others; {
				if got := say(t, honest, comQuery, "SELECT 1"); got != 0 {
					t.Fatalf("answer %d", got)
				}
				select {
				case <-gone:
					others = false
				default:
				}
			}
			news := 0
			eventually(t, "the router has no other client", func() bool {
				news++ // explains the ends of servers' sides, which sessions wait for
				r.SetView(View{RW: leader, RO: []Target{{Name: "gone", Epoch: fmt.Sprint(news)}}})
				r.round()
				st := r.Stats()
				return clientsOf(r) == 1 && st.RW.Open+st.Split.Open == 1 && st.SplitReads.Open <= 1
			})
			if got := say(t, honest, comQuery, "SELECT 1"); got != 0 {
				t.Errorf("answer %d", got)
			}
		})
	}
}

// queued are the bytes that lie in a socket: said and not taken by the other side, or come and not read.
func queued(t *testing.T, c syscall.Conn, which uint) (n int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) { n, failed = unix.IoctlGetInt(int(fd), which) })
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	return n
}

// What a client says while it is held stays in the sockets: the router reads no more of it than a session's buffer
// takes. All of it is carried out afterwards.
func TestFloodWhileHeld(t *testing.T) {
	r, from, to, c := rawSession(t, Config{})
	nc := c.NetConn().(client).TCPConn
	r.SetView(View{KeepRW: true})
	one := packet(0, append([]byte{comQuery}, "INSERT "+strings.Repeat("x", 2000)...)...)
	flood := bytes.Repeat(one, 16<<20/len(one))
	_ = nc.SetWriteBuffer(64 << 10)
	_ = nc.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	said, err := nc.Write(flood)
	if err == nil {
		t.Fatalf("all of %d bytes were taken from a client that is held", said)
	}
	_ = nc.SetWriteDeadline(time.Now().Add(limit))
	r.mu.Lock()
	var held *session
	for held = range r.followed {
	}
	r.mu.Unlock()
	read := 0
	eventually(t, "what it said is where it stays", func() bool {
		read = said - queued(t, nc, unix.SIOCOUTQ) - queued(t, held.tcp.Conn.(*net.TCPConn), unix.SIOCINQ)
		return read <= inBytes
	})
	if r.Stats().RW.Held != 1 || read == 0 {
		t.Errorf("%d bytes were read; %+v", read, r.Stats().RW)
	}
	r.SetView(View{RW: to.target("2")})
	if rest := said % len(one); rest > 0 {
		if _, err := nc.Write(one[rest:]); err != nil {
			t.Fatal(err)
		}
	}
	count := (said + len(one) - 1) / len(one)
	ok := mysqlwire.AppendPacket(nil, 1, mysqlwire.AppendOK(nil, mysqlwire.OK{Status: mysqlwire.StatusAutocommit}))
	got := make([]byte, count*len(ok))
	if _, err := io.ReadFull(nc, got); err != nil || !bytes.Equal(got, bytes.Repeat(ok, count)) {
		t.Errorf("answers: %v, %x", err, got)
	}
	if n := len(to.statements()); n != count || len(from.statements()) > 0 {
		t.Errorf("%d statements of %d were carried out at the new server, %d at the old one", n, count,
			len(from.statements()))
	}
}

// A client that stops in the middle of a command is its server's to end. When that has gone, as long as mysqld would
// wait is enough; what was not begun goes on at the next one.
func TestSilentMidway(t *testing.T) {
	long := packet(0, append([]byte{comQuery}, make([]byte, 100<<10)...)...)
	for name, c := range map[string]struct {
		said, rest []byte
		taken      int // bytes that the server gets
	}{
		"in a statement":       {long[:50<<10], nil, 50 << 10},
		"in the head of one":   {long[:100], long[100:], 0},
		"in a file":            {append(packet(0, append([]byte{comQuery}, "LOAD"...)...), 9, 0, 0, 2, 'x'), nil, 14},
		"in front of the file": {packet(0, append([]byte{comQuery}, "LOAD"...)...), nil, 9},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, to, client := rawSession(t, Config{})
			other := logInFollowed(t, r.RWAddr())
			if _, err := client.NetConn().Write(c.said); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is taken", func() bool { return r.Stats().RW.BytesIn == uint64(c.taken) })
			if name == "in front of the file" { // that the server has asked for
				eventually(t, "it is asked for", func() bool { return r.Stats().RW.BytesOut > 0 })
			}
			for range 2 * midwayRings {
				r.round()
				eventually(t, "all have looked", func() bool {
					r.mu.Lock()
					defer r.mu.Unlock()
					for s := range r.followed {
						if s.rang.Load() && !s.busy.Load() {
							return false
						}
					}
					return true
				})
			}
			if n := clientsOf(r); n != 2 {
				t.Fatalf("%d clients with their server there", n)
			}
			r.SetView(View{RW: to.target("2")})
			if c.rest != nil {
				if _, err := client.NetConn().Write(c.rest); err != nil {
					t.Fatal(err)
				}
				ok := make([]byte, 5)
				if _, err := io.ReadFull(client.NetConn(), ok); err != nil || ok[4] != 0 {
					t.Errorf("answer %x, %v", ok, err)
				}
				return
			}
			r.SetView(View{KeepRW: true})
			eventually(t, "nothing is under way", r.Quiet)
			r.SetView(View{RW: to.target("2")})
			eventually(t, "it is gone", func() bool { r.round(); return clientsOf(r) == 1 })
			if n := r.active.Load(); n != 0 {
				t.Errorf("%d commands under way", n)
			}
			mustPing(t, other)
		})
	}
}

// A transaction that is lost with its server is under way nowhere: a client that never hears of it, as it says nothing
// more, keeps no planned switchover waiting.
func TestLostTransactionOfSilentClient(t *testing.T) {
	r, _, to, c := rawSession(t, Config{})
	say(t, c, comQuery, "START TRANSACTION")
	r.SetView(View{RW: to.target("2")})
	r.SetView(View{KeepRW: true})
	eventually(t, "nothing is under way", r.Quiet)
	r.SetView(View{RW: to.target("2")})
	if got := say(t, c, comQuery, "INSERT 1"); got != 1213 {
		t.Errorf("answer %d", got)
	}
	if got := say(t, c, comQuery, "INSERT 2"); got != 0 {
		t.Errorf("answer %d", got)
	}
	if got := to.statements(); !slices.Equal(got, []string{"INSERT 2"}) {
		t.Errorf("sent %q", got)
	}
}

func mustPing(t *testing.T, c *mysqlwire.Client) {
	t.Helper()
	if got := say(t, c, comPing, ""); got != 0 {
		t.Errorf("answer %d", got)
	}
}

// A client that does not read what it has asked for stops no other client, and a view that cuts its server does not
// wait for it. Nor does a planned switchover after that, since nothing of it is under way any more.
func TestClientThatNeverReads(t *testing.T) {
	r, from, to, c := rawSession(t, Config{})
	big := slices.Repeat([]string{strings.Repeat("x", 1<<20)}, 32)
	from.set(func(w *wireServer) { w.rows = map[string][]string{"SELECT big": big} })
	other, reads := logInFollowed(t, r.RWAddr()), logInFollowed(t, r.RWAddr())
	for _, c := range []*mysqlwire.Client{c, reads} {
		if err := c.WriteCommand(comQuery, []byte("SELECT big")); err != nil {
			t.Fatal(err)
		}
	}
	var last uint64
	still := 0 // looks since it has moved
	eventually(t, "the answer comes to a stop", func() bool {
		still++
		if now := r.Stats().RW.BytesOut; now != last {
			last, still = now, 0
		}
		return last > 64<<10 && still == 100
	})
	if last > 32<<20 {
		t.Errorf("%d bytes were taken from the server for no reader", last)
	}
	mustPing(t, other)
	r.SetView(View{RW: to.target("2")})
	if n := r.Stats().ByTarget["n-1"]; n != 0 {
		t.Errorf("%d connections of the old server are left", n)
	}
	mustPing(t, other)
	r.SetView(View{KeepRW: true})
	eventually(t, "nothing is under way", r.Quiet)
	r.SetView(View{RW: to.target("3")})
	mustPing(t, other)
	_, _ = io.Copy(io.Discard, reads.NetConn()) // to the end of the connection
	_, _ = reads.NetConn().Close(), c.NetConn().Close()
	eventually(t, "they are gone", func() bool { return clientsOf(r) == 1 })
	eventually(t, "nothing is under way", func() bool { return r.active.Load() == 0 })
}

// A thousand idle connections are bounded by max_conns, take little memory each, and leave nothing when they end.
func TestCrowd(t *testing.T) {
	const most, all = 800, 1000
	s := newServer(t, "n1")
	r := start(t, Config{MaxConns: most})
	r.SetView(View{RW: new(s.target("1"))})
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	conns := make([]net.Conn, all)
	var wg sync.WaitGroup
	for i := range conns {
		wg.Go(func() {
			c, err := net.Dial("tcp", r.RWAddr())
			if err == nil {
				conns[i] = c
			}
		})
	}
	wg.Wait()
	t.Cleanup(func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	})
	eventually(t, "all were let in or turned away", func() bool {
		st := r.Stats().RW
		return st.Open == most && st.Refused == all-most
	})
	runtime.GC()
	runtime.ReadMemStats(&after)
	// Both ends and the stand-in run in this process: six goroutines a connection with their stacks.
	if each := (int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)) / most; each > 96<<10 {
		t.Errorf("%d bytes for each connection", each)
	}
	c := dial(t, r.RWAddr())
	if code, _ := c.errPacket(); code != erTooManyConnections {
		t.Errorf("error %d", code)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	eventually(t, "places are given back", func() bool { return r.Stats().RW.Open == 0 })
	if got := dial(t, r.RWAddr()).greeting(); got != "n1" {
		t.Errorf("greeted by %q", got)
	}
}
