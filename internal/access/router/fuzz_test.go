package router

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"trireme/internal/base/nbio"
	"trireme/internal/mysql/mysqlwire"
)

// What FuzzSession varies besides what is said.
const (
	fuzzLogin  = 1 << iota // the login is said too
	fuzzLegacy             // no CLIENT_DEPRECATE_EOF
	fuzzAttrs              // CLIENT_QUERY_ATTRIBUTES
	fuzzSplit              // on the splitting port
	fuzzReplay             // Config.ReplayReads
	fuzzHeld               // a planned switchover holds the router
	fuzzTLS                // the router shows a certificate
)

// FuzzSession is a followed session, with or without its login, both sides of which send anything. It ends when they
// do, and leaves nothing.
//
// answers are what the server sends, each when it has heard something: a byte that gives the length, and the bytes.
// With the last of them, or when it hears nothing for a moment, it ends, and the view says that there is no leader.
func FuzzSession(f *testing.F) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = l.Close() })
	certificate := testTLS(f)
	if _, err := routerKey(); err != nil {
		f.Fatal(err)
	}
	for _, s := range fuzzSeeds() {
		f.Add(s.said, s.answers, s.how)
	}
	f.Fuzz(func(t *testing.T, said, answers []byte, how byte) {
		cfg := Config{HoldTimeout: 1, DialTimeout: 1, ConsistencyTimeout: 1, ReplayReads: how&fuzzReplay != 0,
			Logger: slog.New(slog.DiscardHandler)}
		if how&fuzzTLS != 0 {
			cfg.TLS = certificate
		}
		r := New(cfg)
		defer r.Close()
		client, inner := fuzzPair(t, l)
		server, outer := fuzzPair(t, l)
		target := Target{Name: "n1", Epoch: "1"}
		r.SetView(View{RW: &target})
		p := &r.rw
		if how&fuzzSplit != 0 {
			p = &r.split
		}
		link := newLink(p, target, inner, outer, netip.AddrPort{})
		r.mu.Lock()
		r.links[link] = struct{}{}
		r.mu.Unlock()
		if how&fuzzHeld != 0 {
			r.SetView(View{KeepRW: true})
		}
		ended := make(chan struct{})
		go func() { defer close(ended); fuzzedSession(r, link, how) }()
		gone := make(chan struct{})
		go func() { defer close(gone); fuzzServer(r, server, answers, how&fuzzLogin != 0) }()
		go func() { _, _ = client.Write(said); _ = client.CloseWrite() }()
		_ = client.SetReadDeadline(time.Now().Add(limit))
		if _, err := io.Copy(io.Discard, client); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the session does not end")
		}
		_ = client.SetLinger(0)
		_ = client.Close()
		for what, c := range map[string]chan struct{}{"session": ended, "server": gone} {
			select {
			case <-c:
			case <-time.After(limit):
				t.Fatalf("the %s does not end", what)
			}
		}
		if n := r.active.Load(); n != 0 || len(r.links) != 0 || len(r.followed) != 0 {
			t.Errorf("%d commands under way, %d connections, %d sessions", n, len(r.links), len(r.followed))
		}
	})
}

// fuzzPair is a connection, and the router's end of it.
func fuzzPair(t *testing.T, l net.Listener) (*net.TCPConn, *nbio.Conn) {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	inner, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn), nbio.Wrap(inner).(*nbio.Conn)
}

// fuzzedSession is Router.follow, without the login if that is not fuzzed.
func fuzzedSession(r *Router, l *link, how byte) {
	if how&fuzzLogin != 0 {
		r.follow(l)
		return
	}
	defer r.forget(l)
	caps := uint32(mysqlwire.CapProtocol41 | mysqlwire.CapDeprecateEOF)
	if how&fuzzLegacy != 0 {
		caps &^= mysqlwire.CapDeprecateEOF
	}
	if how&fuzzAttrs != 0 {
		caps |= mysqlwire.CapQueryAttributes
	}
	in := &login{known: true, status: mysqlwire.StatusAutocommit, plugin: mysqlwire.PluginCachingSHA2,
		response: mysqlwire.Response{Capabilities: caps, User: "app"}, greeting: mysqlwire.Greeting{Capabilities: caps}}
	s := newSession(r, l, in, l.client, l.server)
	r.mu.Lock()
	cut := l.cut.Load()
	if !cut {
		l.session = s
		r.followed[s] = struct{}{}
	}
	r.mu.Unlock()
	if cut {
		l.abort()
		close(l.done)
		return
	}
	r.carryOut(s)
}

// fuzzServer says answers.
func fuzzServer(r *Router, c *net.TCPConn, answers []byte, first bool) {
	defer c.Close()
	next := func() bool {
		if len(answers) == 0 {
			return false
		}
		n := min(int(answers[0]), len(answers)-1)
		_, err := c.Write(answers[1 : 1+n])
		answers = answers[1+n:]
		return err == nil
	}
	heard := make([]byte, 64<<10)
	for more := !first || next(); more; {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		_, err := c.Read(heard)
		more = err == nil && next()
	}
	_ = c.CloseWrite()
	r.SetView(View{})
	_ = c.SetReadDeadline(time.Now().Add(limit))
	_, _ = io.Copy(io.Discard, c)
}

