package router

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"
)

// strictServer is a stand-in for mysqld that ends a connection when the client's first packet is not there in time or is too long, as mysqld does
// (connect_timeout, max_allowed_packet before authentication).
func strictServer(t *testing.T, patience time.Duration) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Listener: l, name: "strict"}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.open.Add(1)
			s.wg.Go(func() {
				defer s.open.Add(-1)
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				fmt.Fprintf(c, "strict\n")
				var head [4]byte
				if _, err := io.ReadFull(c, head[:]); err != nil || int(head[0])|int(head[1])<<8|int(head[2])<<16 > 1<<16 {
					return
				}
				_, _ = io.CopyN(c, c, int64(head[0]))
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); s.wg.Wait() })
	return s
}

// The router has no opinion about what is said through it; whatever a client does, when the server gives up on it nothing is left of it,
// and others are served meanwhile.
func TestHostileClients(t *testing.T) {
	s := strictServer(t, 500*time.Millisecond)
	r := start(t, Config{})
	r.SetView(View{RW: new(s.target("1"))})
	routines := runtime.NumGoroutine()
	for name, talk := range map[string]func(client){
		"silent":                   func(client) {},
		"speaks first":             func(c client) { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n") },
		"garbage behind greeting":  func(c client) { c.greeting(); _, _ = c.Write(bytes.Repeat([]byte{0xFF}, 100)) },
		"announces 16 MiB":         func(c client) { c.greeting(); _, _ = c.Write([]byte{0xFE, 0xFF, 0xFF, 1}) },
		"sends 64 MiB":             func(c client) { c.greeting(); _, _ = c.Write(bytes.Repeat([]byte{0xFF}, 64<<20)) },
		"half a packet, then FIN":  func(c client) { c.greeting(); _, _ = c.Write([]byte{9, 0, 0, 1, 1}); _ = c.CloseWrite() },
		"FIN at once":              func(c client) { _ = c.CloseWrite() },
		"reset at once":            func(c client) { _ = c.SetLinger(0); _ = c.Close() },
		"never reads":              func(c client) { _ = c.SetReadBuffer(1) },
		"TLS without being asked":  func(c client) { _, _ = c.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3}) },
		"byte by byte, for longer": func(c client) { c.greeting(); drip(c, 700*time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, addr := range []string{r.RWAddr(), r.ROAddr()} {
				c := dial(t, addr)
				talk(c)
				if got := dial(t, addr).greeting(); got != "strict" { // others are served
					t.Fatalf("greeted by %q", got)
				}
			}
			eventually(t, "the server has nobody", func() bool { return s.open.Load() == 0 })
		})
	}
	eventually(t, "the router has nobody", func() bool {
		st := r.Stats()
		return st.RW.Open == 0 && st.RO.Open == 0 && runtime.NumGoroutine() <= routines
	})
}

// drip sends a byte now and then.
func drip(c client, long time.Duration) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(long); time.Now().Before(end); <-tick.C {
		if _, err := c.Write([]byte{7}); err != nil {
			return
		}
	}
}

// A thousand idle connections are bounded by max_conns, take little memory each, and leave nothing behind.
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
