package binlog

import "fmt"

// HeartbeatEvent names the end of what the source has sent. File lies in the event.
type HeartbeatEvent struct {
	File     []byte
	Position uint64 // modulo 2^32 in version 1
}

// Field types of a HEARTBEAT_V2 event (libs/mysql/binlog/event/codecs/binary.h).
const (
	heartbeatEnd      = 0
	heartbeatFile     = 1
	heartbeatPosition = 2
)

// ParseHeartbeat reads a HEARTBEAT event of either version: version 1 has the file name as body and the position in
// log_pos; version 2 has { field type, length, value }… 0, all packed.
func ParseHeartbeat(ev []byte) (HeartbeatEvent, error) {
	h, err := ParseHeader(ev)
	if err != nil {
		return HeartbeatEvent{}, err
	}
	if h.Type != TypeHeartbeatV2 {
		_, body, err := bodyOf(ev, TypeHeartbeat)
		return HeartbeatEvent{File: body, Position: uint64(h.LogPos)}, err
	}
	_, body, err := bodyOf(ev, TypeHeartbeatV2)
	if err != nil {
		return HeartbeatEvent{}, err
	}
	var hb HeartbeatEvent
	f := fields{b: body}
	for !f.failed {
		field := f.packed()
		if f.failed || field == heartbeatEnd {
			break
		}
		value := fields{b: f.take(f.packed())}
		switch field {
		case heartbeatFile:
			hb.File = value.b
		case heartbeatPosition:
			hb.Position = value.packed()
		}
		f.failed = f.failed || value.failed
	}
	if f.failed {
		return HeartbeatEvent{}, fmt.Errorf("%w: HEARTBEAT_V2 event of %d bytes", ErrMalformed, len(ev))
	}
	return hb, nil
}

// AppendHeartbeat appends a version 1 HEARTBEAT event. Position must fit 32 bits and be at least 4, else the replica
// rejects it: use AppendHeartbeatV2 when the replica asks for it (flag 2 of COM_BINLOG_DUMP_GTID).
func AppendHeartbeat(dst []byte, serverID uint32, file string, position uint32) []byte {
	start := len(dst)
	dst = Header{Type: TypeHeartbeat, ServerID: serverID, LogPos: position}.Append(dst)
	dst = append(dst, file...)
	return finishEvent(dst, start)
}

// AppendHeartbeatV2 appends a HEARTBEAT_V2 event.
func AppendHeartbeatV2(dst []byte, serverID uint32, file string, position uint64) []byte {
	start := len(dst)
	dst = Header{Type: TypeHeartbeatV2, ServerID: serverID, LogPos: uint32(position)}.Append(dst)
	dst = append(dst, heartbeatFile)
	dst = appendPacked(dst, uint64(len(file)))
	dst = append(dst, file...)
	dst = append(dst, heartbeatPosition)
	dst = appendPacked(dst, packedLen(position))
	dst = appendPacked(dst, position)
	dst = append(dst, heartbeatEnd)
	return finishEvent(dst, start)
}

// PositionOf puts together a position in a file longer than 4 GiB: logPos is what an event's header holds and start is
// where the event begins.
func PositionOf(start uint64, logPos uint32) uint64 {
	pos := start&^(1<<32-1) | uint64(logPos)
	if pos < start {
		pos += 1 << 32
	}
	return pos
}

// TypeOf returns the type of the event that ev begins with, 0 if ev is too short.
func TypeOf(ev []byte) EventType {
	if len(ev) < HeaderLen {
		return 0
	}
	return EventType(ev[4])
}
