package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"trireme/internal/mysql/gtid"
)

// Kind says what an entry's events are. The zero value is no kind: entries that raft makes by itself (the empty one of
// a new leader, configuration changes) have no Meta.
type Kind uint8

const (
	// Trx holds the binary-log events of one or more transactions, or a piece of one.
	Trx Kind = 1
	// Barrier opens an incarnation's writes in a term. Its events are exactly one FORMAT_DESCRIPTION event (S6).
	Barrier Kind = 2
	// Settings holds the cluster's settings; what follows the meta is not binary-log events.
	Settings Kind = 3

	maxKind = Settings
)

// String gives the name that `trireme log dump` prints.
func (k Kind) String() string {
	switch k {
	case Trx:
		return "trx"
	case Barrier:
		return "barrier"
	case Settings:
		return "settings"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Flags of an entry. Unknown bits are kept.
type Flags uint16

const (
	// FlagContinues: the first event continues a transaction begun in an earlier entry.
	FlagContinues Flags = 1 << iota
	// FlagUnfinished: the last event does not end a transaction; the next Trx entry of the same incarnation continues it.
	FlagUnfinished
	// FlagSpecial: holds at least one transaction that is not plain row data closed by XID (DDL, account statement, XA,
	// XID-less).
	FlagSpecial
)

// Pos is a position in the binary log of one incarnation: the number in the file's name, and a byte offset.
type Pos struct {
	File uint32
	Off  uint64
}

// String gives "binlog.000001:4".
func (p Pos) String() string { return fmt.Sprintf("binlog.%06d:%d", p.File, p.Off) }

// Less orders positions of one incarnation.
func (p Pos) Less(q Pos) bool {
	return p.File < q.File || (p.File == q.File && p.Off < q.Off)
}

// Meta is what Trireme writes in front of the events of an entry: Data = meta | events. docs/format/entry.md draws it.
type Meta struct {
	Kind  Kind
	Flags Flags
	// Node is the raft id of the node whose mysqld wrote the events, Incarnation that mysqld's life.
	Node        uint16
	Incarnation uint64
	// Start and End bound the events in the incarnation's binary log: [Start, End).
	Start, End Pos
	// GTIDs are those of the transactions that end in the entry, in log order; use AddGTID to keep neighbours merged.
	GTIDs []gtid.Range
}

// AddGTID appends g, extending the last range when g is its successor.
func (m *Meta) AddGTID(g gtid.GTID) {
	if n := len(m.GTIDs); n > 0 {
		if r := &m.GTIDs[n-1]; r.Last+1 == g.GNO && r.SID == g.SID {
			r.Last = g.GNO
			return
		}
	}
	m.GTIDs = append(m.GTIDs, gtid.Range{SID: g.SID, First: g.GNO, Last: g.GNO})
}

var (
	// ErrMeta: the bytes do not begin with a well-formed meta.
	ErrMeta = errors.New("raftlog: bad entry meta")
	// ErrMetaVersion: the meta was written by a newer version of Trireme; upgrade this node.
	ErrMetaVersion = errors.New("raftlog: entry meta of a newer version")
)

// The fixed part, little-endian; TLVs (type u8, length uvarint, value) follow up to the meta's length.
const (
	metaVersion   = 1
	offKind       = 1
	offFlags      = 2
	offNode       = 4
	offReserved   = 6
	offMetaLen    = 8
	offIncarn     = 12
	offStart      = 20
	offEnd        = 32
	metaFixedSize = 44
	// maxMetaSize bounds what a decoder believes; an entry of 1 MiB of events cannot hold GTIDs for more.
	maxMetaSize = 16 << 20

	tlvGTIDs = 1
	// tlvCritical marks types that a reader must understand.
	tlvCritical = 0x80
)

// MetaSize returns how many bytes AppendMeta appends for m.
func MetaSize(m *Meta) int {
	if len(m.GTIDs) == 0 {
		return metaFixedSize
	}
	n := rangesSize(m.GTIDs)
	return metaFixedSize + 1 + uvarintSize(uint64(n)) + n
}

// AppendMeta appends the encoding of m to dst and returns it. The ranges must be valid (1 <= First <= Last, tag <= 32
// bytes).
func AppendMeta(dst []byte, m *Meta) []byte {
	le := binary.LittleEndian
	dst = append(dst, metaVersion, byte(m.Kind))
	dst = le.AppendUint16(dst, uint16(m.Flags))
	dst = le.AppendUint16(dst, m.Node)
	dst = le.AppendUint16(dst, 0)
	dst = le.AppendUint32(dst, uint32(MetaSize(m)))
	dst = le.AppendUint64(dst, m.Incarnation)
	dst = appendPos(dst, m.Start)
	dst = appendPos(dst, m.End)
	if len(m.GTIDs) == 0 {
		return dst
	}
	dst = append(dst, tlvGTIDs)
	dst = binary.AppendUvarint(dst, uint64(rangesSize(m.GTIDs)))
	return appendRanges(dst, m.GTIDs)
}

// DecodeMeta splits an entry's data into its meta and its events, which alias data. The errors are ErrMeta and
// ErrMetaVersion.
func DecodeMeta(data []byte) (Meta, []byte, error) {
	var m Meta
	events, err := m.Decode(data)
	if err != nil {
		return Meta{}, nil, err
	}
	return m, events, nil
}

// IsPlainTrx reports whether data is an entry of transactions that are nothing special, and not the beginning of one
// that goes on in the next entry.
func IsPlainTrx(data []byte) bool {
	if len(data) < metaFixedSize || Kind(data[offKind]) != Trx {
		return false
	}
	flags := Flags(binary.LittleEndian.Uint16(data[offFlags:]))
	return flags&FlagSpecial == 0 && flags&(FlagUnfinished|FlagContinues) != FlagUnfinished
}

// Decode is DecodeMeta into m, using the capacity of m.GTIDs. After an error m is not usable.
func (m *Meta) Decode(data []byte) (events []byte, err error) {
	n, err := metaLen(data)
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	m.Kind = Kind(data[offKind])
	m.Flags = Flags(le.Uint16(data[offFlags:]))
	m.Node = le.Uint16(data[offNode:])
	m.Incarnation = le.Uint64(data[offIncarn:])
	m.Start, m.End = posAt(data, offStart), posAt(data, offEnd)
	m.GTIDs = m.GTIDs[:0]
	if err := m.decodeTLVs(data[metaFixedSize:n]); err != nil {
		return nil, err
	}
	return data[n:], nil
}

func (m *Meta) decodeTLVs(b []byte) error {
	for len(b) > 0 {
		typ := b[0]
		size, n := binary.Uvarint(b[1:])
		if n <= 0 || size > uint64(len(b)-1-n) {
			return fmt.Errorf("%w: field %d runs over the end", ErrMeta, typ)
		}
		value := b[1+n : 1+n+int(size)]
		b = b[1+n+int(size):]
		switch {
		case typ == tlvGTIDs:
			if err := m.decodeRanges(value); err != nil {
				return err
			}
		case typ&tlvCritical != 0:
			return fmt.Errorf("%w: unknown field %d", ErrMetaVersion, typ)
		}
	}
	return nil
}

// metaLen checks the fixed part and returns the meta's length.
func metaLen(data []byte) (int, error) {
	if len(data) < metaFixedSize {
		return 0, fmt.Errorf("%w: %d bytes", ErrMeta, len(data))
	}
	if v := data[0]; v != metaVersion {
		if v > metaVersion {
			return 0, fmt.Errorf("%w: version %d, this program knows %d", ErrMetaVersion, v, metaVersion)
		}
		return 0, fmt.Errorf("%w: version %d", ErrMeta, v)
	}
	if k := Kind(data[offKind]); k == 0 || k > maxKind {
		return 0, fmt.Errorf("%w: %v", ErrMetaVersion, k)
	}
	if r := binary.LittleEndian.Uint16(data[offReserved:]); r != 0 {
		return 0, fmt.Errorf("%w: reserved field is %#x", ErrMetaVersion, r)
	}
	n := binary.LittleEndian.Uint32(data[offMetaLen:])
	if n < metaFixedSize || n > maxMetaSize || int(n) > len(data) {
		return 0, fmt.Errorf("%w: length %d of %d bytes", ErrMeta, n, len(data))
	}
	return int(n), nil
}

func appendPos(dst []byte, p Pos) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, p.File)
	return binary.LittleEndian.AppendUint64(dst, p.Off)
}

