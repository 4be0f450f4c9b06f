package transport

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"syscall"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

var travelling = []raftpb.MessageType{
	raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgSnap, raftpb.MsgHeartbeat,
	raftpb.MsgHeartbeatResp, raftpb.MsgTransferLeader, raftpb.MsgTimeoutNow, raftpb.MsgReadIndex, raftpb.MsgReadIndexResp,
	raftpb.MsgPreVote, raftpb.MsgPreVoteResp,
}

func encodeMessage(t interface{ Fatal(...any) }, m *raftpb.Message) []byte {
	e, err := prepare(m)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := bufio.NewWriterSize(&buf, 128) // smaller than most messages: headers cross its end
	for all := false; !all; {
		var err error
		if all, err = e.writeTo(w, 7); err != nil { // in many pieces
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if buf.Len() != e.size {
		t.Fatal("size announced", e.size, "written", buf.Len())
	}
	return buf.Bytes()
}

// normal gives absent fields their zero value: the wire knows no difference, and neither does raft.
func normal(m *raftpb.Message) *raftpb.Message {
	out := &raftpb.Message{
		Type: m.GetType().Enum(), To: new(m.GetTo()), From: new(m.GetFrom()), Term: new(m.GetTerm()),
		LogTerm: new(m.GetLogTerm()), Index: new(m.GetIndex()), Commit: new(m.GetCommit()), Vote: new(m.GetVote()),
		RejectHint: new(m.GetRejectHint()), Reject: new(m.GetReject()), Snapshot: m.GetSnapshot(),
	}
	if len(m.GetContext()) > 0 {
		out.Context = m.GetContext()
	}
	for _, e := range m.GetEntries() {
		ne := &raftpb.Entry{Type: e.GetType().Enum(), Term: new(e.GetTerm()), Index: new(e.GetIndex())}
		if len(e.GetData()) > 0 {
			ne.Data = e.GetData()
		}
		out.Entries = append(out.Entries, ne)
	}
	return out
}

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := rapid.Uint64()
		blob := rapid.SliceOfN(rapid.Byte(), 0, 300)
		m := &raftpb.Message{Type: rapid.SampledFrom(travelling).Draw(t, "type").Enum()}
		for _, f := range []**uint64{&m.To, &m.From, &m.Term, &m.LogTerm, &m.Index, &m.Commit, &m.Vote, &m.RejectHint} {
			if rapid.Bool().Draw(t, "set") {
				*f = new(u.Draw(t, "field"))
			}
		}
		m.Reject = new(rapid.Bool().Draw(t, "reject"))
		m.Context = blob.Draw(t, "context")
		for range rapid.IntRange(0, 5).Draw(t, "entries") {
			m.Entries = append(m.Entries, &raftpb.Entry{
				Type: raftpb.EntryType(rapid.IntRange(0, 2).Draw(t, "etype")).Enum(), Term: new(u.Draw(t, "eterm")),
				Index: new(u.Draw(t, "eindex")), Data: blob.Draw(t, "data"),
			})
		}
		if rapid.Bool().Draw(t, "snapshot") {
			m.Snapshot = &raftpb.Snapshot{Data: blob.Draw(t, "sdata"),
				Metadata: &raftpb.SnapshotMetadata{Index: new(u.Draw(t, "sindex")),
					ConfState: &raftpb.ConfState{Voters: []uint64{1, 2}}}}
		}
		got, err := decodeMessage(encodeMessage(t, m))
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(normal(got), normal(m)) {
			t.Fatalf("\n%v\n%v", got, m)
		}
	})
}

// The receiver of an entry's data may append to it without writing over the data of the next entry.
func TestDecodedDataIsCapped(t *testing.T) {
	m := &raftpb.Message{Type: raftpb.MsgApp.Enum(), Entries: []*raftpb.Entry{{Data: []byte("first")},
		{Data: []byte("second")}}}
	got, err := decodeMessage(encodeMessage(t, m))
	if err != nil {
		t.Fatal(err)
	}
	_ = append(got.Entries[0].Data, "overrun the neighbour entirely"...)
	if string(got.Entries[1].Data) != "second" {
		t.Fatalf("%q", got.Entries[1].Data)
	}
}

