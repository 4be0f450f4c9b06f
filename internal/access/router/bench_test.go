package router

import (
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"trireme/internal/mysql/mysqlwire"
)

// BenchmarkRoundTrip is a small request and its answer over 16 connections, direct and through the router: what an OLTP
// statement pays. cpu-µs/op counts client, server and router, which share this process; the difference of the two is
// the router's.
//
//	go test -bench . -run ^$ ./internal/access/router
func BenchmarkRoundTrip(b *testing.B) {
	for _, answer := range []int{64, 1024, 16 << 10, 1 << 20} {
		s := newAnswerer(b, 100, answer)
		b.Run(fmt.Sprintf("answer=%d/direct", answer), func(b *testing.B) { roundTrips(b, s.Addr().String(), 100, answer) })
		r := start(b, Config{})
		r.SetView(View{RW: &Target{Name: "n1", Addr: s.Addr().String(), Epoch: "1"}})
		b.Run(fmt.Sprintf("answer=%d/router", answer), func(b *testing.B) { roundTrips(b, r.RWAddr(), 100, answer) })
	}
}

// BenchmarkQuery is a small query and its rows over 16 sessions: direct, passed through as bytes, and followed. The
// router's own cost is the difference to direct in the same run.
//
//	go test -bench Query -run ^$ ./internal/access/router
func BenchmarkQuery(b *testing.B) {
	for _, rows := range []int{1, 100} {
		s := newQueryServer(b, rows)
		target := View{RW: &Target{Name: "n1", Addr: s.Addr().String(), Epoch: "1"}}
		b.Run(fmt.Sprintf("rows=%d/direct", rows), func(b *testing.B) { queries(b, s.Addr().String(), rows, func() {}) })
		for _, c := range []struct {
			name string
			cfg  Config
		}{{"pass", Config{}}, {"carry", Config{Sessions: true}}} {
			b.Run(fmt.Sprintf("rows=%d/%s", rows, c.name), func(b *testing.B) {
				r := start(b, c.cfg)
				r.SetView(target)
				queries(b, r.RWAddr(), rows, func() {
					eventually(b, "all are followed", func() bool { return !c.cfg.Sessions || r.Stats().RW.Followed == benchConns })
				})
			})
		}
	}
}

const benchConns = 16

// benchQuery is as long as sysbench's point select.
const benchQuery = "SELECT c FROM sbtest1 WHERE id = 5012345 AND pad = 'a text that makes it a little longer'"

// benchAnswer is one column of 120 bytes.
func benchAnswer(rows int) []byte { return benchRows(rows, 0) }

func benchRows(rows int, status uint16) []byte {
	status |= mysqlwire.StatusAutocommit
	seq := byte(1)
	var b []byte
	add := func(p []byte) { b = mysqlwire.AppendPacket(b, seq, p); seq++ }
	add([]byte{1})
	add(append([]byte{3}, make([]byte, 40)...))
	add(mysqlwire.AppendEOF(nil, status))
	for range rows {
		add(append([]byte{120}, make([]byte, 120)...))
	}
	add(mysqlwire.AppendEOF(nil, status))
	return b
}

func newQueryServer(b *testing.B, rows int) net.Listener {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	answer := benchAnswer(rows)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				if _, err := mysqlwire.Accept(b.Context(), c, mysqlwire.ServerConfig{User: "app", Password: wirePassword,
					Version: "9.7.4"}); err != nil {
					return
				}
				in := make([]byte, 5+len(benchQuery))
				for {
					if _, err := io.ReadFull(c, in); err != nil {
						return
					}
					if _, err := c.Write(answer); err != nil {
						return
					}
				}
			})
		}
	})
	b.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return l
}

func queries(b *testing.B, addr string, rows int, ready func()) {
	var open []net.Conn
	for range benchConns {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		login := mysqlwire.ClientConfig{User: "app", Password: wirePassword,
			Attributes: []mysqlwire.Attribute{{Name: "_client_name", Value: "pymysql"}}}
		if _, err := mysqlwire.Login(b.Context(), c, login); err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
	}
	ready()
	exchange(b, open, mysqlwire.AppendPacket(nil, 0, append([]byte{comQuery}, benchQuery...)), len(benchAnswer(rows)))
}

// newAnswerer gives answer bytes for each request bytes.
func newAnswerer(b *testing.B, request, answer int) net.Listener {
	return handled(b, func(c net.Conn) {
		in, out := make([]byte, request), make([]byte, answer)
		for {
			if _, err := io.ReadFull(c, in); err != nil {
				return
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	})
}

// handled is a server that handles each connection by itself, until the test ends.
func handled(b testing.TB, handle func(net.Conn)) net.Listener {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				handle(c)
			})
		}
	})
	b.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return l
}

func roundTrips(b *testing.B, addr string, request, answer int) {
	const conns = 16
	var open []net.Conn
	for range conns {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
	}
	exchange(b, open, make([]byte, request), answer)
}

// exchange sends out and reads answer bytes, b.N times over all connections.
func exchange(b *testing.B, open []net.Conn, out []byte, answer int) {
	conns := len(open)
	before := cpu()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, c := range open {
		n := b.N / conns
		if i < b.N%conns {
			n++
		}
		wg.Go(func() {
			in := make([]byte, answer)
			for range n {
				if _, err := c.Write(out); err != nil {
					b.Error(err)
					return
				}
				if _, err := io.ReadFull(c, in); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
