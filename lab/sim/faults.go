package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"trireme/internal/core/raftlog/memfs"
)

// plan is the schedule of a run. It is drawn from the seed alone, so that a part of it can be left out.
type plan struct {
	seed   uint64
	nodes  int
	wide   bool // the nodes are far from each other
	length time.Duration
	faults []fault
}

// fault is something bad, or an operator's wish, that begins at a moment and ends some time later. What it hits is
// found out when it begins, with random numbers of its own.
type fault struct {
	kind faultKind
	at   time.Duration
	dur  time.Duration
	seed uint64
}

func (f fault) String() string { return fmt.Sprintf("%v %s for %v", f.at, f.kind, f.dur) }

type faultKind int

const (
	fKill faultKind = iota
	fKillAll
	fPower
	fPowerAll
	fPowerAt
	fPause
	fIsolate
	fDeaf
	fMute
	fOneWay
	fSplit
	fBridge
	fDelay
	fLoss
	fDouble
	fReorder
	fClock
	fSlowDisk
	fHungDisk
	fFailDisk
	fFullDisk
	fFlip
	fDiskLoss
	fTransfer
	fCampaign
	fDepose
	fPurge
	fChange
	fMysqld // what SQLTop makes of it
	fForce  // with SQLTop: the majority is lost, and an operator makes a new generation
	numFaults
)

var faultNames = [numFaults]string{"kill", "kill all", "power loss", "power loss of all", "power loss in mid-write",
	"stop", "isolate", "hears no other", "is not heard", "one-way cut", "split", "bridge", "delay", "loss", "doubles",
	"reorder", "clock", "slow disk", "hung disk", "failing disk", "full disk", "bit flip", "disk lost", "transfer",
	"campaign", "depose", "purge", "membership", "mysqld",
	"majority lost"}

func (k faultKind) String() string { return faultNames[k] }

// weights say how often each fault is drawn.
var weights = [numFaults]int{fKill: 8, fKillAll: 1, fPower: 5, fPowerAll: 2, fPowerAt: 4, fPause: 5, fIsolate: 6,
	fDeaf: 2, fMute: 2, fOneWay: 3, fSplit: 4, fBridge: 2, fDelay: 2, fLoss: 2, fDouble: 1, fReorder: 2, fClock: 3,
	fSlowDisk: 2, fHungDisk: 2, fFailDisk: 5, fFullDisk: 2, fFlip: 2, fDiskLoss: 1, fTransfer: 6, fCampaign: 2, fDepose: 2,
	fPurge: 8, fChange: 9}

// forceOneIn: one run of so many with SQLTop tries to lose the majority. It is drawn for itself: all other runs are as
// they were.
const forceOneIn = 6

// quiet is how long a cluster is left alone to begin with.
const quiet = 1500 * time.Millisecond

func drawPlan(seed uint64, o *Options) plan {
	rnd := rand.New(rand.NewPCG(seed, 0x7472697265))
	p := plan{seed: seed, nodes: []int{3, 3, 3, 5, 5, 4, 1, 2}[rnd.IntN(8)], wide: rnd.IntN(6) == 0,
		length: time.Duration(4+rnd.IntN(5)) * time.Second}
	if o.Nodes > 0 {
		p.nodes = o.Nodes
	}
	if o.Duration > 0 {
		p.length = o.Duration
	}
	total := 0
	for _, w := range weights {
		total += w
	}
	count := 3 + rnd.IntN(10)
	for range count {
		k, pick := faultKind(0), rnd.IntN(total)
		for pick >= weights[k] {
			pick -= weights[k]
			k++
		}
		p.faults = append(p.faults, fault{kind: k, at: quiet + time.Duration(rnd.Int64N(int64(p.length))), seed: rnd.Uint64(),
			dur: time.Duration(50+rnd.IntN(400)*(1+rnd.IntN(6))) * time.Millisecond})
	}
	if o.Top != nil {
		for range 3 + rnd.IntN(12) {
			p.faults = append(p.faults, fault{kind: fMysqld, at: quiet + time.Duration(rnd.Int64N(int64(p.length))),
				seed: rnd.Uint64(), dur: time.Duration(50+rnd.IntN(2000)) * time.Millisecond})
		}
	}
	if rnd := rand.New(rand.NewPCG(seed, 9)); o.Top != nil && (rnd.IntN(forceOneIn) == 0 || o.force) {
		p.nodes = []int{2, 3, 3, 4, 5, 5}[rnd.IntN(6)]
		if o.Nodes > 0 {
			p.nodes = o.Nodes
		}
		for range 1 + rnd.IntN(3)/2 {
			p.faults = append(p.faults, fault{kind: fForce, at: quiet + time.Duration(rnd.Int64N(int64(p.length))),
				seed: rnd.Uint64(), dur: time.Duration(50+rnd.IntN(2000)) * time.Millisecond})
		}
	}
	slices.SortStableFunc(p.faults, func(a, b fault) int { return int(a.at - b.at) })
	return p
}

