// Package api is the control surface of a cluster over HTTP: health checks, the state of the whole cluster, and the
// control verbs. [Server] serves it on every node, [Client] is what the command line and the demo use.
//
// One listener takes both plain HTTP and TLS; the first byte of a connection tells which (0x16 begins a TLS handshake,
// and no HTTP method begins with it). Plain HTTP answers GET, HEAD and OPTIONS from anywhere, so that any load balancer
// can use the health checks, and POST from a loopback address only. Every POST needs a token as "Authorization: Bearer"
// with the role that verbs lists for it; except /join, which needs a one-time join token.
//
//	GET  /primary /replica?lag= /read-only /health /liveness /readiness   200 or 503; HEAD and OPTIONS too
//	GET  /cluster       ClusterView
//	GET  /member        MemberView of the node that answers
//	GET  /route         a RouteView in a line, again at each change and as a sign of life, for routers
//	POST /quiet         QuietRequest of a router without a node -> QuietResult, see [Routers]
//	GET  /serves?epoch= 200 {index}: this node takes writes in that epoch, now, and has answered nothing beyond that index
//	GET  /history       []Event
//	GET  /metrics       Prometheus text
//	GET  /load          LoadView of the node that answers
//	GET  / and /ui/…    pages for people, see package dashboard: HTTPS only, with a login of their own
//	POST /switchover    SwitchoverRequest  -> SwitchoverResult
//	POST /leave         LeaveRequest       -> LeaveResult
//	POST /join-tokens   JoinTokenRequest   -> JoinTokenResult
//	GET  /tokens        []TokenView; POST makes one, POST /tokens/remove ends it
//	GET  /ca            CAView; POST takes a step in a change of the CA
//	POST /certificates/revoke, GET /certificates/revoked
//	POST /join          JoinRequest        -> JoinResult
//
// What only the leader can answer is forwarded to it by whichever node was asked, in one hop: a forwarded request is
// never forwarded again. Errors are JSON {error, advice, kind}, see [Error].
package api
