package sim

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/ackpath"
	"trireme/internal/node/leadership"
	"trireme/internal/node/lifecycle"
	"trireme/lab/sim/fakemysql"
)

// glue is package node in the simulation: the Top of a machine with a mysqld. What package node leaves to packages of
// its own is done here by the same code: lifecycle.Lives (all that happens to mysqld between its start and its death),
// ackpath.Path (from committed entries to OKs), leadership.Leadership (moving it, and the lease), ha.Decide, ledger,
// dump.Stepper (the cutter), raftlog's entries and search. What is modelled after package node, step by step, is what
// it does in between: the pump, the feed, seeding, the guard's process. Each function names the one that it follows.
//
// Left out: weights, a pause, the log's bound (ledger.BoundPoint), force-quorum, the router.
type glue struct {
	w   *World
	n   *Node
	sql *sqlWorld

	// On the machine's disk.
	srv   *fakemysql.Server
	saved lifecycle.State // node.json
	bare  bool            // its data directory was lost and has not been replaced yet
	// tampered: its data directory was written to without the log. That must be detected.
	tampered bool
	logger   bool // there is no mysqld

	// Of the mysqld that runs, which is another process than the daemon.
	proc  *mysqlProcess // the newest; nil: none was started yet
	hung  bool          // it is alive and does not answer
	guard guardTimer

	// Of the daemon's life.
	up       bool
	led      *ledger.Ledger
	acks     *ackpath.Path
	ruled    *config.Cluster // the settings that acks has seen last
	raft     consensus.State
	since    time.Duration // leader since
	lead     *leadership.Leadership
	lives    *lifecycle.Lives
	applied  uint64
	hungAt   time.Duration // since when mysqld was seen not to answer
	peers    map[uint64]*peerState
	asks     map[uint64]func(any)
	nextAsk  uint64
	feed     feeder
	tasks    []*task
	looking  bool
	looks    uint64 // turns of the loop
	lastSaid time.Duration
	said     bool // the status has changed in a way that others wait for
}

const (
	loopInterval    = electionTimeout / 4
	statusInterval  = time.Second
	freshFor        = 3 * time.Second
	durableEvery    = 700 * time.Millisecond
	durablePatience = 5 * time.Second
	hungPatience    = 2 * time.Second
)

func newGlue(n *Node, s *sqlWorld) *glue {
	g := &glue{w: n.w, n: n, sql: s, logger: s.isLogger(n.ID)}
	g.saved.Lives = ledger.Lives{Retired: map[uint64]int64{}, Prelude: map[uint64]int64{}}
	g.lives = lifecycle.New(exec{g})
	g.newData()
	s.glues = append(s.glues, g)
	return g
}

