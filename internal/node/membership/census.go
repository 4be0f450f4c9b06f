package membership

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/gossip"
)

// Limits of changes of the membership.
const (
	memberPoll        = 20 * time.Millisecond
	memberTimeout     = 60 * time.Second // until a change of the membership is in force
	promoteLearnerLag = 1024             // entries that a learner may lag when it is made a voter
)

// Census is ledger's, with an operator's words for what it finds.
type Census struct{ ledger.Census }

// Census is who holds a vote and healthy data, as this node knows.
func (ms *Members) Census() Census {
	st := ms.host.Raft().Status()
	return Census{CensusOf(ms.id, ms.host.Ready(), &st, ms.host.Log().Boundary(), ms.Current(), ms.gossip.Peers())}
}

// CensusOf is a member's: ready says whether its own mysqld is judged and fed, and begin where its log begins.
func CensusOf(id config.Identity, ready bool, st *consensus.Status, begin raftlog.Boundary, settings *config.Cluster,
	peers gossip.Peers) ledger.Census {
	c := ledger.Census{Nodes: map[uint64]ledger.CensusNode{}, Whole: begin.Index == 0 && begin.GTIDs.Empty()}
	c.Nodes[id.ID] = ledger.CensusNode{Name: id.Name, Voter: slices.Contains(st.Voters, id.ID), Live: true,
		Data: id.Role != config.RoleLogger, Ready: ready}
	for _, m := range settings.Members {
		if p := peers[m.ID]; m.ID != id.ID {
			c.Nodes[m.ID] = ledger.CensusNode{Name: m.Name, Voter: slices.Contains(st.Voters, m.ID), Live: p.Fresh(),
				Data: m.Role != config.RoleLogger, Ready: p.Fresh() && p.Ready}
		}
	}
	return c
}

// VotesOf is raft's membership as votes are counted.
func VotesOf(st *consensus.Status) ledger.Membership {
	m := ledger.Membership{st.Voters}
	if len(st.Outgoing) > 0 {
		m = append(m, st.Outgoing)
	}
	return m
}

// takesPart says whether a member counts. The record of one that joins says "pending" until the leader has taken note
// of what raft's membership says already.
func takesPart(st *consensus.Status, m config.Member) bool {
	return !m.Pending || VotesOf(st).Votes(m.ID) || slices.Contains(st.Learners, m.ID)
}

// Retainers are those whose recovery the log is kept for (S8), as a member knows them: self is what it says of itself.
func Retainers(self ledger.LogRetainer, st *consensus.Status, settings *config.Cluster,
	peers gossip.Peers) (all []ledger.LogRetainer) {
	for _, m := range settings.Members {
		if !takesPart(st, m) {
			continue
		}
		k := ledger.LogRetainer{ID: m.ID, Name: m.Name, Data: m.Role != config.RoleLogger}
		switch p := peers[m.ID]; {
		case m.ID == self.ID:
			k.Live, k.Ready, k.Keep = true, self.Ready, self.Keep
			if !k.Data {
				k.Keep = st.Commit
			}
		case p.Fresh():
			k.Live, k.Ready, k.Keep = true, p.Ready, p.KeepFrom
			if !k.Data || m.Delay() > 0 { // it keeps for itself what its mysqld has not got yet
				k.Keep = p.Member.Raft.Commit
			}
		}
		all = append(all, k)
	}
	return all
}

// majority of a number of voters.
func majority(voters int) int { return voters/2 + 1 }

// WhyNotKept is the problem with giving up the data of a node.
func (c Census) WhyNotKept(id uint64) string {
	return fmt.Sprintf("healthy data is on %d other voters, and a majority of voters could come together that has none",
		c.Without(id).Holders)
}

// mayLeave says why the voters out must keep their votes when in get one at the same moment, nil if they need not.
func (c Census) mayLeave(in, out []uint64) error {
	names := make([]string, len(out))
	for i, id := range out {
		names[i] = c.Nodes[id].Name
	}
	who := strings.Join(names, " ")
	now, k := c.Without(0), c.With(in, out)
	switch c.Leave(in, out) {
	case ledger.NoQuorum:
		return api.Errorf(api.KindNoLeader, "there is no quorum now: %d of %d voters answer", now.LiveVoters, now.Voters).
			With("bring back those that are down; without a majority nothing can be changed")
	case ledger.NoVoters:
		if len(out) == 1 {
			return api.Errorf(api.KindNeeded, "%s is the only voter: without it there is no cluster", who)
		}
		return api.Errorf(api.KindNeeded, "%s are all voters: without them there is no cluster", who)
	case ledger.LeftBehind:
		return api.Errorf(api.KindNeeded,
			"without %s there would be no quorum: %d of the other %d voters answer, %d are needed",
			who, k.LiveVoters, k.Voters, majority(k.Voters)).
			With("bring back the voters that are down, or add another one, and try again")
	case ledger.NoHolder:
		return api.Errorf(api.KindNeeded, "no other voter than %s has healthy data", who).
			With("add a data node first: trireme add")
	case ledger.DataNeeded:
		return api.Errorf(api.KindNeeded, "the data of %s is needed: without it healthy data is on %d voters, "+
			"and a majority of voters could come together that has none", who, k.Holders).
			With("add a data node first, or bring back those that are down")
	}
	return nil
}

// Of finds a member of some settings for an operator.
func Of(c *config.Cluster, name string) (config.Member, error) {
	m, ok := c.Member(name)
	if !ok {
		return m, api.Errorf(api.KindNotFound, "no node %q; nodes are %s", name, strings.Join(c.Names(), " "))
	}
	return m, nil
}

// Result tells an operator what the cluster can bear now.
func (ms *Members) Result(version uint64, name, message string) api.MemberResult {
	k := ms.Census().Without(0)
	return api.MemberResult{Name: name, Message: message, Version: version, Voters: k.Voters,
		Survives: max(0, k.Voters-majority(k.Voters))}
}

// editMember changes one member's record.
func editMember(c *config.Cluster, id uint64, change func(*config.Member)) error {
	for i := range c.Members {
		if c.Members[i].ID == id {
			change(&c.Members[i])
			return nil
		}
	}
	return api.Errorf(api.KindChanged, "the member is gone meanwhile").With("see `trireme status`")
}
