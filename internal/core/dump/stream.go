package dump

import (
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/mysqlwire"
)

// Prefix of every packet of the stream: status byte 00, and on a semi-sync connection EF and the need-ACK flag.
const (
	statusLen   = 1
	semiSyncLen = 2
	prefixLen   = statusLen + semiSyncLen
	eventOffset = mysqlwire.HeaderLen + prefixLen
)

// stream parses the packets of a dump connection in place, in one fixed buffer. Packet sequence numbers are checked
// only inside an event of several packets: mysqld restarts them whenever it has read an ACK.
//
//	buf  0 ...... kept ...... scan ...... filled ...... len(buf)
//	              |           |           end of what was received
//	              |           next packet to look at
//	              first byte that is still needed
type stream struct {
	nc     net.Conn
	buf    []byte
	kept   int
	scan   int
	filled int

	silenceLimit time.Duration
	deadline     time.Time // the read deadline in force
}

// step is what stream.next found.
type step uint8

const (
	stepEvent   step = iota // one whole event
	stepPartial             // fill first
	stepLarge               // an event that never fits the buffer: readLarge
)

func newStream(bufBytes int) *stream { return &stream{buf: make([]byte, bufBytes)} }

// reset starts on a new connection of which rest has been read already.
func (st *stream) reset(nc net.Conn, rest []byte, silenceLimit time.Duration) error {
	if len(rest) > len(st.buf) {
		return fmt.Errorf("dump: %d bytes ahead of the stream", len(rest))
	}
	st.nc, st.kept, st.scan, st.filled = nc, 0, 0, copy(st.buf, rest)
	st.silenceLimit, st.deadline = silenceLimit, time.Time{}
	return nil
}

// next looks at the packet at scan. The event lies in buf until the next fill. ERR and EOF packets are errors.
func (st *stream) next() (event []byte, needAck bool, found step, err error) {
	b := st.buf[st.scan:st.filled]
	if len(b) < mysqlwire.HeaderLen+1 {
		return nil, false, stepPartial, nil
	}
	length, _ := mysqlwire.ParseHeader(b)
	// Only a packet that carries an event may be long; everything else is read whole first.
	if b[mysqlwire.HeaderLen] == 0 && (length == mysqlwire.MaxPayload || mysqlwire.HeaderLen+length > len(st.buf)) {
		return nil, false, stepLarge, nil
	}
	if len(b) < mysqlwire.HeaderLen+length {
		return nil, false, stepPartial, nil
	}
	payload := b[mysqlwire.HeaderLen : mysqlwire.HeaderLen+length]
	if length < prefixLen+binlog.MinEventSize || payload[0] != 0 {
		return nil, false, 0, controlPacket(payload)
	}
	event = payload[prefixLen:]
	if payload[1] != semiSyncMagic || int(binary.LittleEndian.Uint32(event[9:])) != len(event) {
		return nil, false, 0, framingError(payload)
	}
	return event, payload[2]&1 != 0, stepEvent, nil
}

// accept moves scan past the event that next has returned.
func (st *stream) accept(event []byte) { st.scan += eventOffset + len(event) }

// offset is where the event that next has returned begins in buf.
func (st *stream) offset() int { return st.scan + eventOffset }

// full reports that fill could not read another byte.
func (st *stream) full() bool { return st.kept == 0 && st.filled == len(st.buf) }

// compactBelow is the free space from which fill moves what is kept to the front, bytes.
const compactBelow = 64 << 10

// compact makes room at the end and returns by how much offsets have moved down.
func (st *stream) compact() (moved int) {
	switch {
	case st.kept == st.filled:
		moved = st.kept
		st.filled = 0
	case st.kept > 0 && len(st.buf)-st.filled < compactBelow:
		moved = st.kept
		st.filled = copy(st.buf, st.buf[st.kept:st.filled])
	default:
		return 0
	}
	st.kept, st.scan = 0, st.scan-moved
	return moved
}

