// Package gtid holds MySQL global transaction identifiers and sets of them.
//
// A GTID names a transaction: a SID (the UUID of the server that ran it and, from 8.3 on, an optional tag) and a
// sequence number, the GNO, from 1 to MaxGNO. A Set is kept per SID as sorted, disjoint, non-adjacent closed intervals.
//
// # Text
//
// What mysqld prints and accepts, e.g. in @@gtid_executed: SIDs in the order of UUID, then tag; lower case; one UUID's
// SIDs joined by colons; UUIDs joined by ",\n":
//
//	3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:9:backup:1-3,
//	4f22ab58-71ca-11e1-9e33-c80aa9429562:7
//
// # Binary
//
// What COM_BINLOG_DUMP_GTID and the PREVIOUS_GTIDS event carry, little-endian, intervals half-open:
//
//	untagged   count u64 (top byte 00)
//	           count × { uuid [16], intervals u64, intervals × { first u64, end u64 } }
//	tagged     01, count u48, 01
//	           count × { uuid [16], tag length varlen, tag, intervals u64, intervals × { first u64, end u64 } }
//
// count is the number of SIDs; the varlen integer is that of mysql::serialization and always fits one byte here
// (length << 1). A set without tags is always written in the untagged form, which every version reads.
// Sources: sql/rpl_gtid_set.cc, libs/mysql/gtids/strconv/gtid_binary_format_conv.h, libs/mysql/gtids/tag.h.
//
// # Incarnations
//
// IncarnationUUID makes the server_uuid of one life of a mysqld, so that no GTID is ever given out twice (S5).
//
// The package is pure: no I/O, no goroutine, no clock, no randomness. See docs/format/gtid.md.
package gtid
