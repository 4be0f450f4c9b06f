package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
)

// Limits of changes of the membership.
const (
	reinitTimeout = 10 * time.Second
	memberPoll    = 20 * time.Millisecond
	memberTimeout = 60 * time.Second // until a change of the membership is in force
)

// census is what the leader knows of everybody when a change of the membership is weighed.
type census struct {
	nodes map[uint64]censusNode
	whole bool // this node's log begins at its first entry
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
	first, err := n.rlog.FirstIndex()
	v := n.view()
	c := census{nodes: map[uint64]censusNode{}, whole: err == nil && first == 1}
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
func (c census) without(id uint64) count {
	var k count
	for i, s := range c.nodes {
		if i == id {
			continue
		}
		if s.voter {
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

// mayLeave says why a voter must keep its vote, nil if it need not.
func (c census) mayLeave(id uint64, verb string) error {
	s := c.nodes[id]
	if !s.voter {
		return nil
	}
	now, k := c.without(0), c.without(id)
	need := majority(k.voters)
	switch {
	case now.liveVoters < majority(now.voters):
		return api.Errorf(api.KindNoLeader, "there is no quorum now: %d of %d voters answer", now.liveVoters, now.voters).
			With("bring back those that are down; without a majority nothing can be changed")
	case k.voters == 0:
		return api.Errorf(api.KindConflict, "%s is the only voter: without it there is no cluster", s.name)
	case k.liveVoters < need:
		return api.Errorf(api.KindConflict, "without %s there would be no quorum: %d of the other %d voters answer, %d are needed",
			s.name, k.liveVoters, k.voters, need).With("bring back the voters that are down, or add another one, before you %s this one", verb)
	case k.holders == 0:
		return api.Errorf(api.KindConflict, "%s is the last voter with healthy data", s.name).With("add a data node first: trireme add")
	case !c.holds(k.voters, k.holders) && c.holds(k.voters+1, c.without(0).holders):
		return api.Errorf(api.KindConflict, "%s's data is needed: without it %s", s.name, c.whyNotKept(id)).
			With("add a data node first, or bring back those that are down")
	}
	return nil
}

// namedMember finds a member for an operator.
func (n *Node) namedMember(name string) (config.Member, error) {
	n.mu.Lock()
	m, ok := n.cluster.Member(name)
	names := n.cluster.Names()
	n.mu.Unlock()
	if !ok {
		return m, api.Errorf(api.KindNotFound, "no node %q; nodes are %s", name, strings.Join(names, " "))
	}
	return m, nil
}

// memberResult tells an operator what the cluster can bear now.
func (n *Node) memberResult(name, message string) api.MemberResult {
	k := n.census().without(0)
	return api.MemberResult{Name: name, Message: message, Voters: k.voters, Survives: max(0, k.voters-majority(k.voters))}
}

// notTheLeader refuses what a leader cannot do to itself.
func (n *Node) notTheLeader(m config.Member, verb string) error {
	if m.ID == n.id.ID {
		return api.Errorf(api.KindConflict, "%s is the leader and cannot %s itself", m.Name, verb).With("move leadership first: trireme switchover")
	}
	return nil
}

// Remove implements api.Backend (leader only). The intent is recorded in the settings; reconcile carries it out, also under the
// next leader, and the record goes last.
func (n *Node) Remove(ctx context.Context, req api.MemberRequest) (api.MemberResult, error) {
	var m config.Member
	_, err := n.changeCluster(ctx, func(c *config.Cluster) (err error) {
		if m, err = n.namedMember(req.Name); err != nil {
			return err
		}
		if err := n.notTheLeader(m, "remove"); err != nil {
			return err
		}
		if !m.Removing {
			if err := n.census().mayLeave(m.ID, "remove"); err != nil {
				return err
			}
		}
		return editMember(c, m.ID, func(m *config.Member) { m.Removing = true })
	})
	if err != nil {
		return api.MemberResult{}, err
	}
	n.history.add(n.event("remove", 0, fmt.Sprintf("%s (id %d) is removed, on an operator's request", m.Name, m.ID)))
	err = n.awaitMembers(ctx, m.Name+" is being removed", func(c *config.Cluster) bool {
		_, still := c.MemberByID(m.ID)
		return !still
	})
	return n.memberResult(m.Name, m.Name+" is removed; its directory is left as it is"), err
}

// Promote implements api.Backend (leader only): a learner becomes a voter, once it has caught up.
func (n *Node) Promote(ctx context.Context, req api.MemberRequest) (api.MemberResult, error) {
	return n.setRole(ctx, req.Name, config.RoleVoter)
}

// Demote implements api.Backend (leader only): a voter becomes a learner.
func (n *Node) Demote(ctx context.Context, req api.MemberRequest) (api.MemberResult, error) {
	return n.setRole(ctx, req.Name, config.RoleLearner)
}

func (n *Node) setRole(ctx context.Context, name, role string) (api.MemberResult, error) {
	var m config.Member
	_, err := n.changeCluster(ctx, func(c *config.Cluster) (err error) {
		if m, err = n.namedMember(name); err != nil {
			return err
		}
		switch {
		case m.Role == config.RoleLogger:
			return api.Errorf(api.KindConflict, "%s is a logger: without data it can be nothing else", m.Name)
		case m.Removing:
			return api.Errorf(api.KindConflict, "%s is being removed", m.Name)
		case m.Role == role:
			return api.Errorf(api.KindConflict, "%s is a %s already", m.Name, role)
		}
		if role == config.RoleLearner {
			if err := n.notTheLeader(m, "demote"); err != nil {
				return err
			}
			if err := n.census().mayLeave(m.ID, "demote"); err != nil {
				return err
			}
		}
		return editMember(c, m.ID, func(m *config.Member) { m.Role = role })
	})
	if err != nil {
		return api.MemberResult{}, err
	}
	n.history.add(n.event("role", 0, fmt.Sprintf("%s is to be a %s, on an operator's request", m.Name, role)))
	if role == config.RoleVoter {
		return n.memberResult(name, name+" becomes a voter as soon as it has caught up"), nil
	}
	err = n.awaitMembers(ctx, name+" is being demoted", func(*config.Cluster) bool {
		st := n.cons.Status()
		return !contains(st.Voters, m.ID) && len(st.Outgoing) == 0
	})
	return n.memberResult(name, name+" is a learner now: it has the data and no vote"), err
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

// awaitMembers waits until a change that is recorded is in force.
func (n *Node) awaitMembers(ctx context.Context, what string, done func(*config.Cluster) bool) error {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	n.reconcile(ctx)
	for {
		n.mu.Lock()
		c := n.cluster
		n.mu.Unlock()
		if done(c) {
			return nil
		}
		select {
		case <-ctx.Done():
			return api.Errorf(api.KindTimeout, "%s, which has not come to its end in time", what).
				With("it is recorded and goes on by itself once there is a quorum; see `trireme status`")
		case <-time.After(memberPoll):
		}
	}
}
