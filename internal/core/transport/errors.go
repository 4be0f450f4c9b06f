package transport

import (
	"errors"
	"fmt"
	"syscall"
)

// Errors of this package. Callers compare with errors.Is.
var (
	// ErrClosed: the transport was closed.
	ErrClosed = errors.New("transport is closed")
	// ErrNotConnected: there is no connection to the peer, or it ended before the answer came.
	ErrNotConnected = errors.New("peer is not connected")
	// ErrUnknownPeer: no address is known for the id.
	ErrUnknownPeer = errors.New("unknown peer")
	// ErrBusy: the peer has too many requests under way, or too many wait to be sent to it.
	ErrBusy = errors.New("too many requests under way")
	// ErrTooLarge: a request or answer beyond MaxRequestBytes.
	ErrTooLarge = errors.New("request or answer is too large")
	// ErrForeignCluster: the other side belongs to another cluster.
	ErrForeignCluster = errors.New("peer belongs to another cluster")
	// ErrWrongID: the other side is not the node it should be, or its certificate says otherwise.
	ErrWrongID = errors.New("peer has another raft id")
	// ErrVersion: no common version of the protocol.
	ErrVersion = errors.New("peer speaks no common protocol version")
	// ErrGeneration: force-quorum has separated the other side from this one; Handler.OtherGeneration is told.
	ErrGeneration = errors.New("peer is of another generation")
	// ErrRevoked: the certificate of one side is not trusted any more (Config.Revoked).
	ErrRevoked = errors.New("certificate is revoked")
	// ErrTwin: two processes run with the identity of one node, and this is about the younger one.
	ErrTwin = errors.New("another process runs as the same node")
	// ErrProtocol: bytes that make no sense.
	ErrProtocol = errors.New("peer protocol violated")
	// ErrRestarted: the peer's process was replaced by a new one.
	ErrRestarted = errors.New("peer was restarted")
	// ErrRemoved: SetPeers no longer names the peer.
	ErrRemoved = errors.New("peer was removed")
)

// DownError is why a peer counts as down: how its control connection ended and what came of the redial.
type DownError struct {
	Peer   uint64
	Lost   error // how the connection ended
	Redial error // why there is no new one; nil if there is (ErrRestarted is then Lost)
	// Refused: the host answered the redial, and nothing listens there.
	Refused bool
	// Alive: all the same, the peer's own connection to us is still open, so its process lives: something on the way
	// refuses in its name.
	Alive bool
}

func (e *DownError) Error() string {
	if e.Redial == nil {
		return fmt.Sprintf("peer %d: %v", e.Peer, e.Lost)
	}
	text := fmt.Sprintf("peer %d: connection ended (%v), redial failed: %v", e.Peer, e.Lost, e.Redial)
	if e.Alive {
		text += "; but its own connection to this node lives: a firewall?"
	}
	return text
}

// Unwrap gives both causes.
func (e *DownError) Unwrap() []error { return []error{e.Lost, e.Redial} }

// Gone reports whether the old process is certainly gone: nothing listens any more and its own connection to us has
// ended too, or a new process answers.
func (e *DownError) Gone() bool { return e.Refused && !e.Alive || errors.Is(e.Lost, ErrRestarted) }

// RemoteError is an error that the peer's Handler returned for a request.
type RemoteError struct {
	Peer uint64
	Text string
}

func (e *RemoteError) Error() string { return fmt.Sprintf("peer %d: %s", e.Peer, e.Text) }

func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
