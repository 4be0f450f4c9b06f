package binlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"trireme/internal/mysql/sqlkind"
)

// Compression is the algorithm of a TRANSACTION_PAYLOAD event.
type Compression uint8

const (
	// CompressionZSTD: the payload is one or more zstd frames.
	CompressionZSTD Compression = 0
	// CompressionNone: the payload is the events themselves.
	CompressionNone Compression = 255
)

// PayloadEvent describes a TRANSACTION_PAYLOAD event; Payload lies in the event and holds the transaction's other
// events, without checksums.
type PayloadEvent struct {
	Compression      Compression
	UncompressedSize uint64 // bytes; 0 if unknown
	Payload          []byte
}

// Field types of a TRANSACTION_PAYLOAD event's header (libs/mysql/binlog/event/codecs/binary.h).
const (
	payloadEnd              = 0
	payloadSize             = 1
	payloadCompression      = 2
	payloadUncompressedSize = 3
)

// ParsePayload reads a TRANSACTION_PAYLOAD event: { field type, length, value }… 0, payload; the integers are packed.
func ParsePayload(ev []byte) (PayloadEvent, error) {
	_, body, err := bodyOf(ev, TypeTransactionPayload)
	if err != nil {
		return PayloadEvent{}, err
	}
	f := fields{b: body}
	var p PayloadEvent
	var size uint64
	hasSize, hasCompression := false, false
	for !f.failed {
		field := f.packed()
		if f.failed || field == payloadEnd {
			break
		}
		value := fields{b: f.take(f.packed())}
		switch field {
		case payloadSize:
			size, hasSize = value.packed(), true
		case payloadCompression:
			c := value.packed()
			p.Compression, hasCompression = Compression(c), c <= 255
		case payloadUncompressedSize:
			p.UncompressedSize = value.packed()
		}
		f.failed = f.failed || value.failed
	}
	p.Payload = f.take(size)
	if f.failed || !hasSize || !hasCompression || len(f.b) != 0 {
		return PayloadEvent{}, fmt.Errorf("%w: TRANSACTION_PAYLOAD event of %d bytes", ErrMalformed, len(ev))
	}
	return p, nil
}

// AppendPacked appends a transaction of whole events, which an Assembler has taken, as two: its GTID event, and a
// TRANSACTION_PAYLOAD event that holds the others, not compressed. mysqld takes it for one that was written with
// binlog_transaction_compression. It appends nothing and returns false for a transaction of anything but BEGIN, row
// events and XID, and for one whose GTID has a tag.
func AppendPacked(dst, events []byte) (_ []byte, packed bool, err error) {
	first, ev, rest, err := Cut(events)
	if err != nil || first.Type != TypeGTID {
		return dst, false, err
	}
	gtidEvent, inner := ev, rest
	size, last := 0, first
	for len(rest) > 0 {
		begins := len(rest) == len(inner)
		if last, ev, rest, err = Cut(rest); err != nil {
			return dst, false, err
		}
		if !packable(last.Type, begins, len(rest) == 0) {
			return dst, false, nil
		}
		size += len(ev) - ChecksumLen
	}
	if last.Type != TypeXID {
		return dst, false, nil
	}
	out := append(dst, gtidEvent...)
	payload := len(out)
	out = appendPayload(out, last, inner, size)
	if !setLength(out[len(dst):payload], uint64(len(out)-len(dst))) {
		return dst, false, nil
	}
	return out, true, nil
}

// appendPayload appends the payload of whole events that have size bytes without their checksums, with the header of
// one of them.
func appendPayload(dst []byte, h Header, events []byte, size int) []byte {
	start := len(dst)
	h.Type, h.Flags = TypeTransactionPayload, 0
	dst = h.Append(dst)
	for _, f := range [][2]uint64{{payloadCompression, uint64(CompressionNone)}, {payloadUncompressedSize, uint64(size)},
		{payloadSize, uint64(size)}} {
		dst = appendPacked(dst, f[0])
		dst = appendPacked(dst, packedLen(f[1]))
		dst = appendPacked(dst, f[1])
	}
	dst = append(dst, payloadEnd)
	for len(events) > 0 {
		n := binary.LittleEndian.Uint32(events[9:])
		at := len(dst)
		dst = append(dst, events[:n-ChecksumLen]...)
		binary.LittleEndian.PutUint32(dst[at+9:], n-ChecksumLen)
		events = events[n:]
	}
	return finishEvent(dst, start)
}

// setLength changes the transaction length in a GTID event, if it fits in the bytes that are there.
func setLength(ev []byte, length uint64) bool {
	at := lengthAt(ev)
	switch le := binary.LittleEndian; {
	case ev[at] < 251 && length < 251:
		ev[at] = byte(length)
	case ev[at] == 252 && length < 1<<16:
		le.PutUint16(ev[at+1:], uint16(length))
	case ev[at] == 253 && length < 1<<24:
		ev[at+1], ev[at+2], ev[at+3] = byte(length), byte(length>>8), byte(length>>16)
	case ev[at] == 254:
		le.PutUint64(ev[at+1:], length)
	default:
		return false
	}
	PutChecksum(ev)
	return true
}

// lengthAt is where the transaction length is in a GTID event: see parsePlain.
func lengthAt(ev []byte) int {
	const commitEnd = HeaderLen + 1 + 16 + 8 + 1 + 8 + 8 + 7
	if ev[commitEnd-1]&0x80 != 0 { // commitHasOriginal
		return commitEnd + 7
	}
	return commitEnd
}

