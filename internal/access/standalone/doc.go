// Package standalone runs a router on a host without a node, next to an application.
//
// # Views
//
// It follows the views of all nodes at once (GET /route of package api). Each node pushes its view at every change, and
// repeats it as a sign of life. The view with the highest generation and term counts, so a node that is cut off with an
// old view changes nothing as long as any other is heard. A view that is older than api.RouteLimit does not count.
// Within one term a view with a Hold number wins, because nodes that have not heard of the switchover yet still name
// the leader.
//
// Without any view the router holds. Open read-write connections are left alone, because a leader that lost its quorum
// cuts them itself. New ones wait. Read-only ones end, because no node says any more whose data has been judged.
//
// A view may be old all the same, in the network as in a hung process. So no read-write connection rests on one. After
// the greeting of its mysqld, the leader itself is asked whether it takes writes in that epoch (GET /serves), as a
// node's own router does.
//
// # Questions
//
// Levels, tokens and the splitting port depend on how current servers are. Nodes are asked that (GET /read-index and
// /applied), one question at a time for all sessions. A question about one server goes to its own node. One about all
// servers, or about what is committed, goes to the node whose view counts. Indexes belong to one log, so no node of
// another generation is asked, and a token of one is refused. Sessions can also see the cluster, by asking a node, and
// change nothing of it: this router has no credential, or a viewer's.
//
// # Planned switchovers
//
// With a credential, the leader waits for this router (hold.go). A view with a number, RouteView.Hold, says that the
// leader is about to close writes. When the router holds all sessions, with nothing under way, it tells the leader so
// once (POST /quiet). The leader waits for half a second at most, and without a credential not at all.
package standalone
