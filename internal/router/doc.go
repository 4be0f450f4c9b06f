// Package router leads MySQL clients to the right node. It listens on two ports and copies bytes both ways without looking at
// them: TLS, any authentication, prepared statements and LOAD DATA LOCAL work because mysqld itself answers.
//
//   - The read-write port leads to the leader. While none is known, new connections wait (at most HoldTimeout, at most MaxHeld
//     of them); then they get a MySQL error packet that says so.
//   - The read-only port leads to the healthy follower with the fewest connections through this router, and to the leader when
//     there is none.
//
// The owner tells the router about the cluster with [Router.SetView], as often as it likes; a view equal to the present one costs
// nothing. A target's Epoch names one stretch of time in which it may serve; it must change with each incarnation of its mysqld and,
// for the leader, with each term. A connection belongs to the target and epoch that it was opened to. A view may come late by any
// time, and an address outlives who listens there, so no new read-write connection rests on a view alone: Config.Confirm asks the
// node that leads whether it still does. SetView closes, both sides at once and with a reset, every connection whose target the new
// view does not hold any more:
//
//   - a read-write connection lives while View.RW has its name, address and epoch; a view without RW closes all of them,
//     unless KeepRW says that the leader is merely unknown;
//   - a read-only connection lives while View.RO or View.RW has them.
//
// SetView returns only after these connections are closed, so a fence can rely on it.
package router
