package node

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
)

// Limits of changes of the membership.
const (
	reinitTimeout     = 10 * time.Second
	memberPoll        = 20 * time.Millisecond
	memberTimeout     = 60 * time.Second // until a change of the membership is in force
	promoteLearnerLag = 1024             // entries that a learner may be behind when it is made a voter
)

// census is what the leader knows of everybody when a change of the membership is weighed.
type census struct {
	nodes map[uint64]censusNode
	whole bool // this node's log begins at its first entry, and the cluster began empty
}

type censusNode struct {
	name  string
	voter bool // in raft's membership now
	live  bool
	data  bool // has a mysqld
	ready bool // whose data is judged and fed
}

func (n *Node) census() census {
	st := n.cons.Status()
	begin := n.rlog.Boundary()
	v := n.view()
	c := census{nodes: map[uint64]censusNode{}, whole: begin.Index == 0 && begin.GTIDs.Empty()}
	c.nodes[n.id.ID] = censusNode{name: n.id.Name, voter: contains(st.Voters, n.id.ID), live: true,
		data: n.id.Role != config.RoleLogger, ready: n.myStatus().Ready}
	for _, p := range v.Peers {
		c.nodes[p.ID] = censusNode{name: p.Name, voter: contains(st.Voters, p.ID), live: p.Live, data: p.Data, ready: p.Live && p.Ready}
	}
	return c
}

// count is a census in figures.
type count struct {
	voters, liveVoters int
	holders            int // voters with healthy data
	donors             int // members with healthy data
}

// without counts everybody but one; 0 counts all.
func (c census) without(id uint64) count { return c.with(nil, []uint64{id}) }

// with counts everybody but out, and counts the votes of in as well.
func (c census) with(in, out []uint64) count {
	var k count
	for i, s := range c.nodes {
		if slices.Contains(out, i) {
			continue
		}
		if s.voter || slices.Contains(in, i) {
			k.voters++
			if s.live {
				k.liveVoters++
			}
			if s.data && s.ready {
				k.holders++
			}
		}
		if s.data && s.ready {
			k.donors++
		}
	}
	return k
}

// majority of a number of voters.
func majority(voters int) int { return voters/2 + 1 }

// holds says whether every majority of some voters has one with healthy data among them, or the whole log (S8).
func (c census) holds(voters, holders int) bool { return c.whole || voters-holders < majority(voters) }

// keptWithout: every majority holds the data although id's is gone and its vote stays.
func (c census) keptWithout(id uint64) bool {
	k := c.without(id)
	voters := k.voters
	if c.nodes[id].voter {
		voters++
	}
	return c.holds(voters, k.holders)
}

func (c census) whyNotKept(id uint64) string {
	k := c.without(id)
	return fmt.Sprintf("healthy data is on %d other voters, and a majority of voters could come together that has none", k.holders)
}

// mayLeave says why the voters out must keep their votes when in get one at the same moment, nil if they need not.
func (c census) mayLeave(in, out []uint64) error {
	names := make([]string, len(out))
	for i, id := range out {
		names[i] = c.nodes[id].name
	}
	who := strings.Join(names, " ")
	now, k := c.with(nil, nil), c.with(in, out)
	need := majority(k.voters)
	switch {
	case len(out) == 0:
		return nil
	case now.liveVoters < majority(now.voters):
		return api.Errorf(api.KindNoLeader, "there is no quorum now: %d of %d voters answer", now.liveVoters, now.voters).
			With("bring back those that are down; without a majority nothing can be changed")
	case k.voters == 0 && len(out) == 1:
		return api.Errorf(api.KindConflict, "%s is the only voter: without it there is no cluster", who)
	case k.voters == 0:
		return api.Errorf(api.KindConflict, "%s are all voters: without them there is no cluster", who)
	case k.liveVoters < need:
		return api.Errorf(api.KindConflict, "without %s there would be no quorum: %d of the other %d voters answer, %d are needed",
			who, k.liveVoters, k.voters, need).With("bring back the voters that are down, or add another one, and try again")
	case k.holders == 0:
		return api.Errorf(api.KindConflict, "no other voter than %s has healthy data", who).With("add a data node first: trireme add")
	case !c.holds(k.voters, k.holders) && c.holds(now.voters, now.holders):
		return api.Errorf(api.KindConflict, "the data of %s is needed: without it healthy data is on %d voters, "+
			"and a majority of voters could come together that has none", who, k.holders).
			With("add a data node first, or bring back those that are down")
	}
	return nil
}

// memberOf finds a member of some settings for an operator.
func memberOf(c *config.Cluster, name string) (config.Member, error) {
	m, ok := c.Member(name)
	if !ok {
		return m, api.Errorf(api.KindNotFound, "no node %q; nodes are %s", name, strings.Join(c.Names(), " "))
	}
	return m, nil
}

// memberResult tells an operator what the cluster can bear now.
func (n *Node) memberResult(version uint64, name, message string) api.MemberResult {
	k := n.census().without(0)
	return api.MemberResult{Name: name, Message: message, Version: version, Voters: k.voters, Survives: max(0, k.voters-majority(k.voters))}
}

// editMember changes one member's record.
func editMember(c *config.Cluster, id uint64, change func(*config.Member)) error {
	for i := range c.Members {
		if c.Members[i].ID == id {
			change(&c.Members[i])
			return nil
		}
	}
	return api.Errorf(api.KindConflict, "the member is gone meanwhile").With("see `trireme status`")
}
