// Package bench measures Trireme beside its rivals on one machine, and the write gaps that faults cause.
//
// Quick runs a standalone server, semi-synchronous replication with two replicas, and Trireme with three nodes, each
// started fresh with the same data, interleaved (A B C A B C …), and takes the median of the rounds. One cell is one
// thread count on one system:
//
//	warm-up -> wait until every replica has applied -> sample CPU -> sysbench -> raw TPS, lag left
//	        -> wait until every replica has applied -> sustained TPS -> sample CPU
//
// CPU per transaction counts what every host spent (mysqld and daemon, from /proc/<pid>/stat) from before the load until
// everything is applied, so that work put off is not work saved; divided by sysbench's own CPU per transaction, which
// cancels the drift of the machine.
//
// Fairness: every server of every system gets the same template data directory, the same InnoDB sizes, TCP without TLS,
// and a session (setsid) of its own per host, because the kernel's autogroup scheduling shares CPU between sessions.
// Rivals run at full durability (innodb_flush_log_at_trx_commit=1, sync_binlog=1) and with several applier worker counts,
// of which the best one counts.
//
// Gaps measures, through the router, the longest time without an acknowledged write around kills and switchovers, of Trireme
// and beside it of Group Replication: a contender is a running system, a plan what is done to it, and the faults of all kinds
// are made in turns.
//
// WAN measures the emulated network of internal/wan itself.
//
// All write JSON and Markdown; no figure in docs/benchmarks is typed by hand.
package bench
