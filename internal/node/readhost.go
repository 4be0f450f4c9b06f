package node

import (
	"context"
	"fmt"
	"time"

	"trireme/internal/core/ha"
	"trireme/internal/mysql/gtid"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/reads"
)

// readHost is what reads sees of this node.
type readHost struct{ host }

func (h readHost) Raft() reads.Raft { return h.n.cons }

func (h readHost) Settled() uint64 { return h.n.acks.Settled() }

func (h readHost) AppliedIndex() (uint64, error) {
	h.n.mu.Lock() // with which what is applied changes
	defer h.n.mu.Unlock()
	if s := h.n.lives.Status(); s.Life() == nil || s.State() != ha.ServerReady {
		return 0, fmt.Errorf("its mysqld is %s", s.State())
	}
	return h.n.led.AppliedIndex(), nil
}

func (h readHost) Follow(ctx context.Context, index uint64, patience time.Duration) error {
	l := h.n.lives.Life()
	if l == nil {
		return lifecycle.ErrDead
	}
	_, err := l.Admin().FollowExecuted(ctx, h.n.led.Missing(index).String(), patience)
	if err == nil {
		_, err = l.ReadExecuted(ctx)
	}
	return err
}

func (h readHost) DeclaredVoid(g gtid.GTID) bool { return h.n.seeding.DeclaredVoid(g) }