// newData is an empty data directory. What was durable in the one before is gone with it (S8).
func (g *glue) newData() {
	g.srv = fakemysql.New(uint32(g.n.ID))
	g.srv.Flush = g.sql.mode.follower
	g.srv.OnCommit = func(t fakemysql.Trx, leader bool) { g.sql.committedHere(g, t, leader) }
	g.saved.Durable, g.saved.Inherited, g.tampered = 0, "", false
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
	g.acks, g.ruled = ackpath.New(g.n.ID, g.led, exec{g}, ackHost{g}), nil
	g.raft = consensus.State{}
	g.lead = leadership.New(config.Identity{ID: g.n.ID, Name: fmt.Sprint("n", g.n.ID)}, electionTimeout, exec{g},
		leadershipHost{g}, slog.New(slog.DiscardHandler))
	g.peers, g.asks = map[uint64]*peerState{}, map[uint64]func(any){}
	g.applied, g.looking = 0, false
	g.lives = lifecycle.New(exec{g})
	g.lives.Open(lifecycle.Config{Cluster: clusterID, Node: uint16(g.n.ID), Log: g.n.Log(), Ledger: g.led, Memory: g,
		Feed: lifeFeed{g}, Host: g, Logger: slog.New(slog.DiscardHandler)})
	if !g.logger {
		g.lives.Change((*lifecycle.Status).Off)
	}
	g.feed = feeder{}
	life := g.n.life
	g.w.At(0, func() {
		if g.n.life == life && g.n.up {
			g.look()
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
	g.guard.set(g, 0)
}

// Committed implements Top.
func (g *glue) Committed(entries []*raftpb.Entry) {
	if err := g.acks.OnCommitted(entries); err != nil {
		g.w.Violate("S12", "node %d: %v", g.n.ID, err)
		return
	}
	g.feedSoon()
	g.wakeLoop()
}

// Snapshot implements Top (node.onSnapshot).
func (g *glue) Snapshot(snap *raftpb.Snapshot) {
	b, err := raftlog.DecodeBoundary(snap.GetData())
	if err != nil {
		g.w.Violate("S13", "node %d: the snapshot at %d: %v", g.n.ID, snap.GetMetadata().GetIndex(), err)
		return
	}
	g.led.Reset(b)
	if s := g.lives.Status(); s.State() == ha.ServerReady || s.State() == ha.ServerUp {
		g.lives.Change((*lifecycle.Status).JudgeAgain)
	}
	g.feed.on = false // the receiver is pointed at it again by the judgement
	g.wakeLoop()
}

// CampaignDelay implements Top.
func (g *glue) CampaignDelay(lost uint64) time.Duration { return g.lead.CampaignDelay(lost) }

// State implements Top (node.softStateLocked).
func (g *glue) State(s consensus.State) {
	if s.Role == consensus.Leader && (g.raft.Role != consensus.Leader || g.raft.Term != s.Term) {
		g.since = g.now()
		g.lead.Elected(s.Term)
	}
	g.said = g.said || g.raft != s
	g.lead.InTerm(s.Term)
	g.raft = s
	g.wakeLoop()
}

// wakeLoop makes the loop look again, soon.
func (g *glue) wakeLoop() {
	if !g.up || g.looking {
		return
	}
	g.looking = true
	g.n.in(time.Duration(10+g.w.rnd.IntN(300))*time.Microsecond, func() { g.looking = false; g.look() })
}

// look is one turn of node.loop.
func (g *glue) look() {
	if g.lives.Life() != nil && g.alive() {
		g.applied = g.led.Applied(g.srv.Executed()).Applied
	}
	g.tickAcks()
	g.lead.NoteLease(time.Duration(g.n.LeaseUntil()))
	v := g.view()
	g.lead.Saw(v)
	g.looks++
	this, next := g.looks, ha.NextLook(v, g.lives.TellGuard(v.Raft.LeaseUntil+g.lead.Grace()), loopInterval)
	if g.sql.broken("S10look") {
		next = loopInterval
	}
	g.n.After(next, func() {
		if g.looks == this {
			g.look()
		}
	})
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
	lease, s := g.lead.Lease(time.Duration(g.n.LeaseUntil())), g.lives.Status()
	v := ha.View{
		Now: g.now(), Self: g.n.ID, Name: fmt.Sprint("n", g.n.ID), Weight: 1,
		Raft: ha.Raft{Term: st.Term, Leader: st.Leader, IsLeader: st.Role == consensus.Leader, Commit: st.Commit,
			LeaseUntil: lease, Transferee: st.Transferee, Since: g.since,
			Unsettled: st.Role == consensus.Leader && g.acks.Settled() != st.Term, Voters: len(st.Voters)},
		Server: g.server(), Serving: s.Serving.View(),
		Stopping: s.Stopping(), Voter: slices.Contains(st.Voters, g.n.ID),
		LastOpen: uint64(g.led.NewestBarrier().Node),
	}
	g.lead.Show(&v)
	if s.TakesWrites() && s.Term() == st.Term {
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

// server is node.serverViewLocked.
func (g *glue) server() ha.Server {
	s := g.lives.Status()
	v := s.Server.View()
	v.Applied, v.SteppingDown = g.applied, s.SteppingDown(g.raft.Role == consensus.Leader)
	if g.hungAt != 0 && g.now() > g.hungAt+hungPatience {
		v.Stuck, v.StuckSince = "mysqld does not answer", g.hungAt
	}
	return v
}

// fit is node.readyLocked.
func (g *glue) fit() bool {
	_, fit := ha.Unready(g.server(), "", g.stopping(), g.now())
	return fit
}

// members are the ids of everybody in the configuration.
func members(st *consensus.Status) []uint64 {
	ids := slices.Concat(st.Voters, st.Outgoing, st.Learners)
	slices.Sort(ids)
	return slices.Compact(ids)
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
	if s := g.lives.Status(); g.sql.broken("S7") && a.Kind == ha.Fence && a.Term != s.Term() {
		return
	}
	l, stands := g.lives.Begin(a, g.n.Status().Term)
	if !stands {
		return
	}
	g.w.Tracef("%d: %v", g.n.ID, a)
	switch a.Kind {
	case ha.StartServer:
		g.spawn("start", g.startServer)
	case ha.Judge:
		g.spawn("judge", func(k *task) { g.judgeServer(k, l) })
	case ha.Seed:
		g.spawn("seed", g.seedServer)
	case ha.Promote:
		g.serve("promote", func(k *task) { _, _ = g.leader(l, a.Term).Promote(k.ctx()) })
	case ha.Fence:
		g.fence(a.Reason)
	case ha.Restart:
		g.endServer(l)
	case ha.HandOver:
		attempt := g.lead.Begin(a)
		g.spawn("hand over", func(k *task) { attempt.HandOver(k.ctx()) })
	case ha.Switchover:
		attempt, leader := g.lead.Begin(a), handingOver{g.leader(l, a.Term), g, l}
		g.serve("switchover", func(k *task) { attempt.Switchover(k.ctx(), leader) })
	}
}

// serve is node.serveTaskLocked.
func (g *glue) serve(name string, f func(k *task)) {
	done := make(chan struct{})
	var before <-chan struct{}
	k := g.spawn(name, func(k *task) {
		defer close(done)
		f(k)
		for before != nil && !closed(before) {
			_ = k.sleep(time.Millisecond)
		}
	})
	g.lives.Change(func(s *lifecycle.Status) { before = s.Run(k.cancel, done) })
}

// Recall implements lifecycle.Memory.
func (g *glue) Recall() *lifecycle.State { return &g.saved }

// Remember implements lifecycle.Memory.
func (g *glue) Remember(change func(*lifecycle.State)) error {
	change(&g.saved)
	return nil
}

// Raft implements lifecycle.Host.
func (g *glue) Raft() lifecycle.Raft { return raftOf{g} }

// raftOf is consensus as lifecycle sees it.
type raftOf struct{ g *glue }

// ReadIndex implements lifecycle.Raft.
func (r raftOf) ReadIndex(ctx context.Context) (index uint64, err error) {
	answered := false
	r.g.n.ReadIndex(func(i uint64) { index, answered = i, true })
	err = exec(r).until(ctx, func() bool { return answered })
	return index, err
}

// Prove implements lifecycle.Host.
func (g *glue) Prove(context.Context, *lifecycle.Life, []byte) error { return nil }

// FollowDecisions implements lifecycle.Host.
func (g *glue) FollowDecisions(gtid.Set) error { return nil }

// Executed implements lifecycle.Host.
func (g *glue) Executed(l *lifecycle.Life, set gtid.Set) (uint64, error) {
	if g.lives.Life() != l {
		return 0, lifecycle.ErrDead
	}
	g.applied = g.led.Applied(set).Applied
	return g.applied, nil
}

// LostXA implements lifecycle.Host: clients here end prepared XA transactions on the leader only.
func (g *glue) LostXA(_ *lifecycle.Life, lost lifecycle.LostXA, applied uint64, _ gtid.Set) {
	g.w.Violate("S5", "node %d, which has applied up to entry %d, seems to have lost the XA transaction %s (%v)", g.n.ID,
		applied, lost.XID, lost.Prepare)
}

// ReleaseSlowed implements lifecycle.Host.
func (g *glue) ReleaseSlowed() { g.acks.ReleaseSlowed() }

// WhyUnacknowledged implements lifecycle.Host.
func (g *glue) WhyUnacknowledged() string { return "" }

// Dying implements lifecycle.Host: see noticeDeath.
func (g *glue) Dying(*lifecycle.Life) {}

// Fail implements lifecycle.Host.
func (g *glue) Fail(err error) { g.w.Violate("S13", "node %d: %v", g.n.ID, err) }

// lifeFeed is the feed as lifecycle sees it.
type lifeFeed struct{ g *glue }

// Begin implements lifecycle.Feed.
func (f lifeFeed) Begin() (ch mysqld.Channel, err error) { return ch, nil }

// Pause implements lifecycle.Feed.
func (f lifeFeed) Pause(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.g.feed.paused = true
	return nil
}

// Resume implements lifecycle.Feed.
func (f lifeFeed) Resume() {
	f.g.feed.paused, f.g.feed.begun = false, false
	f.g.feedSoon()
}
