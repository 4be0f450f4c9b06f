package node

import (
	"context"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/node/membership"
)

// memberHost is what membership sees of this node.
type memberHost struct{ host }

func (h memberHost) Raft() membership.Raft { return h.n.cons }

func (h memberHost) Links() membership.Links { return h.n.tr }

func (h memberHost) AwaitLease(ctx context.Context, patience time.Duration) error {
	return h.n.leadership.AwaitLease(ctx, patience)
}

func (h memberHost) Ready() bool { return h.n.myStatus().Ready }

func (h memberHost) MayBeRead(term, id uint64) bool { return h.n.reads.MayBeRead(term, id) }

func (h memberHost) Adopted(c *config.Cluster) {
	n := h.n
	if n.delay.SettingsChanged() && n.feed != nil {
		n.feed.Again()
	}
	n.certs.SettingsChanged(c)
	n.wakeLoop()
	if c.Disbanded != nil {
		n.task(func(ctx context.Context) { n.end().Finish(ctx, c.Disbanded, c.Version) })
	}
}

func (h memberHost) Switchover(ctx context.Context, req api.SwitchoverRequest) (api.SwitchoverResult, error) {
	return h.n.Switchover(ctx, req)
}

func (h memberHost) Forward(ctx context.Context, path string, body, answer any) error {
	return h.n.api.Forward(ctx, path, body, answer)
}

func (h memberHost) CADigest() string { return h.n.certs.Bundle().CADigest() }

func (h memberHost) Newcomer() config.Secrets { return h.n.certs.Newcomer() }

func (h memberHost) Go(f func(ctx context.Context)) { h.n.task(f) }
