// Package verify proves, or disproves, that a cluster kept its promise: a workload whose every attempt and every
// acknowledgement is logged by the client, and checkers that compare that log with what each node holds.
//
// The rules, for a cluster that has come to rest (WaitEqual):
//
//   - an acknowledged write exists exactly once on every data node;
//   - no write exists twice anywhere;
//   - a write without an answer (connection lost at the commit) exists on all data nodes or on none, in all its tables
//     or in none;
//   - a write that was refused, or never attempted, exists nowhere;
//   - CHECKSUM TABLE of every user table, and gtid_executed, are equal on all data nodes; GTIDs that one node alone has
//     executed outside of the log (REPAIR TABLE on a follower) are set aside and reported.
//
// The tables of the workload have no unique key over (writer, seq), so that a write applied twice is seen as two rows
// and not hidden by a duplicate-key error. The judgement (judge.go) is a pure function of a log and of row counts; what
// talks to servers is in rows.go, session.go and collect.go.
//
// # Sets
//
// A Set runs several workloads at once, with a seed for all that clients choose and a rate for each client:
//
//	register  reads, writes and compare-and-sets of single rows; linearizable (linear.go, by Porcupine)
//	append    transactions of list appends and reads, at REPEATABLE READ and at SERIALIZABLE; no anomaly that the level forbids (adya.go)
//	bank      transfers; the same sum on every node at every moment, and at the end balances as the ledger says (bank.go)
//	rows      the writers above; a Workload is these, and the mixed sessions where they are wanted
//	ddl acl xa  the mixed sessions (mixed.go)
//	large     transactions of 1 to 32 MiB; whole or not at all (large.go)
//	vanish    rows, read on every node all the time; none vanishes, none is shown before an earlier one (views.go)
//	objects   views, procedures, functions, triggers and events: made, used, changed, dropped (objects.go)
//	causal    counters, read through splitting ports; each session sees its own, and after a token what that stands for (causal.go)
//	levels    counters, read at BEFORE, AFTER and both, through both ports: all that anybody was answered before is shown (levels.go)
//
// Every operation goes into a history with the times of its beginning and its answer, and with an outcome:
// acknowledged, failed (surely not executed), or unknown. An unknown one may take effect at any time after it began, or
// never: no checker takes it for either. The checkers are pure functions of histories and of what the nodes hold. Each
// has limits of time and memory; what it could not decide it says, and a report with something undecided is not OK. So
// is a workload of which no write was acknowledged, and a node that the readers of bank or vanish never could read: it
// proves nothing.
//
// # What counts as stale
//
// docs/GUARANTEES.md promises that writes are acknowledged by one server at a time. It does not promise that the reads
// of a leader that was cut off end at the same moment: its lease ends before another one can be elected, but cutting
// its clients takes up to 0.2 s more. So every read that returned what had been overwritten before it began is reported
// with its age (Part.Stale), and is a problem when it is older than SetConfig.StaleMargin, or (register) when its
// server had not been followed by another one. Operations that overlap have no order, so no read of what was being
// overwritten is stale.
package verify
