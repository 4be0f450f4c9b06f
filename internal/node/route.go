package node

import (
	"math"
	"reflect"
	"sync"

	"trireme/internal/access/router"
	"trireme/internal/api"
	"trireme/internal/base/config"
)

// routeNews tells those who follow this node's view from elsewhere that it has changed.
type routeNews struct {
	mu      sync.Mutex
	last    router.View
	changed chan struct{} // closed, and replaced, at each change; nil: it was not asked for yet
}

func (r *routeNews) next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed
}

// tell takes the present view, as often as the caller likes.
func (r *routeNews) tell(v router.View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reflect.DeepEqual(r.last, v) {
		return
	}
	r.last = v
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// Route implements api.Backend. The view is made again for each call, so that a loop of this node that hangs passes
// nothing old off as new.
func (n *Node) Route() (api.RouteView, <-chan struct{}) {
	changed := n.news.next() // before the view is made: no change is missed
	self, lags := n.myStatus(), n.followerLags()
	n.mu.Lock()
	defer n.mu.Unlock()
	v, _ := n.routerViewLocked(self)
	out := api.RouteView{Cluster: n.id.Cluster, Node: n.id.Name, Generation: n.recovery.Generation().NumberOf(),
		Term:   self.Member.Raft.Term,
		KeepRW: v.KeepRW, RO: []api.RouteTarget{}, Lags: map[string]float64{}}
	for name, lag := range lags {
		if lag != math.MaxInt64 {
			out.Lags[name] = lag.Seconds()
		}
	}
	out.Proofs = n.proofs()
	if self.Handover {
		out.Hold = n.leadership.Held()
	}
	if v.RW != nil {
		out.RW = (*api.RouteTarget)(v.RW)
	}
	for _, t := range v.RO {
		out.RO = append(out.RO, api.RouteTarget(t))
	}
	c := n.Settings()
	for _, m := range c.Members {
		out.Nodes = append(out.Nodes, api.RouteNode{Name: m.Name, API: m.API, ID: m.ID,
			Revoked: c.WhyRevoked(m.ID, "") != ""})
	}
	out.Next = c.NextID
	for _, r := range c.RevokedCerts {
		if r.Serial != "" {
			out.Revoked = append(out.Revoked, r.Serial)
		}
	}
	return out, changed
}

// proofs are how routers know the members' mysqlds, as those nodes say. Those of older ones are not in it.
func (n *Node) proofs() map[string]api.MySQLProof {
	all := map[string]api.MySQLProof{}
	if n.id.Role != config.RoleLogger {
		all[n.id.Name] = *n.certs.Proof()
	}
	for id, p := range n.gossip.Peers() {
		m, member := n.Settings().MemberByID(id)
		if proof := p.Proof(); member && proof != nil {
			all[m.Name] = *proof
		}
	}
	return all
}
