package transport

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/pki"
)

func tlsOf(b *pki.Bundle) func() *tls.Config {
	c := b.PeerTLS()
	return func() *tls.Config { return c }
}

// ended waits until the other side has closed c.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err := io.Copy(io.Discard, c)
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		t.Fatal("the connection is still open")
	}
}

func dialRaw(t *testing.T, n *node) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", n.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// introduce opens a stream to n as node 2 with the given hello, and returns the verdict.
func introduce(t *testing.T, n *node, b *pki.Bundle, h hello) (*tls.Conn, *welcome, error) {
	t.Helper()
	return introduceOver(t, dialRaw(t, n), b, h)
}

func introduceOver(t *testing.T, nc net.Conn, b *pki.Bundle, h hello) (*tls.Conn, *welcome, error) {
	t.Helper()
	c := tls.Client(nc, b.PeerTLS())
	w := newFrameWriter(c)
	if err := errors.Join(w.frame(frameHello, h.encode()), w.Flush()); err != nil {
		return c, nil, err
	}
	kind, body, err := newFrameReader(c).next(maxHelloFrame)
	if err != nil {
		return c, nil, err
	}
	if kind != frameWelcome {
		t.Fatalf("frame %d", kind)
	}
	v, err := decodeWelcome(body)
	return c, v, err
}

func goodHello(s stream) hello {
	return hello{version: 1, minVersion: 1, stream: s, from: 2, to: 1, instance: 7, cluster: testCluster,
		generation: Generation{Number: 1}}
}

func TestStrangersAreRefusedWithAReason(t *testing.T) {
	n := startNode(t, 1, nil)
	b2 := bundle(t, testCA(), 2)
	for name, c := range map[string]struct {
		change func(*hello)
		want   error
	}{
		"good":            {func(*hello) {}, nil},
		"newer, but fits": {func(h *hello) { h.version = 9 }, nil},
		"too new":         {func(h *hello) { h.version, h.minVersion = 9, 8 }, ErrVersion},
		"too old":         {func(h *hello) { h.version, h.minVersion = 0, 0 }, ErrVersion},
		"other cluster":   {func(h *hello) { h.cluster = "other" }, ErrForeignCluster},
		"other node":      {func(h *hello) { h.to = 3 }, ErrWrongID},
		"false name":      {func(h *hello) { h.from = 3 }, ErrWrongID},
		"our own id":      {func(h *hello) { h.from = 1 }, ErrWrongID},
		"other times":     {func(h *hello) { h.generation = Generation{Number: 2, ID: 1} }, ErrGeneration},
		"false and other": {func(h *hello) { h.generation, h.from = Generation{Number: 2, ID: 1}, 3 }, ErrWrongID},
	} {
		t.Run(name, func(t *testing.T) {
			h := goodHello(controlStream)
			c.change(&h)
			conn, w, err := introduce(t, n, b2, h)
			if err != nil {
				t.Fatal(err)
			}
			if !errors.Is(w.err(), c.want) {
				t.Fatalf("got %v", w.err())
			}
			if c.want != nil {
				ended(t, conn)
			}
		})
	}
}

func TestForeignCertificatesAreRefused(t *testing.T) {
	n := startNode(t, 1, nil)
	same, err := pki.NewCA(testCluster, time.Now()) // same name, another key
	if err != nil {
		t.Fatal(err)
	}
	other, err := pki.NewCA("other", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*pki.Bundle{"same name": bundle(t, same, 2), "other name": bundle(t, other, 2)} {
		t.Run(name, func(t *testing.T) {
			m := startNode(t, 2, func(c *Config) { c.TLS = tlsOf(b); c.Cluster = b.Identity().Cluster })
			m.SetPeers(map[uint64]string{1: n.Addr()})
			// m's own check fails first; n's is tested with a client that does not check.
			_, err := m.peer(1).control.dial(within(t, 20*time.Second), n.Addr())
			if !errors.Is(err, ErrForeignCluster) {
				t.Fatalf("got %v", err)
			}
			loose := b.PeerTLS()
			loose.VerifyConnection = nil
			c := tls.Client(dialRaw(t, n), loose)
			w := newFrameWriter(c)
			_ = errors.Join(w.frame(frameHello, ptr(goodHello(controlStream)).encode()), w.Flush())
			if _, _, err := newFrameReader(c).next(maxHelloFrame); err == nil || !strings.Contains(err.Error(), "certificate") {
				t.Fatalf("got %v", err)
			}
			if h := n.history(); len(h) != 0 {
				t.Fatalf("%q", h)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		c := tls.Client(dialRaw(t, n), &tls.Config{InsecureSkipVerify: true})
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Fatal("a client without a certificate was let in")
		}
	})
}

func ptr[T any](v T) *T { return &v }

// Dialing the address of another node of the cluster is told as such.
func TestWrongNodeAtAnAddress(t *testing.T) {
	a, b := startNode(t, 1, nil), startNode(t, 2, nil)
	a.SetPeers(map[uint64]string{3: b.Addr()})
	_, err := a.peer(3).control.dial(within(t, 20*time.Second), b.Addr())
	if !errors.Is(err, ErrWrongID) || !strings.Contains(err.Error(), "node 2") {
		t.Fatalf("got %v", err)
	}
}

func TestNoiseIsCutOff(t *testing.T) {
	n := startNode(t, 1, func(c *Config) { c.HandshakeLimit = 300 * time.Millisecond })
	t.Run("garbage", func(t *testing.T) {
		c := dialRaw(t, n)
		if _, err := c.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		ended(t, c)
	})
	t.Run("silence", func(t *testing.T) {
		ended(t, dialRaw(t, n))
	})
	t.Run("drip", func(t *testing.T) {
		c := dialRaw(t, n)
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
					if _, err := c.Write([]byte{22}); err != nil {
						return
					}
				}
			}
		}()
		ended(t, c)
	})
	t.Run("no hello", func(t *testing.T) {
		c := tls.Client(dialRaw(t, n), bundle(t, testCA(), 2).PeerTLS())
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		ended(t, c)
	})
	t.Run("crowd", func(t *testing.T) {
		for range 2 * maxHandshakesPerHost {
			dialRaw(t, n)
		}
		b := startNode(t, 2, nil)
		connect(n, b) // gets in once the crowd has been cut off
	})
}

