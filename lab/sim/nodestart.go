package sim

import (
	"errors"
	"time"

	"go.etcd.io/raft/v3"

	"trireme/internal/core/consensus"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/recovery"
)

// start begins a life of the daemon.
func (n *Node) start() {
	if n.up || n.lost || n.off {
		return
	}
	n.life++
	n.disk.mend()
	if err := n.top.Opening(); err != nil {
		n.failedStart(err)
		return
	}
	n.generation = n.top.Generation()
	log, err := raftlog.Open(raftlog.Options{Dir: logDir, FS: n.fs, SegmentBytes: 4 << 10, CacheBytes: 4 << 10,
		ZeroAheadBytes: 4 << 10, Cluster: clusterID, NodeID: n.ID, Later: n.upkeepLater})
	if err != nil {
		n.failedStart(err)
		return
	}
	n.log, n.confFrom, n.confAt = log, log.ConfStateIndex(), log.ConfStateIndex()
	if !n.w.check.reopened(n) {
		return
	}
	if !n.carryOut() {
		return
	}
	if err := n.open(); err != nil {
		n.failedStart(err)
		return
	}
	n.up = true
	n.status = n.st.Status()
	n.w.count(cStarts)
	n.w.note(1, n.ID, n.life, n.status.LastIndex, n.status.Term)
	n.w.Tracef("%d: starts, life %d, log to %d, term %d", n.ID, n.life, n.status.LastIndex, n.status.Term)
	n.tickLater()
	n.wake()
}

// carryOut lets what an operator has decided be put into the log.
func (n *Node) carryOut() (ok bool) {
	if err := n.top.LogOpened(); err != nil {
		n.failedStart(err)
		return false
	}
	at := n.log.ConfStateIndex()
	if at == n.confFrom {
		return true
	}
	n.confFrom, n.confAt = at, at
	return n.w.check.reopened(n)
}

// past reports whether the node is of an older generation than the newest: what it does has no effect on that.
func (n *Node) past() bool { return n.generation.Number < n.w.generation }

// upkeepLater lets the log do the work that no writer waits for: soon, or only when the next segment is full.
func (n *Node) upkeepLater(job func()) {
	d := time.Duration(n.w.rnd.IntN(2000)) * time.Microsecond
	if n.w.rnd.IntN(5) == 0 {
		d *= 100
	}
	n.in(d, func() {
		job()
		n.turn()
	})
}

func (n *Node) open() (err error) {
	last, _ := n.log.LastIndex()
	var peers []raft.Peer
	if hs, _, err := n.log.InitialState(); err == nil && hs == nil && last == 0 && n.founder {
		for _, m := range n.w.nodes {
			if m.founder {
				peers = append(peers, raft.Peer{ID: m.ID})
			}
		}
	}
	applied, err := n.top.Start()
	if err != nil {
		return err
	}
	n.w.check.begins(n, applied)
	cfg := consensus.Config{
		ID: n.ID, Storage: &store{n.log, n}, Send: n.send, Applied: applied,
		TickInterval: tickInterval, ElectionTicks: electionTicks, HeartbeatTicks: heartbeatTicks,
		MaxSizePerMsg: 8 << 10, MaxInflightMsgs: 64, MaxInflightBytes: 64 << 10, MaxUncommittedBytes: n.w.room(),
		MaxApplyingBytes: 16 << 10, OnCommitted: n.committed, OnSnapshot: n.snapshot, OnSoftState: n.softState,
		OnMatch: n.top.Matched,
		OnFatal: func(error) {}, CampaignDelay: n.top.CampaignDelay, Clock: n.Clock,
	}
	life := n.life
	n.st, err = consensus.OpenStepper(cfg, peers, consensus.StepperOptions{
		Life:   n.w.rnd.Uint64(),
		Jitter: func(term uint64, of int) int { return int(mix(n.ID, life, term) % uint64(of)) },
		After:  n.After,
	})
	return err
}

// room is how much may be in flight: with mysqld, in a third of the runs, little, so that what it writes waits.
func (w *World) room() uint64 {
	if w.sql != nil && mix(w.plan.seed, 1, 1)%3 == 0 {
		return 1 << 10
	}
	return 64 << 10
}

// mix makes one number of three that tells nothing of them: splitmix64's finish.
func mix(a, b, c uint64) uint64 {
	x := a*0x9e3779b97f4a7c15 + b*0xbf58476d1ce4e5b9 + c*0x94d049bb133111eb
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// failedStart judges why a daemon did not start.
func (n *Node) failedStart(err error) {
	n.w.Tracef("%d: does not start: %v", n.ID, err)
	switch {
	case n.disk.powerCut:
		n.cutOff()
	case errors.Is(err, recovery.ErrLeftBehind):
		n.lose("given up")
	case (errors.Is(err, raftlog.ErrCorrupt) || errors.Is(err, consensus.ErrStorageInconsistent)) && n.rotten != "":
		n.lose("the log is damaged")
		n.w.count(cCorruptFound)
	case n.disk.mayFail() || isFault(err):
		n.log, n.st = nil, nil
		n.fs.Kill()
		n.w.At(time.Second, n.start)
	default:
		n.w.Violate("S2", "node %d does not start on a disk that kept what was fsynced: %v", n.ID, err)
	}
}

// powerOff switches the machine off for long, as a loss of power does, and powerOn on again.
func (n *Node) powerOff() {
	n.off = true
	n.powerLoss()
}

func (n *Node) powerOn() {
	if n.off {
		n.w.Tracef("%d: is switched on again", n.ID)
		n.off = false
		n.start()
	}
}

// cutOff is the end of a life whose disk does nothing any more: its power is gone, or its process.
func (n *Node) cutOff() {
	if !n.disk.cutKills {
		n.powerLoss()
		return
	}
	n.w.Tracef("%d: killed in the middle of a write", n.ID)
	n.w.count(cKills)
	n.end(false)
	n.fs.Kill()
	n.tellGone()
	n.w.At(time.Duration(200+n.w.rnd.IntN(1500))*time.Millisecond, n.start)
}
