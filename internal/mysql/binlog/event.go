package binlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
)

// Header is the common header of an event; the package comment draws it.
type Header struct {
	Timestamp uint32 // seconds since 1970
	Type      EventType
	ServerID  uint32
	EventSize uint32 // of the whole event
	LogPos    uint32 // modulo 2^32
	Flags     uint16
}

// ParseHeader reads the header of the event that b begins with, which need not be there whole. The error is ErrShort
// when b has fewer than HeaderLen bytes, ErrMalformed when the size is out of bounds.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderLen {
		return Header{}, ErrShort
	}
	h := decodeHeader(b)
	if h.EventSize < MinEventSize || h.EventSize > MaxEventSize {
		return Header{}, fmt.Errorf("%w: %v of %d bytes", ErrMalformed, h.Type, h.EventSize)
	}
	return h, nil
}

// decodeHeader reads the header at the front of b, which holds at least HeaderLen bytes.
func decodeHeader(b []byte) Header {
	_ = b[HeaderLen-1]
	return Header{
		Timestamp: binary.LittleEndian.Uint32(b),
		Type:      EventType(b[4]),
		ServerID:  binary.LittleEndian.Uint32(b[5:]),
		EventSize: binary.LittleEndian.Uint32(b[9:]),
		LogPos:    binary.LittleEndian.Uint32(b[13:]),
		Flags:     binary.LittleEndian.Uint16(b[17:]),
	}
}

// Append appends the 19 bytes of h to dst.
func (h Header) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, h.Timestamp)
	dst = append(dst, byte(h.Type))
	dst = binary.LittleEndian.AppendUint32(dst, h.ServerID)
	dst = binary.LittleEndian.AppendUint32(dst, h.EventSize)
	dst = binary.LittleEndian.AppendUint32(dst, h.LogPos)
	return binary.LittleEndian.AppendUint16(dst, h.Flags)
}

// Cut splits the first event off b. Its checksum is not looked at. The error is ErrShort when b ends before the event.
func Cut(b []byte) (h Header, event, rest []byte, err error) {
	if h, err = ParseHeader(b); err != nil {
		return Header{}, nil, b, err
	}
	if uint64(len(b)) < uint64(h.EventSize) {
		return Header{}, nil, b, ErrShort
	}
	return h, b[:h.EventSize:h.EventSize], b[h.EventSize:], nil
}

// Events yields the events that b begins with, up to what is no whole event.
func Events(b []byte) iter.Seq2[Header, []byte] {
	return func(yield func(Header, []byte) bool) {
		for {
			h, ev, rest, err := Cut(b)
			if err != nil || !yield(h, ev) {
				return
			}
			b = rest
		}
	}
}

// Body returns what lies between header and checksum. ev is one whole event.
func Body(ev []byte) []byte {
	if len(ev) < MinEventSize {
		return nil
	}
	return ev[HeaderLen : len(ev)-ChecksumLen]
}

// checksum is CRC-32 (IEEE) over all of ev but its last four bytes. FlagInUse counts as clear, because mysqld sets and
// clears it in place without updating the checksum.
func checksum(ev []byte) uint32 {
	n := len(ev) - ChecksumLen
	if EventType(ev[4]) != TypeFormatDescription || ev[17]&byte(FlagInUse) == 0 {
		return crc32.ChecksumIEEE(ev[:n])
	}
	crc := crc32.ChecksumIEEE(ev[:17])
	crc = crc32.Update(crc, crc32.IEEETable, []byte{ev[17] &^ byte(FlagInUse)})
	return crc32.Update(crc, crc32.IEEETable, ev[18:n])
}

// VerifyChecksum checks that ev is as long as its header says and that its checksum matches. The errors are ErrShort,
// ErrMalformed and ErrChecksum.
func VerifyChecksum(ev []byte) error {
	h, err := ParseHeader(ev)
	if err != nil {
		return err
	}
	if uint64(len(ev)) != uint64(h.EventSize) {
		return fmt.Errorf("%w: %v has %d bytes, its header says %d", ErrMalformed, h.Type, len(ev), h.EventSize)
	}
	if got, want := checksum(ev), binary.LittleEndian.Uint32(ev[len(ev)-ChecksumLen:]); got != want {
		return fmt.Errorf("%w: %v of %d bytes at end position %d: computed %08x, stored %08x",
			ErrChecksum, h.Type, h.EventSize, h.LogPos, got, want)
	}
	return nil
}

// PutChecksum computes the checksum of ev, a whole event, and stores it in its last four bytes.
func PutChecksum(ev []byte) {
	binary.LittleEndian.PutUint32(ev[len(ev)-ChecksumLen:], checksum(ev))
}

// AppendEvent appends an event with the given body to dst; h.EventSize is computed, the rest of h is taken as it is.
func AppendEvent(dst []byte, h Header, body []byte) []byte {
	start := len(dst)
	dst = h.Append(dst)
	dst = append(dst, body...)
	return finishEvent(dst, start)
}

// finishEvent completes the event that began at start: room for the checksum, size, checksum.
func finishEvent(dst []byte, start int) []byte {
	dst = append(dst, 0, 0, 0, 0)
	ev := dst[start:]
	binary.LittleEndian.PutUint32(ev[9:], uint32(len(ev)))
	PutChecksum(ev)
	return dst
}

// SetLogPos changes log_pos of ev, a whole event, in place, with a new checksum.
func SetLogPos(ev []byte, logPos uint32) {
	binary.LittleEndian.PutUint32(ev[13:], logPos)
	PutChecksum(ev)
}

// bodyOf checks that ev is one whole event of type want (as long as its header says) and returns its body.
func bodyOf(ev []byte, want EventType) (Header, []byte, error) {
	h, err := ParseHeader(ev)
	if err != nil {
		return Header{}, nil, err
	}
	if h.Type != want {
		return Header{}, nil, fmt.Errorf("%w: %v where %v was expected", ErrMalformed, h.Type, want)
	}
	if uint64(len(ev)) != uint64(h.EventSize) {
		return Header{}, nil, fmt.Errorf("%w: %v has %d bytes, its header says %d", ErrMalformed, h.Type, len(ev),
			h.EventSize)
	}
	return h, Body(ev), nil
}
