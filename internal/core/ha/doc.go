// Package ha is the whole policy of failover as a pure function: Decide looks at one node's View of the cluster and
// says in one sentence what state the node is in and which actions must follow. It has no I/O, goroutine, clock or
// randomness; package node makes the View, carries out the actions and calls Decide again whenever something in the
// View changes.
//
// The caller's duties:
//
//   - Build the View afresh for every call; never reuse identity, term or leadership read before a wait (S7).
//   - Read what an action rests on again before it is begun, and drop it unless Stands (S7).
//   - Run at most one action on the mysqld at a time and show it in View.Server.State or View.Serving.Phase, so that
//     Decide does not ask for it twice.
//   - Note each HandOver and Switchover in View.HandoverTriedTerm, HandoverAt and HandoverTo when it is begun.
//   - Show a server as stuck only for what its daemon has seen while it was running itself: time in which the daemon
//     was stopped is no silence of mysqld.
//   - After a failed start, judgement or promotion set Server.RetryAt a little ahead.
//   - Give a Switchover and a request of an operator a limit of their own: Decide waits as long as Request is there.
package ha
