package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

const (
	// ownVersion is the server version in the FORMAT_DESCRIPTION event of a segment that no Barrier precedes.
	ownVersion = "8.4.0-trireme"
	// maxHeadBytes bounds what a segment's header, its GTID set above all, may take.
	maxHeadBytes = 64 << 20
)

// position is where the events of the last Trx or Barrier entry ended (S12). Kind 0: there was none.
type position struct {
	Node        uint16
	Flags       Flags
	Kind        Kind
	_           uint8
	Incarnation uint64
	End         Pos
}

// ledger is what follows from all entries up to some index. A segment's header holds the one of the index before its
// first.
type ledger struct {
	gtids   gtid.Set
	barrier BarrierInfo
	// open is the index of the first chunk of a transaction that has not ended yet, 0 if there is no such transaction:
	// a reader that starts there sees whole transactions only.
	open uint64
	tail position
}

// apply adds the entry at index. It does not judge: see check.
func (g *ledger) apply(index, term uint64, m *Meta, events []byte) {
	switch m.Kind {
	case Barrier:
		if g.aborts(m) {
			g.open = 0
		}
		g.barrier = BarrierInfo{Index: index, Term: term, Node: m.Node, Incarnation: m.Incarnation, FDE: cloneFDE(events)}
	case Trx:
		switch {
		case m.Flags&FlagUnfinished == 0:
			g.open = 0
		case m.Flags&FlagContinues == 0 || g.open == 0:
			g.open = index
		}
	default:
		return
	}
	for _, r := range m.GTIDs {
		g.gtids.AddRange(r)
	}
	g.tail = position{Kind: m.Kind, Flags: m.Flags, Node: m.Node, Incarnation: m.Incarnation, End: m.End}
}

// aborts reports whether m is a Barrier that ends the open transaction of another incarnation.
func (g *ledger) aborts(m *Meta) bool {
	return m.Kind == Barrier && g.open != 0 && (m.Node != g.tail.Node || m.Incarnation != g.tail.Incarnation)
}

// check returns an error if the entry must not follow what g has seen (S6, S12).
func (g *ledger) check(m *Meta) error {
	if m.Kind != Trx {
		return nil
	}
	if err := g.checkPosition(m); err != nil {
		return err
	}
	for _, r := range m.GTIDs {
		if dup, ok := g.gtids.FirstOf(r); ok {
			return fmt.Errorf("GTID %v is in the log already", gtid.GTID{SID: r.SID, GNO: dup})
		}
	}
	return nil
}

func (g *ledger) checkPosition(m *Meta) error {
	t := &g.tail
	if m.End.Less(m.Start) {
		return fmt.Errorf("events end at %v before they start at %v", m.End, m.Start)
	}
	if t.Kind == 0 {
		return nil
	}
	if m.Node != t.Node || m.Incarnation != t.Incarnation {
		return fmt.Errorf("events of node %d incarnation %d after those of node %d incarnation %d without a barrier",
			m.Node, m.Incarnation, t.Node, t.Incarnation)
	}
	if m.Start != t.End && m.Start != (Pos{File: t.End.File + 1, Off: 4}) {
		return fmt.Errorf("events of incarnation %d start at %v, the log ends at %v", m.Incarnation, m.Start, t.End)
	}
	continues := m.Flags&FlagContinues != 0
	if open := g.open != 0; open != continues {
		return fmt.Errorf("entry continues a transaction: %t; a transaction is open: %t", continues, open)
	}
	return nil
}

func (g *ledger) clone() ledger {
	c := *g
	c.gtids = g.gtids.Clone()
	return c
}

// cloneFDE returns a copy of the FORMAT_DESCRIPTION event in a Barrier's events, or nil.
func cloneFDE(events []byte) []byte {
	h, ev, _, err := binlog.Cut(events)
	if err != nil || h.Type != binlog.TypeFormatDescription {
		return nil
	}
	return append([]byte(nil), ev...)
}

// segmentHead is what a segment begins with, and as a raft snapshot's data the boundary itself.
type segmentHead struct {
	cluster, node uint64
	first         uint64
	prevTerm      uint64
	prevCRC       uint32
	durable       uint64
	ledger        ledger
}

// prev is the chain that the segment's first record continues.
func (h *segmentHead) prev() chain { return chain{h.first - 1, h.prevTerm, h.prevCRC} }

// encode returns a segment's first bytes: magic, FORMAT_DESCRIPTION, PREVIOUS_GTIDS and the header event.
func (h *segmentHead) encode() []byte {
	le := binary.LittleEndian
	server := uint32(h.node)
	dst := []byte(binlog.Magic)

	fde := h.ledger.barrier.FDE
	if fde == nil {
		fde = binlog.AppendFormatDescription(nil, binlog.Header{ServerID: server}, ownVersion, 0)
	}
	from := len(dst)
	dst = append(dst, fde...)
	le.PutUint16(dst[from+17:], le.Uint16(dst[from+17:])&^binlog.FlagInUse)
	binlog.SetLogPos(dst[from:], uint32(len(dst)))
	stamp := le.Uint32(dst[from:])

	head := binlog.Header{Timestamp: stamp, ServerID: server, Flags: binlog.FlagIgnorable}
	from = len(dst)
	dst = binlog.AppendPreviousGTIDs(dst, head, h.ledger.gtids)
	binlog.SetLogPos(dst[from:], uint32(len(dst)))

	body := h.body()
	crc := crc32.Update(crc32.Checksum(dst, castagnoli), castagnoli, body)
	head.LogPos = uint32(len(dst)) + binlog.MinEventSize + uint32(len(body)) + 4
	return binlog.AppendIgnorable(dst, head, le.AppendUint32(body, crc))
}

