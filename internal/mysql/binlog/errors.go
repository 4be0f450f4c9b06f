package binlog

import "errors"

var (
	// ErrShort: the buffer ends before the event does. A reader of a growing stream waits for more.
	ErrShort = errors.New("binlog: event is cut short")
	// ErrMalformed: the event's fields contradict each other or the format.
	ErrMalformed = errors.New("binlog: malformed event")
	// ErrChecksum: the CRC32 does not match.
	ErrChecksum = errors.New("binlog: checksum mismatch")
	// ErrStructure: events follow each other in an order that is no transaction.
	ErrStructure = errors.New("binlog: events out of order")
	// ErrLength: a transaction is not as long as its GTID event says.
	ErrLength = errors.New("binlog: transaction length mismatch")
	// ErrIncident: the source could not write what it did to its log. Nothing after it can be trusted.
	ErrIncident = errors.New("binlog: source reports an incident: its log lacks changes")
	// ErrAnonymous: a transaction without GTID, which gtid_mode=ON does not write.
	ErrAnonymous = errors.New("binlog: transaction without GTID")
	// ErrUnknownEvent: an event of a type not known here and not marked as ignorable.
	ErrUnknownEvent = errors.New("binlog: unknown event type")
)
