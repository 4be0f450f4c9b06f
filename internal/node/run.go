package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/failpoint"
	"trireme/internal/base/rule"
	"trireme/internal/base/run"
	"trireme/internal/base/systemd"
	"trireme/internal/control/dashboard"
	"trireme/internal/core/consensus"
	"trireme/internal/core/dump"
	"trireme/internal/core/guard"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/ackpath"
	"trireme/internal/node/addresses"
	"trireme/internal/node/certs"
	"trireme/internal/node/controlloop"
	"trireme/internal/node/delay"
	"trireme/internal/node/gossip"
	"trireme/internal/node/history"
	"trireme/internal/node/leadership"
	"trireme/internal/node/leave"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/links"
	"trireme/internal/node/membership"
	"trireme/internal/node/memory"
	"trireme/internal/node/process"
	"trireme/internal/node/reads"
	"trireme/internal/node/recovery"
	"trireme/internal/node/room"
	"trireme/internal/node/routing"
)

// Run runs one node until ctx ends (SIGTERM: leadership is handed over first, mysqld is shut down cleanly when no
// commit waits) or something makes going on unsafe; then the error says what and why.
func Run(ctx context.Context, cfg config.Node, version string, log *slog.Logger) error {
	process.Tune(log.With("node", cfg.Name))
	lock, err := mysqld.Lock(cfg.Dir)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if err := failpoint.Start(cfg.Dir); err != nil {
		return err
	}
	w := &watchdog{manager: systemd.FromEnvironment()}
	fctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a polite stop takes its time
	defer cancel()
	go w.feed(fctx, log)
	for {
		w.manager.Status("opening " + cfg.Dir)
		n, err := open(ctx, cfg, version, log)
		if err == nil {
			n.watchdog = w
			err = n.run(ctx)
		}
		if errors.Is(err, leave.ErrEnded) && n.id.Role != config.RoleLogger && ctx.Err() == nil {
			log.Warn("this process becomes the plain server", "node", cfg.Name,
				"command", strings.Join(n.mysqldConfig().PlainCommand(), " "))
			lock.Unlock()
			w.manager.Unwatch() // mysqld does not feed it
			return n.mysqldConfig().ExecPlain()
		}
		if errors.Is(err, leave.ErrEnded) {
			return nil
		}
		if !errors.Is(err, recovery.ErrNewGeneration) || ctx.Err() != nil {
			return final(err)
		}
	}
}

// realTime is what a node's organs go by.
var realTime = run.Real{Boottime: consensus.Boottime}

// newNode is a node that has read who it is and its history. Nothing of it runs.
func newNode(cfg config.Node, id config.Identity, cluster *config.Cluster, version string, log *slog.Logger) *Node {
	n := &Node{cfg: cfg, id: id, version: version, base: log, log: log.With("node", id.Name),
		wake: make(chan struct{}, 1), fatal: make(chan error, 1),
		ready: make(chan struct{}), led: ledger.New(raftlog.Boundary{}),
		lives: lifecycle.New(realTime)}
	n.reads = reads.New(id, n.led, readHost{host{n}}, n.log)
	n.recovery = recovery.New(cfg, id, realTime, raftlog.OSFS{}, recoveryHost{host{n}}, n.log)
	n.certs = certs.New(cfg, id, certHost{host{n}}, n.log)
	n.gossip = gossip.New(cfg, id, n.led, realTime, gossipHost{host{n}}, n.log)
	n.routing = routing.New(id, n.gossip, routingHost{host{n}})
	n.members = membership.New(cfg, id, cluster, n.gossip, memberHost{host{n}}, n.log)
	n.delay = delay.New(id, n.led, delayHost{host{n}}, n.log)
	n.room = room.New(cfg, id, n.gossip, roomHost{host{n}}, n.log)
	n.seeding = n.newSeeding()
	n.leadership = leadership.New(id, cfg.Raft.ElectionTimeout(), realTime, leadershipHost{host{n}}, n.log)
	n.acks = ackpath.New(id.ID, n.led, realTime, ackHost{&n.load, n})
	n.control = controlloop.New(controlloop.Parts{ID: id, Mu: &n.mu, Time: realTime, Lives: n.lives,
		Leadership: n.leadership, Acks: n.acks, Gossip: n.gossip, Ledger: n.led, Host: loopHost{host{n}}, Log: n.log})
	n.addresses = addresses.New(cfg.VIP, id, n.lives, addressesHost{host{n}}, n.log)
	n.links = links.New(cfg, id, n.gossip, host{n}, n.log)
	n.history = history.New(cfg.Dir, id, n.gossip, historyHost{host{n}}, n.log)
	if id.Role != config.RoleLogger {
		n.lives.Change((*lifecycle.Status).Off)
	}
	return n
}

