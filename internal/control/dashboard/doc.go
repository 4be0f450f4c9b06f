// Package dashboard is the page that a node shows to people: the whole cluster on one screen, live, and the few things
// that one does to it.
//
// It is served by package api at / and below /ui/, on every node, and shows what that node knows: a follower, a logger
// and a node without a quorum tell as much as they can, and say what they are.
//
//	GET  /               the page; without a session the login form
//	GET  /ui/period      charts over time: ?last=1h, or ?from= and &to=; &compare=previous, or 24h earlier
//	GET  /ui/stream      server-sent events: the parts of the page that have changed, once a second
//	POST /ui/login       token -> session
//	POST /ui/code        with "Authorization: Bearer": a code that logs in once, for `trireme dashboard` and other nodes
//	POST /ui/elsewhere   a link that logs in at another node
//	POST /ui/logout /ui/switchover /ui/pause /ui/resume /ui/remove /ui/add
//	GET  /ui/style.css /ui/live.js /ui/picture.js /ui/period.css /ui/period.js
//
// Pages are whole without JavaScript. What is live is rendered here as well, and sent as HTML: live.js only puts it in
// its place.
//
// # The picture
//
// The picture of the cluster is a list of sentences (picture.go), whole without scripts. Each carries the figures that
// it tells, as JSON, and picture.js draws those: nodes by zone, the log on its way from the leader, sessions, and the
// age of each. Ages go on between two frames.
//
// # Charts over time
//
// The page of a period (period.go) is made of what all nodes' recorders have kept (api.Report), and consists of tables:
// one for each chart, with a row for each stretch of time and an empty cell where nothing was recorded, one of who led,
// one of events, and lists such as the statements. It is whole without scripts. period.js folds the tables of figures
// and draws each with uPlot, with a band for each row of who led and a line for each event. A table is thus the chart's
// data and its text for screen readers in one: the two cannot differ, no second form of the data is needed, and nothing
// inline has to be allowed.
//
// A period may be compared with an earlier one of the same length (compare.go), for which the nodes are asked for a
// second report. A line of the earlier period is a column of the same table. Stretches of the two periods belong
// together by their number, counted from the beginning.
//
// `trireme report` writes the same page from the same template as one file, with style and script inside. The policy in
// that file names their hashes: what the file shows of statements and messages can never run. A zoom shows no more than
// the at most 240 stretches that the page has; the page on the dashboard puts the part zoomed in to in its form, which
// asks the nodes for it with finer ones. A page is made once for each request, and a node reads its samples for one at
// a time.
//
// # Cost
//
// Nothing is asked, drawn or kept while the page is not open anywhere. The first viewer starts one goroutine, which
// draws for all viewers, asks the other nodes for what they have counted (api.LoadView) once a second and for what they
// have recorded lately every 30 s, and ends a minute after the last viewer has gone.
//
// # Security
//
// Seeing and acting both need a session, and HTTPS: plain HTTP is sent there. Who has a token may log in, and
// do what the token's role may. A session is a signed time limit with a random id and the id of its token in a __Host-
// cookie (Secure, HttpOnly, SameSite=Strict), under a random key of this daemon: it needs no memory, holds on this node
// alone, and ends with its token and with the daemon; logging out has the node remember its id.
//
// A link to another node has this one ask that one, as a member, for a code for the holder of the session's token. It
// names only the token's id, and the other node finds in the committed settings who that is and what that one may. A
// member may do all that an admin may, so it gains nothing by that. The code logs in once, within 20 s, by a button
// that a person presses. Its session lasts no longer than the one that it comes from may, also after links there and
// back. A script of this page gets the link, so the content security policy needs no exception.
//
// An action needs a token derived from the session and must come from this page by what the browser says of its origin.
// The content security policy allows nothing inline and nothing from elsewhere; html/template escapes what nodes,
// servers and clients have put into names and messages. Failed logins are limited by address and in all.
package dashboard
