package router

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"

	"trireme/internal/api"
	"trireme/internal/mysql/mysqlwire"
)

// refusedWith reads the error packet that a client gets in place of a greeting.
func refusedWith(t *testing.T, c client, code uint16, text string) {
	t.Helper()
	b, err := io.ReadAll(c)
	if err != nil || len(b) < 8 || b[4] != 0xff || binary.LittleEndian.Uint16(b[5:]) != code ||
		!strings.Contains(string(b[7:]), text) {
		t.Fatalf("%q, %v", b, err)
	}
}

// One address has its limits, another one its own.
func TestLimitsOfAnAddress(t *testing.T) {
	s := newServer(t, "n1")
	r := start(t, Config{Limits: Limits{Conns: 2, Balancers: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
	target := s.target("1")
	r.SetView(View{RW: &target})
	from := func(addr string) client {
		c := dial(t, r.RWAddr())
		if _, err := io.WriteString(c, "PROXY TCP4 "+addr+" 10.0.0.1 4000 6446\r\n"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	first, second := from("192.0.2.1"), from("192.0.2.1")
	first.greeting()
	second.greeting()
	second.echo("what follows the header is the client's")
	refusedWith(t, from("192.0.2.1"), erTooManyConnections, "2 connections of 192.0.2.1")
	from("192.0.2.2").greeting()
	_ = first.Close()
	eventually(t, "the place is free again", func() bool {
		c := from("192.0.2.1")
		defer c.Close()
		b := make([]byte, 3)
		_, err := io.ReadFull(c, b)
		return err == nil && string(b) == "n1\n"
	})
}

func TestRateOfAnAddress(t *testing.T) {
	var c callers
	a, b, l := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), Limits{Rate: 3}
	for i := range 4 {
		leave, err := c.enter(a, l)
		if (err == nil) != (i < 3) {
			t.Fatalf("connection %d: %v", i, err)
		}
		if err == nil {
			leave()
		}
	}
	if _, err := c.enter(b, l); err != nil {
		t.Error(err)
	}
	for i := range 3 * forgetFrom { // a crowd of addresses is not kept for ever
		leave, err := c.enter(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), Limits{Conns: 1})
		if err != nil {
			t.Fatal(err)
		}
		leave()
	}
	if n := len(c.by); n > forgetFrom+2 {
		t.Errorf("%d addresses are remembered", n)
	}
}

// Who begins more connections than an address may is told so, on whatever port, in place of the greeting; a second
// later it is let in again, and others are at any time.
func TestRateIsKept(t *testing.T) {
	s := newWireServer(t)
	r := start(t, Config{Sessions: true, SplitListen: "127.0.0.1:0", Limits: Limits{Rate: 1}})
	r.SetView(View{RW: s.target("1")})
	login := func(from, to string) error {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: limit}
		nc, err := d.DialContext(t.Context(), "tcp", to)
		if err != nil {
			return err
		}
		c, err := mysqlwire.Login(t.Context(), nc, mysqlwire.ClientConfig{User: "app", Password: wirePassword})
		if err == nil {
			err = c.Close()
		}
		return err
	}
	for i, addr := range []string{r.RWAddr(), r.ROAddr(), r.SplitAddr()} {
		eventually(t, "it is refused", func() bool {
			e, refused := errors.AsType[*mysqlwire.ServerError](login("127.0.0.1", addr))
			return refused && e.Code == erTooManyConnections &&
				strings.Contains(e.Message, "more than 1 new connections a second from 127.0.0.1") &&
				strings.Contains(e.Message, "router.max_conn_rate")
		})
		if err := login(fmt.Sprintf("127.0.1.%d", i+1), addr); err != nil {
			t.Errorf("another address: %v", err)
		}
		eventually(t, "it is let in", func() bool { return login("127.0.0.1", addr) == nil })
	}
	if st := r.Stats(); st.RW.Refused == 0 || st.RO.Refused == 0 || st.Split.Refused == 0 {
		t.Errorf("%+v", st)
	}
}

// All of it works over IPv6 as well: the router's ports, the way to the servers, and what counts for one address.
func TestIPv6(t *testing.T) {
	at := func() *wireServer {
		l, err := net.Listen("tcp", "[::1]:0")
		if err != nil {
			t.Skipf("this machine has no IPv6: %v", err)
		}
		return wireServerAt(t, l)
	}
	s := &split{T: t, leader: at(), followers: []*wireServer{at()}}
	s.r = start(t, Config{RWListen: "[::1]:0", ROListen: "[::1]:0", SplitListen: "[::1]:0", Sessions: true,
		TLS: testTLS(t), Reads: oneServer{}, HoldTimeout: limit, Limits: Limits{Conns: 3}})
	s.r.SetView(View{RW: s.leader.target("1"), RO: []Target{*s.followers[0].target("2")}})
	rw, ro, both := s.connect(s.r.RWAddr()), s.connect(s.r.ROAddr()), s.connect(s.r.SplitAddr())
	run(t, rw, "INSERT 1")
	run(t, ro, "SELECT 1")
	run(t, both, "INSERT 2", "SELECT 2")
	s.got([]string{"INSERT 1", "INSERT 2"}, "SELECT 1", "SELECT 2")
	refusedWith(t, dial(t, s.r.RWAddr()), erTooManyConnections, "3 connections of ::1")
	next := at()
	s.r.SetView(View{RW: next.target("3"), RO: []Target{*s.followers[0].target("2")}})
	run(t, rw, "INSERT 3")
	run(t, both, "INSERT 4", "SELECT 4")
	if got := next.statements(); !slices.Equal(got, []string{"INSERT 3", "INSERT 4"}) {
		t.Errorf("the next leader was sent %q", got)
	}
	s.got(nil, "SELECT 4")
}

// A balancer's header counts, in both versions; other clients' headers do not.
func TestBalancersHeader(t *testing.T) {
	s := newServer(t, "n1")
	balanced := start(t, Config{Limits: Limits{Balancers: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}})
	plain := start(t, Config{Limits: Limits{Balancers: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}})
	target := s.target("1")
	balanced.SetView(View{RW: &target})
	plain.SetView(View{RW: &target})
	v2, err := proxyproto.HeaderProxyFromAddrs(2, net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[2001:db8::1]:4000")),
		net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[2001:db8::2]:6446"))).Format()
	if err != nil {
		t.Fatal(err)
	}
	health, err := (&proxyproto.Header{Version: 2, Command: proxyproto.LOCAL}).Format()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ header, from string }{
		"version 1":      {"PROXY TCP6 2001:db8::1 2001:db8::2 4000 6446\r\n", "[2001:db8::1]:4000"},
		"version 2":      {string(v2), "[2001:db8::1]:4000"},
		"unknown":        {"PROXY UNKNOWN\r\n", ""},
		"a health check": {string(health), ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, balanced.RWAddr())
			if _, err := io.WriteString(conn, c.header); err != nil {
				t.Fatal(err)
			}
			if got := conn.greeting(); got != "n1" {
				t.Fatal(got)
			}
			want := c.from
			if want == "" {
				want = conn.LocalAddr().String()
			}
			balanced.mu.Lock()
			defer balanced.mu.Unlock()
			for l := range balanced.links {
				if l.client.RemoteAddr().String() == conn.LocalAddr().String() {
					if l.from.String() != want {
						t.Errorf("it comes from %s, not %s", l.from, want)
					}
					return
				}
			}
			t.Error("its connection is not known")
		})
	}
	for name, header := range map[string]string{
		"no header":     "\x20\x00\x00\x01login",
		"cut short":     "PROXY TCP4 192.0.2.1",
		"no address":    "PROXY TCP4 nobody 10.0.0.1 4000 6446\r\n",
		"more after":    "PROXY TCP4 192.0.2.1 10.0.0.1 4000 6446\r\nSELECT",
		"endless":       "PROXY " + strings.Repeat("x", 4<<10),
		"version 2 cut": string(v2[:20]),
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, balanced.RWAddr())
			if _, err := io.WriteString(conn, header); err != nil {
				t.Fatal(err)
			}
			_ = conn.CloseWrite()
			if b, _ := io.ReadAll(conn); len(b) > 0 {
				t.Errorf("%q", b)
			}
		})
	}
	if got := dial(t, plain.RWAddr()).greeting(); got != "n1" {
		t.Error(got)
	}
}

// oneServer stands for a leader and a follower that never lag: the test is about the protocol.
type oneServer struct{}

func (oneServer) Log() string                                      { return "main/0" }
func (oneServer) Answered(context.Context, string) (uint64, error) { return 1, nil }
func (oneServer) Everywhere(context.Context, uint64) error         { return nil }
func (oneServer) Live(context.Context) (api.ReadIndexView, error) {
	return api.ReadIndexView{Index: 1, Live: []string{"n2"}}, nil
}
func (oneServer) Barrier(context.Context) (uint64, error)       { return 1, nil }
func (oneServer) Applied(context.Context, string, uint64) error { return nil }
