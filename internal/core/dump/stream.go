package dump

import (
	"encoding/binary"
	"fmt"

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

// stream parses the packets of a dump connection in place, in one fixed buffer, and keeps events there. Its caller
// reads into space. Packet sequence numbers are checked only inside an event of several packets: mysqld restarts them
// whenever it has read an ACK.
//
//	buf  0 ...... kept ...... end ...... scan ...... filled ...... len(buf)
//	              |           |          |           end of what was received
//	              |           |          next packet to look at
//	              events that are kept, without what was around them
type stream struct {
	buf       []byte
	kept, end int
	scan      int
	filled    int
	large     *large // an event that is read past the buffer; nil: none
}

// large is an event that does not fit the buffer. It is read straight into the payload that it becomes.
type large struct {
	data []byte // room for a meta, then the event
	rest []byte // of data: what has not come yet
	left int    // bytes of the present packet that have not come yet
	seq  byte   // of that packet
	more bool   // another packet follows it
}

// step is what stream.next found.
type step uint8

const (
	stepEvent    step = iota // one whole event
	stepPartial              // more has to be read first
	stepLarge                // the beginning of an event that never fits the buffer: begin
	stepLargeEnd             // the large event has come, in stream.large
)

func newStream(bufBytes int) *stream { return &stream{buf: make([]byte, bufBytes)} }

// reset starts on a new connection of which rest has been read already.
func (st *stream) reset(rest []byte) error {
	if len(rest) > len(st.buf) {
		return fmt.Errorf("dump: %d bytes ahead of the stream", len(rest))
	}
	*st = stream{buf: st.buf, filled: copy(st.buf, rest)}
	return nil
}

// next looks at the packet at scan. The event lies in buf until more is read. ERR and EOF packets are errors.
func (st *stream) next() (event []byte, needAck bool, found step, err error) {
	if st.large != nil {
		found, err = st.goOn()
		return nil, false, found, err
	}
	b := st.buf[st.scan:st.filled]
	if len(b) < mysqlwire.HeaderLen+1 {
		return nil, false, stepPartial, nil
	}
	length, _ := mysqlwire.ParseHeader(b)
	// Only a packet that carries an event may be long; everything else is read whole first.
	if b[mysqlwire.HeaderLen] == 0 && (length == mysqlwire.MaxPayload || mysqlwire.HeaderLen+length > len(st.buf)) {
		if len(b) < eventOffset+binlog.HeaderLen {
			return nil, false, stepPartial, nil
		}
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

// pass moves scan past the event that next has returned, which is kept or not.
func (st *stream) pass(event []byte, keep bool) {
	if keep {
		if st.held() == 0 {
			st.kept, st.end = st.scan, st.scan
		}
		st.end += copy(st.buf[st.end:], event)
	}
	st.scan += eventOffset + len(event)
}

// held is how many bytes of events are kept.
func (st *stream) held() int { return st.end - st.kept }

// give hands out the first of them; they are valid until more is read.
func (st *stream) give(bytes int) []byte {
	st.kept += bytes
	return st.buf[st.kept-bytes : st.kept]
}

// full reports that there is no space, and compact will make none.
func (st *stream) full() bool { return st.held()+st.filled-st.scan == len(st.buf) }

// compactBelow is the free space from which compact moves what is needed to the front, bytes.
const compactBelow = 64 << 10

// compact makes room at the end.
func (st *stream) compact() {
	held, rest := st.held(), st.filled-st.scan
	if held+rest > 0 && len(st.buf)-st.filled >= compactBelow {
		return
	}
	if st.kept > 0 {
		copy(st.buf, st.buf[st.kept:st.end])
	}
	copy(st.buf[held:], st.buf[st.scan:st.filled])
	st.kept, st.end, st.scan, st.filled = 0, held, held, held+rest
}

// space is where what is read next belongs. compact comes before it, and came after it.
func (st *stream) space() []byte {
	if g := st.large; g != nil && g.left > 0 {
		return g.rest[:g.left]
	}
	return st.buf[st.filled:]
}

// came notes that n bytes were read into space.
func (st *stream) came(n int) {
	if g := st.large; g != nil && g.left > 0 {
		g.took(n)
		return
	}
	st.filled += n
}

// begin reads the header of the large event at scan and takes the memory for the event.
func (st *stream) begin() error {
	payload := st.buf[st.scan+mysqlwire.HeaderLen : st.filled]
	h, err := binlog.ParseHeader(payload[prefixLen:])
	if err != nil || payload[1] != semiSyncMagic {
		return framingError(payload)
	}
	// The packet's length bears the event's size out before memory is taken for it.
	packet, seq := mysqlwire.ParseHeader(st.buf[st.scan:])
	size, piece := int(h.EventSize), packet-prefixLen
	if size < piece || size > piece && packet != mysqlwire.MaxPayload {
		return framingError(payload)
	}
	data := make([]byte, largeHeadroom+size)
	st.large = &large{data: data, rest: data[largeHeadroom:], left: piece, seq: seq, more: packet == mysqlwire.MaxPayload}
	st.scan += eventOffset
	return nil
}

// goOn carries the large event on with what the buffer holds.
func (st *stream) goOn() (step, error) {
	g := st.large
	for {
		n := copy(g.rest[:g.left], st.buf[st.scan:st.filled])
		g.took(n)
		st.scan += n
		switch {
		case g.left > 0:
			return stepPartial, nil
		case !g.more:
			return stepLargeEnd, nil
		case st.filled-st.scan < mysqlwire.HeaderLen:
			return stepPartial, nil
		}
		if err := g.packet(mysqlwire.ParseHeader(st.buf[st.scan:])); err != nil {
			return 0, err
		}
		st.scan += mysqlwire.HeaderLen
	}
}

// packet begins the next packet of the event.
func (g *large) packet(length int, seq byte) error {
	if seq != g.seq+1 {
		return fmt.Errorf("dump stream: packet %d follows %d inside an event: %w", seq, g.seq, mysqlwire.ErrSequence)
	}
	g.left, g.seq, g.more = length, seq, length == mysqlwire.MaxPayload
	if length > len(g.rest) || length < len(g.rest) && !g.more {
		return fmt.Errorf("dump stream: packets and event disagree: %d bytes for the last %d: %w", length, len(g.rest),
			mysqlwire.ErrMalformed)
	}
	return nil
}

func (g *large) took(n int) { g.rest, g.left = g.rest[n:], g.left-n }

// event is the whole one.
func (g *large) event() []byte { return g.data[largeHeadroom:] }
