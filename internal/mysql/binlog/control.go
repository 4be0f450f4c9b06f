package binlog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"trireme/internal/mysql/gtid"
)

// RotateEvent names the file and position from which the stream goes on. File lies in the event.
type RotateEvent struct {
	Position uint64
	File     []byte
}

// ParseRotate reads a ROTATE event: position u64, file name.
func ParseRotate(ev []byte) (RotateEvent, error) {
	_, body, err := bodyOf(ev, TypeRotate)
	if err != nil {
		return RotateEvent{}, err
	}
	if len(body) < 9 {
		return RotateEvent{}, fmt.Errorf("%w: ROTATE event with a body of %d bytes", ErrMalformed, len(body))
	}
	return RotateEvent{Position: binary.LittleEndian.Uint64(body), File: body[8:]}, nil
}

// AppendRotate appends a ROTATE event; h gives all but type and size.
func AppendRotate(dst []byte, h Header, file string, position uint64) []byte {
	start := len(dst)
	h.Type = TypeRotate
	dst = h.Append(dst)
	dst = binary.LittleEndian.AppendUint64(dst, position)
	dst = append(dst, file...)
	return finishEvent(dst, start)
}

// AppendArtificialRotate appends the ROTATE event that a dump begins with: FlagArtificial, log_pos 0, timestamp 0.
func AppendArtificialRotate(dst []byte, serverID uint32, file string, position uint64) []byte {
	return AppendRotate(dst, Header{ServerID: serverID, Flags: FlagArtificial}, file, position)
}

// ChecksumAlgorithm is the last byte of a FORMAT_DESCRIPTION event's body.
type ChecksumAlgorithm uint8

const (
	ChecksumOff   ChecksumAlgorithm = 0
	ChecksumCRC32 ChecksumAlgorithm = 1
)

// FormatDescriptionEvent is what a FORMAT_DESCRIPTION event says about the events after it. Its slices lie in the
// event.
type FormatDescriptionEvent struct {
	BinlogVersion uint16 // 4
	ServerVersion []byte // without trailing zeros
	// Created is when the server started, in seconds since 1970, in the first file of its life; else 0. When it is
	// not 0 a replica drops its temporary tables and ends an unfinished transaction.
	Created uint32
	// PostHeaderLens has a length for each event type, from type 1 on.
	PostHeaderLens []byte
	Checksum       ChecksumAlgorithm
}

const (
	serverVersionLen = 50
	fdeFixedLen      = 2 + serverVersionLen + 4 + 1 // before the lengths
	fdeCreatedOffset = HeaderLen + 2 + serverVersionLen
	binlogVersion    = 4
)

// ParseFormatDescription reads a FORMAT_DESCRIPTION event:
// binlog version u16, server version [50], created u32, header length u8, lengths [types], checksum algorithm u8.
// Other binlog versions, header lengths and checksum algorithms than 4, 19 and CRC32 or none are ErrMalformed.
func ParseFormatDescription(ev []byte) (FormatDescriptionEvent, error) {
	_, body, err := bodyOf(ev, TypeFormatDescription)
	if err != nil {
		return FormatDescriptionEvent{}, err
	}
	f := fields{b: body}
	var d FormatDescriptionEvent
	d.BinlogVersion = uint16(f.uint(2))
	d.ServerVersion, _, _ = bytes.Cut(f.take(serverVersionLen), []byte{0})
	d.Created = uint32(f.uint(4))
	headerLen := f.uint(1)
	if f.failed || len(f.b) < 1 || d.BinlogVersion != binlogVersion || headerLen != HeaderLen {
		return FormatDescriptionEvent{},
			fmt.Errorf("%w: FORMAT_DESCRIPTION event of %d bytes, binlog version %d, header length %d",
				ErrMalformed, len(ev), d.BinlogVersion, headerLen)
	}
	last := len(f.b) - 1
	d.PostHeaderLens, d.Checksum = f.b[:last], ChecksumAlgorithm(f.b[last])
	if d.Checksum > ChecksumCRC32 {
		return FormatDescriptionEvent{}, fmt.Errorf("%w: FORMAT_DESCRIPTION event with checksum algorithm %d", ErrMalformed,
			d.Checksum)
	}
	return d, nil
}

