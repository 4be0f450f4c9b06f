package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/config"
	"trireme/internal/consensus"
	"trireme/internal/failpoint"
)

// standing is a member's record beside what the leader knows of the node.
type standing struct {
	config.Member
	voter, learner bool // in raft's membership
	live           bool // its daemon is heard of
	caughtUp       bool // its log and its mysqld hold nearly all that is committed
}

// takesPart says whether a member counts. The record of one that joins says "pending" until the leader has taken note of what raft's
// membership says already.
func takesPart(st *consensus.Status, m config.Member) bool {
	return !m.Pending || membershipOf(st).Votes(m.ID) || contains(st.Learners, m.ID)
}

// leaves: it has a vote that it is to give up.
func (s standing) leaves() bool { return s.voter && s.Leaving() }

// enters: it has no vote and is to get one.
func (s standing) enters() bool { return !s.voter && !s.Leaving() }

// settled: raft's membership is as the record wants it, and the record says something that is done.
func (s standing) settled() bool {
	in := s.voter || s.learner
	return s.Removing && !in || s.Pending && in || s.Move != 0 && !s.leaves() && !s.enters()
}

// memberStep is one change of raft's membership.
type memberStep struct {
	changes []*raftpb.ConfChangeSingle
	texts   []string // what it does to each member: name, then text
}

func (s *memberStep) add(t raftpb.ConfChangeType, m standing, text string) {
	s.changes = append(s.changes, &raftpb.ConfChangeSingle{Type: t.Enum(), NodeId: &m.ID})
	s.texts = append(s.texts, m.Name+" was "+text)
}

// nextStep is all that is due now, as one change: with more than one voter in it Raft goes through a joint configuration, so that no
// majority of a weaker one is ever asked. may says whether the rest can do without the votes that leave, in view of those that enter.
//
//   - A new member begins as a learner, and gets its vote once its log and its mysqld have caught up.
//   - Members of one move (config.Member.Move) give and take their votes at once, when all that are to have one have caught up.
//   - The leader keeps its vote: it hands leadership over first (its weight is 0 meanwhile), and the next leader takes the vote.
func nextStep(self uint64, all []standing, may func(in, out []uint64) error) (s memberStep, held error) {
	waiting := map[uint64]bool{} // moves that are not ready
	for _, m := range all {
		if m.Move != 0 && m.enters() && !(m.learner && m.caughtUp) {
			waiting[m.Move] = true
		}
	}
	var in, out []standing
	for _, m := range all {
		switch {
		case m.Removing && m.learner:
			s.add(raftpb.ConfChangeRemoveNode, m, "removed")
		case m.Removing && !m.voter:
			// only its record is left
		case m.leaves() && m.ID != self && !waiting[m.Move]:
			out = append(out, m)
		case !m.voter && !m.learner && (!m.Pending || m.live): // one that never starts must not count
			s.add(raftpb.ConfChangeAddLearnerNode, m, "added as learner")
		case m.enters() && m.learner && m.caughtUp && !waiting[m.Move]:
			in = append(in, m)
		}
	}
	if len(out) > 0 {
		if held = may(idsOf(in), idsOf(out)); held != nil {
			out = nil
		}
	}
	for _, m := range in {
		if held != nil && m.Move != 0 {
			continue // with those that leave, or not at all
		}
		s.add(raftpb.ConfChangeAddNode, m, "made a voter")
	}
	for _, m := range out {
		if m.Removing {
			s.add(raftpb.ConfChangeRemoveNode, m, "removed")
		} else {
			s.add(raftpb.ConfChangeAddLearnerNode, m, "made a learner")
		}
	}
	return s, held
}

func idsOf(all []standing) []uint64 {
	ids := make([]uint64, len(all))
	for i, m := range all {
		ids[i] = m.ID
	}
	return ids
}

// standings of all members.
func (n *Node) standings(st *consensus.Status) []standing {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]standing, 0, len(n.cluster.Members))
	for _, m := range n.cluster.Members {
		s := standing{Member: m, voter: contains(st.Voters, m.ID), learner: contains(st.Learners, m.ID)}
		if p := n.peers[m.ID]; p != nil && p.fresh() {
			s.live = true
			pr, ok := st.Members[m.ID]
			s.caughtUp = ok && pr.Match+promoteLearnerLag >= st.Commit && (m.Role == config.RoleLogger || p.status.Ready)
		}
		all = append(all, s)
	}
	return all
}

