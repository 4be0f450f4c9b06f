// Package router leads MySQL clients to the right node. Without Config.Sessions it copies bytes both ways without
// looking at them: TLS, any authentication, prepared statements and LOAD DATA LOCAL work because mysqld itself answers.
// With Config.Sessions it follows the protocol on both sides instead, and sessions outlive their servers. It listens on
// up to four ports:
//
//   - The read-write port leads to the leader. While none is known, new connections wait (at most HoldTimeout, at most
//     MaxHeld of them); then they get a MySQL error packet that says so.
//   - The read-only port leads to the healthy follower with the fewest connections through this router, and to the
//     leader if no follower is healthy.
//   - The split port (Config.SplitListen) sends each statement of a followed session where it belongs: reads to a
//     follower, the rest to the leader.
//   - The stream port (Config.StreamListen) serves the committed binary log to replicas and other consumers.
//
// The owner tells the router about the cluster with [Router.SetView], as often as it wants; a view equal to the present
// one costs nothing. A target's Epoch names one stretch of time in which it may serve; it must change with each
// incarnation of its mysqld and, for the leader, with each term. A connection belongs to the target and epoch that it
// was opened to. A view may come late by any time, and an address outlives the server that listens there, so no new
// read-write connection relies on a view alone: Config.Confirm asks the node that leads whether it still does. SetView
// closes, both sides at once and with a reset, every connection whose target the new view does not hold any more:
//
//   - a read-write connection lives while View.RW has its name, address and epoch; a view without RW closes all of
//     them, unless KeepRW says that the leader is merely unknown;
//   - a read-only connection lives while View.RO or View.RW has them.
//
// SetView returns only after these connections are closed, so a fence can rely on it. There is one exception: a
// read-only connection whose client is logging in, at a server that continues in another role, lives until the login is
// over; no command is sent on it after that.
//
// # Followed sessions
//
// docs/router.md says what clients see. A followed connection has these phases:
//
//	connect   the server first: its greeting, with its nonce, is the one that the client gets
//	login     relayed packet by packet, so that any plugin works; TLS ends here; the password is learned on the way (login)
//	commands  one at a time: look, enter, send, receive, learn (session). A session is at a boundary when no command is under way and
//	          everything that depends on its server can be restored (state.boundary)
//	held      a planned switchover holds the router: a session at a boundary does not pass enter. It waits for logins under way, of silent clients for
//	          loginPatience
//	lost      SetView has closed its server. At a boundary the next command resumes it at the view's server; within a transaction, or a
//	          command, the client is told so (session.lost)
//	through   something that is not followed: the rest is copied as bytes, and ends with its server
//
// What SetView promises holds for the server's side: its connections are closed when it returns, and a followed
// session's client goes on. Each session runs on one goroutine, which alone touches its state; others close its server
// and ring.
package router
