package api

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestPlaces: one address, or one IPv6 network, cannot have all of them, and this host finds one as long as there is
// any.
func TestPlaces(t *testing.T) {
	p := newPlaces(16, 2)
	p.each = 4
	take := func(from string, n int) (got int) {
		for range n {
			if _, _, ok := p.take(from); ok {
				got++
			}
		}
		return got
	}
	if got := take("192.0.2.1:1", 20); got != 4 {
		t.Errorf("one address has %d of 16", got)
	}
	if got := take("[2001:db8::1]:1", 3) + take("[2001:db8::2]:1", 20); got != 4 {
		t.Errorf("one network has %d of 16", got)
	}
	for i := range 6 {
		if got := take(fmt.Sprintf("192.0.2.%d:1", 10+i), 1); got != 1 {
			t.Errorf("address %d has %d", i, got)
		}
	}
	leave, reserved, ok := p.take("192.0.2.99:1")
	if !ok || !reserved {
		t.Errorf("the 15th place: %v, reserved %v", ok, reserved)
	}
	if _, reserved, ok := p.take("127.0.0.1:1"); !ok || reserved {
		t.Errorf("this host: %v, reserved %v", ok, reserved)
	}
	if got := take("127.0.0.1:1", 1); got != 0 {
		t.Error("17 of 16 places")
	}
	leave()
	leave()
	if got := take("127.0.0.1:1", 2); got != 1 {
		t.Errorf("%d places for one that was given back", got)
	}
}

// TestRoomForNodes: hosts that hold connections open keep neither nodes out nor this host.
func TestRoomForNodes(t *testing.T) {
	c := newCluster(t)
	// Everybody comes from 127.0.0.1 but "this host", 127.0.0.9; and one address may have all places but the reserve.
	s := c.start(1, "n1", &backend{leader: Leader{Name: "n1", Self: true}}, func(s *Server) {
		for _, p := range []*places{s.conns, s.streams} {
			p.local = func(a netip.Addr) bool { return a == netip.MustParseAddr("127.0.0.9") }
		}
		s.conns.each, s.conns.reserve = s.conns.most, 10
	})
	var following sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer following.Wait()
	defer cancel()
	followed := 0
	heard, refused := make(chan struct{}, 20), make(chan error, 20)
	for range 5 {
		following.Go(func() {
			client := c.client("http://"+s.Addr(), "")
			var once sync.Once
			refused <- client.WatchRoute(ctx, func(RouteView) { once.Do(func() { heard <- struct{}{} }) })
		})
	}
	for range 5 {
		select {
		case <-heard:
			followed++
		case err := <-refused:
			if KindOf(err) != KindConflict {
				t.Errorf("a router too many: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("no answer")
		}
	}
	if followed != s.streams.each { // 2
		t.Errorf("%d routers of one address, not %d", followed, s.streams.each)
	}
	var idle []net.Conn
	defer func() {
		for _, conn := range idle {
			_ = conn.Close()
		}
	}()
	within(t, "the reserve is not reached", func() bool {
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, conn)
		s.conns.mu.Lock()
		defer s.conns.mu.Unlock()
		return s.conns.used >= s.conns.most-s.conns.reserve
	})
	s.conns.mu.Lock()
	s.conns.by = map[netip.Addr]int{} // as if many hosts had opened them
	s.conns.mu.Unlock()

	outsider := c.client("https://"+s.Addr(), "")
	if _, err := outsider.Cluster(t.Context()); KindOf(err) != KindBusy {
		t.Errorf("an outsider in the reserve: %v", err)
	}
	own, err := c.bundle(2, "n2").NodeClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	node := NewClient("https://"+s.Addr(), "", own)
	defer node.Close()
	if _, err := node.Cluster(t.Context()); err != nil {
		t.Errorf("a node: %v", err)
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.9")}, Timeout: 5 * time.Second}
	conn, err := d.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write([]byte("GET /cluster HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 100)
	n, _ := conn.Read(answer)
	if !strings.HasPrefix(string(answer[:n]), "HTTP/1.0 200") {
		t.Errorf("this host: %q", answer[:n])
	}
}
