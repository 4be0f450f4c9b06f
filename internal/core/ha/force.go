package ha

import "fmt"

// LeaderWell is why a forced failover is refused: the leader answers and takes writes.
const LeaderWell Code = "leader-well"

// ForcedFailover chooses the node that gets leadership when an operator forces a failover, without the leader's help:
// to, or with 0 the best node that can lead. The reason says why no node gets it. With force it does not matter that
// the leader is healthy.
func ForcedFailover(v View, to uint64, force bool) (uint64, Reason) {
	leader := v.Open
	if to != 0 && to == leader {
		return 0, bar(OtherLeads, "%s leads already", peerName(v, to))
	}
	if p, ok := member(v, leader); ok && p.Live && p.Ready && !force {
		return 0, bar(LeaderWell, "%s leads and answers", p.Name)
	}
	if live := liveVoters(v, leader); 2*live <= v.Raft.Voters {
		without := ""
		if leader != 0 {
			without = "without " + peerName(v, leader) + " "
		}
		return 0, bar(NoQuorum, "%sonly %d of %d voters answer: no majority", without, live, v.Raft.Voters)
	}
	if to == 0 {
		p, ok := best(v, leader)
		if !ok {
			return 0, bar(NotMember, "no other node can lead%s", whyNobody(v, leader))
		}
		return p.ID, Reason{}
	}
	p, known := member(v, to)
	if !known {
		return 0, bar(NotMember, "it is not a member")
	}
	if rs := p.bars(); len(rs) > 0 {
		return 0, bar(rs[0].Code, "%s cannot lead: %s", p.Name, rs[0].Text)
	}
	return to, Reason{}
}

// whyNobody lists what bars the members but one.
func whyNobody(v View, gone uint64) string {
	text := ""
	for _, p := range allBut(v, gone) {
		if rs := p.bars(); len(rs) > 0 {
			text += fmt.Sprintf("; %s: %s", peerName(v, p.ID), rs[0].Text)
		}
	}
	return text
}
