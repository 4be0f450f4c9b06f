// Package dump joins the daemon to the replication protocol of its mysqld, on both sides.
//
// # Source
//
// On a leader the daemon is the one and only semi-sync replica of its mysqld. Source reads the binary log as it is
// written, cuts it into payloads ready to be proposed, and acknowledges a position once the caller says that it is
// committed.
//
//	mysqld --socket--> reader: stream (buffer) -> cutter (checks, transactions, cut) -> Payload -> take   on the loop
//	mysqld <--EF pos file-- wire <------------------------------------------------- Ack                   any goroutine
//
// Run's goroutine only waits where somebody has to: it logs in, starts the dump and does so again when the connection
// is lost. The connection is then the loop's: each turn reads once what is there and hands out all payloads that it
// completes; nothing on the loop waits. An ACK is written by the one who calls Ack, in one system call. What the socket
// does not take, which is rare, the loop writes when it does.
//
// Duties of the caller: a payload is proposed in the order in which it was handed out, or not at all and nothing after
// it; Ack is called for the end position written in a committed entry of this incarnation, in the term that proposed it
// (S1); an error that wraps ErrInvariant fences the node (S13).
//
// The position where a dump begins counts as an acknowledgement inside mysqld: everyone who waits for a position at or
// below it is released (repl_semi_binlog_dump_start in semisync_source_plugin.cc; seen on 9.7.4). A lost connection is
// therefore resumed from the last *acknowledged* position, and what was handed out before is read again and skipped.
// For the same reason Attach must be given a committed position. Never a GTID set: the server would leave out
// transactions that others still wait for.
//
// # Feed
//
// On every data node Feed serves the committed part of the raft log to this node's own mysqld, as a binary log source
// speaks to a replica's receiver.
//
//	raft log -> Reader -> walker (whole, committed, missing transactions) -> writer (packets) -> mysqld's receiver
//
// Only whole transactions, only at or below the commit index, in log order (S3). A walker is lent to the member's loop
// while nothing has to wait (loan.go). docs/format/dump.md draws both conversations byte by byte.
package dump
