package transport

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
)

// Relay is an append message for another node, as a leader gives it to a peer that is near that node: everything but the entries' data, which
// the peer has in its own log.
type Relay struct {
	// Message is what the other node should get. Its entries have type, term and index.
	Message *raftpb.Message
	// Sizes are those of the entries' data, in bytes.
	Sizes []int
}

// RelayHandler is what a node needs that passes messages on, or gets some. Methods must not block longer than Handler.HandleRaft may.
type RelayHandler interface {
	// HandleRelay takes a message to pass on: fill it in and Forward it. Must not block.
	HandleRelay(from uint64, r Relay)
	// HandleForwarded takes a message of m.From that came by way of another node.
	HandleForwarded(by uint64, m *raftpb.Message)
}

// maxRelayed bounds the entries of one Relay: raft's own limit of bytes for a message leaves less.
const maxRelayed = 1 << 16

// encodeRelay is the frame's body: a raft message whose entries announce data that does not follow.
func encodeRelay(m *raftpb.Message) ([]byte, error) {
	if m.GetType() != raftpb.MsgApp || m.GetSnapshot() != nil || len(m.GetContext()) > 0 || len(m.GetEntries()) > maxRelayed {
		return nil, fmt.Errorf("%s with %d entries cannot be relayed", m.GetType(), len(m.GetEntries()))
	}
	b := make([]byte, 0, messageHeader+entryHeader*len(m.GetEntries()))
	b = appendHeader(b, m)
	for _, e := range m.GetEntries() {
		b = appendEntryHeader(b, e)
	}
	return b, nil
}

func decodeRelay(body []byte) (Relay, error) {
	var r Relay
	if len(body) < messageHeader {
		return r, fmt.Errorf("%w: relay of %d bytes", ErrProtocol, len(body))
	}
	le := binary.LittleEndian
	n := int(le.Uint32(body[4:]))
	if raftpb.MessageType(body[0]) != raftpb.MsgApp || body[1] != 0 || le.Uint16(body[2:]) != 0 || n > maxRelayed ||
		len(body) != messageHeader+n*entryHeader {
		return r, fmt.Errorf("%w: relay of type %d, flags %#x, %d entries in %d bytes", ErrProtocol, body[0], body[1], n, len(body))
	}
	head := append([]byte(nil), body[:messageHeader]...)
	le.PutUint32(head[4:], 0)
	m, err := decodeMessage(head)
	if err != nil {
		return r, err
	}
	m.Entries, r.Sizes = make([]*raftpb.Entry, n), make([]int, n)
	slab := make([]decodedEntry, n)
	for i := range slab {
		e, b := &slab[i], body[messageHeader+i*entryHeader:]
		if r.Sizes[i], err = e.decodeHeader(b); err != nil {
			return r, err
		}
		m.Entries[i] = &e.Entry
	}
	r.Message = m
	return r, nil
}

// relayVersion is the first version of the protocol that knows relays.
const relayVersion = 2

// Relay asks a peer to pass m, an append message, on to m.To. False if it cannot be asked now: not connected, no room, or it speaks a version
// without relays.
func (t *Transport) Relay(by uint64, m *raftpb.Message) bool {
	p := t.peer(by)
	if p == nil || by == m.GetTo() {
		return false
	}
	body, err := encodeRelay(m)
	return err == nil && p.bulk.enqueueItem(item{kind: frameRelay, body: body})
}

// Forward sends a message of another node to m.To; false as with Relay.
func (t *Transport) Forward(m *raftpb.Message) bool {
	p := t.peer(m.GetTo())
	return p != nil && m.GetType() == raftpb.MsgApp && p.bulk.enqueueItem(item{kind: frameForward, m: m})
}

// CanRelay tells whether Relay to a peer would be taken, as far as the connection goes.
func (t *Transport) CanRelay(by uint64) bool {
	p := t.peer(by)
	if p == nil {
		return false
	}
	p.bulk.mu.Lock()
	defer p.bulk.mu.Unlock()
	return p.bulk.online && p.bulk.version >= relayVersion
}

func (in *inbound) handleRelay(body []byte) error {
	r, err := decodeRelay(body)
	if err != nil {
		return err
	}
	if m := r.Message; m.GetFrom() != in.from || m.GetTo() == in.t.cfg.ID || m.GetTo() == in.from {
		return fmt.Errorf("%w: relay from %d to %d on a stream from %d", ErrProtocol, m.GetFrom(), m.GetTo(), in.from)
	}
	in.t.cfg.Relay.HandleRelay(in.from, r)
	return nil
}

func (in *inbound) handleForwarded(body []byte) error {
	m, err := decodeMessage(body)
	if err != nil {
		return err
	}
	if m.GetType() != raftpb.MsgApp || m.GetTo() != in.t.cfg.ID || m.GetFrom() == in.from || m.GetFrom() == in.t.cfg.ID {
		return fmt.Errorf("%w: %s from %d to %d by way of %d", ErrProtocol, m.GetType(), m.GetFrom(), m.GetTo(), in.from)
	}
	in.t.cfg.Relay.HandleForwarded(in.from, m)
	return nil
}
