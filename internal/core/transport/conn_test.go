package transport

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/loop"
)

// inOrder fails the test unless the messages that a node has got are those from 1 to n.
func (n *node) inOrder(want int) {
	n.t.Helper()
	eventually(n.t, "all messages", func() bool { return len(n.received()) >= want })
	for i, m := range n.received() {
		if m.GetIndex() != uint64(i+1) {
			n.t.Fatalf("message %d came as number %d", m.GetIndex(), i+1)
		}
	}
}

// While a peer takes nothing, what it is to get waits, in order; other peers and other streams go on.
func TestPeerThatTakesNothingForAWhile(t *testing.T) {
	a, b, c := startNode(t, 1, nil), startNode(t, 2, nil), startNode(t, 3, nil)
	connect(a, b, c)
	b.deafen(1, bulkStream, true)
	const n = 40 // MiB: more than the kernel takes, less than the queue
	for i := uint64(1); i <= n; i++ {
		a.Send([]*raftpb.Message{message(raftpb.MsgApp, 1, 2, i, bytes.Repeat([]byte{byte(i)}, 1<<20))})
	}
	queued := func() int {
		l := a.peer(2).bulk
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.bytes
	}
	for i := uint64(1); i <= 100; i++ {
		a.Send([]*raftpb.Message{message(raftpb.MsgApp, 1, 3, i, make([]byte, 100<<10))})
	}
	c.inOrder(100)
	a.Broadcast([]byte("well"))
	eventually(t, "a status", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return string(b.statuses[1]) == "well"
	})
	if queued() == 0 {
		t.Fatal("the kernel has taken everything")
	}
	b.deafen(1, bulkStream, false)
	b.inOrder(n)
	for i, m := range b.received() {
		if d := m.GetEntries()[0].GetData(); len(d) != 1<<20 || d[0] != byte(i+1) || d[1<<20-1] != byte(i+1) {
			t.Fatalf("message %d is damaged", i+1)
		}
	}
	eventually(t, "the queue is empty", func() bool { return queued() == 0 })
	a.with(func() {
		if a.unreachable != 0 {
			t.Error("reported unreachable")
		}
	})
}

// A large message is written and read in pieces, a part in each turn of the loop: other links go on, and neither side
// has more in memory than has come or can be sent.
func TestLargeMessageTakesManyTurns(t *testing.T) {
	quick := func(l *loop.Loop) func(*Config) { // pings fall due within the message
		return func(c *Config) { c.Loop, c.PingInterval = l, time.Millisecond }
	}
	var loops [2]*loop.Loop
	for i := range loops {
		loops[i] = newLoop(t)
	}
	a, b, c := startNode(t, 1, quick(loops[0])), startNode(t, 2, quick(loops[1])), startNode(t, 3, nil)
	var waiting, reads, most, before int // bytes; see below
	loops[0].Last(func() {
		if p := a.peer(2); p != nil {
			p.bulk.mu.Lock()
			defer p.bulk.mu.Unlock()
			if c := p.bulk.conn; c != nil {
				waiting = max(waiting, cap(c.s.out))
			}
		}
	})
	loops[1].Last(func() {
		b.Transport.mu.RLock()
		in := b.inbound[inboundKey{1, bulkStream}]
		b.Transport.mu.RUnlock()
		if in == nil || in.watch == nil || in.r.body == nil {
			before = 0
			return
		}
		most, before = max(most, in.r.have-before), in.r.have
		if len(in.r.body) > max(growStep, 4*in.r.have) {
			t.Errorf("%d bytes are there for the %d that have come", len(in.r.body), in.r.have)
		}
		reads++
	})
	for i, n := range []*node{a, b} {
		loops[i].Start()
		t.Cleanup(func() {
			n.close()
			loops[i].Stop()
			loops[i].Wait()
		})
	}
	connect(a, b, c)
	b.deafen(1, bulkStream, true)
	snap := message(raftpb.MsgSnap, 1, 2, 2)
	snap.Snapshot = &raftpb.Snapshot{Data: noise(3 << 20), Metadata: &raftpb.SnapshotMetadata{}}
	want := []*raftpb.Message{
		message(raftpb.MsgApp, 1, 2, 1, []byte("x"), nil, noise(32<<20), nil, noise(5)), snap,
		message(raftpb.MsgApp, 1, 2, 3, noise(pieceBytes)), message(raftpb.MsgApp, 1, 2, 4, []byte("x")),
	}
	a.Send(want)
	for i := uint64(1); i <= 100; i++ {
		a.Send([]*raftpb.Message{message(raftpb.MsgApp, 1, 3, i, make([]byte, 100<<10))})
	}
	c.inOrder(100)
	a.Send([]*raftpb.Message{message(raftpb.MsgHeartbeat, 1, 2, 1)})
	b.inOrder(1)
	b.with(func() { b.msgs = nil })
	b.deafen(1, bulkStream, false)
	b.inOrder(len(want))
	for i, m := range b.received() {
		if !bytes.Equal(encodeMessage(t, m), encodeMessage(t, want[i])) {
			t.Errorf("message %d is damaged", i)
		}
	}
	a.close()
	b.close()
	for _, l := range loops {
		l.Stop()
		l.Wait()
	}
	if waiting > 1<<20 {
		t.Errorf("%d bytes were encrypted although the peer took nothing", waiting)
	}
	if most > 2*turnBytes || reads < 16 {
		t.Errorf("up to %d bytes were read in one turn, within a message in %d turns", most, reads)
	}
}

