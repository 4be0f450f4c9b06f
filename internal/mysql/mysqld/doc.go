// Package mysqld owns one mysqld: it finds the program, makes its data directory, writes its settings, starts and kills
// the process, and talks to it over its unix socket.
//
// # Folders
//
// Everything lies below Config.Dir, which belongs to one daemon at a time (Lock):
//
//	data/    mysqld's data directory; the only thing here that is worth a backup
//	binlog/  the binary log: in effect a pipe to the daemon, deleted before every start (S5)
//	relay/   the relay log: deleted before every start, the feed brings it again
//	run/     my.cnf (0600), the socket and its lock, the pid file
//	log/     mysqld.err, mysqld's own error log
//	seed/    while a copy of another server is received (Seed)
//
// A unix socket's path has room for 107 bytes. Where Dir is too long for that, the socket (alone) is in
// /tmp/trireme-<uid>-<hash of Dir>/; Config.Socket says where.
//
// # One life
//
// Server.Start begins an incarnation: leftovers of an earlier one are killed, both logs are deleted, auto.cnf gets the
// caller's fresh server_uuid, and the server comes up with super_read_only, no replication running and the event
// scheduler off. It ends by Kill, by StopPolitely, or by itself; Done and Exit tell. The life cannot outlast the
// daemon: mysqld gets SIGKILL when the thread that forked it ends (PR_SET_PDEATHSIG), so that thread is kept for the
// purpose.
//
// Before each start the package repairs what a power loss leaves in the data directory and InnoDB does not survive:
// doublewrite files (doublewrite.go) and what comes after the end of the redo log (redo.go).
//
// Duties of the caller:
//
//   - StopPolitely only when no session waits for an acknowledgement (Admin.WaitingSessions): a clean shutdown releases
//     the waiters and shows data that Raft has not committed (S4). In doubt, Kill.
//   - A server_uuid is used for one Start and never again (S5).
//   - OpenWrites only after Admin.VerifyLeaderSettings in the same incarnation (S6).
//   - Watch Server.SocketGone: something other than the daemon shuts mysqld down; Kill it at once (S4).
//
// # Admin
//
// A login can hang for as long as an account statement waits for its acknowledgement (it holds the ACL cache's lock),
// so Admin opens its few connections once, right after the start, and keeps them: one lane per kind of work, so that a
// statement that must wait (WaitExecuted, STOP REPLICA) does not stand in the way of one that must not (Ping,
// GTIDExecuted). Admin sessions write nothing to the binary log, except for AdoptXA's.
package mysqld
