package api

import (
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"time"

	"trireme/internal/base/nbio"
)

// sniffTimeout is how long a new connection may take to send its first byte.
const sniffTimeout = 5 * time.Second

// tlsHandshake is the record type that every TLS connection begins with (RFC 8446 §5.1).
const tlsHandshake = 0x16

// sniffListener accepts plain and TLS connections on one port. Accept gives a *tls.Conn for those that begin with a TLS
// handshake, and the plain connection otherwise. Connections without a place are closed at once.
type sniffListener struct {
	net.Listener
	tls   *tls.Config
	log   *slog.Logger
	ready chan net.Conn
	slots *places
	done  chan struct{}
	once  sync.Once
	wg    sync.WaitGroup

	mu      sync.Mutex
	pending map[net.Conn]struct{} // silent so far; closed by Close
	closed  bool
}

func newSniffListener(l net.Listener, cfg *tls.Config, slots *places, log *slog.Logger) *sniffListener {
	s := &sniffListener{
		Listener: &nbio.Listener{Listener: l, Log: log}, tls: cfg, log: log, ready: make(chan net.Conn), slots: slots,
		done: make(chan struct{}), pending: map[net.Conn]struct{}{},
	}
	s.wg.Add(1)
	go s.loop()
	return s
}

func (s *sniffListener) loop() {
	defer s.wg.Done()
	for {
		conn, err := s.Listener.Accept()
		if err != nil {
			return
		}
		release, reserved, ok := s.slots.take(conn.RemoteAddr().String())
		if !ok {
			_ = conn.Close()
			continue
		}
		slot := &slotConn{Conn: conn, release: release, reserved: reserved}
		if !s.track(slot) {
			_ = slot.Close()
			return
		}
		s.wg.Add(1)
		go s.sniff(slot)
	}
}

// sniff reads one byte and hands the connection to Accept.
func (s *sniffListener) sniff(conn *slotConn) {
	defer s.wg.Done()
	var first [1]byte
	_ = conn.SetReadDeadline(time.Now().Add(sniffTimeout))
	n, err := conn.Read(first[:])
	_ = conn.SetReadDeadline(time.Time{})
	s.untrack(conn)
	if err != nil || n == 0 {
		_ = conn.Close()
		return
	}
	var out net.Conn = &replayConn{Conn: conn, first: first[:]}
	if first[0] == tlsHandshake {
		if s.tls == nil {
			_ = conn.Close()
			return
		}
		out = tls.Server(out, s.tls)
	}
	select {
	case s.ready <- out:
	case <-s.done:
		_ = conn.Close()
	}
}

func (s *sniffListener) track(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.pending[c] = struct{}{}
	}
	return !s.closed
}

func (s *sniffListener) untrack(c net.Conn) {
	s.mu.Lock()
	delete(s.pending, c)
	s.mu.Unlock()
}

// Accept gives the next connection that has shown what it speaks.
func (s *sniffListener) Accept() (net.Conn, error) {
	select {
	case c := <-s.ready:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Close stops accepting and drops connections that have not sent anything. Those that Accept gave out are not touched.
func (s *sniffListener) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		for c := range s.pending {
			_ = c.Close()
		}
		s.mu.Unlock()
		close(s.done)
		_ = s.Listener.Close()
		s.wg.Wait()
	})
	return nil
}

// slotConn gives its place among the open connections back when it is closed.
type slotConn struct {
	net.Conn
	release  func()
	reserved bool // the place is a node's
}

func (c *slotConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// replayConn reads the sniffed byte first.
type replayConn struct {
	net.Conn
	first []byte
}

func (c *replayConn) Read(p []byte) (int, error) {
	if len(c.first) > 0 && len(p) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}