// postHeaderLens are those of a 9.x server, from type 1 on (Format_description_event's constructor in
// control_events.cpp).
var postHeaderLens = [...]byte{
	0, 13, 0, 8, 0, 0, 0, 0, 4, 0, // 1..10: QUERY, ROTATE, APPEND_BLOCK
	4, 0, 0, 0, 99, 0, 4, 26, 8, 0, // 11..20: DELETE_FILE, FORMAT_DESCRIPTION, BEGIN_LOAD, EXECUTE_LOAD, TABLE_MAP
	0, 0, 0, 0, 0, 2, 0, 0, 0, 10, // 21..30: row events of version 1, INCIDENT, WRITE_ROWS
	10, 10, 42, 42, 0, 18, 52, 0, 10, 40, // 31..40: rows, GTID, TRANSACTION_CONTEXT, VIEW_CHANGE, partial, payload
	0, 0, // 41, 42
}

// appendPostHeaderLens appends the lengths that a server of the given version writes: 8.0.26 to 8.2 know 41 types,
// later ones 42; before 8.4 row events of version 1 still have a length. A version that cannot be read counts as new.
func appendPostHeaderLens(dst []byte, serverVersion string) []byte {
	start := len(dst)
	dst = append(dst, postHeaderLens[:]...)
	major, minor := splitVersion(serverVersion)
	if major > 8 || (major == 8 && minor >= 4) {
		return dst
	}
	lens := dst[start:]
	lens[TypeWriteRowsV1-1], lens[TypeUpdateRowsV1-1], lens[TypeDeleteRowsV1-1] = 8, 8, 8
	if minor < 3 {
		lens[TypeFormatDescription-1]--
		dst = dst[:len(dst)-1]
	}
	return dst
}

// splitVersion reads "8.0.40-log" as 8, 0.
func splitVersion(v string) (major, minor int) {
	first, rest, _ := strings.Cut(v, ".")
	second, _, _ := strings.Cut(rest, ".")
	major, err := strconv.Atoi(first)
	if err != nil {
		return 9, 0
	}
	minor, _ = strconv.Atoi(second)
	return major, minor
}

// AppendFormatDescription appends a FORMAT_DESCRIPTION event as a server of the given version writes it; h gives all
// but type and size, created is in seconds since 1970. In a file its log_pos is len(Magic) plus its size: SetLogPos.
func AppendFormatDescription(dst []byte, h Header, serverVersion string, created uint32) []byte {
	start := len(dst)
	h.Type = TypeFormatDescription
	dst = h.Append(dst)
	dst = binary.LittleEndian.AppendUint16(dst, binlogVersion)
	var version [serverVersionLen]byte
	copy(version[:serverVersionLen-1], serverVersion)
	dst = append(dst, version[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, created)
	dst = append(dst, HeaderLen)
	dst = appendPostHeaderLens(dst, serverVersion)
	dst = append(dst, byte(ChecksumCRC32))
	return finishEvent(dst, start)
}

// AppendWithCreatedZero appends a copy of ev, a FORMAT_DESCRIPTION event, with created = 0 and FlagInUse clear, as it
// stands in the middle of a stream.
func AppendWithCreatedZero(dst, ev []byte) ([]byte, error) {
	if _, err := ParseFormatDescription(ev); err != nil {
		return dst, err
	}
	start := len(dst)
	dst = append(dst, ev...)
	fde := dst[start:]
	binary.LittleEndian.PutUint32(fde[fdeCreatedOffset:], 0)
	fde[17] &^= byte(FlagInUse)
	PutChecksum(fde)
	return dst, nil
}

// AppendPreviousGTIDs appends a PREVIOUS_GTIDS event; h gives all but type and size. mysqld sets FlagIgnorable in it.
func AppendPreviousGTIDs(dst []byte, h Header, set gtid.Set) []byte {
	start := len(dst)
	h.Type = TypePreviousGTIDs
	dst = h.Append(dst)
	dst = set.AppendBinary(dst)
	return finishEvent(dst, start)
}

// AppendIgnorable appends an IGNORABLE event, which servers skip and mysqlbinlog prints as "Unrecognized ignorable
// event". FlagIgnorable is set in it; h gives timestamp, server id, log_pos and other flags.
func AppendIgnorable(dst []byte, h Header, body []byte) []byte {
	h.Type = TypeIgnorable
	h.Flags |= FlagIgnorable
	return AppendEvent(dst, h, body)
}
