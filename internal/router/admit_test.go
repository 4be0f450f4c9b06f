package router

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"
)

// refusedWith reads the error packet that a client gets in place of a greeting.
func refusedWith(t *testing.T, c client, code uint16, text string) {
	t.Helper()
	b, err := io.ReadAll(c)
	if err != nil || len(b) < 8 || b[4] != 0xff || binary.LittleEndian.Uint16(b[5:]) != code || !strings.Contains(string(b[7:]), text) {
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

// A balancer's word counts, in both versions; nobody else's does.
func TestBalancersHeader(t *testing.T) {
	s := newServer(t, "n1")
	behind := start(t, Config{Limits: Limits{Balancers: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}})
	plain := start(t, Config{Limits: Limits{Balancers: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}})
	target := s.target("1")
	behind.SetView(View{RW: &target})
	plain.SetView(View{RW: &target})
	v2, err := proxyproto.HeaderProxyFromAddrs(2, net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[2001:db8::1]:4000")), net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[2001:db8::2]:6446"))).Format()
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
			conn := dial(t, behind.RWAddr())
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
			behind.mu.Lock()
			defer behind.mu.Unlock()
			for l := range behind.links {
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
		"more behind":   "PROXY TCP4 192.0.2.1 10.0.0.1 4000 6446\r\nSELECT",
		"endless":       "PROXY " + strings.Repeat("x", 4<<10),
		"version 2 cut": string(v2[:20]),
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, behind.RWAddr())
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
