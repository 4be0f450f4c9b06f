// Package model searches every interleaving of a small cluster for a state in which a promise of docs/GUARANTEES.md is
// broken.
//
// It models what is special about Trireme: a mysqld whose binary log is dropped at every start, the prefix that InnoDB
// keeps, statements that ran without a trace, XA, an acknowledgement that follows the commit in Raft, the barrier, the
// feed, the judgement of a server that comes back, the purge of the log. Raft is a correct replicated log with terms;
// what it decides freely (who leads, which uncommitted entries survive) the search tries in all ways. Whether a server
// is judged good, and how far the log may be purged, is decided by package ledger, which decides it in a real node too.
//
// A model.Config bounds the cluster: nodes, the transactions that clients send, crashes, elections. Search goes through
// all reachable states in breadth, so the trace of a violation is a shortest one. Nodes are interchangeable: states
// that differ in names only are one.
//
// Config.Broken switches rules off. A model that finds nothing then would prove nothing.
// docs/safety/model.md says what is modelled, what is not, and how many states there are.
package model
