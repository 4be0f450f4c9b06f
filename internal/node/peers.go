package node

import (
	"errors"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/config"
	"trireme/internal/base/loop"
	"trireme/internal/base/mutant"
	"trireme/internal/core/consensus"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/transport"
)

// enginePatience is for how long a write to the disk may hold up the engine before it goes on beside it.
const enginePatience = 100 * time.Millisecond

// compressions are the values of peer.compression.
var compressions = map[string]transport.Compression{config.CompressOff: transport.CompressNever,
	config.CompressAuto: transport.CompressAuto, config.CompressAlways: transport.CompressAlways}

// startEngine starts the links and raft.
func (n *Node) startEngine() error {
	last, err := n.rlog.LastIndex()
	if err != nil {
		return err
	}
	generation, err := n.recovery.ForPeers()
	if err != nil {
		return err
	}
	tick := n.cfg.Raft.Heartbeat()
	if n.engine, err = loop.New(min(tick, enginePatience)); err != nil {
		return err
	}
	n.tr, err = transport.New(transport.Config{ID: n.id.ID, Loop: n.engine, Generation: generation, Cluster: n.id.Cluster,
		Listen: n.cfg.Peer.Listen, Advertise: n.cfg.Peer.Advertise, TLS: n.certs.Bundle().PeerTLS, Revoked: n.certs.WhyRevoked,
		ToldRevoked: n.certs.ToldRevoked, Twin: n.twin, ToldTwin: n.toldTwin,
		Handler: handler{n, n.requests()}, Logger: n.base, Compression: compressions[n.cfg.Peer.Compression]})
	if err != nil {
		return err
	}
	var boot []raft.Peer
	if n.id.Bootstrap && last == 0 {
		boot = []raft.Peer{{ID: n.id.ID}}
	}
	n.cons, err = consensus.Start(consensus.Config{ID: n.id.ID, Loop: n.engine, Storage: n.load.TimedLog(n.rlog),
		Send: n.tr.Send, Applied: n.led.Index(),
		TickInterval: tick, ElectionTicks: int(n.cfg.Raft.ElectionTimeout() / tick), HeartbeatTicks: 1,
		MaxUncommittedBytes: uint64(n.cfg.Raft.MaxInflight), CampaignDelay: n.leadership.CampaignDelay,
		OnAnswer:    func(uint64) { n.wakeLoop() },
		OnCommitted: n.acks.OnCommitted, Quick: raftlog.IsPlainTrx, OnMatch: n.acks.OnMatch, OnSoftState: n.control.SoftState,
		OnSnapshot: n.onSnapshot, OnFatal: n.fail, Logger: n.base}, boot)
	n.engine.Start() // without raft, too: the end of the links waits for it
	return err
}

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

// HandleRaft takes a message of a peer's raft, on the engine.
func (n *Node) HandleRaft(m *raftpb.Message) {
	if !n.isUp() {
		return // raft repeats it
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
	n.cons.Step(m)
}

// runsMySQL is asked by a mutation only: Raft does without mysqld (S9).
func (n *Node) runsMySQL() bool { return n.lives.Life() != nil }

// PeerUp is told when a peer's link works.
func (n *Node) PeerUp(id uint64) {
	n.gossip.Up(id) // it wants to know us
	n.certs.Taken()
	n.wakeLoop()
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
	n.wakeLoop()
}
