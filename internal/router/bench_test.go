package router

import (
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkRoundTrip is a small request and its answer over 16 connections, direct and through the router: what an OLTP statement
// pays. cpu-µs/op counts client, server and router, which share this process; the difference of the two is the router's.
//
//	go test -bench . -run ^$ ./internal/router
func BenchmarkRoundTrip(b *testing.B) {
	for _, answer := range []int{64, 1024, 16 << 10} {
		s := newAnswerer(b, 100, answer)
		b.Run(fmt.Sprintf("answer=%d/direct", answer), func(b *testing.B) { roundTrips(b, s.Addr().String(), 100, answer) })
		r := start(b, Config{})
		r.SetView(View{RW: &Target{Name: "n1", Addr: s.Addr().String(), Epoch: "1"}})
		b.Run(fmt.Sprintf("answer=%d/router", answer), func(b *testing.B) { roundTrips(b, r.RWAddr(), 100, answer) })
	}
}

// newAnswerer gives answer bytes for each request bytes.
func newAnswerer(b *testing.B, request, answer int) net.Listener {
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
	before := cpu()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, c := range open {
		n := b.N / conns
		if i < b.N%conns {
			n++
		}
		wg.Go(func() {
			out, in := make([]byte, request), make([]byte, answer)
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
