package sim

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/consensus"
	"trireme/internal/gtid"
	"trireme/internal/ha"
	"trireme/internal/ledger"
	"trireme/internal/raftlog"
	"trireme/lab/sim/fakemysql"
)

// glue is package node in the simulation: the Top of a machine with a mysqld. What package node decides by rules of its
// own packages is decided here by the same code: ha.Decide, ha.Stands, ledger.Ledger, ledger.Ack, ledger.Judge,
// ledger.PurgePoint, dump.Stepper (the cutter), raftlog's entries and search. What is modelled after package node, step
// by step, is what it does in between: promotion, fence, switchover, feed, durable index, seeding, guard. Each function
// names the one that it follows.
//
// Left out: commit rules, weights, a pause, the log's bound (ledger.BoundPoint), `failover` and force-quorum, the
// router.
type glue struct {
	w   *World
	n   *Node
	sql *sqlWorld

	// On the machine's disk.
	srv   *fakemysql.Server
	saved localFile
	bare  bool // its data directory was lost and has not been replaced yet
	// tampered: its data directory was written to without the log. That must be detected.
	tampered bool
	logger   bool // there is no mysqld

	// Of the mysqld that runs, which is another process than the daemon.
	life  *mysqlLife
	hung  bool // mysqld is alive and does not answer
	guard guardTimer

	// Of the daemon's life.
	up       bool
	led      *ledger.Ledger
	settled  uint64
	raft     consensus.State
	since    time.Duration // leader since
	asked    uint64        // the term before this one asked us to take over
	state    ha.ServerState
	problem  string
	retryAt  time.Duration
	readyAt  time.Duration
	serving  serving
	applied  uint64
	keepFrom uint64
	hungAt   time.Duration // since when mysqld was seen not to answer
	lost     time.Duration // when the lease was lost
	hand     handover
	request  *ha.Transfer
	reqTerm  uint64
	peers    map[uint64]*peerState
	asks     map[uint64]func(any)
	nextAsk  uint64
	feed     feeder
	tasks    []*task
	looking  bool
	stopping bool
	lastSaid time.Duration
	said     bool // the status has changed in a way that others wait for
}

// localFile is node.json.
type localFile struct {
	incarnation uint64
	lives       ledger.Lives
	durable     uint64
	inherited   gtid.Set
}

// serving is what the present incarnation serves.
type serving struct {
	phase   ha.Phase
	term    uint64
	drained bool
	task    *task // the promotion or switchover under way
	until   time.Duration
}

type handover struct {
	term  uint64
	at    time.Duration
	to    uint64
	fails int
}

const (
	loopInterval   = 20 * time.Millisecond
	statusInterval = time.Second
	freshFor       = 3 * time.Second
	durableEvery   = 700 * time.Millisecond
	fencePatience  = 200 * time.Millisecond
	guardGrace     = 50 * time.Millisecond
	openPatience   = time.Second
	hungPatience   = 2 * time.Second
	graceTime      = electionTimeout / 10
)

func newGlue(n *Node, s *sqlWorld) *glue {
	g := &glue{w: n.w, n: n, sql: s, logger: s.isLogger(n.ID)}
	g.saved.lives = ledger.Lives{Retired: map[uint64]int64{}, Prelude: map[uint64]int64{}}
	g.newData()
	s.glues = append(s.glues, g)
	return g
}

// newData is an empty data directory. What was durable in the one before is gone with it (S8).
func (g *glue) newData() {
	g.srv = fakemysql.New(uint32(g.n.ID))
	g.srv.Flush = g.sql.mode.follower
	g.srv.OnCommit = func(t fakemysql.Trx, leader bool) { g.sql.committedHere(g, t, leader) }
	g.saved.durable, g.saved.inherited, g.tampered = 0, gtid.Set{}, false
}

// now is the node's CLOCK_BOOTTIME.
func (g *glue) now() time.Duration { return time.Duration(g.n.Clock()) }