// headBody is the body of a segment's header event, without its CRC, little-endian; docs/format/log.md draws it.
type headBody struct {
	Magic               [4]byte
	Version, Type, _, _ uint8
	Cluster, Node       uint64
	First, PrevTerm     uint64
	Durable             uint64
	PrevCRC, _          uint32
	Open                uint64
	BarrierIndex        uint64
	BarrierTerm         uint64
	BarrierIncarnation  uint64
	BarrierNode         uint16
	Tail                position
}

func (h *segmentHead) body() []byte {
	bar := &h.ledger.barrier
	b, err := binary.Append(nil, binary.LittleEndian, &headBody{
		Magic: [4]byte([]byte(recordMagic)), Version: recordVersion, Type: typeSegment,
		Cluster: h.cluster, Node: h.node, First: h.first, PrevTerm: h.prevTerm, Durable: h.durable, PrevCRC: h.prevCRC,
		Open: h.ledger.open, BarrierIndex: bar.Index, BarrierTerm: bar.Term, BarrierIncarnation: bar.Incarnation,
		BarrierNode: bar.Node, Tail: h.ledger.tail,
	})
	if err != nil {
		panic(err) // a struct of numbers has one encoding
	}
	return b
}

var errBadHead = errors.New("bad segment header")

// parseHead reads what encode wrote and returns the number of bytes it took. The errors are errShortRecord,
// errBadHead and ErrNewer.
func parseHead(b []byte) (segmentHead, int, error) {
	if len(b) >= len(binlog.Magic) && string(b[:len(binlog.Magic)]) != binlog.Magic {
		return segmentHead{}, 0, fmt.Errorf("%w: not a binary log file", errBadHead)
	}
	var events [3][]byte
	off := len(binlog.Magic)
	for i, want := range []binlog.EventType{binlog.TypeFormatDescription, binlog.TypePreviousGTIDs, binlog.TypeIgnorable} {
		if off > len(b) {
			return segmentHead{}, 0, errShortRecord
		}
		h, ev, _, err := binlog.Cut(b[off:])
		if errors.Is(err, binlog.ErrShort) {
			return segmentHead{}, 0, errShortRecord
		}
		if err == nil && h.Type != want {
			err = fmt.Errorf("%v event where %v was expected", h.Type, want)
		}
		if err == nil {
			err = binlog.VerifyChecksum(ev)
		}
		if err != nil {
			return segmentHead{}, 0, fmt.Errorf("%w: %w", errBadHead, err)
		}
		events[i] = ev
		off += len(ev)
	}
	w, err := parseHeadBody(b, off, binlog.Body(events[2]))
	if err != nil {
		return segmentHead{}, 0, err
	}
	set, err := gtid.DecodeBinary(binlog.Body(events[1]))
	if err != nil {
		return segmentHead{}, 0, fmt.Errorf("%w: %w", errBadHead, err)
	}
	h := segmentHead{
		cluster: w.Cluster, node: w.Node, first: w.First, prevTerm: w.PrevTerm, prevCRC: w.PrevCRC, durable: w.Durable,
		ledger: ledger{gtids: set, open: w.Open, tail: w.Tail, barrier: BarrierInfo{
			Index: w.BarrierIndex, Term: w.BarrierTerm, Incarnation: w.BarrierIncarnation, Node: w.BarrierNode,
		}},
	}
	if w.BarrierIndex != 0 {
		h.ledger.barrier.FDE = append([]byte(nil), events[0]...)
	}
	return h, off, nil
}

func parseHeadBody(b []byte, off int, body []byte) (w headBody, err error) {
	if len(body) < offRecReserved || string(body[:offRecVersion]) != recordMagic || body[offRecType] != typeSegment {
		return w, fmt.Errorf("%w: no segment header event", errBadHead)
	}
	if v := body[offRecVersion]; v > recordVersion {
		return w, fmt.Errorf("%w: segment format %d, this program knows %d", ErrNewer, v, recordVersion)
	}
	n, err := binary.Decode(body, binary.LittleEndian, &w)
	if err != nil || len(body) != n+4 {
		return w, fmt.Errorf("%w: %d bytes", errBadHead, len(body))
	}
	crc := crc32.Checksum(b[:off-binlog.ChecksumLen-len(body)-binlog.HeaderLen], castagnoli)
	crc = crc32.Update(crc, castagnoli, body[:n])
	if got := binary.LittleEndian.Uint32(body[n:]); got != crc {
		return w, fmt.Errorf("%w: CRC %08x, computed %08x", errBadHead, got, crc)
	}
	if w.First == 0 {
		return w, fmt.Errorf("%w: first index 0", errBadHead)
	}
	return w, nil
}

// DecodeBoundary reads the Data of a snapshot that Log.Snapshot made. The error is ErrCorrupt or ErrNewer.
func DecodeBoundary(data []byte) (Boundary, error) {
	h, err := decodeBoundary(data)
	if err != nil {
		return Boundary{}, err
	}
	return h.boundary(), nil
}

func decodeBoundary(data []byte) (segmentHead, error) {
	h, n, err := parseHead(data)
	if errors.Is(err, ErrNewer) {
		return h, err
	}
	if err != nil || n != len(data) {
		return h, fmt.Errorf("%w: snapshot boundary of %d bytes: %w", ErrCorrupt, len(data), errors.Join(err))
	}
	return h, nil
}

func (h *segmentHead) boundary() Boundary {
	return Boundary{h.first - 1, h.prevTerm, h.ledger.gtids.Clone(), h.ledger.barrier, h.ledger.open}
}
