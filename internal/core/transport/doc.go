// Package transport carries raft messages, status broadcasts and requests between the nodes of one cluster, over TCP
// and mutual TLS 1.3. docs/format/peer.md draws the bytes.
//
// Every node dials every other one twice: a control stream (heartbeats, votes, acknowledgements, status, requests) and
// a bulk stream (log entries, snapshots), so that a heartbeat never waits for data. Data flows from the dialer to the
// listener; only pongs, responses and the answer to hello flow back.
//
//	Send -> link queue (bounded) -> loop: one flush per link and turn -> TLS -> the peer's loop -> Handler
//
// Goroutines connect, shake hands and connect again; a connection that both sides have agreed on is read and written by
// the loop (internal/base/loop), which never waits. What the kernel does not take yet stays with the connection, and no
// more is encrypted meanwhile than the rest of a frame of at most 4 MiB, or of a piece of 256 KiB of a larger message.
// Frames are read in the parts in which they come. A turn of reading or writing ends after about 1 MiB, within a large
// message too, so that no other connection waits for the whole of it. Each request has a goroutine.
//
// A stream is trusted after the TLS handshake (the certificate is of the cluster's CA and names a node of it) and hello
// (the raft id claimed is the one in the certificate, the cluster and the node dialed are the right ones). Before that
// a connection has a few seconds and a bounded number of places; after it, silence and bytes that are not taken have a
// limit.
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