// open reads the node's directory and makes mysqld's data directory if it is missing. Nothing is running when it
// returns.
func open(ctx context.Context, cfg config.Node, version string, log *slog.Logger) (*Node, error) {
	id, err := config.LoadIdentity(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if id.Cluster != cfg.Cluster || id.Name != cfg.Name {
		return nil, fmt.Errorf("%w: %s belongs to node %q of cluster %q, the configuration is for node %q of cluster %q",
			ErrFinal, cfg.Dir, id.Name, id.Cluster, cfg.Name, cfg.Cluster)
	}
	cluster, err := config.LoadCluster(cfg.Dir)
	if err != nil {
		return nil, err
	}
	n := newNode(cfg, id, cluster, version, log)
	if err := n.certs.LoadSecrets(); err != nil {
		return nil, err
	}
	if err := n.recovery.Open(n.Settings()); err != nil {
		return nil, err
	}
	if err := n.members.Check(n.Settings()); err != nil {
		return nil, err
	}
	if d := n.Settings().Disbanded; d != nil {
		if n.bin, err = mysqld.Find(ctx, cfg.MySQL.Binary); err != nil {
			n.bin.Path = "mysqld"
		}
		return nil, n.end().WhyOver(d)
	}
	if n.began, err = gtid.ParseSet(n.Settings().Base); err != nil {
		return nil, fmt.Errorf("%s: base: %w", cfg.ClusterFile(), err)
	}
	if err := n.certs.Open(); err != nil {
		return nil, err
	}
	if n.memory, err = memory.Open(raftlog.OSFS{}, cfg.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.RaftDir(), 0o700); err != nil {
		return nil, err
	}
	if err := n.room.Await(ctx); err != nil {
		return nil, err
	}
	keys, err := n.loadKeys(ctx)
	if err != nil {
		return nil, err
	}
	if err := n.prepareServer(ctx); err != nil {
		return nil, err
	}
	if err := n.openLog(keys); err != nil {
		return nil, err
	}
	n.certs.RenewLogins() // the log is locked: no other daemon uses this directory
	return n, nil
}

// prepareServer finds mysqld and makes its data directory.
func (n *Node) prepareServer(ctx context.Context) (err error) {
	if n.id.Role == config.RoleLogger {
		return nil
	}
	if n.bin, err = mysqld.Find(ctx, n.cfg.MySQL.Binary); err != nil {
		return err
	}
	if !n.bin.Version.Tested() {
		n.log.Warn("this version of MySQL has not been tested with Trireme", "version", n.bin.Version.String())
	}
	mc := n.mysqldConfig()
	if err := mc.Validate(); err != nil {
		return err
	}
	n.riskWarnings = mc.Risks()
	for _, w := range n.riskWarnings {
		n.log.Warn(w)
	}
	if mc.Initialized() {
		return nil
	}
	// It is not there yet, or it is gone: then what was durable in it is gone too, and nothing may be taken for
	// executed (S8).
	if err := n.seeding.Forget(); err != nil {
		return err
	}
	return mysqld.Initialize(ctx, mc)
}

// openLog opens the raft log.
func (n *Node) openLog(keys *raftlog.Keys) error {
	opts := raftlog.Options{Dir: n.cfg.RaftDir(), SegmentBytes: int64(n.cfg.Raft.LogSegment),
		CacheBytes: int64(n.cfg.Raft.LogCache),
		Cluster:    n.id.ClusterID, NodeID: n.id.ID, Base: n.began, Keys: keys, Logger: n.base}
	l, err := openRaftLog(opts, n.memory)
	if err != nil {
		return err
	}
	n.rlog = l
	if err := n.recovery.CarryOut(); err != nil {
		return errors.Join(err, l.Close())
	}
	hs, _, err := l.InitialState()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	n.led.Reset(l.BoundaryAt(n.recovery.Delivered(hs.GetCommit())))
	n.openLives()
	return nil
}

// openRaftLog opens or makes the log, and notes that it was made. If it is gone at a later start, then so is what this
// node promised (S2). An empty log that is there has lost nothing: a node may restart before its first entry arrives.
func openRaftLog(opts raftlog.Options, local *memory.Memory) (*raftlog.Log, error) {
	opts.Made = local.Get().LogMade
	l, err := raftlog.Open(opts)
	if errors.Is(err, raftlog.ErrGone) {
		return nil, fmt.Errorf("%s: this node had a raft log and it is gone; what it acknowledged cannot be vouched for. "+
			"Remove the node from the cluster and join it again under a new id (%w)", opts.Dir, err)
	}
	if err != nil {
		return nil, err
	}
	if err := local.Update(func(s *memory.State) { s.LogMade = true }); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// loadKeys reads the keys of the raft log; nil: it is not encrypted.
func (n *Node) loadKeys(ctx context.Context) (*raftlog.Keys, error) {
	return raftlog.LoadKeys(ctx, n.cfg.Raft.LogKeyFile, n.cfg.Raft.LogKeyCommand)
}

// updateKeys takes up a new key. Keys that cannot be had any more harm the next start, so that is told at once.
func (n *Node) updateKeys(ctx context.Context) {
	keys, err := n.loadKeys(ctx)
	if err == nil {
		err = n.rlog.SetKeys(keys)
	}
	if ctx.Err() != nil || errors.Is(err, raftlog.ErrFailed) {
		return
	}
	var warnings []string
	if err != nil {
		warnings = []string{fmt.Sprintf("this node could not start again: %v", err)}
	}
	n.mu.Lock()
	before := n.keyWarnings
	n.keyWarnings = warnings
	n.mu.Unlock()
	if err != nil && !slices.Equal(before, warnings) {
		n.log.Error(warnings[0])
	}
}

func (n *Node) mysqldConfig() mysqld.Config {
	secrets := n.certs.Secrets()
	return mysqld.Config{Binary: n.bin, Dir: n.cfg.MySQLDir(), Bind: n.cfg.MySQL.Bind, Port: n.cfg.MySQL.Port,
		ServerID: uint32(n.id.ID), ReportHost: n.cfg.MySQLHost(), Admin: mysqld.Account(secrets.Admin),
		Repl: mysqld.Account(secrets.Repl), Clone: mysqld.Account(secrets.Clone),
		Durability: mysqld.Durability(n.cfg.MySQL.Durability), OSUser: n.cfg.MySQL.OSUser, Extra: n.cfg.MySQL.Options,
		TLS: n.certs.ServerTLS(), Logger: n.log}
}

// Server ids of the daemon's own ends of a replication connection: no mysqld has them, raft ids end at
// config.MaxMemberID.
const (
	sourceServerID = 1 << 20 // the daemon as replica of its mysqld
	feedServerID   = 1<<20 + 1
)

func (n *Node) newSource(l *lifecycle.Life) *dump.Source {
	mc := n.mysqldConfig()
	sock := mc.Socket()
	return dump.NewSource(dump.SourceConfig{
		Dial: func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", sock)
		},
		User: mc.Repl.User, Password: mc.Repl.Password, Node: uint16(n.id.ID), Incarnation: l.Incarnation,
		ServerUUID: l.UUID, ReplicaServerID: sourceServerID,
		ChunkBytes: int(n.cfg.Raft.ChunkSize), Loop: n.engine, Logger: n.log,
	})
}

// run starts the parts from the bottom up, runs the loop, and stops them from the top down.
func (n *Node) run(ctx context.Context) (err error) {
	runCtx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n.ctx = runCtx
	if err := n.startParts(); err != nil {
		n.stopParts(cancel)
		return err
	}
	n.watchdog.watch(n)
	n.watchdog.manager.Ready("started")
	go func() {
		select {
		case <-ctx.Done():
			n.watchdog.manager.Stopping("hands leadership over and stops mysqld")
			n.shutdown(cancel)
		case <-runCtx.Done():
		}
	}()
	err = n.loop(runCtx)
	n.watchdog.watch(nil)
	switch {
	case errors.Is(err, recovery.ErrNewGeneration):
		n.log.Warn(err.Error())
		n.killServer()
	case errors.Is(err, leave.ErrEnded):
		n.stopServer()
	case err != nil:
		// An invariant is broken or the disk failed: this node must not serve any more (S13).
		n.log.Error("this node stops permanently", rule.Fields(err)...)
		n.watchdog.manager.Stopping("stops permanently: " + err.Error())
		n.killServer()
	}
	n.stopParts(cancel)
	return err
}

func (n *Node) startParts() error {
	n.load.Start()
	err := n.startEngine()
	if err != nil {
		return err
	}
	n.publisher = n.newPublisher()
	n.metrics = n.newMetrics()
	recorded := n.openSamples()
	if n.id.Role != config.RoleLogger {
		if err := n.addresses.Start(); err != nil {
			return err
		}
		command, outlive := n.addresses.GuardCommand()
		if n.guard, err = guard.Start(command, outlive, n.log); err != nil {
			return err
		}
		if err := n.startFeed(); err != nil {
			return err
		}
	}
	rc, err := n.routerConfig()
	if err != nil {
		return err
	}
	if err := n.routing.Start(rc, n.cfg.Router.MaxLag > 0); err != nil {
		return err
	}
	if !n.routing.Streams() {
		n.cfg.Router.StreamPort = 0 // as status shows it
	}
	clientTLS, err := n.certs.ClientTLS()
	if err != nil {
		return err
	}
	n.api = api.NewServer(api.Options{Name: n.id.Name, Listen: n.cfg.API.Listen,
		Backend: backend{n, n.certs, n.reads, n.recovery, n.routing, recorded},
		Answers: n.answers(), TLS: n.certs.Bundle().ServerJoinTLS(),
		ClientTLS: clientTLS, NodeToken: n.certs.Secrets().APIToken, TrustsCA: n.certs.Bundle().Trusts,
		Audit: n.certs.Audited, Logger: n.log, Routers: &n.routing.Elsewhere})
	n.pages = dashboard.New(dashboard.Options{Cluster: n.id.Cluster, Source: n.api.Console(), Stopping: n.api.Stopping(),
		Logger: n.log})
	n.api.SetPages(n.pages)
	if err := n.api.Start(); err != nil {
		return err
	}
	close(n.ready)
	n.members.Start()
	if st := n.cons.Status(); len(st.Voters) == 1 && st.Voters[0] == n.id.ID {
		n.cons.Campaign() // no other node can lead
	}
	n.task(n.history.Keep)
	n.every(time.Second, n.history.Sync)
	n.every(time.Second, n.members.Reconcile)
	n.every(time.Second, n.members.SayAddress)
	n.every(time.Second, n.members.FetchSettings)
	n.every(time.Second, n.history.WatchMembers)
	n.every(time.Second, n.watchOpen)
	n.every(room.BoundInterval, n.room.PurgeLog)
	n.every(lifecycle.ProbeInterval, n.probeServer())
	n.every(room.SpaceInterval, n.room.WatchSpace)
	n.every(links.Interval, n.links.Measure(n.tr))
	n.every(certificateInterval, n.certs.RenewDue)
	if r := n.cfg.Raft; r.LogKeyFile != "" || len(r.LogKeyCommand) > 0 {
		n.every(keyInterval, n.updateKeys)
	}
	n.every(caInterval, n.certs.StepCA)
	n.every(caInterval, n.certs.RenewClone)
	if n.id.Role != config.RoleLogger {
		n.every(proofInterval, n.certs.RenewServer)
		n.every(time.Second, n.updateDurable())
		n.every(durableInterval, n.tidyBinlog)
		n.every(time.Second, n.recordEvents)
		n.every(applierInterval, n.restartApplier)
		n.every(time.Second, n.seeding.CarryOutDecisions)
		n.every(governInterval, n.govern)
	}
	return nil
}

func (n *Node) startFeed() (err error) {
	n.feedLogin = config.Account{User: n.certs.Secrets().Feed.User, Password: config.NewToken()}
	// The feed is a source of its own to mysqld: incarnation 0 is no life of any mysqld.
	uuid := gtid.IncarnationUUID(n.id.ClusterID, uint16(n.id.ID), 0)
	uid, err := n.mysqldConfig().UID()
	if err != nil {
		return err
	}
	log := lifecycle.NewFeedLog(n.rlog, n.led)
	n.feed, err = dump.NewFeed(dump.FeedConfig{Listen: "127.0.0.1:0", User: n.feedLogin.User,
		Password: n.feedLogin.Password, UID: uid,
		ServerID: feedServerID, ServerUUID: uuid, ServerVersion: n.bin.Version.String() + "-trireme",
		Appliers: n.mysqldConfig().Appliers(), Loop: n.engine, Cached: log.Cached, Report: n.feedFailed,
		Gate: n.delay, Void: n.seeding.FollowsVoid, Tolerance: n.seeding.Tolerance(), Logger: n.log}, log)
	return err
}

// shutdown is a polite stop: leadership first, then mysqld, then everything else.
func (n *Node) shutdown(cancel context.CancelFunc) {
	defer cancel()
	n.log.Info("stopping")
	// The others should not hand leadership to this node any more.
	n.control.LeaderHost().Change((*lifecycle.Status).BeginStop)
	n.wakeLoop()
	if n.lives.StepDown(n.ctx, n.control.View) == nil {
		n.stopServer()
	}
}

// stopServer ends mysqld, if it can.
func (n *Node) stopServer() { n.lives.Stop(context.Background(), n.control.LeaderHost()) }

func (n *Node) killServer() {
	l := n.lives.Life()
	if l == nil {
		return
	}
	if err := l.Process().Kill(); err != nil {
		n.log.Error("mysqld cannot be killed", "err", err)
	}
}

// stopParts stops what startParts started, as far as it came.
func (n *Node) stopParts(cancel context.CancelFunc) {
	cancel()
	if n.api != nil {
		ctx, done := context.WithTimeout(context.Background(), time.Second)
		if err := n.api.Close(ctx); err != nil {
			n.log.Debug("api", "err", err)
		}
		done()
	}
	if n.pages != nil {
		n.pages.Close()
	}
	n.routing.Close()
	n.killServer()
	n.addresses.Close()
	if n.guard != nil {
		n.guard.Close()
	}
	if n.publisher != nil {
		n.publisher.Close()
	}
	if n.feed != nil {
		n.feed.Close()
	}
	if n.tr != nil {
		n.tr.Close()
	}
	if n.cons != nil {
		n.cons.Stop()
	}
	n.tasks.Wait()
	if n.engine != nil {
		n.engine.Stop()
		n.engine.Wait()
	}
	if err := n.rlog.Close(); err != nil {
		n.log.Warn("closing the raft log", "err", err)
	}
}

// onSnapshot: the log was replaced by a snapshot of another node.
func (n *Node) onSnapshot(snap *raftpb.Snapshot) error {
	// The log itself may have moved on: this is told in order with what is committed, which follows the snapshot.
	b, err := raftlog.DecodeBoundary(snap.GetData())
	if err != nil {
		return fmt.Errorf("the snapshot at entry %d that replaced the log: %w", snap.GetMetadata().GetIndex(), err)
	}
	n.log.Warn("the log was replaced by a snapshot", "index", b.Index)
	n.control.Snapshot(b)
	return nil
}
