package node

import (
	"context"
	"fmt"
	"time"

	"trireme/internal/gtid"
	"trireme/internal/ha"
	"trireme/internal/node/gossip"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/reads"
)

// readHost is what reads sees of this node.
type readHost struct{ *Node }

func (h readHost) Raft() reads.Raft { return h.cons }

func (h readHost) Peers() gossip.Peers { return h.gossip.Peers() }

func (h readHost) Settled() uint64 { return h.acks.Settled() }

func (h readHost) AppliedIndex() (uint64, error) {
	h.mu.Lock() // with which what is applied changes
	defer h.mu.Unlock()
	if s := h.lives.Status(); s.Life() == nil || s.State() != ha.ServerReady {
		return 0, fmt.Errorf("its mysqld is %s", s.State())
	}
	return h.led.AppliedIndex(), nil
}

func (h readHost) Follow(ctx context.Context, index uint64, patience time.Duration) error {
	l := h.lives.Life()
	if l == nil {
		return lifecycle.ErrDead
	}
	_, err := l.Admin().FollowExecuted(ctx, h.led.Missing(index).String(), patience)
	if err == nil {
		_, err = l.ReadExecuted(ctx)
	}
	return err
}

func (h readHost) DeclaredVoid(g gtid.GTID) bool { return h.declaredVoid(g) }
