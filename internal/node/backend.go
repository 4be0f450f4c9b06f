package node

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/node/certs"
	"trireme/internal/node/membership"
	"trireme/internal/node/reads"
	"trireme/internal/node/recovery"
	"trireme/internal/node/routing"
)

// backend answers the API server: the node, and its organs what is theirs.
type backend struct {
	*Node
	*certs.Certs
	*reads.Reads
	*recovery.Recovery
	*routing.Routing
	samples
}

var _ api.Backend = backend{}

// answers are this node's to the verbs and queries of the API.
func (n *Node) answers() []api.Answer {
	return []api.Answer{
		api.Switchover.By(n.Switchover), api.Failover.By(n.leadership.Failover), api.Pause.By(n.members.Pause),
		api.Resume.By(n.members.Resume), api.Reinit.By(n.seeding.Reinit), api.Delay.By(n.delay.Order),
		api.NoteBackup.By(n.gossip.NoteBackup(n.history.Add, n.history.Event)), api.ChangeConfig.By(n.members.ChangeConfig),
		api.RollbackConfig.By(n.members.RollbackConfig), api.NewToken.By(n.certs.NewToken),
		api.RemoveToken.By(n.certs.RemoveToken), api.Revoke.By(n.certs.Revoke), api.ChangeCA.By(n.certs.ChangeCA),
		api.ReplacePassword.By(n.certs.ReplacePassword), api.NewJoinToken.By(n.members.NewJoinToken),
		api.Join.By(n.members.Join), api.Remove.By(n.members.Remove), api.Promote.By(n.members.Promote),
		api.Demote.By(n.members.Demote), api.Leave.By(n.end().Leave),
		api.Void.By(n.seeding.Void), api.ForceApply.By(n.seeding.ForceApply),
		api.Config.By(n.members.Config), api.ConfigHistory.By(n.members.ConfigHistory), api.Tokens.By(n.certs.Tokens),
		api.CA.By(n.certs.CA),
	}
}

// Local implements api.Backend.
func (n *Node) Local() api.Health {
	st := n.cons.Status()
	lease := n.cons.LeaseUntil()
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.lives.Status()
	h := api.Health{Name: n.id.Name, Role: n.roleIn(&st), Term: st.Term, MySQLAlive: s.Life() != nil}
	h.State, h.Reason = n.stateLocked()
	h.ApplyError = n.seeding.ApplyError()
	if m, ok := n.Settings().MemberByID(st.Leader); ok {
		h.Leader = m.Name
	}
	// The lease is compared with the clock after everything else was read (S10).
	h.Writable = n.leads(&st) && s.TakesWrites() && consensus.Boottime() < lease
	if st.Role == consensus.Leader {
		h.RulesSuspended = n.acks.Rules().Suspended()
	}
	h.Readable, h.Delayed = s.State() == ha.ServerReady, n.delay.Text()
	if h.Readable && n.hearsLeader(&st) {
		lag, bytes := n.lagLocked()
		h.LagKnown, h.Lag, h.LagBytes = true, lag, bytes
	}
	return h
}

// hearsLeader says whether this node knows what is committed: one that hears no leader lacks what was committed
// since. Raft does not tell: a learner never gives up a leader that it lost.
func (n *Node) hearsLeader(st *consensus.Status) bool {
	return st.Leader == n.id.ID || n.gossip.Hears(st.Leader) != nil
}

// Leader implements api.Backend.
func (n *Node) Leader() api.Leader {
	st := n.cons.Status()
	m, ok := n.Settings().MemberByID(st.Leader)
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
	now := n.viewForPeople()
	forecast, zones := n.forecast(now), n.zoneViews(now)
	backup := n.gossip.Backup(n.history.All())
	st, c := n.cons.Status(), n.Settings()
	n.mu.Lock()
	defer n.mu.Unlock()
	v := api.ClusterView{Cluster: n.id.Cluster, Term: st.Term, CommitIndex: st.Commit, Pause: membership.PauseView(c),
		Failover:    forecast,
		CommitRules: n.acks.Rules(), Zones: zones, Generation: n.recovery.Generation().NumberOf(), SeenBy: n.id.Name}
	v.Flow, v.Backup = n.acks.Flow(), backup
	led := st.Term // of v.Leader: one that was cut off may go on telling that it leads, in an older term
	for _, m := range c.Members {
		mv := n.gossip.View(m)
		if m.ID == n.id.ID {
			mv = n.selfViewLocked(&st)
		}
		mv.Raft.Zone, mv.Raft.MustAck = m.Zone, m.MustAck
		mv.Raft.Voter = contains(st.Voters, m.ID)
		if pr, ok := st.Members[m.ID]; ok {
			mv.Raft.Match = pr.Match
		}
		v.Members = append(v.Members, mv)
		if mv.Role == api.RoleLeader && mv.Answers() && mv.Raft.Term >= led {
			v.Leader, led = mv.Name, mv.Raft.Term
			if p := n.gossip.Peers()[m.ID]; p != nil && m.ID != n.id.ID {
				v.Flow = p.Flow
			}
		}
	}
	v.Finish()
	if v.Leader == "" && v.Doubt == "" {
		v.Doubt = n.gossip.Doubt(st.Term)
	}
	return v
}

// viewForPeople is the node as it is now, in which who has fallen silent does not answer.
func (n *Node) viewForPeople() ha.View {
	v := n.control.View()
	for i := range v.Peers {
		if n.gossip.Silent(v.Peers[i].ID) {
			v.Peers[i].Live = false
		}
	}
	return v
}

// History implements api.Backend.
func (n *Node) History(context.Context) ([]api.Event, error) {
	return n.history.Explained(), nil
}

// Load implements api.Backend.
func (n *Node) Load() api.LoadView {
	v := n.load.View(n.replayRate())
	v.Node, v.Routers, v.CertificateEnd = n.id.Name, n.routing.Elsewhere.Count(), n.certs.Bundle().NotAfter()
	v.Ports, v.Disks = n.routing.Told().Clients.Ports, n.room.State().Disks
	return v
}

// Settings implements api.Backend.
func (n *Node) Settings() *config.Cluster { return n.members.Current() }

// Metrics implements api.Backend.
func (n *Node) Metrics() prometheus.Gatherer { return n.metrics }
