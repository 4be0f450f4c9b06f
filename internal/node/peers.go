package node

import (
	"errors"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/mutant"
	"trireme/internal/core/transport"
)

// up waits until the parts of the node are there; the transport accepts connections a moment before. false: the node
// stops.
func (n *Node) up() bool {
	select {
	case <-n.ready:
		return true
	case <-n.ctx.Done():
		return false
	}
}

// RaftUnreachable is told when messages to a peer were dropped.
func (n *Node) RaftUnreachable(id uint64) {
	if n.isUp() {
		n.cons.ReportUnreachable(id)
	}
}

// SnapshotStatus is told what became of a snapshot on its way to a peer.
func (n *Node) SnapshotStatus(id uint64, ok bool) {
	if n.isUp() {
		n.cons.ReportSnapshot(id, ok)
	}
}

// isUp is up without waiting.
func (n *Node) isUp() bool {
	select {
	case <-n.ready:
		return true
	default:
		return false
	}
}

// OtherGeneration is told that a node of another generation is there.
func (n *Node) OtherGeneration(from uint64, theirs transport.Generation) {
	if n.isUp() { // else it will be back
		n.recovery.Other(from, theirs)
	}
}

// HandleRaft takes a message of a peer's raft.
func (n *Node) HandleRaft(m *raftpb.Message) {
	if !n.up() {
		return
	}
	if m.GetType() == raftpb.MsgTimeoutNow {
		n.leadership.Told(m.GetTerm())
		n.gossip.Asked()
	}
	n.stepRaft(m)
}

func (n *Node) stepRaft(m *raftpb.Message) {
	if n.recovery.StandsStill() || mutant.S9 && !n.runsMySQL() {
		return
	}
	if m.GetFrom() == n.cons.Status().Leader {
		n.gossip.HearRaft()
	}
	_ = n.cons.Step(m) // the only error says that this node is stopping
}

// runsMySQL is asked by a mutation only: Raft does without mysqld (S9).
func (n *Node) runsMySQL() bool { return n.lives.Life() != nil }

// PeerUp is told when a peer's link works.
func (n *Node) PeerUp(id uint64) {
	n.gossip.Up(id) // it wants to know us
	n.certs.Taken()
	n.poke()
}

// PeerDown is told when a peer's link broke. When its daemon is gone for sure and it was the leader, the next one is
// elected at once, the best candidate first.
func (n *Node) PeerDown(id uint64, reason error) {
	var down *transport.DownError
	gone := errors.As(reason, &down) && down.Gone()
	n.gossip.Down(id, gone)
	if !n.isUp() {
		return
	}
	led := n.cons.Status().Leader == id
	n.log.Warn("peer link down", "peer", n.memberName(id), "gone", gone, "reason", reason, "leader", led)
	if gone {
		n.cons.PeerGone(id)
	}
	n.poke()
}