// fill reads once, blocking. The caller has made room with compact.
func (st *stream) fill() error {
	if err := st.extendDeadline(); err != nil {
		return err
	}
	n, err := st.nc.Read(st.buf[st.filled:])
	st.filled += n
	if n > 0 {
		return nil
	}
	return lost(err)
}

// fillWithin is fill with a limit of its own; timedOut is true when nothing came in that time.
func (st *stream) fillWithin(d time.Duration) (timedOut bool, err error) {
	if err := st.nc.SetReadDeadline(time.Now().Add(d)); err != nil {
		return false, lost(err)
	}
	st.deadline = time.Time{} // fill sets its own again
	n, err := st.nc.Read(st.buf[st.filled:])
	st.filled += n
	if n > 0 {
		return false, nil
	}
	var ne net.Error
	if asTimeout(err, &ne) {
		return true, nil
	}
	return false, lost(err)
}

// extendDeadline keeps the read deadline between one half and one silenceLimit away, so that it is not set at
// every read.
func (st *stream) extendDeadline() error {
	now := time.Now()
	if st.deadline.Sub(now) > st.silenceLimit/2 {
		return nil
	}
	st.deadline = now.Add(st.silenceLimit)
	if err := st.nc.SetReadDeadline(st.deadline); err != nil {
		return lost(err)
	}
	return nil
}

// largeHead waits until the header of the large event at scan is there and returns the event's size in bytes.
func (st *stream) largeHead() (size int, err error) {
	for st.filled-st.scan < eventOffset+binlog.HeaderLen {
		st.compact()
		if err := st.fill(); err != nil {
			return 0, err
		}
	}
	payload := st.buf[st.scan+mysqlwire.HeaderLen : st.filled]
	h, err := binlog.ParseHeader(payload[prefixLen:])
	if err != nil || payload[1] != semiSyncMagic {
		return 0, framingError(payload)
	}
	// The packet's length bears the event's size out before memory is taken for it.
	packet, _ := mysqlwire.ParseHeader(st.buf[st.scan:])
	size = int(h.EventSize)
	if piece := packet - prefixLen; size < piece || size > piece && packet != mysqlwire.MaxPayload {
		return 0, framingError(payload)
	}
	return size, nil
}

// readLarge reads the event at scan into event, whose length largeHead gave, and consumes it.
func (st *stream) readLarge(event []byte) (needAck bool, err error) {
	left, seq := mysqlwire.ParseHeader(st.buf[st.scan:])
	needAck = st.buf[st.scan+mysqlwire.HeaderLen+2]&1 != 0
	more := left == mysqlwire.MaxPayload
	left -= prefixLen
	st.scan += eventOffset
	for {
		n := min(left, len(event))
		if err := st.readInto(event[:n]); err != nil {
			return false, err
		}
		event, left = event[n:], left-n
		if !more || left > 0 {
			break
		}
		var head [mysqlwire.HeaderLen]byte
		if err := st.readInto(head[:]); err != nil {
			return false, err
		}
		var next byte
		if left, next = mysqlwire.ParseHeader(head[:]); next != seq+1 {
			return false, fmt.Errorf("dump stream: packet %d follows %d inside an event: %w", next, seq, mysqlwire.ErrSequence)
		}
		seq, more = next, left == mysqlwire.MaxPayload
	}
	if left != 0 || len(event) != 0 {
		return false, fmt.Errorf("dump stream: packets and event disagree by %d and %d bytes: %w", left, len(event),
			mysqlwire.ErrMalformed)
	}
	st.kept = st.scan
	return needAck, nil
}

// readInto takes what is buffered and reads the rest straight from the connection.
func (st *stream) readInto(b []byte) error {
	n := copy(b, st.buf[st.scan:st.filled])
	st.scan += n
	for n < len(b) {
		if err := st.extendDeadline(); err != nil {
			return err
		}
		m, err := st.nc.Read(b[n:])
		n += m
		if m == 0 {
			return lost(err)
		}
	}
	return nil
}
