// Package fakemysql is a model of one mysqld, as far as the safety of a cluster depends on it: what was measured on
// real servers (docs/mysql.md) as a state machine. It is pure. Every step is a call, everything that chance decides is
// an argument, and nothing waits: what would block in a real server is refused or shows in a list.
//
//	client statement -> binary log -> (semi-sync) waiters --Ack--> engine commit -> visible, OK to the client
//	feed -> relay log -> applier -> engine commit
//	Crash(prefix) -> Start(fresh uuid) -> what InnoDB kept
//
// The engine is a list of commit records. A crash keeps a prefix of it; what the server holds is that prefix, played
// from the beginning. The binary log holds real events, byte for byte as the real cutter, log and walker of Trireme
// read them; only rows and their columns are made up.
//
// Left out: locks and deadlocks, statements that roll back, binary log group commit beyond its need-ACK flag, tags,
// compressed and large transactions, temporary tables, engines other than InnoDB. Clients see at READ COMMITTED.
package fakemysql
