package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// A raft message on the wire, little-endian:
//
//	type u8 | flags u8 | context length u16 | entries u32 |
//	to u64 | from u64 | term u64 | log term u64 | index u64 | commit u64 | vote u64 | reject hint u64 |
//	context | entries × (type u8 | data length u32 | term u64 | index u64 | data) | snapshot (protobuf), if flagged
const (
	messageHeader = 72
	entryHeader   = 21

	flagReject   = 1 << 0
	flagSnapshot = 1 << 1
)

// encodedMessage is a message whose length is known, and what of it is still to be written.
type encodedMessage struct {
	m        *raftpb.Message
	size     int // bytes of the frame's body
	begun    bool
	at       int    // the next entry
	rest     []byte // of what comes before it
	snapshot []byte // comes last
}

// prepare measures m. The only error is a message that the format cannot hold.
func prepare(m *raftpb.Message) (encodedMessage, error) {
	e := encodedMessage{m: m, size: messageHeader + len(m.GetContext())}
	if len(m.GetContext()) > math.MaxUint16 {
		return e, fmt.Errorf("%s: context of %d bytes", m.GetType(), len(m.GetContext()))
	}
	for _, ent := range m.GetEntries() {
		if uint64(len(ent.GetData())) > math.MaxUint32 {
			return e, fmt.Errorf("entry %d: %d bytes", ent.GetIndex(), len(ent.GetData()))
		}
		e.size += entryHeader + len(ent.GetData())
	}
	if m.GetSnapshot() != nil {
		b, err := proto.Marshal(m.GetSnapshot())
		if err != nil {
			return e, fmt.Errorf("snapshot: %w", err)
		}
		e.snapshot = b
		e.size += len(b)
	}
	if e.size > maxBulkFrame {
		return e, fmt.Errorf("%s: %d bytes", m.GetType(), e.size)
	}
	return e, nil
}

// messageWriter is what writeTo needs of a bufio.Writer.
type messageWriter interface {
	io.Writer
	AvailableBuffer() []byte
}

// writeTo writes about most bytes of what is left, and says whether that was all. Data goes straight from the entries
// to w.
func (e *encodedMessage) writeTo(w messageWriter, most int) (all bool, err error) {
	if !e.begun {
		e.begun = true
		b := append(appendHeader(w.AvailableBuffer(), e.m), e.m.GetContext()...)
		if _, err := w.Write(b); err != nil {
			return false, err
		}
	}
	for entries := e.m.GetEntries(); most > 0; {
		n := min(len(e.rest), most)
		if _, err := w.Write(e.rest[:n]); err != nil {
			return false, err
		}
		e.rest, most = e.rest[n:], most-n
		switch {
		case len(e.rest) > 0:
		case e.at < len(entries):
			ent := entries[e.at]
			if _, err := w.Write(appendEntryHeader(w.AvailableBuffer(), ent)); err != nil {
				return false, err
			}
			e.at, e.rest, most = e.at+1, ent.GetData(), most-entryHeader
		case e.snapshot != nil:
			e.rest, e.snapshot = e.snapshot, nil
		default:
			return true, nil
		}
	}
	return false, nil
}

// appendTo writes the whole frame.
func (e *encodedMessage) appendTo(b *bytes.Buffer) {
	b.Write(appendFrameHeader(b.AvailableBuffer(), frameRaft, e.size))
	_, _ = e.writeTo(b, math.MaxInt) // a buffer takes everything
}

// appendHeader appends what comes before the context.
func appendHeader(b []byte, m *raftpb.Message) []byte {
	le := binary.LittleEndian
	var flags byte
	if m.GetReject() {
		flags |= flagReject
	}
	if m.GetSnapshot() != nil {
		flags |= flagSnapshot
	}
	b = append(b, byte(m.GetType()), flags)
	b = le.AppendUint16(b, uint16(len(m.GetContext())))
	b = le.AppendUint32(b, uint32(len(m.GetEntries())))
	for _, v := range [...]uint64{m.GetTo(), m.GetFrom(), m.GetTerm(), m.GetLogTerm(), m.GetIndex(), m.GetCommit(),
		m.GetVote(), m.GetRejectHint()} {
		b = le.AppendUint64(b, v)
	}
	return b
}

// appendEntryHeader appends what comes before an entry's data.
func appendEntryHeader(b []byte, e *raftpb.Entry) []byte {
	le := binary.LittleEndian
	b = append(b, byte(e.GetType()))
	b = le.AppendUint32(b, uint32(len(e.GetData())))
	b = le.AppendUint64(b, e.GetTerm())
	return le.AppendUint64(b, e.GetIndex())
}

// decodedMessage is a message with the fields that it points to, in one piece of memory.
type decodedMessage struct {
	raftpb.Message
	typ    raftpb.MessageType
	reject bool
	fields [8]uint64
}