// has reports whether there is a fault of a kind.
func (p *plan) has(k faultKind) bool {
	return slices.ContainsFunc(p.faults, func(f fault) bool { return f.kind == k })
}

// begin lets a fault happen.
func (w *World) begin(f fault) {
	rnd := rand.New(rand.NewPCG(f.seed, 1))
	w.note(7, uint64(f.kind))
	w.Tracef("fault: %s", f)
	n := w.victim(rnd)
	switch f.kind {
	case fKillAll, fPowerAll:
		w.hitAll(f, rnd)
	case fTransfer, fCampaign, fDepose, fPurge, fChange:
		w.operate(f, rnd)
	case fIsolate, fDeaf, fMute, fOneWay, fSplit, fBridge:
		w.partition(f, rnd, n)
	case fDelay, fLoss, fDouble, fReorder:
		w.worsen(f, rnd)
	case fForce:
		if w.sql != nil {
			w.sql.force.loseMajority(f, rnd)
		}
	case fMysqld:
		if w.sql != nil {
			w.sql.fault(rnd, f.dur)
		}
	default:
		if n != nil {
			w.hit(f, rnd, n)
		}
	}
}

// victim picks a node: often the leader.
func (w *World) victim(rnd *rand.Rand) *Node {
	if l := w.Leader(); l != nil && rnd.IntN(5) < 2 {
		return l
	}
	var alive []*Node
	for _, n := range w.nodes {
		if !n.lost {
			alive = append(alive, n)
		}
	}
	if len(alive) == 0 {
		return nil
	}
	return alive[rnd.IntN(len(alive))]
}

func (w *World) hitAll(f fault, rnd *rand.Rand) {
	for _, n := range w.nodes {
		switch {
		case n.lost:
		case f.kind == fPowerAll:
			n.powerLoss()
		default:
			n.kill()
			w.At(time.Duration(rnd.Int64N(int64(f.dur))), n.start)
		}
	}
}

// hit does something to one node.
func (w *World) hit(f fault, rnd *rand.Rand, n *Node) {
	switch f.kind {
	case fKill:
		n.kill()
		w.At(f.dur, n.start)
	case fPower:
		n.powerLoss()
	case fPowerAt:
		n.disk.cutIn, n.disk.cutKills = 1+rnd.IntN(60), rnd.IntN(3) == 0
	case fPause:
		n.pauseFor(f.dur)
	case fClock:
		w.count(cClocks)
		n.clock.setRate(w.now, w.clockRate(rnd))
	case fSlowDisk:
		w.count(cSlowDisks)
		slow := time.Duration(5+rnd.IntN(300)) * time.Millisecond
		n.slow += slow
		w.At(f.dur, func() { n.slow -= slow })
	case fHungDisk:
		w.count(cSlowDisks)
		n.hung++
		w.At(f.dur, func() { n.hung-- })
	case fFailDisk:
		n.failing = []memfs.Op{memfs.OpFdatasync, memfs.OpFdatasync, memfs.OpWrite, memfs.OpCreate, memfs.OpSyncDir,
			memfs.OpRename, memfs.OpTruncate}[rnd.IntN(7)]
	case fFullDisk:
		w.count(cFullDisks)
		n.setFull(true)
		w.At(f.dur, func() { n.setFull(false) })
	case fFlip:
		if w.spare(n) {
			w.flip(n, rnd)
		}
	case fDiskLoss:
		if w.spare(n) {
			n.lose("disk lost")
		}
	}
}

// clockRate is what S10 allows: two clocks never differ by a fifth.
func (w *World) clockRate(rnd *rand.Rand) float64 {
	most := 0.08 + w.opts.broken.clock
	return 1 - most + 2*most*rnd.Float64()
}

// flip turns a bit of what a node's disk holds.
func (w *World) flip(n *Node, rnd *rand.Rand) {
	names, err := n.fs.ReadDir(logDir)
	if err != nil || len(names) == 0 {
		return
	}
	name := logDir + "/" + names[rnd.IntN(len(names))]
	b, err := n.fs.ReadFile(name)
	if err != nil || len(b) == 0 {
		return
	}
	n.rotten = name
	w.count(cBitFlips)
	bit := rnd.Int64N(int64(len(b)) * 8)
	w.Tracef("%d: bit %d of %s turns", n.ID, bit, name)
	if err := n.fs.Flip(name, bit); err != nil {
		w.Violate("simulation", "%v", err)
	}
	if rnd.IntN(2) == 0 {
		n.kill()
		w.At(time.Duration(rnd.IntN(1000))*time.Millisecond, n.start)
	}
}

// spare reports whether the cluster can do without a node's disk. It can if a majority of the voters keeps its own disk
// and one of them has the newest membership in force, which it tells the others in an election (consensus, doc.go). If
// none of them has it, a majority of every membership that is in force on some voter must keep its disks. Nothing is
// promised beyond that.
func (w *World) spare(n *Node) bool {
	c := &w.check
	if n.lost || n.rotten != "" || len(c.confs) == 0 || uint64(len(c.entries)) < c.lastChange ||
		w.sql != nil && !w.sql.keepsData(n) {
		return false
	}
	left, newest := uint64(0), &c.confs[len(c.confs)-1]
	oldest, known := newest.index, false
	for _, m := range w.nodes {
		if m == n || m.lost || m.off || m.rotten != "" {
			continue
		}
		left |= 1 << m.ID
		if slices.Contains(newest.voters, m.ID) || slices.Contains(newest.outgoing, m.ID) {
			oldest = min(oldest, m.confAt)
			known = known || m.confAt >= newest.index && !m.past()
		}
	}
	if known {
		oldest = newest.index
	} else if w.generation != 0 {
		return false // perhaps nobody else knows that there is a new generation
	}
	for i := len(c.confs) - 1; i >= 0; i-- {
		if !c.confs[i].isQuorum(left) {
			return false
		}
		if c.confs[i].index <= oldest {
			break
		}
	}
	return true
}

// partition cuts links.
func (w *World) partition(f fault, rnd *rand.Rand, n *Node) {
	if n == nil || len(w.nodes) < 2 {
		return
	}
	w.count(cPartitions)
	side := make(map[uint64]bool, len(w.nodes))
	for _, m := range w.nodes {
		side[m.ID] = rnd.IntN(2) == 0
	}
	other := w.nodes[rnd.IntN(len(w.nodes))]
	bridge := w.nodes[rnd.IntN(len(w.nodes))]
	cuts := func(a, b *Node) bool {
		switch f.kind {
		case fIsolate:
			return a == n || b == n
		case fDeaf:
			return b == n
		case fMute:
			return a == n
		case fOneWay:
			return a == n && b == other
		case fBridge:
			return side[a.ID] != side[b.ID] && a != bridge && b != bridge
		}
		return side[a.ID] != side[b.ID]
	}
	var cut [][2]uint64
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			if a != b && cuts(a, b) {
				cut = append(cut, [2]uint64{a.ID, b.ID})
				w.net.addCut(w.now, a.ID, b.ID, 1)
			}
		}
	}
	w.Tracef("cut: %v", cut)
	if w.opts.broken.heal {
		return
	}
	w.At(f.dur, func() {
		for _, c := range cut {
			w.net.addCut(w.now, c[0], c[1], -1)
		}
		w.Tracef("healed: %v", cut)
	})
}

// worsen makes all links bad.
func (w *World) worsen(f fault, rnd *rand.Rand) {
	w.count(cBadLinks)
	t := &w.net
	switch f.kind {
	case fDelay:
		d := time.Duration(5+rnd.IntN(300)) * time.Millisecond
		t.delay += d
		w.At(f.dur, func() { t.delay -= d })
	case fLoss:
		p := 10 + rnd.IntN(250)
		t.loss += p
		w.At(f.dur, func() { t.loss -= p })
	case fDouble:
		t.double += 100
		w.At(f.dur, func() { t.double -= 100 })
	case fReorder:
		d := time.Duration(1+rnd.IntN(50)) * time.Millisecond
		t.reorder++
		t.delay += d
		w.At(f.dur, func() {
			t.reorder--
			t.delay -= d
		})
	}
}
