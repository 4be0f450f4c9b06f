package node

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/consensus"
	"trireme/internal/ha"
	"trireme/internal/node/certs"
	"trireme/internal/node/reads"
	"trireme/internal/node/recovery"
)

// backend answers the API server: the node, and its organs what is theirs.
type backend struct {
	*Node
	*certs.Certs
	*reads.Reads
	*recovery.Recovery
}

var _ api.Backend = backend{}

// Local implements api.Backend.
func (n *Node) Local() api.Health {
	st := n.cons.Status()
	lease := n.cons.LeaseUntil()
	n.mu.Lock()
	defer n.mu.Unlock()
	h := api.Health{Name: n.id.Name, Role: n.roleLocked(&st), Term: st.Term, MySQLAlive: n.srv.Life() != nil}
	h.State, h.Reason = n.stateLocked()
	if f := n.srv.failure; f != nil {
		h.ApplyError = &f.view
	}
	if m, ok := n.cluster.MemberByID(st.Leader); ok {
		h.Leader = m.Name
	}
	// The lease is compared with the clock after everything else was read (S10).
	h.Writable = n.leadsLocked(&st) && n.serving.TakesWrites() && consensus.Boottime() < lease
	if st.Role == consensus.Leader {
		h.RulesSuspended = n.acks.Rules().Suspended()
	}
	h.Readable, h.Delayed = n.srv.State() == ha.ServerReady, n.delayedLocked()
	if h.Readable && n.hearsLeaderLocked(&st) {
		lag, bytes := n.lagLocked()
		h.LagKnown, h.Lag, h.LagBytes = true, lag, bytes
	}
	return h
}

// hearsLeaderLocked says whether this node knows what is committed: one that hears no leader lacks what was committed
// since. Raft does not tell: a learner never gives up a leader that it lost.
func (n *Node) hearsLeaderLocked(st *consensus.Status) bool {
	return st.Leader == n.id.ID || n.heardLocked(st.Leader) != nil
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
	now := n.viewForPeople()
	forecast, zones := n.forecast(now), n.zoneViews(now)
	st := n.cons.Status()
	n.mu.Lock()
	defer n.mu.Unlock()
	v := api.ClusterView{Cluster: n.id.Cluster, Term: st.Term, CommitIndex: st.Commit, Pause: pauseView(n.cluster), Failover: forecast,
		CommitRules: n.acks.Rules(), Zones: zones, Generation: n.recovery.Generation().NumberOf(), SeenBy: n.id.Name}
	v.Flow = n.acks.Flow()
	led := st.Term // of v.Leader: one that was cut off may go on telling that it leads, in an older term
	for _, m := range n.cluster.Members {
		p := n.peers[m.ID]
		mv := n.memberViewLocked(&st, m, p)
		mv.Raft.Zone, mv.Raft.MustAck = m.Zone, m.MustAck
		mv.Raft.Voter = contains(st.Voters, m.ID)
		if pr, ok := st.Members[m.ID]; ok {
			mv.Raft.Match = pr.Match
		}
		v.Members = append(v.Members, mv)
		if mv.Role == api.RoleLeader && mv.Answers() && mv.Raft.Term >= led {
			v.Leader, led = mv.Name, mv.Raft.Term
			if p != nil && m.ID != n.id.ID {
				v.Flow = p.status.Flow
			}
		}
	}
	v.Finish()
	if v.Leader == "" && v.Doubt == "" {
		v.Doubt = n.othersFollowLocked(st.Term)
	}
	return v
}

// othersFollowLocked says that another node still hears a leader whom this one does not; empty: none does.
func (n *Node) othersFollowLocked(term uint64) string {
	for _, m := range n.cluster.Members {
		p := n.heardLocked(m.ID)
		if p == nil || p.status.Leader == m.ID || p.status.Member.Raft.Term < term {
			continue
		}
		if leader, ok := n.cluster.MemberByID(p.status.Leader); ok && leader.ID != n.id.ID && n.heardLocked(leader.ID) == nil {
			return fmt.Sprintf("%s does not hear %s, whom %s follows", n.id.Name, leader.Name, m.Name)
		}
	}
	return ""
}

// memberViewLocked is one member with what is known of it: as it is itself, as it told, or nothing but what its
// settings say.
func (n *Node) memberViewLocked(st *consensus.Status, m config.Member, p *peer) api.MemberView {
	if m.ID == n.id.ID {
		return n.selfViewLocked(st)
	}
	var mv api.MemberView
	switch silent := p != nil && n.silentLocked(m.ID, p); {
	case m.Pending && (p == nil || !p.fresh()):
		mv = api.DownView(m, "it has joined and was never started; start its daemon, or take it out with `trireme remove "+m.Name+"`")
		mv.ReasonCode = api.NeverStarted
	case p == nil || !p.fresh():
		mv = api.DownView(m, silenceText(p))
		if p != nil {
			mv.Raft = p.status.Member.Raft
		}
	case silent:
		mv = unknownView(p)
	default:
		mv = p.agedView()
	}
	if p != nil {
		age := (now() - p.at).Seconds()
		mv.AgeSeconds = &age
	}
	return mv
}

// unknownView is a member that has just fallen silent: what it is stays, how it does is not known.
func unknownView(p *peer) api.MemberView {
	m := p.status.Member
	m.State, m.Reason, m.ReasonCode = api.StateUnknown, "it has fallen silent; "+silenceText(p), ha.Unreachable
	m.Seed, m.VIPs, m.Heavy, m.ApplyError, m.Links, m.Warnings, m.DiskFull = nil, nil, nil, nil, nil, nil, ""
	m.Router.Connections, m.Router.TiedSessions = 0, nil
	if m.MySQL != nil {
		my := *m.MySQL
		my.LagSeconds, my.LagBytes, my.CatchUpSeconds = nil, nil, nil
		m.MySQL = &my
	}
	return m
}

// silentLimit is after how long without a sign of life a member is shown as unknown: three of its answers to pings
// are missing.
const silentLimit = 1500 * time.Millisecond

// silentLocked says whether a member has given no sign of life for so long that what it told last may not be so any
// more. It is for what people see: elections and fences go by raft and its leases.
func (n *Node) silentLocked(id uint64, p *peer) bool {
	silence := now() - p.at
	if n.tr != nil {
		if d, known := n.tr.Silence(id); known {
			silence = min(silence, d)
		}
	}
	return silence > silentLimit
}

// heardLocked is another member that tells of itself now; nil: it does not.
func (n *Node) heardLocked(id uint64) *peer {
	if p := n.peers[id]; p != nil && p.fresh() && !n.silentLocked(id, p) {
		return p
	}
	return nil
}

// viewForPeople is the node as it is now, in which who has fallen silent does not answer.
func (n *Node) viewForPeople() ha.View {
	v := n.view()
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range v.Peers {
		if p := n.peers[v.Peers[i].ID]; p != nil && n.silentLocked(v.Peers[i].ID, p) {
			v.Peers[i].Live = false
		}
	}
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