func posAt(b []byte, off int) Pos {
	return Pos{File: binary.LittleEndian.Uint32(b[off:]), Off: binary.LittleEndian.Uint64(b[off+4:])}
}

// A range is one byte: 0 for the SID of the range before it, else 1 + the tag's length, followed by UUID and tag;
// then First and Last-First as uvarints.

func rangesSize(rs []gtid.Range) int {
	n := 0
	for i := range rs {
		r := &rs[i]
		n += 1 + uvarintSize(uint64(r.First)) + uvarintSize(uint64(r.Last-r.First))
		if i == 0 || rs[i-1].SID != r.SID {
			n += len(r.UUID) + len(r.Tag)
		}
	}
	return n
}

func appendRanges(dst []byte, rs []gtid.Range) []byte {
	for i := range rs {
		r := &rs[i]
		if i > 0 && rs[i-1].SID == r.SID {
			dst = append(dst, 0)
		} else {
			dst = append(dst, byte(1+len(r.Tag)))
			dst = append(dst, r.UUID[:]...)
			dst = append(dst, r.Tag...)
		}
		dst = binary.AppendUvarint(dst, uint64(r.First))
		dst = binary.AppendUvarint(dst, uint64(r.Last-r.First))
	}
	return dst
}

func (m *Meta) decodeRanges(b []byte) error {
	var sid gtid.SID
	for known := false; len(b) > 0; {
		form := int(b[0])
		b = b[1:]
		if form == 0 && !known {
			return fmt.Errorf("%w: first GTID range names no server", ErrMeta)
		}
		if form > 0 {
			tag := form - 1
			if tag > gtid.MaxTagLen || len(b) < len(sid.UUID)+tag {
				return fmt.Errorf("%w: GTID range with a tag of %d bytes", ErrMeta, tag)
			}
			copy(sid.UUID[:], b)
			sid.Tag = string(b[len(sid.UUID) : len(sid.UUID)+tag])
			b, known = b[len(sid.UUID)+tag:], true
		}
		first, n := binary.Uvarint(b)
		if n <= 0 || first < 1 || first > gtid.MaxGNO {
			return fmt.Errorf("%w: bad start of a GTID range", ErrMeta)
		}
		more, k := binary.Uvarint(b[n:])
		if k <= 0 || more > gtid.MaxGNO-first {
			return fmt.Errorf("%w: bad end of a GTID range", ErrMeta)
		}
		b = b[n+k:]
		m.GTIDs = append(m.GTIDs, gtid.Range{SID: sid, First: int64(first), Last: int64(first + more)})
	}
	return nil
}

func uvarintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }
