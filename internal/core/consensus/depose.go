package consensus

import "go.etcd.io/raft/v3/raftpb"

// deposed is the leader whom this node ignores, as if the link to it were cut, because an operator wants another leader
// without its help. When a majority ignores it, its lease runs out and it can commit nothing. An election timeout after
// they last heard it they forget it, and grant votes. This is exactly what the loss of its host would cause, so the
// proof of S10 stays valid.
type deposed struct {
	leader, term uint64
	until        uint64 // tick from which it is heard again, unless another leader was elected
	campaign     bool
}

// deafTimeouts is the number of election timeouts for which a deposed leader is ignored.
const deafTimeouts = 3

// Depose makes this node ignore the leader of a term for three election timeouts. After one election timeout this node
// forgets the leader, and with campaign it asks for votes. Depose does nothing if another member leads, or none.
func (n *Node) Depose(leader, term uint64, campaign bool) {
	n.inbox.put(input{call: func(c *core) { c.depose(leader, term, campaign) }})
}

func (c *core) depose(leader, term uint64, campaign bool) {
	st := c.stateNow()
	if st.Leader != leader || st.Term != term || leader == c.cfg.ID || leader == 0 {
		return
	}
	c.log.Info("deaf to the leader: another one is wanted", "term", term, "leader", leader)
	c.deposed = deposed{leader: leader, term: term, until: c.ticks + deafTimeouts*uint64(c.cfg.ElectionTicks),
		campaign: campaign}
}

// isDeafTo reports whether to ignore a message, because it comes from a deposed leader. A message by which that leader
// hands leadership over is welcome. Its request for votes, after it found that no voter hears it and stepped down, is
// not.
func (c *core) isDeafTo(m *raftpb.Message) bool {
	d := &c.deposed
	if d.leader == 0 || m.GetFrom() != d.leader {
		return false
	}
	t := m.GetType()
	return m.GetTerm() == d.term && t != raftpb.MsgTimeoutNow || t == raftpb.MsgPreVote || t == raftpb.MsgVote
}

// campaignTicks is how long this node waits before it campaigns once the leader is lost: the wanted candidate does not
// wait, the others wait until it has had its chance.
func (c *core) campaignTicks(lost uint64) uint64 {
	d := &c.deposed
	switch {
	case d.leader != lost:
		return uint64((c.cfg.CampaignDelay(lost) + c.cfg.TickInterval/2) / c.cfg.TickInterval)
	case d.campaign:
		return 0
	}
	return uint64(c.cfg.ElectionTicks) / 2
}

func (c *core) tickDeposed() {
	if d := &c.deposed; d.leader != 0 && (c.stateNow().Term != d.term || c.ticks >= d.until) {
		*d = deposed{}
	}
}
