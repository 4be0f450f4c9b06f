package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// lines is a log that counts.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), what)
}

// logged makes a node write to l what operators see.
func logged(l *lines) func(*Config) {
	return func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
}

// heapNow is what is in use after a collection.
func heapNow() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A node that is refused, or breaks the protocol, and comes back over and over is told of once, not once each time.
func TestComplaintsAreFew(t *testing.T) {
	var log lines
	n := startNode(t, 1, logged(&log))
	b2 := bundle(t, testCA(), 2)
	start := time.Now()
	few := func(what string) {
		t.Helper()
		eventually(t, "a line about it", func() bool { return log.count(what) > 0 })
		if got, most := log.count(what), 1+int(time.Since(start)/complaintPause); got > most {
			t.Errorf("%d lines say %q; at most %d were due", got, what, most)
		}
	}
	for range 20 {
		h := goodHello(controlStream)
		h.cluster = "other"
		if _, w, err := introduce(t, n, b2, h); err != nil || !errors.Is(w.err(), ErrForeignCluster) {
			t.Fatal(w, err)
		}
	}
	few("refused a peer connection")
	few(`cluster \"other\"`)
	for range 20 {
		conn, w, err := introduce(t, n, b2, goodHello(controlStream))
		if err != nil || w.err() != nil {
			t.Fatal(w, err)
		}
		if _, err := conn.Write([]byte{0, 0, 0, 0, 99}); err != nil {
			t.Fatal(err)
		}
		ended(t, conn)
	}
	few("peer violates the protocol")
	var many warnLimiter
	for i := range 3 * maxComplaints {
		many.may(warning{host: string(rune(i))})
		if len(many.at) > maxComplaints {
			t.Fatalf("%d addresses are remembered", len(many.at))
		}
	}
}

// Messages that never travel between nodes are refused from every sender.
func TestMessagesThatMayNotTravel(t *testing.T) {
	n := startNode(t, 1, nil)
	b2 := bundle(t, testCA(), 2)
	for _, typ := range []raftpb.MessageType{raftpb.MsgProp, raftpb.MsgHup, raftpb.MsgBeat, raftpb.MsgUnreachable,
		raftpb.MsgSnapStatus, raftpb.MsgCheckQuorum,
		raftpb.MsgStorageAppend, raftpb.MsgStorageAppendResp, raftpb.MsgStorageApply, raftpb.MsgStorageApplyResp,
		raftpb.MsgForgetLeader} {
		for _, s := range []stream{controlStream, bulkStream} {
			conn, w, err := introduce(t, n, b2, goodHello(s))
			if err != nil || w.err() != nil {
				t.Fatal(w, err)
			}
			body := encodeMessage(t, message(typ, 2, 1, 1<<62))
			frame := append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), byte(frameRaft))
			if _, err := conn.Write(append(frame, body...)); err != nil {
				t.Fatal(err)
			}
			ended(t, conn)
		}
	}
	if got := n.received(); len(got) != 0 {
		t.Fatalf("handled: %v", got)
	}
}

// A peer that asks and never reads is cut off, and delays no other peer meanwhile.
func TestPeerThatNeverReads(t *testing.T) {
	n := startNode(t, 1, func(c *Config) { c.StallLimit = time.Second })
	n.onRequest = func(context.Context, uint64, uint8, []byte) ([]byte, error) { return make([]byte, 1<<20), nil }
	deaf, w, err := introduce(t, n, bundle(t, testCA(), 2), goodHello(controlStream))
	if err != nil || w.err() != nil {
		t.Fatal(w, err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		request := append(binary.LittleEndian.AppendUint32(nil, requestHeader), byte(frameRequest))
		request = append(request, make([]byte, requestHeader)...)
		binary.LittleEndian.PutUint32(request[5+8:], 60_000)
		for {
			if _, err := deaf.Write(request); err != nil {
				return
			}
		}
	}()
	other := startNode(t, 3, nil)
	other.onRequest = n.onRequest
	connect(n, other)
	if b, err := other.Request(within(t, 20*time.Second), 1, 1, nil); err != nil || len(b) != 1<<20 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	select {
	case <-gone:
	case <-time.After(20 * time.Second):
		t.Fatal("it is still served")
	}
	eventually(t, "its stream is forgotten", func() bool {
		n.Transport.mu.Lock()
		defer n.Transport.mu.Unlock()
		return n.inbound[inboundKey{2, controlStream}] == nil
	})
}

// A crowd without certificates, byte by byte, and peers that announce gigabytes take little memory and leave nothing.
func TestCrowdTakesLittle(t *testing.T) {
	n := startNode(t, 1, func(c *Config) { c.HandshakeLimit, c.IdleLimit = 2*time.Second, 2*time.Second })
	before, routines := heapNow(), runtime.NumGoroutine()
	for range 3 * maxHandshakesPerHost {
		c := dialRaw(t, n)
		_, _ = c.Write([]byte{22, 3, 1, 0xFF, 0xFF}) // a TLS record of 64 KiB begins; turned away, it is reset
	}
	b2 := bundle(t, testCA(), 2)
	announce := func() *tls.Conn {
		t.Helper()
		var conn *tls.Conn
		eventually(t, "the crowd lets a peer in", func() bool {
			c, w, err := introduce(t, n, b2, goodHello(bulkStream))
			conn = c
			return err == nil && w.err() == nil
		})
		_, _ = conn.Write([]byte{0xFF, 0xFF, 0xFF, 0x7F, byte(frameRaft), 1, 2, 3})
		return conn
	}
	for range 20 {
		announce()
	}
	if more := int64(heapNow()) - int64(before); more > 64<<20 {
		t.Errorf("%d MiB are in use", more>>20)
	}
	eventually(t, "all are gone", func() bool { return runtime.NumGoroutine() <= routines+2 })
	if _, err := announce().Read(make([]byte, 1)); err != io.EOF && err == nil {
		t.Fatal("a length alone got an answer")
	}
}
