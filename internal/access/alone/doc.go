// Package alone runs a router on a host without a node, next to an application.
//
// It follows the views of all nodes at once (GET /route of package api): each is pushed by its node at every change,
// and repeated as a sign of life. The one with the highest generation and term counts, so a node that is cut off with
// an old one changes nothing as long as any other is heard, and what was heard longer than api.RouteLimit ago does not
// count at all. Without any view the router holds: open read-write connections are left alone, because a leader that
// lost its quorum cuts them itself, new ones wait, and read-only ones end, because no node says any more whose data has
// been judged.
//
// What sessions want to see of the cluster a node is asked for as well. They can change nothing here: this router has
// no credential, or a viewer's.
//
// With one, the leader waits for it at a planned switchover (hold.go): a view with a number, RouteView.Hold, says that
// it is about to close writes, and who holds all sessions by then, with nothing under way, tells it so (POST /quiet),
// once. It waits for half a second at most, and without a credential not at all.
//
// How current servers are, for levels, tokens and the splitting port, nodes are asked too (GET /read-index and
// /applied), one question at a time for all sessions: of one server its own node, of all servers, or of what is
// committed, whose view counts. Indexes belong to one log, so no node of another generation is asked, and a token of
// one is refused.
//
// A view may be old all the same, in the network as in a hung process. So no read-write connection rests on one: the
// leader itself is asked whether it takes writes in the epoch meant (GET /serves), after the greeting of its mysqld, as
// a node's own router does.
package alone
