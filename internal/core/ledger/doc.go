// Package ledger is the committed log as one node sees it, and the rules that depend on nothing else. It has no I/O, no
// goroutine, no clock and no randomness of its own, so that the daemon and the simulation use the same code:
//
//   - Ledger takes every committed entry once and asserts that streams have no gaps and no doubles, that nothing of a
//     dead incarnation follows a barrier, and that an incarnation serves one term (S6, S7, S12).
//   - Ack says whether a committed entry may release mysqld's waiting sessions (S1).
//   - Scanner finds the log's transactions, Judge compares them with what InnoDB holds after a start (S5).
//   - PurgePoint and BoundPoint say how much of the log no node can need any more, Census whose vote and
//     whose data may be removed (S8).
package ledger
