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
package adopt
