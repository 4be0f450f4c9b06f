package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/mysql/binlog"
)

// Layout of the body of our ignorable events; docs/format/log.md draws it. All integers are little-endian.
const (
	recordMagic   = "TRIL"
	recordVersion = 1

	typeSegment = 1
	typeEntry   = 2
	typeFiller  = 3
	typeSealed  = 4 // an entry in an encrypted segment

	offRecVersion  = 4
	offRecType     = 5
	offRaftType    = 6
	offRecReserved = 7
	offIndex       = 8
	offTerm        = 16
	offDurable     = 24
	offPrefixLen   = 32
	offEventsLen   = 36
	offInlineLen   = 40
	recordFixed    = 44

	// recordOverhead is what an entry costs on top of its data: event header, fixed part, chain CRC, event checksum.
	recordOverhead = binlog.HeaderLen + recordFixed + 4 + binlog.ChecksumLen
	// fillerHead are the bytes of a filler that are written, minFiller the smallest filler event.
	fillerHead = binlog.HeaderLen + offRaftType
	minFiller  = fillerHead + binlog.ChecksumLen

	// maxEntryBytes bounds one entry on disk: mysqlbinlog takes no larger event.
	maxEntryBytes = binlog.MaxEventSize - 1<<20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chain is where the sequence of records stands: the last record's index, term and CRC.
type chain struct {
	index, term uint64
	crc         uint32
}

// record is one entry as it lies in a segment.
type record struct {
	index, term, durable uint64
	raftType             raftpb.EntryType
	crc                  uint32
	inline               []byte // meta, or all the data of an entry without events
	prefix               []byte // events of our own that the entry's data does not hold
	events               []byte
	whole                []byte // from inline to the end of events
	size                 int    // bytes in the segment
	sealed               bool   // inline and events are not what they say until open has been called
	body                 []byte // of the header event, up to the end of inline
}

var (
	// errShortRecord: the buffer ends before the record does.
	errShortRecord = errors.New("record is cut short")
	// errNoRecord: zeros, a filler, or the end of the file: no record was written here.
	errNoRecord = errors.New("no record")
	// errBadRecord: bytes that are not a record, or not the one that belongs here.
	errBadRecord = errors.New("bad record")
)

// appendRecordHead appends the ignorable event that goes before rec's prefix and events, and sets rec.crc. at is the
// event's offset in the segment, stamp its timestamp.
func appendRecordHead(dst []byte, rec *record, prev uint32, at int64, stamp, serverID uint32) []byte {
	start := len(dst)
	size := recordOverhead + len(rec.inline)
	dst = binlog.Header{
		Timestamp: stamp, Type: binlog.TypeIgnorable, ServerID: serverID, EventSize: uint32(size),
		LogPos: uint32(at + int64(size)), Flags: binlog.FlagIgnorable,
	}.Append(dst)
	dst = appendRecordBody(dst, rec)
	rec.crc = chainCRC(prev, dst[start+binlog.HeaderLen:], rec.prefix, rec.events)
	dst = binary.LittleEndian.AppendUint32(dst, rec.crc)
	dst = append(dst, 0, 0, 0, 0)
	binlog.PutChecksum(dst[start:])
	rec.size = size + len(rec.prefix) + len(rec.events)
	return dst
}

// appendRecordBody appends the event's body up to the chain CRC.
func appendRecordBody(dst []byte, rec *record) []byte {
	le := binary.LittleEndian
	typ := byte(typeEntry)
	if rec.sealed {
		typ = typeSealed
	}
	dst = append(dst, recordMagic...)
	dst = append(dst, recordVersion, typ, byte(rec.raftType), 0)
	dst = le.AppendUint64(dst, rec.index)
	dst = le.AppendUint64(dst, rec.term)
	dst = le.AppendUint64(dst, rec.durable)
	dst = le.AppendUint32(dst, uint32(len(rec.prefix)))
	dst = le.AppendUint32(dst, uint32(len(rec.events)))
	dst = le.AppendUint32(dst, uint32(len(rec.inline)))
	return append(dst, rec.inline...)
}

func chainCRC(prev uint32, parts ...[]byte) uint32 {
	for _, p := range parts {
		prev = crc32.Update(prev, castagnoli, p)
	}
	return prev
}

// recordHead parses the ignorable event at the start of b into rec, without prefix and events, and checks the event's
// own checksum. It returns the event's size.
func recordHead(b []byte, rec *record) (int, error) {
	if len(b) < fillerHead {
		if allZero(b) {
			return 0, errNoRecord
		}
		return 0, errShortRecord
	}
	le := binary.LittleEndian
	size := int(le.Uint32(b[9:]))
	body := b[binlog.HeaderLen:]
	switch {
	case allZero(b[:fillerHead]):
		return 0, errNoRecord
	case binlog.EventType(b[4]) != binlog.TypeIgnorable || string(body[:offRecVersion]) != recordMagic:
		return 0, fmt.Errorf("%w: %v event where a record was expected", errBadRecord, binlog.EventType(b[4]))
	case body[offRecVersion] == recordVersion && body[offRecType] == typeFiller:
		return 0, errNoRecord
	case size < recordOverhead || size > binlog.MaxEventSize:
		return 0, fmt.Errorf("%w: length %d", errBadRecord, size)
	case size > len(b):
		return 0, errShortRecord
	}
	if err := binlog.VerifyChecksum(b[:size]); err != nil {
		return 0, fmt.Errorf("%w: %w", errBadRecord, err)
	}
	// Its checksum is valid, so this is not a torn write: a newer version wrote it, and it must not be cut off.
	if v := body[offRecVersion]; v > recordVersion {
		return 0, fmt.Errorf("%w: record format %d, this program knows %d", ErrNewer, v, recordVersion)
	}
	if v := body[offRecVersion]; v != recordVersion || (body[offRecType] != typeEntry && body[offRecType] != typeSealed) ||
		body[offRecReserved] != 0 {
		return 0, fmt.Errorf("%w: version %d, type %d", errBadRecord, v, body[offRecType])
	}
	n := int(le.Uint32(body[offInlineLen:]))
	if n != size-recordOverhead {
		return 0, fmt.Errorf("%w: %d bytes of meta in an event of %d", errBadRecord, n, size)
	}
	prefix, events := uint64(le.Uint32(body[offPrefixLen:])), uint64(le.Uint32(body[offEventsLen:]))
	if uint64(size)+prefix+events > binlog.MaxEventSize+maxEntryBytes {
		return 0, fmt.Errorf("%w: %d bytes of events", errBadRecord, prefix+events)
	}
	*rec = record{
		index: le.Uint64(body[offIndex:]), term: le.Uint64(body[offTerm:]), durable: le.Uint64(body[offDurable:]),
		raftType: raftpb.EntryType(body[offRaftType]), crc: le.Uint32(body[recordFixed+n:]),
		inline: body[recordFixed : recordFixed+n : recordFixed+n],
		size:   size + int(prefix) + int(events),
		sealed: body[offRecType] == typeSealed,
		body:   body[:recordFixed+n],
	}
	return size, nil
}

// decodeRecord reads the record at the start of b, which must be the one that follows prev; its slices alias b. With
// errShortRecord, rec.size is the number of bytes needed when that is known, else 0.
func decodeRecord(b []byte, prev chain) (rec record, err error) {
	size, err := recordHead(b, &rec)
	if err == errShortRecord {
		return record{size: neededBytes(b)}, err
	}
	if err != nil {
		return record{}, err
	}
	if rec.index != prev.index+1 || rec.term < prev.term {
		return record{}, fmt.Errorf("%w: index %d term %d after index %d term %d", errBadRecord, rec.index, rec.term,
			prev.index, prev.term)
	}
	if rec.size > len(b) {
		return record{size: rec.size}, errShortRecord
	}
	body := b[binlog.HeaderLen:size]
	prefix := int(binary.LittleEndian.Uint32(body[offPrefixLen:]))
	rec.prefix = b[size : size+prefix : size+prefix]
	rec.events = b[size+prefix : rec.size : rec.size]
	rec.whole = b[binlog.HeaderLen+recordFixed : rec.size : rec.size]
	if got := chainCRC(prev.crc, rec.body, rec.prefix, rec.events); got != rec.crc {
		return record{}, fmt.Errorf("%w: CRC %08x, computed %08x, index %d", errBadRecord, rec.crc, got, rec.index)
	}
	return rec, nil
}

// neededBytes guesses how long the record at b is from what can be read of it.
func neededBytes(b []byte) int {
	if len(b) < binlog.HeaderLen {
		return 0
	}
	return int(binary.LittleEndian.Uint32(b[9:]))
}

// data returns the entry's data. It moves the meta up to the events inside the buffer that the record was decoded from.
// The record in that buffer is not readable after that.
func (rec *record) data() []byte {
	if len(rec.events) == 0 {
		return rec.inline
	}
	n := len(rec.inline)
	gap := len(rec.whole) - n - len(rec.events)
	copy(rec.whole[gap:gap+n], rec.whole[:n])
	return rec.whole[gap:]
}

// chain returns what the next record must follow.
func (rec *record) chain() chain { return chain{rec.index, rec.term, rec.crc} }

// appendFiller appends the head of an event that covers the rest of a segment's file, size bytes, so that mysqlbinlog
// finds nothing but events in a file that is still written. Its checksum is not valid: only --verify-binlog-checksum
// looks at it.
func appendFiller(dst []byte, at, size int64, serverID uint32) []byte {
	dst = binlog.Header{
		Type: binlog.TypeIgnorable, ServerID: serverID, EventSize: uint32(size),
		LogPos: uint32(at + size), Flags: binlog.FlagIgnorable,
	}.Append(dst)
	dst = append(dst, recordMagic...)
	return append(dst, recordVersion, typeFiller)
}

// framed reports whether b is a sequence of whole events, judging by their lengths. An entry whose events are not is
// hidden from mysqlbinlog.
func framed(b []byte) bool {
	for len(b) > 0 {
		_, _, rest, err := binlog.Cut(b)
		if err != nil {
			return false
		}
		b = rest
	}
	return true
}

func allZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }
