package sim

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/ackpath"
	"trireme/internal/node/controlloop"
	"trireme/internal/node/gossip"
	"trireme/internal/node/leadership"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/memory"
	"trireme/internal/node/recovery"
	"trireme/internal/node/seeding"
	"trireme/lab/sim/fakemysql"
)

// member is package node in the simulation: the Top of a machine with a mysqld. It runs the organs of a member as they
// ship (controlloop, lifecycle, ackpath, leadership, gossip, seeding, recovery, memory, ha, ledger, and dump's cutter
// and feed), and is what package node is to them: their hosts, the wiring, and the periodic work. Modelled are mysqld
// (fakemysql), its process and its guard's, the network and the disk. Functions name the one of package node that they
// follow.
//
// Left out: the router.
type member struct {
	w   *World
	n   *Node
	sql *sqlWorld

	// On the machine's disk.
	srv  *fakemysql.Server
	bare bool // its data directory was lost and has not been replaced yet
	generations
	// stuck: its applier cannot take some transaction of the log, until the data is replaced.
	stuck bool
	// tampered: its data directory was written to without the log. That must be detected.
	tampered bool
	logger   bool // there is no mysqld
	// noDirectory: mysqld has no data directory. The daemon makes an empty one when it starts.
	noDirectory bool
	// Its disk is nearly full, and if it leads it refuses writes for lack of room in logs (node/room); empty: not.
	full, refused string

	// Of the mysqld that runs, which is another process than the daemon.
	proc  *mysqlProcess // the newest; nil: none was started yet
	hung  bool          // it is alive and does not answer
	guard guardTimer

	// Of the daemon's life.
	up     bool
	memory *memory.Memory // node.json, on the machine's disk
	organs
	ruled    *config.Cluster // the settings that acks has seen last
	id       config.Identity
	log      *slog.Logger
	lock     *uncontended
	applied  uint64
	hungAt   time.Duration // since when mysqld was seen not to answer
	asks     map[uint64]func(any)
	nextAsk  uint64
	feed     feeder
	root     *taskContext // of the life
	tasks    []*task
	running  *task
	looking  bool
	tending  bool   // of the applier
	why      string // what the policy has said last
	looks    uint64 // turns of the loop
	settings settings
}

// organs of a member, as they ship.
type organs struct {
	led      *ledger.Ledger
	acks     *ackpath.Path
	lives    *lifecycle.Lives
	lead     *leadership.Leadership
	gossip   *gossip.Gossip
	seeding  *seeding.Seeding
	recovery *recovery.Recovery
	control  *controlloop.Loop
}

var noLog = slog.New(slog.DiscardHandler)

const (
	loopInterval    = electionTimeout / 4
	durableEvery    = 700 * time.Millisecond
	durablePatience = 5 * time.Second
	tendEvery       = 500 * time.Millisecond
	hungPatience    = 2 * time.Second
)

func newMember(n *Node, s *sqlWorld) *member {
	g := &member{w: n.w, n: n, sql: s, logger: s.isLogger(n.ID)}
	g.lives = lifecycle.New(exec{g})
	g.newData()
	if !n.founder { // it joins as what the leader's cluster is (setup)
		g.generation = s.force.now
	}
	s.members = append(s.members, g)
	return g
}

// newData is an empty data directory.
func (g *member) newData() {
	g.srv = fakemysql.New(uint32(g.n.ID))
	g.srv.Flush = g.sql.mode.follower
	g.srv.OnCommit = func(t fakemysql.Trx, leader bool) { g.sql.committedHere(g, t, leader) }
	g.tampered, g.stuck = false, false
}

// now is the node's CLOCK_BOOTTIME.
func (g *member) now() time.Duration { return time.Duration(g.n.Clock()) }

// Start implements Top.
func (g *member) Start() (applied uint64, err error) {
	hs, _, err := g.n.Log().InitialState()
	if err != nil {
		return 0, err
	}
	if g.memory, err = memory.Open(g.diskFS("forgets"), memoryDir); err != nil {
		return 0, err
	}
	g.asks, g.root, g.lock = map[uint64]func(any){}, &taskContext{g: g}, &uncontended{g: g}
	if !g.n.past() {
		g.sql.learn(g.n.Log(), hs.GetCommit())
	}
	g.led = ledger.New(g.n.Log().BoundaryAt(g.recovery.Delivered(hs.GetCommit())))
	g.acks, g.ruled = ackpath.New(g.n.ID, g.led, exec{g}, ackHost{g}), nil
	g.log = noLog
	g.lead = leadership.New(g.id, electionTimeout, exec{g}, leadershipHost{g}, g.log)
	g.gossip = gossip.New(gossipConfig, g.id, g.led, exec{g}, gossipHost{g}, g.log)
	g.newSeeding()
	if g.noDirectory { // node.prepareServer
		if err := g.seeding.Forget(); err != nil {
			return 0, err
		}
		g.noDirectory = false
	}
	g.applied, g.looking, g.tending = 0, false, false
	g.lives = lifecycle.New(exec{g})
	g.lives.Open(lifecycle.Config{Cluster: clusterID, Node: uint16(g.n.ID), Log: g.n.Log(), Ledger: g.led,
		Memory: memoryOf{g}, Feed: lifeFeed{g}, Host: g, Logger: g.log})
	g.control = controlloop.New(controlloop.Parts{ID: g.id, Mu: g.lock, Time: exec{g}, Lives: g.lives, Leadership: g.lead,
		Acks: g.acks, Gossip: g.gossip, Ledger: g.led, Host: loopHost{g}, Log: g.log})
	if !g.logger {
		g.lives.Change((*lifecycle.Status).Off)
	}
	g.feed = feeder{}
	g.up = true
	life := g.n.life
	g.w.At(0, func() {
		if g.n.life == life && g.n.up {
			g.look()
			g.n.After(durableEvery, g.keepDurable)
			g.n.After(tendEvery, g.tendApplier)
		}
	})
	return g.led.Index(), nil
}

