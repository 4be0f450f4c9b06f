package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trireme/internal/access/router"
	"trireme/internal/api"
	"trireme/internal/base/coalesce"
	"trireme/internal/base/config"
	"trireme/internal/base/loop"
	"trireme/internal/control/dashboard"
	"trireme/internal/control/recorder"
	"trireme/internal/core/consensus"
	"trireme/internal/core/dump"
	"trireme/internal/core/guard"
	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/transport"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/ackpath"
	"trireme/internal/node/certs"
	"trireme/internal/node/gossip"
	"trireme/internal/node/leadership"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/membership"
	"trireme/internal/node/reads"
	"trireme/internal/node/recovery"
	"trireme/internal/node/seeding"
)

// Pauses of the node's periodic work.
const (
	loopInterval        = 250 * time.Millisecond // Decide is asked at least this often (ha.NextLook)
	appliedInterval     = 200 * time.Millisecond // gtid_executed is read while something is not applied
	durableInterval     = 5 * time.Second        // S8
	applierInterval     = 2 * time.Second
	certificateInterval = time.Hour
	caInterval          = time.Second // between steps in a change of the CA
	proofInterval       = time.Second
	keyInterval         = time.Minute
)

// Node is one running member.
type Node struct {
	cfg     config.Node
	id      config.Identity
	log     *slog.Logger // says which node
	base    *slog.Logger // for the parts that say it themselves
	local   *localFile
	history *history
	version string
	began   gtid.Set // what an adopted cluster began with (config.Cluster.Base)

	rlog       *raftlog.Log
	engine     *loop.Loop // what is on the way of a commit runs on it
	cons       *consensus.Node
	tr         *transport.Transport
	led        *ledger.Ledger
	acks       *ackpath.Path
	lives      *lifecycle.Lives // of this node's mysqld; a logger starts none
	feed       *dump.Feed       // nil on a logger
	feedLogin  config.Account   // of this daemon's mysqld, for the life of the daemon
	applyDelay *gate            // of the feed
	publisher  *dump.Publisher
	guard      *guard.Guard // nil on a logger
	router     *router.Router
	routing    coalesce.Group[router.Target, uint64] // of the leader, for the router
	news       routeNews                             // of where the router leads, for routers elsewhere
	api        *api.Server
	pages      *dashboard.Pages
	bin        mysqld.Binary
	certs      *certs.Certs
	reads      *reads.Reads
	recovery   *recovery.Recovery
	gossip     *gossip.Gossip
	members    *membership.Members
	seeding    *seeding.Seeding
	leadership *leadership.Leadership
	metrics    *prometheus.Registry
	samples    *recorder.Store // nil: nothing is recorded
	vip        addresses

	wake  chan struct{}
	ready chan struct{} // closed once every part is there
	fatal chan error
	tasks sync.WaitGroup
	ctx   context.Context // ends when the node stops; tasks are bound to it

	watchdog *watchdog     // of the service manager; shared with the node that comes after this one
	turns    atomic.Uint64 // of the loop
	special  atomic.Bool   // something other than rows was committed since recordEvents last looked
	warnings warnings
	load     load
	routers  api.Routers // without a node, which a switchover waits for

	mu           sync.Mutex
	raft         consensus.State
	leaderSince  time.Duration
	keyWarnings  []string
	riskWarnings []string // of mysql.options; never changed

	srv       serverSlot
	stateName string
	why       string
	started   time.Duration // when this node was opened; never changed
	routed    uint64        // term of the leader that the router leads to; 0: none
	follows   bool          // the router may have sessions that can be held
	clients   clients
	quiet     uint64 // term of the leader whose sessions the router holds, with nothing under way; 0: none
	fullDir   string // not empty: a disk is full, or nearly: that of this folder
	links     links
	bound     string // not empty: the raft log should take no more, and why
	pinned    string // not empty: who keeps the raft log from being purged

	twins []twin // the newest last

	purging struct { // owned by purge
		givenUp string        // the data nodes that the log does not go back to any more
		readyAt time.Duration // when this node was ready last; 0: never
	}
}

// serverSlot is what is known of what this node's mysqld applies. It begins again with each life.
type serverSlot struct {
	backlog ledger.Backlog
	movedAt time.Duration // when backlog.Applied last moved, or there was nothing to apply
	rate    float64       // entries per second applied, when there was last a backlog

	largeRate float64       // bytes per second of large transactions applied, when there last was one
	heavy     time.Duration // about how long what is heavy in backlog takes
	lagging   time.Duration // what ha.Laggard asks for
	laggingAt time.Duration // when it did
	applyRate float64       // bytes per second applied, when there was last a backlog; 0: not known
	toldLags  bool          // others were told at once that it lags
	ddl       []mysqld.DDL  // of the leader: under way
}

// errStopped is given to waits that end because the node stops.
var errStopped = errors.New("the node is stopping")