// reconcile brings raft's membership in line with the settings (leader only), and takes out of the settings what is done: the vote
// of a member that leaves goes first and its record last, so that whatever happens in between the next leader goes on.
func (n *Node) reconcile(ctx context.Context) {
	for range 2 * config.MaxMembers {
		if !n.reconcileOnce(ctx) {
			return
		}
	}
}

// reconcileOnce does what is due. It says whether there may be more.
func (n *Node) reconcileOnce(ctx context.Context) bool {
	st := n.cons.Status()
	if st.Role != consensus.Leader {
		return false
	}
	if len(st.Outgoing) > 0 {
		n.leaveJoint(ctx, &st)
		return false
	}
	all := n.standings(&st)
	// Records first: nobody is to see a voter that the settings take for one that was never started.
	if n.settle(ctx, slices.DeleteFunc(slices.Clone(all), func(s standing) bool { return s.Removing && n.mayBeRead(st.Term, s.ID) })) { // a later leader has to know of that one
		return true
	}
	s, held := nextStep(n.id.ID, all, n.census().mayLeave)
	if n.warnings.isNew("membership", held) {
		n.log.Warn("a change of the membership waits", "why", held)
	}
	if len(s.changes) == 0 {
		return false
	}
	cctx, cancel := context.WithTimeout(ctx, settingsTimeout)
	defer cancel()
	failpoint.Hit("conf.before-propose")
	if err := n.cons.ProposeConfChange(cctx, &raftpb.ConfChangeV2{Changes: s.changes}); err != nil {
		n.log.Debug("membership change", "change", strings.Join(s.texts, ", "), "err", err)
		return false
	}
	text := strings.Join(s.texts, ", ")
	n.log.Info("membership change", "change", text, "term", st.Term)
	n.history.add(n.event("member", 0, text))
	return true
}

// leaveJoint: Raft leaves a joint configuration by itself as soon as it has applied it, except while leadership is being handed over;
// then nobody asks it again.
func (n *Node) leaveJoint(ctx context.Context, st *consensus.Status) {
	if st.Transferee != 0 || st.Applied < st.Commit {
		return
	}
	cctx, cancel := context.WithTimeout(ctx, settingsTimeout)
	defer cancel()
	failpoint.Hit("conf.before-propose")
	if err := n.cons.ProposeConfChange(cctx, &raftpb.ConfChangeV2{}); err != nil {
		n.log.Debug("leaving the joint configuration", "err", err)
	}
}

// settle takes what is done out of the settings.
func (n *Node) settle(ctx context.Context, all []standing) bool {
	if !slices.ContainsFunc(all, standing.settled) {
		return false
	}
	_, err := n.changeCluster(ctx, func(c *config.Cluster) error { return settleRecords(c, all) })
	if err != nil {
		n.log.Debug("membership records", "err", err)
	}
	return err == nil
}

func settleRecords(c *config.Cluster, all []standing) error {
	for _, s := range all {
		now, ok := c.MemberByID(s.ID)
		if s.Member = now; !ok || !s.settled() {
			continue // changed meanwhile
		}
		if s.Removing {
			c.Members = slices.DeleteFunc(c.Members, func(o config.Member) bool { return o.ID == s.ID })
			continue
		}
		c.JoinTokens = slices.DeleteFunc(c.JoinTokens, func(t config.JoinToken) bool { return t.Used == s.ID })
		err := editMember(c, s.ID, func(m *config.Member) {
			m.Pending = false
			if !s.leaves() && !s.enters() { // else the others of its move have to wait for it
				m.Move = 0
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// namesOf lists members for an operator.
func namesOf(ms []config.Member) string {
	names := make([]string, len(ms))
	for i, m := range ms {
		names[i] = m.Name
	}
	switch k := len(names); k {
	case 0:
		return ""
	case 1:
		return names[0]
	default:
		return fmt.Sprintf("%s and %s", strings.Join(names[:k-1], ", "), names[k-1])
	}
}
