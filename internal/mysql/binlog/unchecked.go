package binlog

import (
	"encoding/binary"
	"io"
)

// Flags of a row event (sql/log_event.h).
const (
	rowsNoForeignKeyChecks = 1 << 1
	rowsSQLForeignKeys     = 1 << 4 // since 9.6: what cascades change is in row events of its own
)

// Unchecked emits what a replica applies without foreign key checks in place of an event: of a payload the events in
// it, one at a time, else one event. What is emitted is the receiver's.
//
// Without the checks a replica does not cascade either. So an update or delete whose cascades are not in the log keeps
// its checks.
func Unchecked(ev []byte, emit func([]byte) error) error {
	h, err := ParseHeader(ev)
	if err != nil {
		return err
	}
	if h.Type != TypeTransactionPayload {
		return emit(unchecked(h, Body(ev)))
	}
	p, err := ParsePayload(ev)
	if err != nil {
		return err
	}
	var r payloadReader
	return r.each(p, func(h Header, in *io.LimitedReader) error {
		body, err := io.ReadAll(in)
		if err == nil && in.N > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return inPayload(err)
		}
		return emit(unchecked(h, body))
	})
}

// unchecked makes one event. The flags of a row event follow a table id of 6 bytes.
func unchecked(h Header, body []byte) []byte {
	const at = HeaderLen + 6
	ev := AppendEvent(nil, h, body)
	op := rowOps[h.Type]
	if op == "" || len(body) < 8 {
		return ev
	}
	if op == "insert" || binary.LittleEndian.Uint16(ev[at:])&rowsSQLForeignKeys != 0 {
		ev[at] |= rowsNoForeignKeyChecks
		PutChecksum(ev)
	}
	return ev
}
