package node

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/node/ackpath"
	"trireme/internal/node/lifecycle"
)

// ruleSlow is for how long a commit may have waited for a rule when writes close. One that has waited for longer would
// perhaps not be drained in time.
const ruleSlow = lifecycle.DrainPatience / 2

// whyUnmet says whose log a rule waits for.
func (n *Node) whyUnmet(c ha.CommitRule, m consensus.Matches, commit uint64) string {
	var late []string
	for _, v := range m.Voters {
		member, _ := n.Settings().MemberByID(v.ID)
		if v.Index >= commit || c.Member != 0 && c.Member != v.ID || c.Member == 0 && member.Zone == "" {
			continue
		}
		text := fmt.Sprintf("%s: lags by %d entries", member.Name, commit-v.Index)
		if p := n.gossip.Peers()[v.ID]; v.ID != n.id.ID && (!p.Fresh()) {
			text = member.Name + ": " + p.Silence()
		}
		if c.Member == 0 {
			text += " in zone " + member.Zone
		}
		late = append(late, text)
	}
	if len(late) == 0 {
		return "no voter can meet it"
	}
	return strings.Join(late, ", ")
}

// WaitForRule implements leadership.Clients.
func (c clientsOf) WaitForRule() error {
	if w := c.n.acks.LongestWait(); w.For >= ruleSlow {
		return errors.New(w.String())
	}
	return nil
}

// zoneViews says what the loss of each zone would mean.
func (n *Node) zoneViews(v ha.View) []api.ZoneView {
	rules, _ := ackpath.RulesOf(n.Settings())
	if len(rules.ZoneOf) == 0 {
		return nil
	}
	mustAck, zones := n.acks.InForce(rules)
	var out []api.ZoneView
	for _, l := range ha.ZoneLosses(v, rules.ZoneOf, mustAck, zones) {
		z := api.ZoneView{Zone: l.Zone, Voters: l.Voters, Leader: l.Leads, Quorum: l.Quorum, Kept: l.Kept, Waits: l.Waits,
			Warning: 2*l.Voters > v.Raft.Voters}
		if l.To != 0 {
			z.To = n.memberName(l.To)
		}
		z.Text = zoneText(z, v.Raft.Voters, rules.Grace)
		out = append(out, z)
	}
	return out
}

// zoneText says it in a line.
func zoneText(z api.ZoneView, voters int, grace time.Duration) string {
	text := fmt.Sprintf("loss of zone %s (%d of %d voters): ", z.Zone, z.Voters, voters)
	switch {
	case !z.Quorum:
		text += "NO QUORUM, writes stop"
	case z.Leader && z.To == "":
		text += "no other node could lead"
	case z.Leader:
		text += z.To + " would lead"
	default:
		text += "writes continue"
	}
	if z.Quorum && z.Waits {
		text += fmt.Sprintf(", OKs wait for %v first", grace)
	}
	if z.Kept {
		return text + "; nothing acknowledged is lost"
	}
	return text + "; what is on disk there alone is lost, commit_zones=2 would prevent that"
}