// now is CLOCK_BOOTTIME.
func now() time.Duration { return time.Duration(consensus.Boottime()) }

// wakeLoop makes the loop look again, soon.
func (n *Node) wakeLoop() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Publish tells the others this node's status at once.
func (n *Node) Publish() {
	n.gossip.Publish()
	n.wakeLoop()
}

// fail ends the node for a reason that makes going on unsafe (S13): mysqld is killed and the daemon exits with the
// reason.
func (n *Node) fail(err error) {
	select {
	case n.fatal <- err:
	default:
	}
}

// loop asks ha.Decide until the node stops. It returns the reason of a fatal stop, or nil.
func (n *Node) loop(ctx context.Context) error {
	tick := time.NewTimer(loopInterval)
	defer tick.Stop()
	var counted time.Duration
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-n.fatal:
			return err
		case <-n.wake:
		case <-tick.C:
		}
		n.turns.Add(1)
		n.acks.TickRules(n.Settings())
		n.updateFlow()
		n.reads.LookAtLive()
		v := n.look()
		tick.Reset(ha.NextLook(v, n.tellGuard(v.Raft.LeaseUntil), loopInterval))
		st, acts := ha.Decide(v)
		n.noteState(st)
		for _, a := range acts {
			n.act(a)
		}
		n.routes()
		n.updateVIPSoon()
		if n.gossip.Due() {
			if now() > counted+gossip.Interval/2 || n.router.Quiet() { // a leader counts what its switchover moves
				counted = now()
				n.countClients()
			}
			n.gossip.Broadcast()
		}
	}
}

// noteState remembers what Decide said and logs it when it is new.
func (n *Node) noteState(st ha.State) {
	n.mu.Lock()
	changed := n.why != st.Why
	if n.stateName != st.Name {
		n.gossip.Publish()
	}
	n.stateName, n.why = st.Name, st.Why
	term := n.raft.Term
	n.mu.Unlock()
	if changed {
		n.watchdog.manager.Status(st.Why)
		n.log.Info(st.Why, "term", term, "state", st.Name)
	}
}

// look is the loop's view: it takes note of what consensus says.
func (n *Node) look() ha.View {
	st := n.cons.Status()
	lease := time.Duration(n.cons.LeaseUntil())
	last := n.led.NewestBarrier()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.softStateLocked(st.State)
	n.leadership.NoteLease(lease)
	v := n.viewLocked(&st, lease, last)
	n.leadership.Saw(v)
	return v
}

// view is the node as it is now, for ha. Asking changes nothing.
func (n *Node) view() ha.View {
	st := n.cons.Status()
	lease := time.Duration(n.cons.LeaseUntil())
	last := n.led.NewestBarrier()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.viewLocked(&st, lease, last)
}

func (n *Node) viewLocked(st *consensus.Status, lease time.Duration, last ledger.Barrier) ha.View {
	lease = n.leadership.Lease(lease)
	s := n.lives.Status()
	c := n.Settings()
	v := ha.View{
		Now:  now(),
		Self: n.id.ID,
		Name: n.id.Name,
		Raft: ha.Raft{Term: st.Term, Leader: st.Leader, IsLeader: st.Role == consensus.Leader, Commit: st.Commit,
			LeaseUntil: lease, Transferee: st.Transferee, Since: n.leaderSince,
			Unsettled: st.Role == consensus.Leader && n.acks.Settled() != st.Term,
			Voters:    len(st.Voters), Stuck: s.LogStuck(), Full: fullDisk(n.fullDir)},
		Server:        n.serverViewLocked(),
		Serving:       s.Serving.View(),
		Stopping:      s.Stopping(),
		Voter:         contains(st.Voters, n.id.ID),
		LastOpen:      uint64(last.Node),
		Paused:        c.PausedAt(time.Now()),
		FailbackAfter: c.Failback(),
	}
	if s.TakesWrites() && s.Term() == st.Term {
		v.Open = n.id.ID
	}
	if v.Raft.IsLeader {
		v.Refused = n.refusedLocked(st)
	}
	n.leadership.Show(&v)
	if m, ok := c.MemberByID(n.id.ID); ok && !m.Leaving() {
		v.Weight = m.Weight
	}
	peers := n.gossip.Peers()
	for _, m := range c.Members {
		if m.ID != n.id.ID {
			p := peers[m.ID]
			v.Peers = append(v.Peers, peerView(m, p, st))
			if p.Fresh() && p.OpenTerm == st.Term {
				v.Open = m.ID
			}
		}
	}
	return v
}

// serverViewLocked is this node's mysqld for ha.
func (n *Node) serverViewLocked() ha.Server {
	s := n.lives.Status()
	v := s.Server.View()
	v.Applied, v.Applier, v.Rate, v.Heavy, v.Delayed = n.srv.backlog.Applied, n.seeding.Applier(), n.srv.rate, n.srv.heavy,
		n.delayed()
	v.Stalled = n.stalledLocked() > 0
	v.SteppingDown = s.SteppingDown(n.raft.Role == consensus.Leader)
	return v
}