// Crash implements Top: mysqld ends with its daemon.
func (g *member) Crash(power bool) {
	g.up = false
	g.stopTasks()
	g.killServer(power)
	g.guard.set(g, 0)
}

// Committed implements Top.
func (g *member) Committed(entries []*raftpb.Entry) {
	if err := g.acks.OnCommitted(entries); err != nil {
		g.w.Violate("S12", "node %d: %v", g.n.ID, err)
		return
	}
	g.feedSoon()
	g.wakeLoop()
}

// Snapshot implements Top (node.onSnapshot).
func (g *member) Snapshot(snap *raftpb.Snapshot) {
	b, err := raftlog.DecodeBoundary(snap.GetData())
	if err != nil {
		g.w.Violate("S13", "node %d: the snapshot at %d: %v", g.n.ID, snap.GetMetadata().GetIndex(), err)
		return
	}
	if gen := g.recovery.Generation(); gen.NumberOf() > g.generation.NumberOf() { // membership.FetchSettings
		g.generation = gen
	}
	g.control.Snapshot(b)
	g.feed.on = false // the receiver is pointed at it again by the judgement
}

// CampaignDelay implements Top.
func (g *member) CampaignDelay(lost uint64) time.Duration { return g.lead.CampaignDelay(lost) }

// State implements Top.
func (g *member) State(s consensus.State) { g.control.SoftState(s) }

// wakeLoop makes the loop look again, soon.
func (g *member) wakeLoop() {
	if !g.up || g.looking {
		return
	}
	g.looking = true
	g.n.in(time.Duration(10+g.w.rnd.IntN(300))*time.Microsecond, func() { g.looking = false; g.look() })
}

// look is one turn of node.loop.
func (g *member) look() {
	if g.lives.Life() != nil && g.alive() {
		g.applied = g.led.Applied(g.srv.Executed()).Applied
	}
	g.tickAcks()
	next := g.control.Turn(loopInterval)
	if g.sql.broken("S10look") {
		next = g.now() + loopInterval
	}
	g.looks++
	this := g.looks
	g.n.After(max(next-g.now(), 0), func() {
		if g.looks == this {
			g.look()
		}
	})
	if g.gossip.Due() {
		g.broadcast()
	}
}

// memberIDs are the ids of everybody in the configuration.
func memberIDs(st *consensus.Status) []uint64 {
	ids := slices.Concat(st.Voters, st.Outgoing, st.Learners)
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Raft implements lifecycle.Host.
func (g *member) Raft() lifecycle.Raft { return raftOf{g} }

// raftOf is consensus as lifecycle sees it.
type raftOf struct{ g *member }

// ReadIndex implements lifecycle.Raft.
func (r raftOf) ReadIndex(ctx context.Context) (index uint64, err error) {
	answered := false
	r.g.n.ReadIndex(func(i uint64) { index, answered = i, true })
	err = exec(r).until(ctx, func() bool { return answered })
	return index, err
}

// Prove implements lifecycle.Host.
func (g *member) Prove(context.Context, *lifecycle.Life, []byte) error { return nil }

// FollowDecisions implements lifecycle.Host.
func (g *member) FollowDecisions(has gtid.Set) error { return g.seeding.FollowDecisions(has) }

// Executed implements lifecycle.Host.
func (g *member) Executed(l *lifecycle.Life, set gtid.Set) (uint64, error) {
	if g.lives.Life() != l {
		return 0, lifecycle.ErrDead
	}
	g.applied = g.led.Applied(set).Applied
	g.seeding.Applied(g.applied)
	return g.applied, nil
}

// LostXA implements lifecycle.Host: clients here end prepared XA transactions on the leader only.
func (g *member) LostXA(_ *lifecycle.Life, lost lifecycle.LostXA, applied uint64, _ gtid.Set) {
	g.w.Violate("S5", "node %d, which has applied up to entry %d, seems to have lost the XA transaction %s (%v)", g.n.ID,
		applied, lost.XID, lost.Prepare)
}

// ReleaseSlowed implements lifecycle.Host.
func (g *member) ReleaseSlowed() { g.acks.ReleaseSlowed() }

// WhyUnacknowledged implements lifecycle.Host.
func (g *member) WhyUnacknowledged() string { return "" }

// Dying implements lifecycle.Host.
func (g *member) Dying(l *lifecycle.Life) { g.control.Dying(l) }

// Fail implements lifecycle.Host.
func (g *member) Fail(err error) { g.w.Violate("S13", "node %d: %v", g.n.ID, err) }

// lifeFeed is the feed as lifecycle sees it.
type lifeFeed struct{ g *member }

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
	f.g.feed.paused, f.g.feed.dump = false, nil
	f.g.feedSoon()
}