type fuzzSeed struct {
	said, answers []byte
	how           byte
}

func fuzzSeeds() (seeds []fuzzSeed) {
	answer := func(packets ...[]byte) (b []byte) {
		for _, p := range packets {
			b = append(b, byte(len(p)))
			b = append(b, p...)
		}
		return b
	}
	command := func(c byte, argument string) []byte { return packet(0, append([]byte{c}, argument...)...) }
	join := func(p ...[]byte) (b []byte) {
		for _, p := range p {
			b = append(b, p...)
		}
		return b
	}
	ok := packet(1, mysqlwire.AppendOK(nil, mysqlwire.OK{Status: mysqlwire.StatusAutocommit})...)
	failed := packet(1, mysqlwire.AppendERR(nil, &mysqlwire.ServerError{Code: 1213, Message: "deadlock"})...)
	rows := benchAnswer(1)
	// Every command, cut short at every place, and one followed by an answer.
	for c := range byte(0x22) {
		var said, answers []byte
		for n := range 12 {
			said = append(said, command(c, string(make([]byte, n)))...)
			answers = append(answers, answer(ok)...)
		}
		for _, how := range []byte{0, fuzzLegacy | fuzzSplit, fuzzAttrs | fuzzHeld} {
			seeds = append(seeds, fuzzSeed{append(said, command(comPing, "")...), answers, how})
		}
	}
	prepared := packet(1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0)
	execute := "\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x01\x08\x00\x01\x02\x03\x04\x05\x06\x07\x08"
	for _, how := range []byte{0, fuzzLegacy, fuzzLegacy | fuzzAttrs, fuzzLegacy | fuzzSplit, fuzzLegacy | fuzzReplay,
		fuzzLegacy | fuzzHeld} {
		seeds = append(seeds,
			fuzzSeed{join(command(comQuery, "SELECT 1"), command(comQuery, "INSERT 1"), command(comQuery, "SET a = 1")),
				answer(rows, failed, ok), how},
			fuzzSeed{join(command(comStmtPrepare, "INSERT ?"), command(comStmtExecute, execute),
				command(comStmtSendLong, "\x01\x00\x00\x00\x00\x00long"), command(comStmtReset, "\x01\x00\x00\x00"),
				command(comStmtFetch, "\x01\x00\x00\x00\x01\x00\x00\x00"), command(comStmtClose, "\x01\x00\x00\x00"),
				command(comPing, "")),
				answer(join(prepared, packet(2, 3), packet(3, 0xfe, 0, 0, 2, 0)), ok, ok, failed, ok), how},
			fuzzSeed{join(command(comQuery, "START TRANSACTION"), command(comQuery, "LOAD DATA LOCAL"), packet(2, 'x'),
				packet(3), command(comQuery, "COMMIT")),
				answer(packet(1, mysqlwire.AppendOK(nil, mysqlwire.OK{Status: mysqlwire.StatusInTransaction})...),
					packet(1, 0xfb, 'f'), nil, ok, ok), how},
			fuzzSeed{join(command(comQuery, "SELECT '"+string(make([]byte, inBytes))+"'"), command(comInitDB, "d"),
				command(comResetConnection, ""), command(comQuit, "")), answer(ok, ok, ok), how})
	}
	greeting := mysqlwire.AppendPacket(nil, 0,
		mysqlwire.AppendGreeting(nil, mysqlwire.Greeting{Version: "9.7.4", Nonce: make([]byte, 20),
			Plugin:       mysqlwire.PluginCachingSHA2,
			Capabilities: mysqlwire.CapProtocol41 | mysqlwire.CapSSL | 1<<15 | 1<<19}))
	for _, how := range []byte{fuzzLogin, fuzzLogin | fuzzTLS, fuzzLogin | fuzzSplit} {
		for _, last := range [][]byte{packet(2, mysqlwire.AppendOK(nil, mysqlwire.OK{Status: 2})...),
			packet(2, 1, mysqlwire.CachingFastOK), packet(2, 1, mysqlwire.CachingFull), packet(2, 0xfe, 'x', 0), packet(2)} {
			for _, caps := range []uint32{0, mysqlwire.CapSSL, mysqlwire.CapCompress} {
				seeds = append(seeds, fuzzSeed{join(response(caps), command(comQuery, "SELECT 1")), answer(greeting, last, rows),
					how})
			}
		}
	}
	return seeds
}

func FuzzExecute(f *testing.F) {
	f.Add([]byte{comStmtExecute, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 8, 0, 8, 0, 1}, uint16(2), false)
	f.Fuzz(func(t *testing.T, p []byte, params uint16, attributes bool) {
		if e, ok := parseExecute(p, int(params), attributes); ok && e.flag > 0 && e.flag+1+e.types > len(p) {
			t.Errorf("%+v of %d bytes", e, len(p))
		}
	})
}