func TestBadMessagesAreRefused(t *testing.T) {
	good := encodeMessage(t, &raftpb.Message{Type: raftpb.MsgApp.Enum(), Context: []byte("ctx"),
		Entries: []*raftpb.Entry{{Data: []byte("x")}}})
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	for name, b := range map[string][]byte{
		"empty":             nil,
		"cut short":         good[:len(good)-1],
		"too long":          append(bytes.Clone(good), 0),
		"proposal":          change(0, byte(raftpb.MsgProp)),
		"local message":     change(0, byte(raftpb.MsgStorageAppend)),
		"unknown type":      change(0, 200),
		"unknown flag":      change(1, 0x80),
		"context too long":  change(3, 0xff),
		"too many entries":  change(7, 0xff),
		"entry too large":   change(messageHeader+3+4, 0xff),
		"entry type":        change(messageHeader+3, 9),
		"not a snapshot":    append(change(1, flagSnapshot), 0xff, 0xff),
		"header without it": make([]byte, messageHeader-1),
	} {
		if m, err := decodeMessage(b); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
}

func FuzzDecodeMessage(f *testing.F) {
	f.Add(encodeMessage(f, &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), Context: []byte("12345678")}))
	f.Add(encodeMessage(f, &raftpb.Message{Type: raftpb.MsgApp.Enum(), Entries: []*raftpb.Entry{{Data: []byte("a")}, {}}}))
	f.Add(encodeMessage(f, &raftpb.Message{Type: raftpb.MsgSnap.Enum(), Snapshot: &raftpb.Snapshot{Data: []byte("s")}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(bytes.Clone(b))
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Fatalf("unclassified: %v", err)
			}
			return
		}
		again, err := decodeMessage(encodeMessage(t, m))
		if err != nil || !proto.Equal(again, m) {
			t.Fatalf("%v\n%v\n%v", m, again, err)
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add((&hello{version: 1, minVersion: 1, stream: controlStream, from: 1, to: 2, cluster: "c", address: "h:1",
		generation: Generation{3, 4, "claim"}}).encode())
	f.Add((&welcome{verdict: refusedID, text: "no", generation: Generation{1, 0, ""}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := decodeHello(b); err == nil {
			if len(h.cluster) > 255 || len(h.address) > len(b) {
				t.Fatalf("%+v", h)
			}
			if again, err := decodeHello(h.encode()); err != nil || *again != *h {
				t.Fatalf("%+v %+v %v", h, again, err)
			}
		} else if !errors.Is(err, ErrProtocol) {
			t.Fatalf("unclassified: %v", err)
		}
		if _, err := decodeWelcome(b); err != nil && !errors.Is(err, ErrProtocol) {
			t.Fatalf("unclassified: %v", err)
		}
	})
}

func FuzzFrames(f *testing.F) {
	var buf bytes.Buffer
	w := newFrameWriter(&buf)
	_ = w.frame(framePing, []byte("12345678"))
	_ = w.frame(frameStatus, nil)
	_ = w.Flush()
	f.Add(buf.Bytes())
	f.Add([]byte{0xff, 0xff, 0xff, 0x7f, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, parts := newFrameReader(bytes.NewReader(b)), newFrameReader(&inParts{b: b})
		for total := 0; ; {
			kind, body, err := r.next(maxBulkFrame)
			sameKind, same, perr := parts.next(maxBulkFrame)
			for perr == syscall.EAGAIN {
				sameKind, same, perr = parts.next(maxBulkFrame)
			}
			if kind != sameKind || !bytes.Equal(body, same) || (err == nil) != (perr == nil) {
				t.Fatalf("kind %d, %d bytes, %v; in parts kind %d, %d bytes, %v", kind, len(body), err, sameKind, len(same), perr)
			}
			if err != nil {
				if !errors.Is(err, ErrProtocol) && err != io.EOF && err != io.ErrUnexpectedEOF {
					t.Fatalf("unclassified: %v", err)
				}
				return
			}
			if total += len(body) + frameHeader; total > len(b) {
				t.Fatal("more bytes than there were")
			}
		}
	})
}

// inParts gives one byte at every other read, and EAGAIN at those between.
type inParts struct {
	b    []byte
	wait bool
}

func (r *inParts) Read(p []byte) (int, error) {
	if r.wait = !r.wait; r.wait {
		return 0, syscall.EAGAIN
	}
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	p[0], r.b = r.b[0], r.b[1:]
	return 1, nil
}

func TestLargeFramesAreReadWhole(t *testing.T) {
	body := make([]byte, 9<<20+7)
	for i := range body {
		body[i] = byte(i * 7)
	}
	pr, pw := io.Pipe()
	go func() {
		w := newFrameWriter(pw)
		_ = w.frame(frameRaft, body)
		_ = w.Flush()
		pw.Close()
	}()
	_, got, err := newFrameReader(pr).next(maxBulkFrame)
	if err != nil || !bytes.Equal(got, body) {
		t.Fatal(len(got), err)
	}
}
