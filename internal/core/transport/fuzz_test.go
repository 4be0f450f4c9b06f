package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/loop"
	"trireme/lab/heap"
)

// strict is a handler that checks what is handed to it: nothing but what a peer may send.
type strict struct {
	t *testing.T
}

func (s *strict) HandleRaft(m *raftpb.Message) {
	if m.GetFrom() != 2 || m.GetTo() != 1 || m.GetType() == raftpb.MsgProp || m.GetType() == raftpb.MsgHup ||
		raftLocal(m.GetType()) {
		s.t.Errorf("handed on: %v", m)
	}
}

// raftLocal names the messages between raft and its own storage, which never travel.
func raftLocal(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgStorageAppend, raftpb.MsgStorageAppendResp, raftpb.MsgStorageApply, raftpb.MsgStorageApplyResp,
		raftpb.MsgBeat,
		raftpb.MsgUnreachable, raftpb.MsgSnapStatus, raftpb.MsgCheckQuorum:
		return true
	}
	return false
}

func (*strict) HandleStatus(uint64, []byte) {}
func (s *strict) HandleRequest(context.Context, uint64, uint8, []byte) ([]byte, error) {
	return nil, nil
}
func (*strict) PeerUp(uint64)                      {}
func (*strict) PeerDown(uint64, error)             {}
func (*strict) RaftUnreachable(uint64)             {}
func (*strict) SnapshotStatus(uint64, bool)        {}
func (*strict) OtherGeneration(uint64, Generation) {}

// FuzzStream is a peer with the right certificate that sends anything once it has been let in: it is cut off, or what
// it sent was checked, and its lengths alone get it no memory.
func FuzzStream(f *testing.F) {
	frame := func(kind frameKind, body []byte) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
		return append(append(b, byte(kind)), body...)
	}
	for _, b := range [][]byte{
		frame(frameRaft, encodeMessage(f, message(raftpb.MsgHeartbeat, 2, 1, 1))),
		frame(frameRaft, encodeMessage(f, message(raftpb.MsgProp, 2, 1, 0))),
		frame(frameRaft, encodeMessage(f, message(raftpb.MsgApp, 2, 1, 1, []byte("x")))),
		frame(frameRelay, make([]byte, 64)),
		frame(frameForward, encodeMessage(f, message(raftpb.MsgApp, 3, 1, 1, []byte("x")))),
		frame(frameRequest, make([]byte, requestHeader+3)),
		frame(frameStatus, []byte("{}")),
		frame(framePing, make([]byte, 8)),
		{0xFF, 0xFF, 0xFF, 0x7F, byte(frameRaft), 1, 2, 3},
	} {
		f.Add(false, b)
		f.Add(true, b)
	}
	f.Fuzz(func(t *testing.T, bulk bool, b []byte) {
		heap.Within(t, 4*growStep+64*len(b), func() {
			s := &strict{t: t}
			ctx, end := context.WithCancel(context.Background())
			defer end()
			tr := &Transport{cfg: Config{ID: 1, Cluster: testCluster, Handler: s, Logger: slog.New(slog.DiscardHandler)},
				ctx: ctx, loop: &loop.Loop{}}
			h := goodHello(controlStream)
			if bulk {
				h.stream = bulkStream
			}
			in := newInbound(&conn{t: tr, s: &socket{}, r: newFrameReader(&once{b}), w: newFrameWriter(io.Discard)}, &h)
			in.ctx = ctx
			if err := in.read(); !errors.Is(err, ErrProtocol) && err != io.EOF && err != io.ErrUnexpectedEOF {
				t.Fatalf("unclassified: %v", err)
			}
			tr.wg.Wait()
		})
	})
}

// once is read one time.
type once struct{ b []byte }

func (o *once) Read(p []byte) (int, error) {
	if len(o.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, o.b)
	o.b = o.b[n:]
	return n, nil
}

// FuzzResponse is the listener's side of a control stream that answers anything to a request.
func FuzzResponse(f *testing.F) {
	id := binary.LittleEndian.AppendUint64(nil, 1)
	for o := range byte(5) {
		f.Add(append(append([]byte{}, id...), o, 'x'))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		heap.Within(t, 4*len(b), func() {
			l := &link{p: &peer{id: 2}, calls: map[uint64]chan answer{}}
			ch := make(chan answer, 1)
			l.calls[1] = ch
			if err := l.answered(b); err != nil {
				if !errors.Is(err, ErrProtocol) {
					t.Fatalf("unclassified: %v", err)
				}
				if len(ch) != 0 {
					t.Fatal("answered by what was refused")
				}
				return
			}
			if got := len(ch) == 1; got != (binary.LittleEndian.Uint64(b) == 1) {
				t.Fatalf("answered: %v", got)
			}
		})
	})
}

// FuzzWelcome is a listener that answers hello with anything.
func FuzzWelcome(f *testing.F) {
	f.Add((&welcome{verdict: refusedID, text: "no", generation: Generation{Number: 1}}).encode())
	f.Add((&welcome{version: 2, id: 3, instance: 9, generation: Generation{2, 7, "{}"}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		heap.Within(t, 8*len(b), func() {
			w, err := decodeWelcome(b)
			if err != nil {
				if !errors.Is(err, ErrProtocol) {
					t.Fatalf("unclassified: %v", err)
				}
				return
			}
			w.text = w.text[:min(len(w.text), 512)] // the encoder's limit
			if again, err := decodeWelcome(w.encode()); err != nil || *again != *w {
				t.Fatalf("%+v became %+v: %v", w, again, err)
			}
			if err := w.err(); (err == nil) != (w.verdict == accepted) {
				t.Fatalf("verdict %d: %v", w.verdict, err)
			}
		})
	})
}