// Start implements Top.
func (g *glue) Start() uint64 {
	g.up = true
	hs, _, err := g.n.Log().InitialState()
	if err != nil {
		g.w.Violate("S2", "node %d: %v", g.n.ID, err)
		return 0
	}
	g.sql.learn(g.n.Log(), hs.GetCommit())
	g.led = ledger.New(g.n.Log().BoundaryAt(hs.GetCommit()))
	g.settled, g.raft, g.asked = 0, consensus.State{}, 0
	g.state, g.problem, g.retryAt = ha.ServerOff, "", 0
	g.serving, g.hand, g.request = serving{}, handover{}, nil
	g.peers, g.asks = map[uint64]*peerState{}, map[uint64]func(any){}
	g.applied, g.keepFrom, g.lost, g.looking, g.stopping = 0, 0, 0, false, false
	if g.logger {
		g.state = ha.ServerAbsent
	}
	g.feed = feeder{}
	life := g.n.life
	g.w.At(0, func() {
		if g.n.life == life && g.n.up {
			g.tick()
			g.n.After(durableEvery, g.keepDurable)
		}
	})
	return g.led.Index()
}

// Crash implements Top: mysqld ends with its daemon.
func (g *glue) Crash(power bool) {
	g.up = false
	g.stopTasks()
	g.killServer(power)
	g.life = nil
	g.guard.set(g, 0)
}

// Committed implements Top (ackpath.Path.OnCommitted).
func (g *glue) Committed(entries []*raftpb.Entry) {
	var ack *raftlog.Meta
	var ackTerm uint64
	for _, e := range entries {
		data := e.GetData()
		if e.GetType() != raftpb.EntryNormal {
			data = nil
		}
		m, rest, err := g.led.Add(e.GetIndex(), e.GetTerm(), data, time.Time{})
		if err != nil {
			g.w.Violate("S12", "node %d: the committed log is broken: %v", g.n.ID, err)
			return
		}
		g.sql.learn(g.n.Log(), e.GetIndex()-1)
		g.sql.committed(e.GetIndex(), e.GetTerm(), &m, rest)
		if m.Kind == raftlog.Trx && m.Flags&raftlog.FlagUnfinished == 0 {
			ack, ackTerm = &m, e.GetTerm()
		}
	}
	g.settled = entries[len(entries)-1].GetTerm()
	if ack != nil {
		g.acknowledge(ackTerm, ack)
	}
	g.feedSoon()
	g.poke()
}

// Snapshot implements Top (node.onSnapshot).
func (g *glue) Snapshot(snap *raftpb.Snapshot) {
	b, err := raftlog.DecodeBoundary(snap.GetData())
	if err != nil {
		g.w.Violate("S13", "node %d: the snapshot at %d: %v", g.n.ID, snap.GetMetadata().GetIndex(), err)
		return
	}
	g.led.Reset(b)
	if g.state == ha.ServerReady || g.state == ha.ServerUp {
		g.state = ha.ServerUp
	}
	g.feed.on = false
	g.poke()
}

// State implements Top (node.softStateLocked).
func (g *glue) State(s consensus.State) {
	if s.Role == consensus.Leader && (g.raft.Role != consensus.Leader || g.raft.Term != s.Term) {
		g.since = g.now()
	}
	g.said = g.said || g.raft != s
	if g.request != nil && g.reqTerm != s.Term {
		g.request = nil
	}
	g.raft = s
	g.poke()
}

// Step implements Top: what has to hold is checked where it can break.
func (g *glue) Step() {}

// poke makes the loop look again, soon.
func (g *glue) poke() {
	if !g.up || g.looking {
		return
	}
	g.looking = true
	g.n.in(time.Duration(10+g.w.rnd.IntN(300))*time.Microsecond, func() { g.looking = false; g.look() })
}

// tick is the loop's timer.
func (g *glue) tick() {
	g.n.After(loopInterval, g.tick)
	g.look()
}

// look is one turn of node.loop.
func (g *glue) look() {
	if g.life != nil && !g.life.dead && !g.hung {
		g.applied = g.led.Applied(g.srv.Executed()).Applied
	}
	v := g.view()
	g.tellGuard(v.Raft.LeaseUntil)
	_, acts := ha.Decide(v)
	for _, a := range acts {
		g.act(a)
	}
	if g.said || g.now() > g.lastSaid+statusInterval {
		g.said, g.lastSaid = false, g.now()
		g.broadcast()
	}
}

