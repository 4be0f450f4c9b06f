package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sys/unix"
)

// rows is text as a table's rows make it; noise cannot be compressed.
func rows(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%08d|%s|", i, strings.Repeat("customer ", i%7))
	}
	return b.Bytes()[:n]
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func compress(mode Compression) func(*Config) { return func(c *Config) { c.Compression = mode } }

// What is compressed arrives as it was, in order: small and large messages, such as do not become smaller, and such as
// do not fit.
func TestPackedMessagesArrive(t *testing.T) {
	a, b := startNode(t, 1, compress(CompressAlways)), startNode(t, 2, nil)
	connect(a, b)
	var want []*raftpb.Message
	for i, data := range [][]byte{rows(100), rows(700), noise(1 << 20), rows(1 << 20), rows(maxPacked - 200),
		rows(maxPacked + 1), noise(3 << 20), rows(5), rows(3 << 20), rows(3 << 20), nil} {
		want = append(want, message(raftpb.MsgApp, 1, 2, uint64(10*i), data, rows(10)))
	}
	a.Send(want)
	eventually(t, "all", func() bool { return len(b.received()) == len(want) })
	for i, m := range b.received() {
		if !bytes.Equal(encodeMessage(t, m), encodeMessage(t, want[i])) {
			t.Errorf("message %d is not what was sent", i)
		}
	}
	if before, after := a.Packed().Before(), a.Packed().After(); before < 10<<20 || after > before*2/3 {
		t.Errorf("%d bytes became %d", before, after)
	}
}

// A peer of an older version gets nothing packed.
func TestOlderPeerGetsNothingPacked(t *testing.T) {
	c := outConn{conn: &conn{s: &socket{}}}
	for version, want := range map[uint16]bool{packVersion - 1: false, packVersion: true} {
		c.version = version
		if got := newPacker(&c, CompressAlways, &Packed{}).wants(1 << 20); got != want {
			t.Errorf("to version %d: %t", version, got)
		}
	}
}

// slowDial dials a link that the kernel lets through only so many bytes a second.
func slowDial(bytesPerSecond int) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := DialTCP(ctx, addr)
		if err != nil {
			return nil, err
		}
		rc, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			return nil, err
		}
		cerr := rc.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, bytesPerSecond)
		})
		return c, errors.Join(err, cerr)
	}
}

// By itself a link compresses when the network is what holds it up, and not when the peer is, nor when nothing does.
func TestThinLinkCompresses(t *testing.T) {
	send := func(t *testing.T, a, b *node, n int) {
		t.Helper()
		data := rows(64 << 10)
		for i := range n { // one after the other, as raft does: what waits meanwhile waits in the kernel
			a.Send([]*raftpb.Message{message(raftpb.MsgApp, 1, 2, uint64(i), data)})
			eventually(t, "written", func() bool {
				l := a.peer(2).bulk
				l.mu.Lock()
				defer l.mu.Unlock()
				return l.bytes == 0
			})
		}
	}
	t.Run("thin", func(t *testing.T) {
		a, b := startNode(t, 1, func(c *Config) { c.Compression, c.Dial = CompressAuto, slowDial(4<<20) }),
			startNode(t, 2, nil)
		connect(a, b)
		send(t, a, b, 64)
		eventually(t, "all", func() bool { return len(b.received()) == 64 })
		if p := a.Packed(); p.Before() == 0 || p.After() > p.Before()/2 {
			t.Errorf("%d bytes became %d", p.Before(), p.After())
		}
	})
	t.Run("peer", func(t *testing.T) {
		a, b := startNode(t, 1, compress(CompressAuto)), startNode(t, 2, nil)
		connect(a, b)
		b.deafen(1, bulkStream, true)
		send(t, a, b, 10) // the kernels' buffers take so much
		b.deafen(1, bulkStream, false)
		if p := a.Packed(); p.Before() != 0 {
			t.Errorf("%d bytes were compressed for a peer that does not read", p.Before())
		}
	})
}

// A snapshot that a connection's end keeps from being written is reported as lost, also if it was to be compressed:
// raft would send the peer nothing more in this term.
func TestPackedSnapshotIsLostWithTheConnection(t *testing.T) {
	a := startNode(t, 1, nil)
	a.SetPeers(map[uint64]string{2: "127.0.0.1:1"})
	l := a.peer(2).bulk
	c := &outConn{version: packVersion, l: l, conn: &conn{t: l.p.t, s: adopted(t), w: newFrameWriter(&broken{})}}
	c.pack = newPacker(c, CompressAlways, &Packed{})
	snap := message(raftpb.MsgSnap, 1, 2, 0)
	snap.Snapshot = &raftpb.Snapshot{Data: noise(2000), Metadata: &raftpb.SnapshotMetadata{}}
	c.batch = batch{packed: true, msgs: []*raftpb.Message{message(raftpb.MsgApp, 1, 2, 0, noise(packBytes-1000)), snap}}
	var err error
	for more := true; more && err == nil; {
		more, err = c.next()
	}
	if !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	l.offline(c, err)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.snaps, []bool{false}) {
		t.Errorf("raft was told %v", a.snaps)
	}
}