// decodedEntry likewise.
type decodedEntry struct {
	raftpb.Entry
	typ         raftpb.EntryType
	term, index uint64
}

// decodeHeader reads an entry's header from entryHeader bytes and returns the size of its data.
func (e *decodedEntry) decodeHeader(b []byte) (int, error) {
	le := binary.LittleEndian
	e.typ, e.term, e.index = raftpb.EntryType(b[0]), le.Uint64(b[5:]), le.Uint64(b[13:])
	if e.typ > raftpb.EntryConfChangeV2 {
		return 0, fmt.Errorf("%w: entry of type %d", ErrProtocol, e.typ)
	}
	e.Type, e.Term, e.Index = &e.typ, &e.term, &e.index
	return int(le.Uint32(b[1:])), nil
}

// decodeMessage reads a message. The data of its entries is in body, which belongs to them from now on.
func decodeMessage(body []byte) (*raftpb.Message, error) {
	if len(body) < messageHeader {
		return nil, fmt.Errorf("%w: raft message of %d bytes", ErrProtocol, len(body))
	}
	le := binary.LittleEndian
	flags, contextLen, entries := body[1], int(le.Uint16(body[2:])), uint64(le.Uint32(body[4:]))
	d := &decodedMessage{typ: raftpb.MessageType(body[0]), reject: flags&flagReject != 0}
	if !mayTravel(d.typ) || flags&^(flagReject|flagSnapshot) != 0 {
		return nil, fmt.Errorf("%w: raft message of type %d, flags %#x", ErrProtocol, body[0], flags)
	}
	for i := range d.fields {
		d.fields[i] = le.Uint64(body[8+8*i:])
	}
	m, f := &d.Message, &d.fields
	m.Type, m.To, m.From, m.Term = &d.typ, &f[0], &f[1], &f[2]
	m.LogTerm, m.Index, m.Commit, m.Vote, m.RejectHint = &f[3], &f[4], &f[5], &f[6], &f[7]
	m.Reject = &d.reject
	rest := body[messageHeader:]
	if len(rest) < contextLen {
		return nil, fmt.Errorf("%w: context of %d bytes in %d", ErrProtocol, contextLen, len(rest))
	}
	if contextLen > 0 {
		m.Context = rest[:contextLen:contextLen]
	}
	rest, err := decodeEntries(m, rest[contextLen:], entries)
	if err != nil {
		return nil, err
	}
	if flags&flagSnapshot != 0 {
		m.Snapshot = &raftpb.Snapshot{}
		if err := proto.Unmarshal(rest, m.Snapshot); err != nil {
			return nil, fmt.Errorf("%w: snapshot: %w", ErrProtocol, err)
		}
		return m, nil
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%w: %d bytes too many in a %s", ErrProtocol, len(rest), d.typ)
	}
	return m, nil
}

func decodeEntries(m *raftpb.Message, rest []byte, n uint64) ([]byte, error) {
	if n*entryHeader > uint64(len(rest)) {
		return nil, fmt.Errorf("%w: %d entries in %d bytes", ErrProtocol, n, len(rest))
	}
	if n == 0 {
		return rest, nil
	}
	slab := make([]decodedEntry, n)
	m.Entries = make([]*raftpb.Entry, n)
	for i := range slab {
		if len(rest) < entryHeader {
			return nil, fmt.Errorf("%w: entry %d of %d is cut short", ErrProtocol, i, n)
		}
		e := &slab[i]
		size, err := e.decodeHeader(rest)
		if err != nil {
			return nil, err
		}
		rest = rest[entryHeader:]
		if size > len(rest) {
			return nil, fmt.Errorf("%w: entry of %d bytes in %d bytes", ErrProtocol, size, len(rest))
		}
		if size > 0 {
			e.Data = rest[:size:size]
		}
		rest = rest[size:]
		m.Entries[i] = &e.Entry
	}
	return rest, nil
}

// mayTravel: only these types are ever sent to a peer; proposals are made on the leader.
func mayTravel(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgSnap, raftpb.MsgHeartbeat,
		raftpb.MsgHeartbeatResp, raftpb.MsgTransferLeader, raftpb.MsgTimeoutNow, raftpb.MsgReadIndex,
		raftpb.MsgReadIndexResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp:
		return true
	}
	return false
}

// isBulk tells which stream a message takes. All MsgApp take the bulk stream, empty ones too: one that overtook another
// would look like a gap, and make the leader probe.
func isBulk(t raftpb.MessageType) bool { return t == raftpb.MsgApp || t == raftpb.MsgSnap }

// weight is what a message counts in a queue, in bytes.
func weight(m *raftpb.Message) int {
	n := 256 + len(m.GetSnapshot().GetData())
	for _, e := range m.GetEntries() {
		n += 64 + len(e.GetData())
	}
	return n
}
