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
// talks to servers is in workload.go and collect.go.
package verify
