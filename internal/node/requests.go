package node

import (
	"context"

	"trireme/internal/core/transport"
	"trireme/internal/node/certs"
	"trireme/internal/node/delay"
	"trireme/internal/node/history"
	"trireme/internal/node/leadership"
	"trireme/internal/node/leave"
	"trireme/internal/node/membership"
	"trireme/internal/node/reads"
	"trireme/internal/node/recovery"
	"trireme/internal/node/seeding"
)

// reqServes is a request between daemons: an epoch, answered when mysqld takes writes in it, with the commit index.
// Older daemons send none.
var reqServes = transport.Kind[string, []uint64]{Number: 22}

// handler is this node to its peers.
type handler struct {
	*Node
	requests transport.Answers
}

// HandleRequest implements transport.Handler.
func (h handler) HandleRequest(ctx context.Context, from uint64, kind uint8, body []byte) ([]byte, error) {
	if !h.up() {
		return nil, errStopped
	}
	return h.requests.HandleRequest(ctx, from, kind, body)
}

// requests are all requests between daemons, and who answers them (docs/format/peer.md).
func (n *Node) requests() transport.Answers {
	return transport.Answers{
		transport.After(leadership.ReqApplied, n.awaitAppliedHere),
		seeding.ReqDonate.By(n.seeding.DonationFor),
		transport.After(seeding.ReqReinit, n.seeding.ReinitHere),
		membership.ReqSettings.By(func(context.Context, uint64, transport.None) ([]byte, error) {
			return n.Settings().Marshal()
		}),
		history.ReqEvents.By(n.history.EventsForPeer),
		recovery.ReqSurvey.By(n.recovery.SurveyForPeer),
		transport.After(leadership.ReqForce, n.leadership.TakeOrder),
		transport.After(membership.ReqAddress, n.members.TakeAddress),
		reqServes.By(func(ctx context.Context, _ uint64, epoch string) ([]uint64, error) {
			index, err := n.Serves(ctx, epoch)
			return []uint64{index}, err
		}),
		reads.ReqApplied.By(n.reads.AppliedForPeer),
		delay.ReqDelay.By(n.delay.OrderForPeer),
		reads.ReqLive.By(n.reads.LiveForPeer),
		certs.ReqCAKey.By(n.certs.CAKeyFor),
		leave.ReqHoldings.By(n.end().HoldingsFor),
		transport.After(leave.ReqPlain, n.end().PlainHere),
		transport.After(leave.ReqCancel, n.end().CancelHere),
		transport.After(seeding.ReqHeal, n.seeding.GrantFor),
		certs.ReqClone.By(n.certs.CloneFor),
	}
}
