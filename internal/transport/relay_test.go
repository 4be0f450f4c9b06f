package transport

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

func TestRelayComesBackWithoutItsData(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := rapid.Uint64()
		m := &raftpb.Message{Type: raftpb.MsgApp.Enum()}
		for _, f := range []**uint64{&m.To, &m.From, &m.Term, &m.LogTerm, &m.Index, &m.Commit} {
			*f = new(u.Draw(t, "field"))
		}
		want := proto.Clone(m).(*raftpb.Message)
		var sizes []int
		for range rapid.IntRange(0, 5).Draw(t, "entries") {
			e := &raftpb.Entry{Type: raftpb.EntryType(rapid.IntRange(0, 2).Draw(t, "etype")).Enum(), Term: new(u.Draw(t, "eterm")), Index: new(u.Draw(t, "eindex"))}
			want.Entries = append(want.Entries, e)
			full := proto.Clone(e).(*raftpb.Entry)
			full.Data = rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "data")
			m.Entries, sizes = append(m.Entries, full), append(sizes, len(full.Data))
		}
		b, err := encodeRelay(m)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) != messageHeader+entryHeader*len(sizes) {
			t.Fatalf("%d bytes for %d entries", len(b), len(sizes))
		}
		got, err := decodeRelay(b)
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(normal(got.Message), normal(want)) {
			t.Fatalf("\n%v\n%v", got.Message, want)
		}
		for i, n := range sizes {
			if got.Sizes[i] != n {
				t.Fatalf("size of entry %d is %d, not %d", i, got.Sizes[i], n)
			}
		}
	})
}

func TestBadRelaysAreRefused(t *testing.T) {
	good, err := encodeRelay(message(raftpb.MsgApp, 1, 3, 7, []byte("data"), nil))
	if err != nil {
		t.Fatal(err)
	}
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	for name, b := range map[string][]byte{
		"empty":            nil,
		"cut short":        good[:len(good)-1],
		"too long":         append(bytes.Clone(good), 0),
		"a heartbeat":      change(0, byte(raftpb.MsgHeartbeat)),
		"a flag":           change(1, flagReject),
		"a context":        change(2, 1),
		"too many entries": change(5, 0xff),
		"one entry more":   change(4, 3),
		"type of an entry": change(messageHeader, 9),
	} {
		if _, err := decodeRelay(b); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, m := range []*raftpb.Message{
		message(raftpb.MsgHeartbeat, 1, 3, 7),
		{Type: raftpb.MsgApp.Enum(), Context: []byte("x")},
		{Type: raftpb.MsgApp.Enum(), Snapshot: &raftpb.Snapshot{}},
		{Type: raftpb.MsgApp.Enum(), Entries: make([]*raftpb.Entry, maxRelayed+1)},
	} {
		if _, err := encodeRelay(m); err == nil {
			t.Errorf("%s was encoded", m.GetType())
		}
	}
}

func FuzzDecodeRelay(f *testing.F) {
	b, err := encodeRelay(message(raftpb.MsgApp, 1, 3, 7, []byte("data"), nil))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRelay(bytes.Clone(b))
		if err != nil {
			return
		}
		if len(r.Sizes) != len(r.Message.GetEntries()) {
			t.Fatal("sizes and entries differ in number")
		}
		for i, n := range r.Sizes {
			if n < 1<<20 {
				r.Message.Entries[i].Data = make([]byte, n)
			}
		}
	})
}

// passer forwards what it is asked to, with data.
type passer struct {
	tr        atomic.Pointer[Transport]
	forwarded chan *raftpb.Message
	fill      []byte
}

func (p *passer) HandleRelay(_ uint64, r Relay) {
	for _, e := range r.Message.GetEntries() {
		e.Data = p.fill
	}
	p.tr.Load().Forward(r.Message)
}

func (p *passer) HandleForwarded(_ uint64, m *raftpb.Message) { p.forwarded <- m }

// A message goes from 1 by way of 2 to 3; what a node may not ask for ends its connection.
func TestRelayedMessageArrives(t *testing.T) {
	var nodes []*node
	passers := map[uint64]*passer{}
	for id := uint64(1); id <= 3; id++ {
		p := &passer{forwarded: make(chan *raftpb.Message, 1), fill: []byte("from the log of 2")}
		passers[id] = p
		n := startNode(t, id, func(c *Config) { c.Relay = p })
		p.tr.Store(n.Transport)
		nodes = append(nodes, n)
	}
	connect(nodes...)
	if !nodes[0].CanRelay(2) || !nodes[0].Relay(2, message(raftpb.MsgApp, 1, 3, 7, []byte("seventeen bytes..."))) {
		t.Fatal("not taken")
	}
	m := <-passers[3].forwarded
	if m.GetFrom() != 1 || m.GetTo() != 3 || string(m.GetEntries()[0].GetData()) != "from the log of 2" {
		t.Fatal(m)
	}
	if nodes[0].Relay(3, message(raftpb.MsgApp, 1, 3, 7)) {
		t.Error("a relay by the one that it is for was taken")
	}
	if nodes[0].Forward(message(raftpb.MsgHeartbeat, 2, 3, 7)) {
		t.Error("a heartbeat was forwarded")
	}
	// In another's name: the connection ends.
	before := nodes[0].peer(2).bulk
	if !nodes[0].Relay(2, message(raftpb.MsgApp, 9, 3, 7)) {
		t.Fatal("not sent")
	}
	eventually(t, "the connection is ended", func() bool {
		nodes[0].mu.Lock()
		defer nodes[0].mu.Unlock()
		return nodes[0].unreachable > 0
	})
	eventually(t, "there is another", before.isConnected)
}

// A peer of version 1 is asked for nothing, and gets nothing that it does not know.
func TestOlderPeerGetsNoRelays(t *testing.T) {
	a, b := startNode(t, 1, nil), startNode(t, 2, nil)
	connect(a, b)
	l := a.peer(2).bulk
	l.mu.Lock()
	l.version = 1
	l.mu.Unlock()
	if a.CanRelay(2) || a.Relay(2, message(raftpb.MsgApp, 1, 3, 7)) || a.Forward(message(raftpb.MsgApp, 3, 2, 7)) {
		t.Error("a version 1 peer is relayed to")
	}
	a.Send([]*raftpb.Message{message(raftpb.MsgApp, 1, 2, 7)})
	eventually(t, "what it knows", func() bool { return len(b.received()) == 1 })
}
