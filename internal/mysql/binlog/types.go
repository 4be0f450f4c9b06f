package binlog

import "strconv"

// EventType is the type code of an event (enum Log_event_type in libs/mysql/binlog/event/binlog_event.h).
type EventType uint8

// The types that a server >= 8.0 writes.
const (
	TypeQuery              EventType = 2
	TypeStop               EventType = 3
	TypeRotate             EventType = 4
	TypeIntvar             EventType = 5
	TypeAppendBlock        EventType = 9
	TypeDeleteFile         EventType = 11
	TypeRand               EventType = 13
	TypeUserVar            EventType = 14
	TypeFormatDescription  EventType = 15
	TypeXID                EventType = 16
	TypeBeginLoadQuery     EventType = 17
	TypeExecuteLoadQuery   EventType = 18
	TypeTableMap           EventType = 19
	TypeWriteRowsV1        EventType = 23
	TypeUpdateRowsV1       EventType = 24
	TypeDeleteRowsV1       EventType = 25
	TypeIncident           EventType = 26
	TypeHeartbeat          EventType = 27
	TypeIgnorable          EventType = 28
	TypeRowsQuery          EventType = 29
	TypeWriteRows          EventType = 30
	TypeUpdateRows         EventType = 31
	TypeDeleteRows         EventType = 32
	TypeGTID               EventType = 33
	TypeAnonymousGTID      EventType = 34
	TypePreviousGTIDs      EventType = 35
	TypeTransactionContext EventType = 36
	TypeViewChange         EventType = 37
	TypeXAPrepare          EventType = 38
	TypePartialUpdateRows  EventType = 39
	TypeTransactionPayload EventType = 40
	TypeHeartbeatV2        EventType = 41
	TypeGTIDTagged         EventType = 42
)

var typeNames = [...]string{
	TypeQuery: "Query", TypeStop: "Stop", TypeRotate: "Rotate", TypeIntvar: "Intvar", TypeAppendBlock: "Append_block",
	TypeDeleteFile: "Delete_file", TypeRand: "RAND", TypeUserVar: "User var", TypeFormatDescription: "Format_desc",
	TypeXID: "Xid", TypeBeginLoadQuery: "Begin_load_query", TypeExecuteLoadQuery: "Execute_load_query",
	TypeTableMap: "Table_map", TypeWriteRowsV1: "Write_rows_v1", TypeUpdateRowsV1: "Update_rows_v1",
	TypeDeleteRowsV1: "Delete_rows_v1", TypeIncident: "Incident", TypeHeartbeat: "Heartbeat", TypeIgnorable: "Ignorable",
	TypeRowsQuery: "Rows_query", TypeWriteRows: "Write_rows", TypeUpdateRows: "Update_rows",
	TypeDeleteRows: "Delete_rows", TypeGTID: "Gtid", TypeAnonymousGTID: "Anonymous_Gtid",
	TypePreviousGTIDs: "Previous_gtids", TypeTransactionContext: "Transaction_context", TypeViewChange: "View_change",
	TypeXAPrepare: "XA_prepare", TypePartialUpdateRows: "Update_rows_partial",
	TypeTransactionPayload: "Transaction_payload", TypeHeartbeatV2: "Heartbeat_v2",
	TypeGTIDTagged: "Gtid_tagged_log_event",
}

// String gives the name that SHOW BINLOG EVENTS prints, or "type N".
func (t EventType) String() string {
	if int(t) < len(typeNames) && typeNames[t] != "" {
		return typeNames[t]
	}
	return "type " + strconv.Itoa(int(t))
}

// StartsTransaction reports whether t is one of the three GTID events.
func (t EventType) StartsTransaction() bool {
	return t == TypeGTID || t == TypeGTIDTagged || t == TypeAnonymousGTID
}

// Flags of an event's header (sql/log_event.h).
const (
	// FlagInUse stands in the FORMAT_DESCRIPTION event of a file that is still written; the checksum leaves it out.
	FlagInUse uint16 = 0x0001
	// FlagThreadSpecific stands in a QUERY that uses temporary tables.
	FlagThreadSpecific uint16 = 0x0004
	// FlagSuppressUse stands in a QUERY that needs no USE db before it.
	FlagSuppressUse uint16 = 0x0008
	// FlagArtificial stands in an event that is in no file: the ROTATE that begins a dump.
	FlagArtificial uint16 = 0x0020
	// FlagRelayLog stands in an event made by a replica's receiver.
	FlagRelayLog uint16 = 0x0040
	// FlagIgnorable lets a reader that does not know the type skip the event.
	FlagIgnorable uint16 = 0x0080
)

// Magic begins every binary log file.
const Magic = "\xfebin"

// Sizes in bytes.
const (
	HeaderLen   = 19
	ChecksumLen = 4
	// MinEventSize is the size of an event without a body.
	MinEventSize = HeaderLen + ChecksumLen
	// MaxEventSize is the largest event that a server writes (max_log_event_size in binlog_event.h).
	MaxEventSize = 1 << 30
)