func TestPeersThatBreakTheProtocolAreCutOff(t *testing.T) {
	n := startNode(t, 1, func(c *Config) { c.IdleLimit = time.Second })
	b2 := bundle(t, testCA(), 2)
	frame := func(kind frameKind, body []byte) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
		return append(append(b, byte(kind)), body...)
	}
	raft := func(m *raftpb.Message) []byte { return frame(frameRaft, encodeMessage(t, m)) }
	for name, c := range map[string]struct {
		stream stream
		bytes  []byte
	}{
		"huge length":            {controlStream, []byte{0xff, 0xff, 0xff, 0xff, 3}},
		"huge length, bulk":      {bulkStream, []byte{0xff, 0xff, 0xff, 0xff, 3}},
		"announced, not sent":    {bulkStream, []byte{0, 0, 0, 0x40, 3, 1, 2, 3}},
		"unknown frame":          {controlStream, frame(99, nil)},
		"second hello":           {controlStream, frame(frameHello, nil)},
		"malformed message":      {controlStream, frame(frameRaft, make([]byte, 80))},
		"in another's name":      {controlStream, raft(message(raftpb.MsgHeartbeat, 3, 1, 1))},
		"to another":             {controlStream, raft(message(raftpb.MsgHeartbeat, 2, 3, 1))},
		"entries on control":     {controlStream, raft(message(raftpb.MsgApp, 2, 1, 1, []byte("x")))},
		"vote on bulk":           {bulkStream, raft(message(raftpb.MsgVote, 2, 1, 1))},
		"snapshot without one":   {bulkStream, raft(message(raftpb.MsgSnap, 2, 1, 1))},
		"request on bulk":        {bulkStream, frame(frameRequest, make([]byte, 20))},
		"short request":          {controlStream, frame(frameRequest, make([]byte, 3))},
		"status on bulk":         {bulkStream, frame(frameStatus, nil)},
		"ping of the wrong size": {controlStream, frame(framePing, nil)},
		"silence":                {controlStream, nil},
	} {
		t.Run(name, func(t *testing.T) {
			conn, w, err := introduce(t, n, b2, goodHello(c.stream))
			if err != nil || w.err() != nil {
				t.Fatal(err, w)
			}
			if _, err := conn.Write(c.bytes); err != nil {
				t.Fatal(err)
			}
			ended(t, conn)
			if got := n.received(); len(got) != 0 {
				t.Fatalf("handled: %v", got)
			}
		})
	}
}

// A second stream of the same kind from a peer takes the place of the first.
func TestNewerStreamReplacesTheOlder(t *testing.T) {
	n := startNode(t, 1, nil)
	b2 := bundle(t, testCA(), 2)
	first, w, err := introduce(t, n, b2, goodHello(controlStream))
	if err != nil || w.err() != nil {
		t.Fatal(err)
	}
	eventually(t, "the first is known", func() bool { // its welcome comes a moment earlier
		n.Transport.mu.Lock()
		defer n.Transport.mu.Unlock()
		return n.inbound[inboundKey{2, controlStream}] != nil
	})
	if _, w, err = introduce(t, n, b2, goodHello(controlStream)); err != nil || w.err() != nil {
		t.Fatal(err)
	}
	ended(t, first)
}