// view is node.view.
func (g *glue) view() ha.View {
	st := g.n.Status()
	lease := g.lease()
	v := ha.View{
		Now: g.now(), Self: g.n.ID, Name: fmt.Sprint("n", g.n.ID), Weight: 1,
		Raft: ha.Raft{Term: st.Term, Leader: st.Leader, IsLeader: st.Role == consensus.Leader, Commit: st.Commit,
			LeaseUntil: lease, Transferee: st.Transferee, Asked: g.asked != 0 && st.Term == g.asked+1, Since: g.since,
			Unsettled: st.Role == consensus.Leader && g.settled != st.Term, Voters: len(st.Voters)},
		Server: ha.Server{State: g.state, Applied: g.applied, Problem: g.problem, RetryAt: g.retryAt,
			Since: g.readyAt},
		Serving:           ha.Serving{Phase: g.serving.phase, Term: g.serving.term, Drained: g.serving.drained},
		HandoverTriedTerm: g.hand.term, HandoverAt: g.hand.at, HandoverTo: g.hand.to, HandoverFails: g.hand.fails,
		Request: g.request, Stopping: g.stopping, Voter: slices.Contains(st.Voters, g.n.ID),
		LastOpen: uint64(g.led.NewestBarrier().Node),
	}
	if g.hungAt != 0 && g.now() > g.hungAt+hungPatience {
		v.Server.Stuck, v.Server.StuckSince = "mysqld does not answer", g.hungAt
	}
	if g.open() && g.serving.term == st.Term {
		v.Open = g.n.ID
	}
	for _, id := range members(&st) {
		if id != g.n.ID {
			p := g.peerView(id, &st)
			v.Peers = append(v.Peers, p)
			if s := g.peers[id]; s != nil && g.fresh(s) && s.status.openTerm == st.Term {
				v.Open = id
			}
		}
	}
	return v
}

// members are the ids of everybody in the configuration.
func members(st *consensus.Status) []uint64 {
	ids := slices.Concat(st.Voters, st.Outgoing, st.Learners)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// lease is node.leaseLocked.
func (g *glue) lease() time.Duration {
	lease := time.Duration(g.n.LeaseUntil())
	if lease > g.now() {
		g.lost = 0
		return lease
	}
	if g.lost == 0 {
		g.lost = lease
		if lease == 0 {
			g.lost = g.now()
		}
	}
	return g.lost + graceTime
}

func (g *glue) peerView(id uint64, st *consensus.Status) ha.Peer {
	p := ha.Peer{ID: id, Name: fmt.Sprint("n", id), Voter: slices.Contains(st.Voters, id), Data: !g.sql.isLogger(id),
		Weight: 1}
	if pr, ok := st.Members[id]; ok {
		p.Match, p.Heard = pr.Match, pr.Answered
	}
	if s := g.peers[id]; s != nil && g.fresh(s) {
		p.Live, p.Ready, p.Applied, p.Since = true, s.status.ready, s.status.applied, s.since
	}
	return p
}

// act is node.act.
func (g *glue) act(a ha.Action) {
	alive := g.life != nil && !g.life.dead
	now := ha.Serving{Phase: g.serving.phase, Term: g.serving.term}
	if !ha.Stands(a, g.n.Status().Term, g.state, now) || a.Kind == ha.Restart && !alive {
		return
	}
	if g.sql.broken("S7") && a.Kind == ha.Fence && a.Term != g.serving.term {
		return
	}
	g.w.Tracef("%d: %v", g.n.ID, a)
	l := g.life
	switch a.Kind {
	case ha.StartServer:
		g.state = ha.ServerStarting
		g.spawn("start", g.startServer)
	case ha.Judge:
		g.state = ha.ServerJudging
		g.spawn("judge", func(k *task) { g.judgeServer(k, l) })
	case ha.Seed:
		g.state = ha.ServerSeeding
		g.spawn("seed", g.seedServer)
	case ha.Promote:
		g.serving = serving{phase: ha.PhasePromoting, term: a.Term}
		g.serving.task = g.spawn("promote", func(k *task) { g.promote(k, l, a.Term) })
	case ha.Fence:
		g.fence(a.Reason)
	case ha.Restart:
		g.state = ha.ServerDying
		g.endServer()
	case ha.HandOver:
		g.noteHandover(a)
		g.n.Transfer(a.To, func(error) { g.poke() })
		g.n.Tell(a.To, takeOver{a.Term})
	case ha.Switchover:
		g.serving.phase, g.serving.drained = ha.PhaseHandover, false
		g.noteHandover(a)
		g.request = nil
		g.serving.task = g.spawn("switchover", func(k *task) { g.switchover(k, l, a) })
	}
}

func (g *glue) noteHandover(a ha.Action) {
	if a.Term != g.hand.term {
		g.hand.fails = 0
	}
	g.hand.term, g.hand.at, g.hand.to = a.Term, g.now(), a.To
}

// open reports whether this node takes writes, as far as its daemon knows.
func (g *glue) open() bool { return g.serving.phase == ha.PhaseOpen }
