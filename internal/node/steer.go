package node

import (
	"context"
	"slices"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/ha"
	"trireme/internal/node/membership"
)

// WhyNot implements api.Backend.
func (n *Node) WhyNot(_ context.Context, name string) (api.WhyNotView, error) {
	m, err := n.findMember(name)
	if err != nil {
		return api.WhyNotView{}, err
	}
	v := n.control.View()
	res := api.WhyNotView{Node: name, Term: v.Raft.Term, SeenBy: n.id.Name, CanLead: true, Reasons: ha.WhyNot(v, m.ID)}
	if v.Open != 0 {
		res.Leader = n.memberName(v.Open)
	}
	for _, z := range n.zoneViews(v) {
		if z.Leader {
			res.Zone = &z
		}
	}
	res.Leads = v.Open == m.ID && len(res.Reasons) == 0
	res.Reasons = append(res.Reasons, n.warningsOf(m.ID)...)
	for i := range res.Reasons {
		r := &res.Reasons[i]
		res.CanLead = res.CanLead && !r.Bars
		if r.Code == ha.Unreachable {
			r.Text = n.links.Silence(m.ID)
		}
	}
	return res, nil
}

// warningsOf are the warnings that a member shows, as reasons that bar nothing.
func (n *Node) warningsOf(id uint64) []ha.Reason {
	n.mu.Lock()
	defer n.mu.Unlock()
	var texts []string
	if p := n.gossip.Peers()[id]; id == n.id.ID {
		texts = n.warningsLocked()
	} else if p.Fresh() {
		texts = p.Member.Warnings
		if why := n.links.Unreached(p.Member.Name); why != "" {
			texts = append(slices.Clip(texts), why)
		}
	}
	var out []ha.Reason
	for _, text := range texts {
		out = append(out, ha.Reason{Code: ha.Warning, Text: text})
	}
	return out
}

// warningsLocked are this node's own.
func (n *Node) warningsLocked() []string {
	return slices.Concat(n.links.Shown().Warnings, n.addresses.Shown().Warnings, n.certs.Warnings(), n.keyWarnings,
		n.riskWarnings, n.twinWarningsLocked())
}

// findMember finds a member by name, for a request.
func (n *Node) findMember(name string) (config.Member, error) {
	return membership.Of(n.Settings(), name)
}

// forecast is what the loss of the leader would mean now.
func (n *Node) forecast(v ha.View) api.FailoverView {
	f := ha.Failover(v)
	if f.To == 0 {
		return api.FailoverView{Problem: f.Problem}
	}
	known := n.history.UsualTakeover() + f.Apply
	// A silent leader is forgotten a tick after the election timeout.
	lost := known + n.cfg.Raft.ElectionTimeout() + n.cfg.Raft.Heartbeat()
	return api.FailoverView{To: n.memberName(f.To), Seconds: known.Seconds(), HostLostSeconds: lost.Seconds(),
		HeavySeconds: f.Heavy.Seconds()}
}
