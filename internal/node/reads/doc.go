// Package reads answers what routers and clients ask before they trust what a server shows: up to where everything that
// was answered is committed (a read index), whether a mysqld has applied that, which nodes count as live for AFTER, and
// what became of a commit whose leader was lost.
//
// # Outcome of a commit
//
// The node looks in the log for transactions of the broken connection, after the commit index that was known before the
// statement was sent, in that leadership (node, incarnation, term). The connection's id is in the QUERY event that
// begins a transaction, so the commit path records nothing. After a failover the log is read once for all who ask.
//
//   - One is found: committed.
//   - None is found, and a barrier that ends the leadership is committed: not committed, permanently (S6).
//   - Until then the question waits. If the leader still leads, a broken connection's transaction is reported once it
//     is committed, and is unknown otherwise.
//
// An answer cannot be wrong: an index that is too old only means that more is read. But then an earlier, answered
// transaction of the same session may be found too. So the caller says up to which GTID it has answers (after), how
// many answered transactions may lie after that (others), and whether this statement is the only other one that the
// session can have committed (sole). Sometimes it cannot say the last: CALL, several statements in a packet, DDL inside
// a transaction, an error that may have hidden a commit. Then anything found is unknown, and only "nothing found" is an
// answer.
//
// Also unknown: more transactions than there can be, a transaction that ends in ROLLBACK, a purged log, a leadership
// older than the last 64, or more than 131,072 transactions to read. The contract is api.OutcomeQuery. It does not hold
// for a session that sets pseudo_thread_id or sql_log_bin, which ordinary accounts cannot.
//
// # Reads
//
// A read index costs a quorum round, shared by simultaneous questions. Waits for an index or a GTID set are kept in
// memory. While there are any, one goroutine asks mysqld (WAIT_FOR_EXECUTED_GTID_SET, for the lowest index) on a
// session that promotions do not use. A GTID is turned into an index by the list of what is committed and not applied.
// To each other node one question is under way at a time. The leader says who counts as live for AFTER (live.go has the
// argument); routers use its answer for a second.
package reads
