package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// operate does what an operator, or a node's own loop, would ask for.
func (w *World) operate(f fault, rnd *rand.Rand) {
	l := w.Leader()
	switch f.kind {
	case fPurge:
		for _, n := range w.nodes {
			if n.up && !n.paused && rnd.IntN(3) > 0 {
				n.purge(rnd)
			}
		}
	case fCampaign:
		if n := w.victim(rnd); n != nil && n.up && !n.paused {
			n.st.Campaign()
			n.wake()
		}
	case fTransfer:
		if l != nil && !l.paused {
			to := l.status.Voters[rnd.IntN(len(l.status.Voters))]
			l.Transfer(to, func(error) {})
			if n := w.Node(to); n != l && rnd.IntN(4) == 0 {
				w.delayOrder(l, n, f.dur)
			}
		}
	case fDepose:
		switch {
		case w.sql != nil:
			w.sql.failover(rnd)
		case l != nil:
			w.depose(l, rnd)
		}
	case fChange:
		if l != nil && !l.paused {
			w.change(l, rnd)
		}
	}
}

// delayOrder stops the target of a transfer before it has the order, until the transfer has failed and the leader has a
// lease again, which does not hear then that the target campaigns.
func (w *World) delayOrder(l, target *Node, d time.Duration) {
	target.pauseFor(4*electionTimeout + d)
	w.net.addCut(w.now, target.ID, l.ID, 1)
	w.At(5*electionTimeout+d, func() { w.net.addCut(w.now, target.ID, l.ID, -1) })
}

func (n *Node) purge(rnd *rand.Rand) {
	upTo := n.top.PurgeBelow()
	if rnd.IntN(2) == 0 {
		upTo -= min(upTo, uint64(rnd.IntN(100)))
	}
	before, _ := n.log.FirstIndex()
	first, err := n.log.Purge(upTo, 0)
	if err != nil {
		n.fatal(err)
		return
	}
	if first > before {
		n.w.count(cPurges)
		n.w.Tracef("%d: purges its log below %d", n.ID, first)
	}
	n.after()
}

// depose makes a majority deaf to the leader, as `trireme failover` does where there is no mysqld.
func (w *World) depose(l *Node, rnd *rand.Rand) {
	w.count(cDeposed)
	term, candidate := l.status.Term, rnd.IntN(len(l.status.Voters))
	w.Tracef("deposing %d, leader of term %d", l.ID, term)
	for i, id := range l.status.Voters {
		n := w.Node(id)
		if n != l && n.up && !n.paused {
			n.st.Depose(l.ID, term, i == candidate)
			n.wake()
		}
	}
}

// maxNodes bounds the raft ids of a run.
const maxNodes = 12

// change proposes one change of membership that an operator could want: what is lost goes, what is missing comes, and
// some are moved for no reason.
func (w *World) change(l *Node, rnd *rand.Rand) {
	if len(l.status.Outgoing) > 0 || len(w.check.confs) == 0 {
		return
	}
	voters, learners := sorted(l.status.Voters), sorted(l.status.Learners)
	isLost := func(id uint64) bool { n := w.Node(id); return n.lost || n.rotten != "" }
	var changes []*raftpb.ConfChangeSingle
	add := func(t raftpb.ConfChangeType, id uint64) {
		changes = append(changes, &raftpb.ConfChangeSingle{Type: t.Enum(), NodeId: new(id)})
	}
	for _, id := range slices.Concat(voters, learners) {
		if isLost(id) && len(voters) > 1 && id != l.ID {
			add(raftpb.ConfChangeRemoveNode, id)
			break
		}
	}
	for _, id := range learners {
		if pr := l.status.Members[id]; !isLost(id) && (pr.Match+20 > l.status.Commit || rnd.IntN(4) == 0) && rnd.IntN(4) > 0 {
			add(raftpb.ConfChangeAddNode, id)
			break
		}
	}
	switch k := rnd.IntN(6); {
	case k < 3 && len(changes) == 0 && len(voters)+len(learners) < 6 && len(w.nodes) < maxNodes:
		n := w.addNode(false)
		n.start()
		add(raftpb.ConfChangeAddLearnerNode, n.ID)
	case k < 5 && len(voters) > 2: // somebody goes, or becomes a learner
		id := voters[rnd.IntN(len(voters))]
		if !slices.ContainsFunc(changes, func(c *raftpb.ConfChangeSingle) bool { return c.GetNodeId() == id }) {
			add([]raftpb.ConfChangeType{raftpb.ConfChangeRemoveNode, raftpb.ConfChangeAddLearnerNode}[rnd.IntN(2)], id)
		}
	}
	if len(changes) == 0 || !w.keepsMajority(voters, changes) || !l.top.MayChange(moved(voters, changes)) {
		return
	}
	cc := &raftpb.ConfChangeV2{Changes: changes}
	if rnd.IntN(3) == 0 {
		cc.Transition = raftpb.ConfChangeTransitionJointImplicit.Enum()
	}
	l.ConfChange(cc, func(err error) { w.changed(cc, err) })
}

// keepsMajority reports whether the voters that a change leaves have a majority of whole disks.
func (w *World) keepsMajority(voters []uint64, changes []*raftpb.ConfChangeSingle) bool {
	voters = slices.Clone(voters)
	for _, c := range changes {
		voters = slices.DeleteFunc(voters, func(id uint64) bool { return id == c.GetNodeId() })
		if c.GetType() == raftpb.ConfChangeAddNode {
			voters = append(voters, c.GetNodeId())
		}
	}
	whole := 0
	for _, id := range voters {
		if n := w.Node(id); !n.lost && n.rotten == "" {
			whole++
		}
	}
	return 2*whole > len(voters)
}

// moved are the members that get a vote by a change, and those that lose theirs.
func moved(voters []uint64, changes []*raftpb.ConfChangeSingle) (in, out []uint64) {
	for _, c := range changes {
		switch id := c.GetNodeId(); {
		case c.GetType() == raftpb.ConfChangeAddNode:
			in = append(in, id)
		case slices.Contains(voters, id):
			out = append(out, id)
		}
	}
	return in, out
}

// changed switches members off some time after they were removed, once those who stay know that well enough to do
// without them.
func (w *World) changed(cc *raftpb.ConfChangeV2, err error) {
	if err != nil {
		return
	}
	for _, c := range cc.GetChanges() {
		if n := w.Node(c.GetNodeId()); c.GetType() == raftpb.ConfChangeRemoveNode {
			w.At(time.Duration(w.rnd.IntN(3000))*time.Millisecond, func() { w.switchOff(n) })
		}
	}
}

func (w *World) switchOff(n *Node) {
	if n.lost {
		return
	}
	if n.rotten != "" || w.spare(n) {
		n.lose("removed")
		return
	}
	w.At(electionTimeout, func() { w.switchOff(n) })
}
