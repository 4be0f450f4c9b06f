package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/core/transport"
	"trireme/internal/node/gossip"
	"trireme/internal/node/leadership"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/recovery"
	"trireme/internal/node/seeding"
)

// leadershipHost is the node as package leadership sees it (node.leadershipHost).
type leadershipHost struct{ g *member }

// Request implements transport.Asker.
func (h leadershipHost) Request(ctx context.Context, to uint64, kind uint8, body []byte) ([]byte, error) {
	got, err := h.g.ask(ctx, to, request{kind, body})
	if err != nil {
		return nil, err
	}
	r := got.(reply)
	return r.body, r.err
}

// answers are those that a node gives to requests of packages leadership and seeding.
func (g *member) answers() transport.Answers {
	return transport.Answers{
		transport.After(leadership.ReqApplied, func(ctx context.Context, _ uint64, r leadership.Applied) error {
			return g.lives.AwaitApplied(ctx, r.Index, min(r.Patience, leadership.TargetPatience))
		}),
		transport.After(leadership.ReqForce, g.lead.TakeOrder),
		seeding.ReqDonate.By(g.donate),
		transport.After(seeding.ReqHeal, g.seeding.GrantFor),
		recovery.ReqSurvey.By(g.survey),
	}
}

// Raft and the next ones implement leadership.Host. A member's name is made of its id.
func (h leadershipHost) Raft() leadership.Raft       { return leadershipRaft(h) }
func (h leadershipHost) Clients() leadership.Clients { return clientsOf(h) }
func (h leadershipHost) Settings() *config.Cluster   { return h.g.Settings() }
func (h leadershipHost) Member(name string) (m config.Member, err error) {
	_, err = fmt.Sscanf(name, "n%d", &m.ID)
	return m, err
}
func (h leadershipHost) Peers() gossip.Peers    { return h.g.gossip.Peers() }
func (h leadershipHost) View() ha.View          { return h.g.control.View() }
func (h leadershipHost) CheckTerm(uint64) error { return nil }
func (h leadershipHost) Phase() ha.Phase {
	s := h.g.lives.Status()
	return s.Phase()
}
func (h leadershipHost) Stopping() bool              { return h.g.stopping() }
func (h leadershipHost) LeastTimeout() time.Duration { return h.g.gossip.LeastTimeout() }
func (h leadershipHost) Record(kind, _, text string) {
	h.g.w.Tracef("%d: %s: %s", h.g.n.ID, kind, text)
}
func (h leadershipHost) WakeLoop() { h.g.wakeLoop() }
func (h leadershipHost) Go(f func(ctx context.Context)) {
	h.g.spawn(f)
}

// leadershipRaft is consensus as package leadership sees it.
type leadershipRaft struct{ g *member }

// Status and the next ones implement leadership.Raft.
func (r leadershipRaft) Status() consensus.Status { return r.g.n.st.Status() }
func (r leadershipRaft) HoldsLease() bool         { return r.g.n.HoldsLease() }
func (r leadershipRaft) Campaign()                { r.g.n.st.Campaign(); r.g.n.wake() }
func (r leadershipRaft) Depose(leader, term uint64, campaign bool) {
	r.g.n.st.Depose(leader, term, campaign)
	r.g.n.wake()
}

// TransferLeadership implements leadership.Raft.
func (r leadershipRaft) TransferLeadership(ctx context.Context, to uint64) (err error) {
	answered := false
	r.g.n.Transfer(to, func(e error) { err, answered = e, true })
	if late := exec(r).until(ctx, func() bool { return answered }); late != nil {
		return late
	}
	return err
}

// clientsOf a node are those of its mysqld to package leadership. How long a router takes is chance.
type clientsOf struct{ g *member }

// WaitForRule is node.clientsOf's.
func (c clientsOf) WaitForRule() error {
	if w := c.g.acks.LongestWait(); w.For >= lifecycle.DrainPatience/2 {
		return errors.New(w.String())
	}
	return nil
}

func (c clientsOf) Hold(term uint64, why gossip.Leave) {
	c.g.gossip.Leave(term, why)
	c.g.broadcast()
}
func (c clientsOf) Followed() bool            { return c.g.w.rnd.IntN(2) == 0 }
func (c clientsOf) Quiet(uint64, uint64) bool { return c.g.w.rnd.IntN(30) == 0 }
func (c clientsOf) Moved() int                { return 0 }
func (c clientsOf) DropAddresses()            {}

// reopenPatience is that of package node.
const reopenPatience = 7 * time.Second

// wished draws what an operator says of the member that is to lead; empty: nothing.
func (s *sqlWorld) wished(rnd *rand.Rand) string {
	if rnd.IntN(2) == 0 {
		return ""
	}
	return name(s.members[rnd.IntN(len(s.members))].n.ID)
}

// switchover is an operator's, as node.Switchover takes it.
func (g *member) switchover(to string) {
	v := g.control.View()
	target, err := g.lead.ChooseTarget(v, to)
	if err != nil {
		g.w.Tracef("%d: no switchover to %q: %v", g.n.ID, to, err)
		return
	}
	wait := time.Duration(g.w.rnd.IntN(2)) * api.DefaultTrxWait
	r := g.lead.Ask(target, v.Raft.Term, "", wait)
	if r == nil {
		return
	}
	g.wakeLoop()
	g.spawn(func(ctx context.Context) {
		m, err := g.lead.Await(ctx, r, leadership.Patience+reopenPatience)
		g.w.Tracef("%d: the operator hears of the switchover: %v, %v", g.n.ID, m.Err, err)
		if err == nil && m.Err == nil {
			g.sql.counts.switched++
		}
	})
}

// failover is forced by an operator, on any node.
func (s *sqlWorld) failover(rnd *rand.Rand) {
	g := s.members[rnd.IntN(len(s.members))]
	if !g.n.up || g.n.paused || g.logger {
		return
	}
	s.w.count(cDeposed)
	to := s.wished(rnd)
	g.spawn(func(ctx context.Context) {
		res, err := g.lead.Failover(ctx, api.FailoverRequest{To: to, Force: true})
		s.w.Tracef("%d: a failover is forced: %+v, %v", g.n.ID, res, err)
		if err == nil {
			s.counts.forced++
		}
	})
}