// A peer that takes nothing for too long is cut off, and raft hears what was lost.
func TestStalledPeerIsCutOff(t *testing.T) {
	a, b := startNode(t, 1, func(c *Config) { c.StallLimit = 500 * time.Millisecond }), startNode(t, 2, nil)
	connect(a, b)
	b.deafen(1, bulkStream, true)
	snap := message(raftpb.MsgSnap, 1, 2, 0)
	snap.Snapshot = &raftpb.Snapshot{Data: make([]byte, 20<<20), Metadata: &raftpb.SnapshotMetadata{}}
	began := time.Now()
	a.Send([]*raftpb.Message{snap})
	eventually(t, "the loss of the snapshot", func() (told bool) {
		a.with(func() { told = len(a.snaps) == 1 && !a.snaps[0] && a.unreachable > 0 })
		return told
	})
	if took := time.Since(began); took < a.cfg.StallLimit {
		t.Errorf("it was cut off after %v", took)
	}
	eventually(t, "a new connection", func() bool { return a.peer(2).bulk.isConnected() })
}

// drip writes byte by byte.
type drip struct{ net.Conn }

func (d drip) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := d.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

// Frames may come in any parts: one byte of a TLS record after the other, and one byte of a frame in each record.
func TestFramesInParts(t *testing.T) {
	n := startNode(t, 1, nil)
	conn, w, err := introduceOver(t, drip{dialRaw(t, n)}, bundle(t, testCA(), 2), goodHello(bulkStream))
	if err != nil || w.err() != nil {
		t.Fatal(err, w)
	}
	var b bytes.Buffer
	fw := newFrameWriter(&b)
	for i := uint64(1); i <= 3; i++ {
		body := encodeMessage(t, message(raftpb.MsgApp, 2, 1, i, []byte("one"), []byte("another")))
		if err := errors.Join(fw.frame(frameRaft, body), fw.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Write(b.Bytes()[:b.Len()-200]); err != nil {
		t.Fatal(err)
	}
	for _, c := range b.Bytes()[b.Len()-200:] {
		if _, err := conn.Write([]byte{c}); err != nil {
			t.Fatal(err)
		}
	}
	n.inOrder(3)
	if e := n.received()[2].GetEntries(); len(e) != 2 || string(e[1].GetData()) != "another" {
		t.Errorf("%v", e)
	}
}

// What comes in one piece with the greeting is not lost: epoll does not tell of it.
func TestFirstFramesWithTheGreeting(t *testing.T) {
	t.Run("listener", func(t *testing.T) {
		n := startNode(t, 1, nil)
		c := tls.Client(dialRaw(t, n), bundle(t, testCA(), 2).PeerTLS())
		w, h := newFrameWriter(c), goodHello(bulkStream)
		if err := errors.Join(w.frame(frameHello, h.encode()),
			w.frame(frameRaft, encodeMessage(t, message(raftpb.MsgApp, 2, 1, 1, []byte("x")))), w.Flush(),
			w.frame(frameRaft, encodeMessage(t, message(raftpb.MsgApp, 2, 1, 2, []byte("x")))), w.Flush()); err != nil {
			t.Fatal(err)
		}
		n.inOrder(2)
	})
	// A listener that sends an answer to a ping with its welcome, and nothing any more: it is cut off in the end.
	t.Run("dialer", func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		a := startNode(t, 1, func(c *Config) { c.IdleLimit, c.PingInterval = time.Second, time.Hour })
		a.SetPeers(map[uint64]string{2: ln.Addr().String()})
		for range 2 { // both streams
			nc, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { nc.Close() })
			c := tls.Server(nc, bundle(t, testCA(), 2).PeerTLS())
			_, body, err := newFrameReader(c).next(maxHelloFrame)
			if err != nil {
				t.Fatal(err)
			}
			h, err := decodeHello(body)
			if err != nil {
				t.Fatal(err)
			}
			pong := binary.LittleEndian.AppendUint64(nil, uint64(time.Since(clockBase)))
			v := welcome{version: protocolVersion, id: 2, instance: 7, generation: Generation{Number: 1}}
			w := newFrameWriter(c)
			if err := errors.Join(w.frame(frameWelcome, v.encode()), w.frame(framePong, pong), w.Flush()); err != nil {
				t.Fatal(err)
			}
			if h.stream == controlStream {
				eventually(t, "a round trip", func() bool { return a.RTT(2).Samples == 1 })
				ended(t, nc)
			}
		}
	})
}

