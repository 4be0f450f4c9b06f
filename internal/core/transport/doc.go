// Package transport carries raft messages, status broadcasts and requests between the nodes of one cluster, over TCP
// and mutual TLS 1.3. docs/format/peer.md draws the bytes.
//
// Every node dials every other one twice: a control stream (heartbeats, votes, acknowledgements, status, requests) and
// a bulk stream (log entries, snapshots), so that a heartbeat never waits for data. Data flows from the dialer to the
// listener; only pongs, responses and the answer to hello flow back.
//
//	Send -> link queue (bounded) -> writer goroutine: one flush per drained queue -> TLS -> peer's reader -> Handler
//
// A stream is trusted after the TLS handshake (the certificate is of the cluster's CA and names a node of it) and hello
// (the raft id claimed is the one in the certificate, the cluster and the node dialed are the right ones). Before that
// a connection has a few seconds and a bounded number of places; after it, every wait for bytes has a deadline.
//
// # Losing messages
//
// A queue that is full, or has no connection, drops; raft repeats. The Handler is told so through RaftUnreachable.
// Within one stream and one connection messages keep their order.
//
// # Who is down
//
// When the control connection to a peer ends, it is redialed at once. If the peer answers and is the same process,
// nothing is reported. Otherwise PeerDown says what was seen. DownError.Gone means that the host answered, nothing
// listens, and the peer's own connection to us has ended as well: its process is dead. A lost host or link reports
// nothing; raft's heartbeats find out.
package transport
