package transport

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/pki"
)

// TestRevokedPeer: a hostile client that holds a node's revoked certificate and key can neither vote, nor post an
// entry, nor ask for anything, neither over an existing connection nor over a new one, under any name; and no node
// dials its listener.
func TestRevokedPeer(t *testing.T) {
	var revoked atomic.Value
	revoked.Store("")
	serial := func(c *x509.Certificate) string {
		if pki.SerialOf(c) == revoked.Load() {
			return "it was revoked"
		}
		return ""
	}
	n := startNode(t, 1, func(c *Config) { c.Revoked = serial })
	stolen, renewed := bundle(t, testCA(), 2), bundle(t, testCA(), 2)
	conn, w, err := introduce(t, n, stolen, goodHello(controlStream))
	if err != nil || w.err() != nil {
		t.Fatal(err, w.err())
	}
	vote := message(raftpb.MsgVoteResp, 2, 1, 7)
	send := func(kind frameKind, body []byte) error {
		fw := newFrameWriter(conn)
		return errors.Join(fw.frame(kind, body), fw.Flush())
	}
	if err := send(frameRaft, encodeMessage(t, vote)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the vote", func() bool { return len(n.received()) == 1 })

	cert, err := x509.ParseCertificate(stolen.PeerTLS().Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	revoked.Store(pki.SerialOf(cert))
	n.Recheck()
	ended(t, conn)
	_ = send(frameRaft, encodeMessage(t, vote))
	for _, s := range []stream{controlStream, bulkStream} {
		c, w, err := introduce(t, n, stolen, goodHello(s))
		if err != nil || !errors.Is(w.err(), ErrRevoked) || !strings.Contains(w.text, "it was revoked") {
			t.Fatalf("%v, %+v", err, w)
		}
		fw := newFrameWriter(c)
		kind := map[stream]frameKind{controlStream: frameRaft, bulkStream: frameRaft}[s]
		_ = errors.Join(fw.frame(kind, encodeMessage(t, vote)), fw.frame(frameRequest, make([]byte, 16)), fw.Flush())
		ended(t, c)
	}
	h := goodHello(controlStream)
	h.from = 3
	if _, w, err = introduce(t, n, stolen, h); err != nil || !errors.Is(w.err(), ErrWrongID) {
		t.Errorf("under another name: %v, %v", err, w)
	}
	if got := n.received(); len(got) != 1 {
		t.Errorf("%d messages came through", len(got))
	}

	told := make(chan string, 8)
	m := startNode(t, 2, func(c *Config) {
		c.TLS = tlsOf(stolen)
		c.ToldRevoked = func(_ uint64, why string) {
			select {
			case told <- why:
			default:
			}
		}
	})
	m.SetPeers(map[uint64]string{1: n.Addr()})
	select {
	case why := <-told:
		if why != "it was revoked" {
			t.Error(why)
		}
	case <-time.After(20 * time.Second):
		t.Error("the node that is refused does not hear why")
	}
	n.SetPeers(map[uint64]string{2: m.Addr()})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := n.peer(2).control.dial(ctx, m.Addr()); !errors.Is(err, ErrRevoked) {
		t.Errorf("a listener of its: %v", err)
	}
	m.close()

	fresh := startNode(t, 2, func(c *Config) { c.TLS = tlsOf(renewed) })
	connect(n, fresh) // the same node with another certificate is welcome
}

// TestRecheckEndsLinks: also of a connection that this node has dialed.
func TestRecheckEndsLinks(t *testing.T) {
	var on atomic.Bool
	n := startNode(t, 1, func(c *Config) {
		c.Revoked = func(*x509.Certificate) string { return map[bool]string{true: "gone"}[on.Load()] }
	})
	m := startNode(t, 2, nil)
	connect(n, m)
	on.Store(true)
	n.Recheck()
	eventually(t, "both ends are down", func() bool { return !n.Connected(2) && !m.Connected(1) })
	eventually(t, "the word of it", func() bool { return n.lastDown() != nil })
	if down, ok := errors.AsType[*DownError](n.lastDown()); !ok || down.Gone() {
		t.Errorf("it counts as dead: %v", n.lastDown())
	}
}
