// Package check is `trireme check`: it compares the data of all nodes of a running cluster, range by range, and finds a
// single byte that differs. It is a client: it logs in to every node's mysqld with an ordinary account, and asks the
// daemons only who leads and who lags.
//
// # Why what it says is exact
//
// A range of a table is all rows between two values of its key. Ranges cover the whole key space, so that a row which
// only one node has lies in one of them.
//
// First cheaply: the leader hashes the range with a consistent read, says what it has executed, each follower waits
// until it has executed that, and hashes the same range. If all agree the range is done. The positions need not be the
// same: rows that change between them get the leader's bytes by the feed. On a quiet range this is one read for each
// node and no lock.
//
// Ranges that differ are cut to small ones, and those that still differ are looked at under a lock. The leader reads
// the rows FOR SHARE at REPEATABLE READ, so no row of the range can be changed, added or removed until that transaction
// ends. Which transactions had a hand in what was read? Each of them holds its row locks until it is committed in the
// engine, and has its GTID from before: it is in gtid_owned, or in gtid_executed if that is read afterwards. Both
// together are the target. A follower that has executed the target has everything that the leader read; what it has
// executed beyond cannot be in the range, as the leader's lock is still held. So it must have the same bytes.
//
// Three things can void that, and each is looked for before a difference is believed:
//
//   - Another node leads, and the transaction with the lock lives on in a server that does not know it yet. Then
//     followers have executed GTIDs that the leader, asked last, has neither executed nor owns (statements that a
//     follower has run for itself aside). And the epoch of the leader (incarnation and term) must still be the one of
//     when the sessions were opened.
//   - The transaction has ended: the last question goes through its own connection.
//   - GTIDs that never come, of statements that a leader has run before it opened writes. They are set aside when the
//     sessions are opened: what a follower without lag still lacks. One of them that comes after all voids the
//     comparison.
//
// A difference is believed when it was seen twice. An XA transaction that is prepared keeps its locks, so a range with
// one is tried again, and said to be not checked in the end. A statement that waits for the metadata lock (DDL) waits
// for the lock for as long as a small range takes, and at most Options' limits.
//
// Tables without a key that can be walked along, and those of accounts, which cannot be locked, are compared whole: the
// leader hashes them before and after the followers, and only if it found the same three times in a row are the
// followers believed to differ.
//
// # What a hash is of
//
// SHA-256 over all columns of a row, in a form in which two rows are the same only if their values are: NULL is not the
// empty string, a FLOAT has all its bits, strings are their bytes in the column's character set. The hashes of a range
// are joined by XOR, with the number of rows: rows of a table with a key are all different, so none cancel out. Not
// hashed are VIRTUAL columns, which are computed from the others.
//
// # Why a repair is a reinit
//
// A row could be written on the one node that differs. That needs super_read_only switched off without the daemon's
// knowledge, and on again: on a node that was promoted in between, that would close the writes of the cluster. The
// write would have no GTID, so a crash before the next flush would undo it silently (S5 knows no such change). And a
// server that has lost one byte in a way which the log does not explain is not to be trusted with the rest: pages of
// secondary indexes and undo are not looked at by any query. So the repair is what Trireme does with every server that
// it does not trust: its data is thrown away and copied from another node (`trireme reinit`), and the tables are
// compared again.
package check
