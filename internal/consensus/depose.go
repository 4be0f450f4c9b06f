package consensus

import "go.etcd.io/raft/v3/raftpb"

// deposed is the leader whom this node does not hear, as if the link to it were cut, because somebody wants another one without its help.
// When a majority does not, its lease runs out and it can commit nothing; an election timeout after it was last heard they forget it, and
// grant votes: exactly what the loss of its host would bring, so that nothing has to be proven anew (S10).
type deposed struct {
	leader, term uint64
	until        uint64 // tick from which it is heard again, if nobody else was elected
	campaign     bool
}

// deafTimeouts is how many election timeouts a deposed leader is not heard.
const deafTimeouts = 3

// Depose makes this node deaf to the leader of a term for three election timeouts; after one it forgets it, and with campaign asks for
// votes. Nothing happens if another one leads, or none.
func (n *Node) Depose(leader, term uint64, campaign bool) {
	n.inbox.put(input{call: func(c *core) { c.depose(leader, term, campaign) }})
}

func (c *core) depose(leader, term uint64, campaign bool) {
	st := c.stateNow()
	if st.Leader != leader || st.Term != term || leader == c.cfg.ID || leader == 0 {
		return
	}
	c.log.Info("deaf to the leader: another one is wanted", "term", term, "leader", leader)
	c.deposed = deposed{leader: leader, term: term, until: c.ticks + deafTimeouts*uint64(c.cfg.ElectionTicks), campaign: campaign}
}

// isDeafTo tells whether a message is one of a deposed leader. If it hands leadership over itself that is welcome; that it finds out
// that nobody hears it, steps down and asks for votes first is not.
func (c *core) isDeafTo(m *raftpb.Message) bool {
	d := &c.deposed
	if d.leader == 0 || m.GetFrom() != d.leader {
		return false
	}
	t := m.GetType()
	return m.GetTerm() == d.term && t != raftpb.MsgTimeoutNow || t == raftpb.MsgPreVote || t == raftpb.MsgVote
}

// campaignTicks is how long this node waits before it campaigns once the leader is lost: the one that is wanted not at all, the others
// until it has had its chance.
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
