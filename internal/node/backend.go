package node

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/consensus"
	"trireme/internal/ha"
)

// Node is the backend of its API server.
var _ api.Backend = (*Node)(nil)

// Local implements api.Backend.
func (n *Node) Local() api.Health {
	st := n.cons.Status()
	lease := n.cons.LeaseUntil()
	n.mu.Lock()
	defer n.mu.Unlock()
	h := api.Health{Name: n.id.Name, Role: n.roleLocked(&st), State: n.stateName, Reason: n.why, Term: st.Term,
		MySQLAlive: n.srv.life != nil}
	if m, ok := n.cluster.MemberByID(st.Leader); ok {
		h.Leader = m.Name
	}
	// The lease is compared with the clock after everything else was read (S10).
	h.Writable = n.leadsLocked(&st) && n.takesWritesLocked() && consensus.Boottime() < lease
	if st.Role == consensus.Leader {
		h.RulesSuspended = n.rules.current().Suspended()
	}
	h.Readable, h.Delayed = n.srv.state == ha.ServerReady, n.delayedLocked()
	// Behind what others have committed since, unless a leader is heard. Raft's leader does not tell: a learner never gives up one that it lost.
	leader := n.peers[st.Leader]
	if heard := st.Leader == n.id.ID || leader != nil && leader.fresh(); h.Readable && heard {
		lag, bytes := n.lagLocked()
		h.LagKnown, h.Lag, h.LagBytes = true, lag, bytes
	}
	return h
}

// Leader implements api.Backend.
func (n *Node) Leader() api.Leader {
	st := n.cons.Status()
	n.mu.Lock()
	defer n.mu.Unlock()
	m, ok := n.cluster.MemberByID(st.Leader)
	if !ok {
		return api.Leader{}
	}
	return api.Leader{Name: m.Name, API: m.API, Self: m.ID == n.id.ID}
}

// Self implements api.Backend.
func (n *Node) Self(context.Context) api.MemberView {
	st := n.cons.Status()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.selfViewLocked(&st)
}

// View implements api.Backend: it is put together from what every daemon tells all others, so any node answers at once.
func (n *Node) View(context.Context) api.ClusterView {
	now := n.view()
	forecast, zones := n.forecast(now), n.zoneViews(now)
	st := n.cons.Status()
	n.mu.Lock()
	defer n.mu.Unlock()
	v := api.ClusterView{Cluster: n.id.Cluster, Term: st.Term, CommitIndex: st.Commit, Pause: pauseView(n.cluster), Failover: forecast,
		CommitRules: n.rules.current(), Zones: zones, Generation: n.generation.NumberOf()}
	v.Flow = n.flow.view
	led := uint64(0) // term of v.Leader: one that was cut off may go on telling that it leads, in an older term
	for _, m := range n.cluster.Members {
		var mv api.MemberView
		switch p := n.peers[m.ID]; {
		case m.ID == n.id.ID:
			mv = n.selfViewLocked(&st)
		case m.Pending && (p == nil || !p.fresh()):
			mv = api.DownView(m, "it has joined and was never started; start its daemon, or take it out with `trireme remove "+m.Name+"`")
			mv.ReasonCode = api.NeverStarted
		case p == nil || !p.fresh():
			mv = api.DownView(m, silenceText(p))
			if p != nil {
				mv.Raft = p.status.Member.Raft
			}
		default:
			mv = p.agedView()
		}
		mv.Raft.Zone, mv.Raft.MustAck = m.Zone, m.MustAck
		mv.Raft.Voter = contains(st.Voters, m.ID)
		if pr, ok := st.Members[m.ID]; ok {
			mv.Raft.Match = pr.Match
		}
		v.Members = append(v.Members, mv)
		if mv.Role == api.RoleLeader && mv.State != api.StateDown && mv.Raft.Term >= led {
			v.Leader, led = mv.Name, mv.Raft.Term
			if p := n.peers[m.ID]; p != nil && m.ID != n.id.ID {
				v.Flow = p.status.Flow
			}
		}
	}
	for i, m := range v.Members {
		if why := api.Unreached(m.Name, v.Members); m.State == api.StateDown && why != "" {
			v.Members[i].Reason += "; " + why
		}
	}
	v.Blocked = api.Blocked(v.Members)
	return v
}

// History implements api.Backend.
func (n *Node) History(context.Context) ([]api.Event, error) {
	events := n.history.all()
	explainRollbacks(events)
	return events, nil
}

// Settings implements api.Backend.
func (n *Node) Settings() *config.Cluster { return n.settings.Load() }

// setClusterLocked puts settings in force.
func (n *Node) setClusterLocked(c *config.Cluster) {
	n.cluster = c
	n.settings.Store(c)
}

// Metrics implements api.Backend.
func (n *Node) Metrics() prometheus.Gatherer { return n.metrics }
