package node

import (
	"context"

	"trireme/internal/base/config"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/gossip"
)

// host is what most organs see of this node. Each of them has a host of its own, with this in it.
type host struct{ n *Node }

func (h host) Settings() *config.Cluster { return h.n.Settings() }

func (h host) Member(name string) (config.Member, error) { return h.n.findMember(name) }

func (h host) Peers() gossip.Peers { return h.n.gossip.Peers() }

func (h host) Log() *raftlog.Log { return h.n.rlog }

// Request asks another daemon; HandleRequest answers it.
func (h host) Request(ctx context.Context, member uint64, kind uint8, body []byte) ([]byte, error) {
	return h.n.tr.Request(ctx, member, kind, body)
}

// Record adds an event of this node to the history; by is who asked for it, empty: the node itself.
func (h host) Record(kind, by, text string) { h.n.history.Record(kind, by, text) }

func (h host) Publish() { h.n.Publish() }

func (h host) Go(f func(ctx context.Context)) { h.n.Go(f) }

func (h host) IsNew(what string, err error) bool { return h.n.warnings.isNew(what, err) }

func (h host) WakeLoop() { h.n.wakeLoop() }

func (h host) Fail(err error) { h.n.fail(err) }
