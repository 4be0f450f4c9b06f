package node

import (
	"time"

	"trireme/internal/api"
	"trireme/internal/node/gossip"
)

// routingHost is what routing sees of this node.
type routingHost struct{ host }

func (h routingHost) Status() gossip.Status          { return h.n.myStatus() }
func (h routingHost) Term() uint64                   { return h.n.control.Soft().Term }
func (h routingHost) Lags() map[string]time.Duration { return h.n.followerLags() }
func (h routingHost) Proof() *api.MySQLProof         { return h.n.certs.Proof() }
func (h routingHost) Held() uint64                   { return h.n.leadership.Held() }
func (h routingHost) Generation() uint64             { return h.n.recovery.Generation().NumberOf() }