// packable reports whether an event at its place may be in a payload.
func packable(t EventType, first, last bool) bool {
	switch t {
	case TypeQuery:
		return first && !last
	case TypeXID:
		return last && !first
	case TypeTableMap, TypeWriteRows, TypeUpdateRows, TypeDeleteRows, TypePartialUpdateRows:
		return !first && !last
	}
	return false
}

const (
	// maxPayloadWindow is what zstd's highest level uses, 22, which a session may set.
	maxPayloadWindow = 1 << 27
	// maxPayloadControl bounds the control events that are read out of a payload: BEGIN, XA START and XA_PREPARE
	// with their status variables (MAX_SIZE_LOG_EVENT_STATUS is under 1,500) and schema name (under 256).
	maxPayloadControl = 4096
)

// payloadReader looks into payloads: at the first QUERY, and through to the last event if that one is XA START.
// It decompresses as it reads and keeps one window, however large the transaction. The zero value is ready.
type payloadReader struct {
	zstd *zstd.Decoder
	src  bytes.Reader
	buf  []byte // maxPayloadControl bytes
}

// payloadInfo is what a payload hides.
type payloadInfo struct {
	ThreadID uint32
	// XA is set when the payload is an XA transaction: server 9.7 compresses those too.
	XA      bool
	Prepare XAPrepareEvent
}

// read looks into p. Any error is ErrMalformed.
func (r *payloadReader) read(p PayloadEvent) (payloadInfo, error) {
	info, err := r.info(p)
	if err != nil {
		return payloadInfo{}, inPayload(err)
	}
	return info, nil
}

func (r *payloadReader) info(p PayloadEvent) (payloadInfo, error) {
	in, err := r.open(p)
	if err != nil {
		return payloadInfo{}, err
	}
	// Nothing of the payload stays reachable through the reader.
	defer r.src.Reset(nil)
	h, err := r.header(in)
	if err != nil {
		return payloadInfo{}, err
	}
	body, err := r.control(in, h)
	if err != nil {
		return payloadInfo{}, err
	}
	q, err := parseQueryBody(body)
	if err != nil {
		return payloadInfo{}, err
	}
	info := payloadInfo{ThreadID: q.ThreadID}
	switch sqlkind.Classify(q.SQL) {
	case sqlkind.Begin:
		return info, nil
	case sqlkind.XAStart:
		info.XA = true
		info.Prepare, err = r.findPrepare(in)
		return info, err
	}
	return payloadInfo{}, errors.New("it begins neither with BEGIN nor with XA START")
}

func inPayload(err error) error { return fmt.Errorf("%w: in a payload: %w", ErrMalformed, err) }

// each gives f the events of p, one after the other. What f leaves of a body is skipped.
func (r *payloadReader) each(p PayloadEvent, f func(h Header, body *io.LimitedReader) error) error {
	in, err := r.open(p)
	if err != nil {
		return err
	}
	for {
		h, err := r.header(in)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return inPayload(err)
		}
		body := &io.LimitedReader{R: in, N: int64(h.EventSize) - HeaderLen}
		if err := f(h, body); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, in, body.N); err != nil {
			return inPayload(err)
		}
	}
}

// open starts reading p's events.
func (r *payloadReader) open(p PayloadEvent) (io.Reader, error) {
	r.src.Reset(p.Payload)
	if r.buf == nil {
		r.buf = make([]byte, maxPayloadControl)
	}
	switch p.Compression {
	case CompressionNone:
		return &r.src, nil
	case CompressionZSTD:
	default:
		return nil, fmt.Errorf("unknown compression %d", p.Compression)
	}
	if r.zstd != nil {
		return r.zstd, r.zstd.Reset(&r.src)
	}
	var err error
	// Concurrency 1 decodes in the caller and starts no goroutine.
	r.zstd, err = zstd.NewReader(&r.src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxPayloadWindow))
	return r.zstd, err
}

// header reads the next event's header; io.EOF means that no event is left.
func (r *payloadReader) header(in io.Reader) (Header, error) {
	if _, err := io.ReadFull(in, r.buf[:HeaderLen]); err != nil {
		return Header{}, err
	}
	h := decodeHeader(r.buf)
	if h.EventSize < HeaderLen { // events in a payload have no checksum
		return Header{}, fmt.Errorf("%v of %d bytes", h.Type, h.EventSize)
	}
	return h, nil
}

// control reads the body of an event that is known to be small.
func (r *payloadReader) control(in io.Reader, h Header) ([]byte, error) {
	n := h.EventSize - HeaderLen
	if n > maxPayloadControl {
		return nil, fmt.Errorf("%v of %d bytes", h.Type, h.EventSize)
	}
	_, err := io.ReadFull(in, r.buf[:n])
	return r.buf[:n], err
}

// findPrepare skips to the XA_PREPARE event, which is the last one.
func (r *payloadReader) findPrepare(in io.Reader) (XAPrepareEvent, error) {
	for {
		h, err := r.header(in)
		if err == io.EOF {
			return XAPrepareEvent{}, errors.New("an XA transaction does not end in XA_PREPARE")
		}
		if err != nil {
			return XAPrepareEvent{}, err
		}
		if h.Type == TypeXAPrepare {
			body, err := r.control(in, h)
			if err != nil {
				return XAPrepareEvent{}, err
			}
			return parseXAPrepareBody(body)
		}
		for left := int(h.EventSize - HeaderLen); left > 0; {
			n, err := io.ReadFull(in, r.buf[:min(left, len(r.buf))])
			if err != nil {
				return XAPrepareEvent{}, err
			}
			left -= n
		}
	}
}
