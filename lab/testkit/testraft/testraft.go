// Package testraft runs the raft of one member, for tests of what stands on it.
package testraft

import (
	"cmp"
	"log/slog"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/loop"
	"trireme/internal/core/consensus"
)

// Start runs raft on the log of c (Storage) until the test ends. Where c leaves it open, no message reaches anybody, a
// fatal error fails the test, and nothing is logged.
func Start(t testing.TB, c consensus.Config, boot ...raft.Peer) *consensus.Node {
	t.Helper()
	if c.Send == nil {
		c.Send = func([]*raftpb.Message) {}
	}
	if c.OnFatal == nil {
		c.OnFatal = func(err error) { t.Error(err) }
	}
	c.ID, c.Logger = cmp.Or(c.ID, 1), cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	var err error
	if c.Loop, err = loop.New(time.Second); err != nil {
		t.Fatal(err)
	}
	n, err := consensus.Start(c, boot)
	if err != nil {
		t.Fatal(err)
	}
	c.Loop.Start()
	t.Cleanup(func() {
		n.Stop()
		c.Loop.Stop()
		c.Loop.Wait()
	})
	return n
}