var errBroken = errors.New("broken")

// broken takes nothing.
type broken struct{}

func (*broken) Write([]byte) (int, error) { return 0, errBroken }

// The kernel is asked about a link only once enough was written for something to wait there: never for lone commits,
// and for each write of a burst.
func TestLoneCommitsDoNotAskTheKernel(t *testing.T) {
	s := adopted(t)
	p := newPacker(&outConn{version: packVersion, conn: &conn{s: s}}, CompressAuto, &Packed{})
	ask, times := p.sample, 0
	p.sample = func() (linkSample, error) {
		times++
		return ask()
	}
	const commit = 2000
	commits := 0
	for ; times == 0 && commits < backlogFrom; commits++ {
		p.wants(commit)
	}
	if least := backlogFrom / commit; commits < least {
		t.Errorf("the kernel was asked at commit %d, the first %d cannot have piled up", commits, least)
	}
	before := times
	for range 10 {
		p.wants(1 << 20)
	}
	if asked := times - before; asked != 9 { // of the bytes after the first of them
		t.Errorf("it was asked %d times in a burst of 10", asked)
	}
}

func TestIsLimit(t *testing.T) {
	before := linkSample{unsent: 1 << 20, busy: 1000, peerLimits: 900, acked: 5000}
	const later = 1000 + lookFor
	for _, c := range []struct {
		name string
		now  linkSample
		want bool
	}{
		{"nothing waits", linkSample{0, later, 900, 5000}, false},
		{"little waits", linkSample{backlogFrom - 1, later, 900, 5000}, false},
		{"the network", linkSample{backlogFrom, later, 900, 5000}, true},
		{"the network, mostly", linkSample{backlogFrom, later, 899 + lookFor/2, 5000}, true},
		{"the peer, mostly", linkSample{backlogFrom, later, 900 + lookFor/2, 5000}, false},
		{"a slow network", linkSample{backlogFrom, later, 900, 5000 + packBelow*lookFor/1_000_000}, true},
		{"a fast network", linkSample{backlogFrom, later, 900, 5000 + packBelow*lookFor/1_000_000 + 1}, false},
		{"no time has passed", linkSample{backlogFrom, 1000, 900, 5000}, false},
		{"too little time has passed", linkSample{backlogFrom, later - 1, 900, 5000}, false},
	} {
		if got := c.now.isLimit(before); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// packedBody is the body of a packed frame with some frames in it.
func packedBody(t testing.TB, raw []byte) []byte {
	zip, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return zip.EncodeAll(raw, binary.LittleEndian.AppendUint32(nil, uint32(len(raw))))
}

func TestBadPackedFramesAreRefused(t *testing.T) {
	var b bytes.Buffer
	w := newFrameWriter(&b)
	frame := func(kind frameKind, body []byte) []byte {
		b.Reset()
		if err := errors.Join(w.frame(kind, body), w.Flush()); err != nil {
			t.Fatal(err)
		}
		return bytes.Clone(b.Bytes())
	}
	good := frame(frameRaft, encodeMessage(t, message(raftpb.MsgApp, 2, 1, 7, []byte("data"))))
	lies := packedBody(t, good)
	lies[0]++
	bomb := packedBody(t, make([]byte, maxPacked+1))
	binary.LittleEndian.PutUint32(bomb, 100)
	for name, body := range map[string][]byte{
		"empty":                    nil,
		"no zstd":                  []byte("\x10\x00\x00\x00garbage garbage"),
		"another size":             lies,
		"too large":                packedBody(t, make([]byte, maxPacked+1)),
		"more than it says":        bomb,
		"cut in a header":          packedBody(t, good[:3]),
		"cut in a frame":           packedBody(t, good[:len(good)-1]),
		"more after it":            packedBody(t, append(bytes.Clone(good), 0)),
		"a ping":                   packedBody(t, frame(framePing, make([]byte, 8))),
		"a request":                packedBody(t, frame(frameRequest, make([]byte, 20))),
		"packed twice":             packedBody(t, frame(framePacked, packedBody(t, good))),
		"a message of other nodes": packedBody(t, frame(frameRaft, encodeMessage(t, message(raftpb.MsgApp, 3, 1, 7)))),
		"a heartbeat":              packedBody(t, frame(frameRaft, encodeMessage(t, message(raftpb.MsgHeartbeat, 2, 1, 7)))),
	} {
		n := startNode(t, 1, nil)
		in := &inbound{conn: &conn{t: n.Transport, s: &socket{}}, from: 2, stream: bulkStream}
		if err := in.handle(framePacked, body); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
		in.stream = controlStream
		if err := in.handle(framePacked, packedBody(t, good)); !errors.Is(err, ErrProtocol) {
			t.Errorf("a packed frame on the control stream: %v", err)
		}
		n.close()
	}
}

// To unpack takes time of the loop: it counts as much as to read what was packed.
func TestPackedFramesCountInATurn(t *testing.T) {
	n := startNode(t, 1, nil)
	in := &inbound{conn: &conn{t: n.Transport, s: &socket{left: turnBytes}}, from: 2, stream: bulkStream}
	var b bytes.Buffer
	w := newFrameWriter(&b)
	body := encodeMessage(t, message(raftpb.MsgApp, 2, 1, 1, make([]byte, 2<<20)))
	if err := errors.Join(w.frame(frameRaft, body), w.Flush()); err != nil {
		t.Fatal(err)
	}
	if err := in.handle(framePacked, packedBody(t, b.Bytes())); err != nil {
		t.Fatal(err)
	}
	if len(n.received()) != 1 || in.s.left > 0 {
		t.Errorf("%d messages; %d bytes of the turn are left", len(n.received()), in.s.left)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(packedBody(f, []byte("\x01\x00\x00\x00\x03x")))
	f.Fuzz(func(t *testing.T, body []byte) {
		var u unpacker
		raw, err := u.unpack(body)
		if err != nil {
			return
		}
		for len(raw) > 0 {
			if _, _, raw, err = cutFrame(raw); err != nil {
				return
			}
		}
	})
}

// TestGoldenPackedRead: packed frames of released versions say what they said. What a compressor makes of the same
// frames may change.
func TestGoldenPackedRead(t *testing.T) {
	const goldenPacked = "testdata/golden/v3/packed.hex"
	digits, err := os.ReadFile(goldenPacked)
	if *update && os.IsNotExist(err) {
		frames, ferr := os.ReadFile(newest)
		if ferr != nil {
			t.Fatal(ferr)
		}
		_, line, _ := strings.Cut(string(frames), "\nappend ")
		raw, _ := hex.DecodeString(line[:strings.IndexByte(line, '\n')])
		digits = []byte(hex.EncodeToString(packedBody(t, bytes.Repeat(raw, 3))) + "\n")
		err = os.WriteFile(goldenPacked, digits, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	body, err := hex.DecodeString(strings.TrimSpace(string(digits)))
	if err != nil {
		t.Fatal(err)
	}
	var u unpacker
	raw, err := u.unpack(body)
	if err != nil {
		t.Fatal(err)
	}
	want := encodeMessage(t, goldenMessages()["append"])
	n := 0
	for ; len(raw) > 0; n++ {
		var kind frameKind
		var frame []byte
		if kind, frame, raw, err = cutFrame(raw); err != nil || kind != frameRaft || !bytes.Equal(frame, want) {
			t.Fatalf("frame %d: kind %d, %x, %v", n, kind, frame, err)
		}
	}
	if n != 3 {
		t.Errorf("%d frames", n)
	}
}

// BenchmarkPack is what compression costs a sender, per byte of log entries.
func BenchmarkPack(b *testing.B) {
	for name, data := range map[string][]byte{"rows": rows(64 << 10), "noise": noise(64 << 10)} {
		b.Run(name, func(b *testing.B) {
			c := &outConn{version: packVersion, conn: &conn{s: &socket{}, w: newFrameWriter(io.Discard)}}
			c.pack, c.batch.packed = newPacker(c, CompressAlways, &Packed{}), true
			m := message(raftpb.MsgApp, 1, 2, 7, data)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := errors.Join(c.message(m), c.pack.end(), c.w.Flush()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkThinLink is how fast log entries pass a link of 4 MiB/s, for each way to compress.
func BenchmarkThinLink(b *testing.B) {
	for name, mode := range map[string]Compression{"off": CompressNever, "auto": CompressAuto, "always": CompressAlways} {
		b.Run(name, func(b *testing.B) {
			from, to := startNode(b, 1, func(c *Config) { c.Compression, c.Dial = mode, slowDial(4<<20) }), startNode(b, 2, nil)
			got := make(chan struct{}, 256)
			to.onRaft = func(*raftpb.Message) { got <- struct{}{} }
			connect(from, to)
			data := rows(64 << 10)
			b.SetBytes(int64(len(data)))
			flying := 0
			for i := 0; b.Loop(); i++ {
				for flying >= 64 { // as many as raft lets fly
					<-got
					flying--
				}
				from.Send([]*raftpb.Message{message(raftpb.MsgApp, 1, 2, uint64(i), data)})
				flying++
			}
			for range flying {
				<-got
			}
		})
	}
}
