// Package binlog reads and makes MySQL binary log events, version 4, and finds transactions in a stream of them.
//
// Events are handled as bytes: a reader looks at the header, the GTID and the few control events, and never decodes a
// row. Parse functions take one whole event (header, body and checksum) and return slices of it; Append functions add
// one whole event to the caller's buffer. Neither keeps the buffer. Every event is taken to end in a CRC32 checksum, as
// it does when the binlog_checksum of the source and @source_binlog_checksum of the connection are CRC32.
//
// # Event
//
//	offset
//	     0  timestamp    u32  seconds since 1970
//	     4  type         u8   EventType
//	     5  server_id    u32
//	     9  event_size   u32  of the whole event: header, body and checksum
//	    13  log_pos      u32  end of the event in the file it was written to, modulo 2^32; 0 in an artificial event
//	    17  flags        u16  Flag…
//	    19  body
//	  size-4 checksum    u32  CRC-32 (IEEE) of all bytes before it
//
// All integers are little-endian. A binary log file is Magic followed by events: FORMAT_DESCRIPTION, PREVIOUS_GTIDS,
// transactions, and ROTATE or STOP.
//
// # Transactions
//
// With gtid_mode=ON every transaction is one of
//
//	GTID  QUERY BEGIN        body…             XID                  rows
//	GTID  QUERY BEGIN        body…             QUERY COMMIT         a non-transactional engine
//	GTID  QUERY BEGIN        body…             QUERY ROLLBACK       the same, rolled back; Trireme's abort marker
//	GTID  QUERY XA START     body… QUERY XA END  XA_PREPARE         XA PREPARE, or COMMIT ONE PHASE by its flag
//	GTID  [USER_VAR…] QUERY                                          DDL, account statements, XA COMMIT, FLUSH, …
//	GTID  TRANSACTION_PAYLOAD                                        the first or fourth, compressed
//
// Assembler tells where each begins and ends. Sources: libs/mysql/binlog/event/*.h and trx_boundary_parser.cpp of
// the server, and the files in testdata, written by mysqld 9.7.
//
// The package is pure: no I/O, no goroutine, no clock, no randomness.
package binlog
