// Package rivals starts real database systems on hosts emulated on this machine, so that they can be compared: Trireme,
// a standalone MySQL server, asynchronous and semi-synchronous replication, Group Replication and others.
//
//	l, err := rivals.New(ctx, rivals.Options{Dir: scratch})
//	r, err := rivals.Find("semisync").Start(ctx, l, rivals.Shape{Topology: &lan, CPUs: 0.5, Dir: dir})
//	defer r.Stop()
//	r.Targets(rivals.Direct) // where clients go
//
// Fairness: every server of every system gets the same template data directory, the same InnoDB sizes, TCP without TLS,
// and a session (setsid) of its own, because the kernel's autogroup scheduling shares CPU between sessions. With a
// topology each server stands on an emulated host of its own (lab/wan): a network namespace, links with the topology's
// round trips, and a CPU budget, the same for all systems. This process and what it starts outside of hosts (load
// generators) reaches every host without a delay: a client is next to the node that it uses.
//
// Rivals run at full durability (innodb_flush_log_at_trx_commit=1, sync_binlog=1); a variant that does not says so in
// its name.
package rivals
