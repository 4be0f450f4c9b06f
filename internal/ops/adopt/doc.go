// Package adopt turns a running replication set into a cluster, in place: the data directories are renamed, not copied.
//
// The source goes first ([NewCluster]): while it takes writes, everything is checked ([Plan]), a node's directory is
// begun and Trireme's accounts are made; they reach the replicas by replication. Then writes close, and from here on
// the clock runs:
//
//	super_read_only -> clients cut -> gtid_executed is the base -> every replica has it, and stops
//	  -> SHUTDOWN -> data directory renamed to DIR/mysql/data -> cluster.json with the base, identity.json
//
// and the operator's `trireme node` opens writes again. A replica follows ([Join]) whenever its host's turn comes, by
// the same steps: the cluster takes it if its gtid_executed is the base exactly, and the log brings the rest from its
// first entry on.
//
// Until SHUTDOWN every failure is taken back: accounts, super_read_only, replication. After it the old server is
// stopped, and until the node has led [Undo] gives everything back; DIR/before-adopt/adopted.json says what was where.
//
// The base is what no log has: see config.Cluster.Base and node/lifecycle/judge.go.
//
// # What follows from the base
//
// Every node has the base before it has a log, and begins its first segment after it (PREVIOUS_GTIDS). So a node
// without the base has to be seeded, even if the log begins at entry 1. No part of the base is ever plugged, since the
// servers were stopped cleanly and a missing GTID is missing data. The whole log is no copy of the data, so the census
// does not count it as one. Data can join only if its gtid_executed is exactly the base.
//
// The old replication must end before the first commit: a replica that dumps the leader's binary log sees uncommitted
// transactions, and a semi-sync replica would confirm them. So adopt refuses while an unknown replica is connected,
// stops the known ones, and locks their accounts.
package adopt