// peerView is another member as its last status showed it.
func peerView(m config.Member, s *gossip.Peer, st *consensus.Status) ha.Peer {
	p := ha.Peer{ID: m.ID, Name: m.Name, Voter: contains(st.Voters, m.ID), Data: m.Role != config.RoleLogger,
		Weight: m.Weight}
	if m.Leaving() && p.Voter {
		p.Weight = 0 // its vote is about to be taken
	}
	if pr, ok := st.Members[m.ID]; ok {
		p.Match, p.Heard = pr.Match, pr.Answered
	}
	if s.Fresh() {
		p.Live, p.Ready, p.Applied = true, s.Ready, s.Member.Raft.Applied
		p.Full = s.Full
		p.Stalled = s.Ready && s.Member.State == api.StateCatchingUp
		p.Unready, p.Rate, p.Heavy, p.Since = s.Unready, s.Rate, s.Heavy, s.Since
	}
	return p
}

// softStateLocked takes role, term and leader, unless newer ones are known.
func (n *Node) softStateLocked(s consensus.State) {
	if s.Seq < n.raft.Seq {
		return
	}
	if s.Role == consensus.Leader && (n.raft.Role != consensus.Leader || n.raft.Term != s.Term) {
		n.leaderSince = now()
		n.leadership.Elected(s.Term)
	}
	if n.raft != s {
		n.gossip.Publish()
	}
	if n.raft.Term != s.Term || n.raft.Leader != s.Leader {
		n.stayLocked() // who wanted to end the cluster does not lead any more
	}
	n.gossip.Follows(s.Leader)
	n.leadership.InTerm(s.Term)
	n.raft = s
}

// act starts one action of ha.Decide. What the action rests on is read again first: mysqld may have died and the term
// may have moved on since the View was made. An action of an older term is dropped, except a fence (S7).
func (n *Node) act(a ha.Action) {
	term := n.cons.Status().Term
	n.mu.Lock()
	defer n.mu.Unlock()
	l, stands := n.lives.Begin(a, term)
	if !stands {
		return
	}
	switch a.Kind {
	case ha.StartServer:
		n.task(n.startServer)
	case ha.Judge:
		n.task(func(ctx context.Context) { n.judgeServer(ctx, l) })
	case ha.Seed:
		n.task(n.seeding.Seed)
	case ha.Promote:
		n.serveTaskLocked(func(ctx context.Context) { n.promote(ctx, l, a.Term) })
	case ha.Fence:
		n.fenceLocked(a.Reason)
	case ha.Restart:
		n.task(func(context.Context) { n.restartServer(a.Reason) })
	case ha.HandOver:
		n.task(n.leadership.Begin(a).HandOver)
	case ha.Switchover:
		attempt, leader := n.leadership.Begin(a), n.leader(l, a.Term)
		n.serveTaskLocked(func(ctx context.Context) { attempt.Switchover(ctx, leader) })
	}
}

// serveTaskLocked runs a promotion, or what closes writes by plan: a fence cancels it and waits for its end.
func (n *Node) serveTaskLocked(f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(n.ctx)
	done := make(chan struct{})
	var before <-chan struct{}
	n.lives.Change(func(s *lifecycle.Status) { before = s.Run(cancel, done) })
	n.gossip.Publish()
	n.task(func(context.Context) {
		defer close(done)
		f(ctx)
		cancel()
		if before != nil {
			n.wakeLoop()
			<-before
		}
	})
}

// fenceLocked begins a fence, whatever is under way.
func (n *Node) fenceLocked(reason string) {
	if s := n.lives.Status(); s.TakesWrites() {
		n.gossip.Leave(s.Term(), gossip.Leave{Cause: reason})
	}
	n.lives.BeginFence()
	n.gossip.Publish()
	n.task(func(ctx context.Context) { n.fence(ctx, reason) })
}

// task runs f on a goroutine that the node waits for when it stops, and wakes the loop when it is done.
func (n *Node) task(f func(ctx context.Context)) {
	n.Go(func(ctx context.Context) {
		defer n.wakeLoop()
		f(ctx)
	})
}

// Go runs f on a goroutine that the node waits for when it stops.
func (n *Node) Go(f func(ctx context.Context)) { n.tasks.Go(func() { f(n.ctx) }) }

func (n *Node) memberName(id uint64) string {
	if m, ok := n.Settings().MemberByID(id); ok {
		return m.Name
	}
	return fmt.Sprintf("id %d", id)
}

func contains(ids []uint64, id uint64) bool {
	for _, x := range ids {
		if x == id {
			return true
		}
	}
	return false
}