// adopted is a socket whose other side takes nothing but what the kernel does.
func adopted(t *testing.T) *socket {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := &socket{Conn: nc}
	if err := s.adopt(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.own.Close() })
	return s
}

// A turn of writing ends although the kernel takes more, and the next one finds nothing left over from it.
func TestTurnEnds(t *testing.T) {
	s := adopted(t)
	s.room = 100
	if _, err := s.Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if err := s.push(); err != nil || !s.full || len(s.out) != 0 || s.since.IsZero() {
		t.Errorf("full %t, %d bytes wait since %v; %v", s.full, len(s.out), s.since, err)
	}
	s.full, s.room = false, turnBytes
	if err := s.push(); err != nil || s.full || !s.since.IsZero() {
		t.Errorf("full %t since %v; %v", s.full, s.since, err)
	}
}

// What is sent on the loop is written before the loop carries out the job of the same turn.
func TestSendComesBeforeTheJob(t *testing.T) {
	l := newLoop(t)
	a, b := startNode(t, 1, func(c *Config) { c.Loop = l }), startNode(t, 2, nil)
	l.Start()
	t.Cleanup(func() {
		a.close()
		l.Stop()
		l.Wait()
	})
	connect(a, b)
	done := make(chan bool, 1)
	l.Do(func() {
		a.Send([]*raftpb.Message{message(raftpb.MsgApp, 1, 2, 1, []byte("x"))})
		l.Job(false, func() {
			for end := time.Now().Add(20 * time.Second); len(b.received()) == 0 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
		}, func() { done <- len(b.received()) == 1 })
	})
	if !<-done {
		t.Error("the message waited for the job")
	}
}
