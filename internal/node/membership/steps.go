package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/config"
	"trireme/internal/base/failpoint"
	"trireme/internal/core/consensus"
)

// standing is a member's record together with what the leader knows of the node.
type standing struct {
	config.Member
	voter, learner bool // in raft's membership
	live           bool // its daemon is heard of
	caughtUp       bool // its log and its mysqld hold nearly all that is committed
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

// nextStep is all that is due now, as one change: with more than one voter in it Raft goes through a joint
// configuration, so that no majority of a weaker one is ever asked. may says whether the rest can do without the
// votes that leave, in view of those that enter.
//
//   - A new member begins as a learner, and gets its vote once its log and its mysqld have caught up.
//   - Members of one move (config.Member.Move) give and take their votes at once, when all that are to have one have
//     caught up.
//   - The leader keeps its vote: it hands leadership over first (its weight is 0 meanwhile), and the next leader takes
//     the vote.
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
func (ms *Members) standings(st *consensus.Status) []standing {
	peers := ms.gossip.Peers()
	all := make([]standing, 0, len(ms.Current().Members))
	for _, m := range ms.Current().Members {
		s := standing{Member: m, voter: slices.Contains(st.Voters, m.ID), learner: slices.Contains(st.Learners, m.ID)}
		if p := peers[m.ID]; p.Fresh() {
			s.live = true
			pr, ok := st.Members[m.ID]
			s.caughtUp = ok && pr.Match+promoteLearnerLag >= st.Commit && (m.Role == config.RoleLogger || p.Ready)
		}
		all = append(all, s)
	}
	return all
}

// Reconcile brings raft's membership in line with the settings (leader only), and takes out of the settings what is
// done: the vote of a member that leaves goes first and its record last, so that whatever happens in between the next
// leader goes on.
func (ms *Members) Reconcile(ctx context.Context) {
	for range 2 * config.MaxMembers {
		if !ms.reconcileOnce(ctx) {
			return
		}
	}
}

// reconcileOnce does what is due. It says whether there may be more.
func (ms *Members) reconcileOnce(ctx context.Context) bool {
	st := ms.host.Raft().Status()
	if st.Role != consensus.Leader {
		return false
	}
	more, err := ms.reconcileIn(ctx, &st)
	if now := ms.host.Raft().Status(); ctx.Err() != nil || now.Term != st.Term || now.Role != consensus.Leader {
		return false // the next leader goes on, or the next call
	}
	ms.mu.Lock()
	ms.waits = err
	ms.mu.Unlock()
	if ms.host.IsNew("membership", err) {
		ms.log.Warn("a change of the membership waits", "why", err)
	}
	return more
}

// reconcileIn is reconcileOnce as the leader of a term. err says what is due and waits.
func (ms *Members) reconcileIn(ctx context.Context, st *consensus.Status) (more bool, err error) {
	if len(st.Outgoing) > 0 {
		return false, ms.leaveJoint(ctx, st)
	}
	all := ms.standings(st)
	// Records first: otherwise the settings would take a voter for one that was never started.
	done, err := ms.settle(ctx, slices.DeleteFunc(slices.Clone(all), func(s standing) bool {
		return s.Removing && ms.host.MayBeRead(st.Term, s.ID) // a later leader has to know of that one
	}))
	if done {
		return true, nil
	}
	s, held := nextStep(ms.id.ID, all, ms.Census().mayLeave)
	err = errors.Join(err, held)
	if len(s.changes) == 0 {
		return false, err
	}
	text := strings.Join(s.texts, ", ")
	switch failed := ms.changeMembership(ctx, s.changes); {
	case errors.Is(failed, consensus.ErrConfChangePending):
		return false, err // of another call
	case failed != nil:
		return false, errors.Join(err, fmt.Errorf("that %s: %w", text, failed))
	}
	ms.log.Info("membership change", "change", text, "term", st.Term)
	ms.host.Record("member", "", text)
	return true, err
}

func (ms *Members) changeMembership(ctx context.Context, changes []*raftpb.ConfChangeSingle) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	failpoint.Hit("conf.before-propose")
	return ms.host.Raft().ProposeConfChange(ctx, &raftpb.ConfChangeV2{Changes: changes})
}

// leaveJoint: Raft leaves a joint configuration by itself as soon as it has applied it, except while leadership is
// being handed over; then it is not asked again.
func (ms *Members) leaveJoint(ctx context.Context, st *consensus.Status) error {
	if st.Transferee != 0 || st.Applied < st.Commit {
		return nil
	}
	if err := ms.changeMembership(ctx, nil); err != nil {
		return fmt.Errorf("the end of the joint configuration: %w", err)
	}
	return nil
}

// settle takes what is done out of the settings. It says whether there was something.
func (ms *Members) settle(ctx context.Context, all []standing) (bool, error) {
	if !slices.ContainsFunc(all, standing.settled) {
		return false, nil
	}
	if _, err := ms.Change(ctx, 0, func(c *config.Cluster) error { return settleRecords(c, all) }); err != nil {
		return false, fmt.Errorf("the records of what is done: %w", err)
	}
	return true, nil
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
