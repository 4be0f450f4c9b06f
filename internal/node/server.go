package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"trireme/internal/api"
	"trireme/internal/dump"
	"trireme/internal/failpoint"
	"trireme/internal/gtid"
	"trireme/internal/ha"
	"trireme/internal/ledger"
	"trireme/internal/mutant"
	"trireme/internal/mysqld"
	"trireme/internal/raftlog"
	"trireme/internal/sqlkind"
)

// life is one incarnation of this node's mysqld, from its start to its death.
type life struct {
	incarnation uint64
	uuid        gtid.UUID
	proc        *mysqld.Server
	admin       *mysqld.Admin
	events      bool       // scheduled events were started; guarded by Node.mu
	tail        binlogTail // what the life before it had written (shown once it is known what Raft kept of it)

	judgedXA atomic.Pointer[xaWatch] // the watch as the judgement begins it, until it is taken up
	own      ownXA                   // written by the judgement, then by promotions, one after the other

	fed     bool     // replication from the feed was started; written by the judgement
	limit   trxLimit // transaction_refuse as it is in force here
	refused uint64   // transactions that were; owned by govern

	mu       sync.Mutex
	source   *dump.Source
	consumed raftlog.Pos // where the next dump starts
	executed gtid.Set    // as last read
	readOnly bool
	mayOpen  bool // the statement that opens writes got no answer: it may take effect at any time from now on
}

func (l *life) executedSet() gtid.Set {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.executed
}

func (l *life) setReadOnly(on bool) {
	l.mu.Lock()
	l.readOnly = on
	l.mu.Unlock()
}

// startServer begins a new incarnation: fresh server_uuid, no binary log, read-only (S5).
func (n *Node) startServer(ctx context.Context) {
	l, err := n.newLife(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil && ctx.Err() != nil {
		if kerr := l.proc.Kill(); kerr != nil {
			n.log.Error("mysqld cannot be killed", "err", kerr)
		}
		return
	}
	if err != nil {
		n.startFailedLocked(err)
		return
	}
	n.watchLocked(l)
	n.srv = serverSlot{state: ha.ServerUp, life: l}
	n.purgedFile = 0
	n.publishNow = true
	n.tasks.Add(1)
	go func() { defer n.tasks.Done(); n.watch(l) }()
}

// startFailedLocked has the next attempt wait a little longer each time.
func (n *Node) startFailedLocked(err error) {
	n.srv.state, n.srv.life = ha.ServerOff, nil
	n.srv.fails++
	n.srv.retryAt = now() + startRetry*time.Duration(min(n.srv.fails, 10))
	if n.srv.died++; !errors.Is(err, mysqld.ErrExited) {
		n.srv.died = 0
	}
	n.srv.problem = startProblem(err, n.srv.died, n.id.Name)
	n.log.Error("mysqld did not start", "err", n.srv.problem, "attempt", n.srv.fails)
}

// stillbornLimit is after how many deaths during a start no more hope is placed in the next one.
const stillbornLimit = 3

// startProblem words why mysqld did not start, for status, why-not and the log. One that dies again and again before it answers does so because
// of what is on its disk or in its settings, and no further attempt helps: torn or rotted pages are InnoDB's, and only another node has
// them whole.
func startProblem(err error, died int, node string) string {
	if died < stillbornLimit {
		return err.Error()
	}
	return fmt.Sprintf("mysqld has died %d times in a row while it started. If its own words below are about damaged data, `trireme reinit %s` throws it away and "+
		"copies another node's: %v", died, node, err)
}

// watchLocked hands mysqld to the guard.
func (n *Node) watchLocked(l *life) {
	fd, err := l.proc.Pidfd()
	if err != nil {
		n.log.Warn("mysqld is not guarded: it keeps running when this daemon is stopped", "err", err)
		return
	}
	n.guardUntilLocked(0)
	n.guard.Watch(fd)
}

func (n *Node) newLife(ctx context.Context) (*life, error) {
	if err := n.local.update(func(s *localState) { s.Incarnation++ }); err != nil {
		return nil, err
	}
	failpoint.Hit("server.incarnation-persisted")
	inc := n.local.get().Incarnation
	cfg := n.mysqldConfig()
	proc, err := mysqld.New(cfg)
	if err != nil {
		return nil, err
	}
	l := &life{incarnation: inc, uuid: gtid.IncarnationUUID(n.id.ClusterID, uint16(n.id.ID), inc),
		proc: proc, consumed: raftlog.Pos{File: 1, Off: 4}, readOnly: true}
	// The start removes the binary log, also when it fails: what was in it is reported by the life that rejoins.
	n.tail.gtids.AddSet(readBinlogTail(cfg.BinlogDir()).gtids)
	l.tail.gtids = n.tail.gtids.Clone()
	if err := l.proc.Start(ctx, l.uuid.String()); err != nil {
		return nil, err
	}
	err = n.connectLife(ctx, l)
	if err == nil {
		err = n.certs.Prove(ctx, certMySQL{l.admin, l.proc}, cfg.TLS) // before anybody is led there
	}
	if err != nil {
		return nil, errors.Join(err, l.proc.Kill())
	}
	n.tail = binlogTail{}
	n.log.Info("mysqld is up, read-only", "pid", l.proc.Pid(), "incarnation", inc, "uuid", l.uuid.String())
	return l, nil
}

// connectLife opens every session to mysqld that will be needed, while logins still work (MYSQL-FACTS: an account statement
// that waits for its ACK makes every login hang).
func (n *Node) connectLife(ctx context.Context, l *life) error {
	l.admin = l.proc.Admin()
	set, err := l.admin.GTIDExecuted(ctx)
	if err != nil {
		return err
	}
	if l.executed, err = gtid.ParseSet(set); err != nil {
		return fmt.Errorf("gtid_executed: %w", err)
	}
	l.source = n.newSource(l)
	return l.source.Prepare(ctx)
}

// watch waits for the end of one incarnation, or of this daemon: a mysqld that was killed and whose disk hangs may not end before.
func (n *Node) watch(l *life) {
	polling, stop := context.WithCancel(n.ctx)
	defer stop()
	n.tasks.Add(1)
	go func() { defer n.tasks.Done(); n.followApplied(polling, l) }()
	select {
	case <-l.proc.Dying():
		n.noteDying(l)
	case <-n.ctx.Done():
	case <-l.proc.SocketGone():
		if n.stopsPolitely() {
			break
		}
		// Somebody shuts mysqld down behind our back; a polite shutdown would release waiters (S4).
		n.log.Error("mysqld's socket file vanished: somebody is shutting it down; killing it", "pid", l.proc.Pid())
		if err := l.proc.Kill(); err != nil {
			n.fail(fmt.Errorf("mysqld cannot be killed: %w", err))
			return
		}
	}
	select {
	case <-l.proc.Done():
	case <-n.ctx.Done():
	}
	src, _ := l.stream()
	_ = src.Close()
	select {
	case <-l.proc.Done():
	default:
		return // stopParts ends it
	}
	n.mu.Lock()
	if n.srv.life == l {
		n.srv.state, n.srv.life, n.srv.stuck, n.srv.hung = ha.ServerOff, nil, "", stuck{}
		n.publishNow = true
	}
	stopping := n.stopping
	n.mu.Unlock()
	if !stopping {
		exit, _ := l.proc.Exit()
		n.log.Warn("mysqld ended", "exit", exit.String(), "incarnation", l.incarnation)
		if n.guard.Killed() {
			n.log.Error("the guard killed mysqld: this daemon was stopped, or hung, for longer than its lease", "incarnation", l.incarnation)
			n.history.add(n.event("guard", 0, "the guard killed mysqld: the daemon was stopped, or hung, for longer than its lease"))
		}
	}
	n.poke()
}

// noteDying lets a fence and a hand-over begin before the kernel is done with mysqld. A server that is being seeded ends and starts as its
// seeding wants.
func (n *Node) noteDying(l *life) {
	n.mu.Lock()
	if n.srv.life == l && n.srv.state == ha.ServerReady {
		n.srv.state, n.srv.stuck, n.srv.hung = ha.ServerDying, "", stuck{}
		n.publishNow = true
	}
	n.mu.Unlock()
	n.poke()
}

// stopsPolitely says whether it is this daemon that shuts mysqld down.
func (n *Node) stopsPolitely() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.polite
}

// judgeServer decides by S5 whether what InnoDB holds is a prefix of what was acknowledged, plugs the holes and lets the feed begin.
func (n *Node) judgeServer(ctx context.Context, l *life) {
	if v := n.local.get().Diverged; v != nil {
		n.fenceDiverged(l, *v) // a restart of mysqld would hide it
		return
	}
	j, err := n.judgeLife(ctx, l)
	var rolledBack gtid.Set
	if err == nil {
		// What mysqld holds was not rolled back. It may hold more than is committed: XA transactions that it had adopted to lead.
		_, committed := n.led.Snapshot()
		rolledBack = l.tail.gtids.Subtract(committed).Subtract(l.own.judged)
	}
	n.mu.Lock()
	if n.srv.life != l || n.srv.state != ha.ServerJudging {
		n.mu.Unlock()
		return // it died meanwhile
	}
	switch {
	case errors.Is(err, errHoldsVoid):
		n.replaceDataLocked(err.Error())
		n.mu.Unlock()
		n.log.Warn("this node is seeded from another one", "why", err)
		n.history.add(n.event(api.EventDivergent, 0, err.Error()))
		n.poke()
		return
	case err != nil: // also when the log was purged meanwhile: the next judgement sees where it begins now
		again := n.srv.problem == err.Error()
		n.srv.state, n.srv.retryAt, n.srv.problem = ha.ServerUp, now()+judgeRetry, err.Error()
		n.mu.Unlock()
		if ctx.Err() == nil && !again {
			n.log.Warn("mysqld could not be judged yet", "err", err)
		}
		return
	case j.Behind:
		first, _ := n.rlog.FirstIndex()
		n.replaceDataLocked(fmt.Sprintf("the log begins at entry %d and mysqld needs earlier ones", first))
		n.mu.Unlock()
		n.log.Warn("the log no longer has what mysqld needs: it is seeded from another node", "missing", j.Missing.String())
		return
	case !j.Consistent():
		n.srv.state = ha.ServerBroken
		n.srv.problem = fmt.Sprint(j.Problems)
		n.publishNow = true
		n.mu.Unlock()
		n.log.Error("mysqld's data does not match the committed log; this node must be seeded again", "problems", j.Problems, "rule", "S5")
		n.history.add(n.event(api.EventDivergent, 0, fmt.Sprintf("data does not match the committed log: %v", j.Problems)))
		return
	}
	n.srv.state, n.srv.fails, n.srv.problem, n.srv.readyAt = ha.ServerReady, 0, "", now()
	n.publishNow = true
	n.mu.Unlock()
	n.reportRejoin(l, j, rolledBack)
}

// stopFeeding ends what an earlier judgement of this life has begun: what is judged must stand still, and a receiver that runs cannot be
// pointed anywhere. A mysqld that does not end its replication is killed.
func (n *Node) stopFeeding(ctx context.Context, l *life) error {
	if !l.fed {
		return nil
	}
	if err := l.admin.StopReplica(ctx); err != nil {
		if ctx.Err() == nil {
			n.restartServer(fmt.Sprintf("it has to be judged again, and its replication does not stop: %v", err))
		}
		return err
	}
	l.fed = false
	return nil
}

// judgeLife runs S5 for one life and connects it to the feed.
func (n *Node) judgeLife(ctx context.Context, l *life) (*ledger.Judgement, error) {
	if err := n.stopFeeding(ctx, l); err != nil {
		return nil, err
	}
	rctx, cancel := context.WithTimeout(ctx, readIndexTimeout)
	defer cancel()
	if !mutant.S11 {
		index, err := n.cons.ReadIndex(rctx)
		if err != nil {
			return nil, err
		}
		if err := n.led.Await(rctx, index); err != nil {
			return nil, fmt.Errorf("waiting for entry %d: %w", index, err)
		}
	}
	set, err := l.admin.GTIDExecuted(ctx)
	if err != nil {
		return nil, err
	}
	executed, err := gtid.ParseSet(set)
	if err != nil {
		return nil, err
	}
	xids, err := l.admin.XARecover(ctx)
	if err != nil {
		return nil, err
	}
	upTo, committed := n.led.Snapshot()
	local, purged := n.local.get(), n.rlog.Boundary()
	inherited, err := gtid.ParseSet(local.Inherited)
	if err != nil {
		return nil, fmt.Errorf("node.json: inherited: %w", err)
	}
	in := ledger.JudgeInput{Executed: executed, Committed: committed, Purged: purged.GTIDs, PurgedTo: purged.Index, Base: n.began, Durable: local.Durable,
		XARecover: xidKeys(xids), Inherited: inherited, Local: local.Harmless(n.id.ClusterID, uint16(n.id.ID))}
	marks := ledger.Marker{Executed: executed, Now: time.Now()}
	j, err := ledger.Judge(in, func(known gtid.Set, f func(ledger.Txn) error) error {
		return n.scanLog(known, upTo, func(t ledger.Txn) error { marks.Add(t); return f(t) })
	})
	if err != nil || !j.Consistent() {
		return j, err
	}
	if err := n.takeVoids(executed.Union(j.Plug)); err != nil {
		return nil, err
	}
	if !j.Plug.Empty() {
		if err := failpoint.Err("judge.before-plug"); err != nil {
			return nil, err
		}
		if err := l.admin.PlugGTIDs(ctx, j.Plug.String()); err != nil {
			return nil, fmt.Errorf("plugging %s: %w", j.Plug, err)
		}
		failpoint.Hit("judge.after-plug")
	}
	// Everything below next is executed. Purging and the watch over XA transactions go on from there: what a restart leaves unknown for a
	// moment would hold the log at its bound, or let a transaction be ended unseen.
	next, _, err := n.rlog.SeekGTID(executed.Union(j.Plug).Union(purged.GTIDs), upTo)
	if err != nil {
		return nil, fmt.Errorf("finding where mysqld left off: %w", err)
	}
	l.own = ownXA{found: map[mysqld.XID]bool{}, judged: executed.Union(j.Plug), adopted: map[mysqld.XID]gtid.GTID{}}
	for _, x := range xids {
		l.own.found[x] = true
	}
	w := newXAWatch(l, next-1, in.XARecover) // what ends those and lies below is executed
	l.judgedXA.Store(&w)
	n.mu.Lock()
	n.keepFrom = 0
	if len(xids) == 0 { // else see keepDurable
		n.keepFrom = min(local.Durable, next-1)
	}
	n.mu.Unlock()
	n.led.Restart(marks.List, upTo)
	if err := n.connectFeed(ctx, l); err != nil {
		return nil, err
	}
	if err := failpoint.Err("judge.after-feed"); err != nil {
		return nil, err
	}
	if err := l.admin.AdmitClients(ctx); err != nil {
		return nil, err
	}
	_, err = n.readApplied(ctx, l)
	return j, err
}

// xidKeys are the prepared XA transactions, named as the log's scanner names them. mysqld writes 32 bits of a format id into the
// binary log's XA_PREPARE event.
func xidKeys(xids []mysqld.XID) map[string]bool {
	m := make(map[string]bool, len(xids))
	for _, x := range xids {
		m[sqlkind.XID{FormatID: uint32(x.FormatID), GTRID: x.Gtrid, BQual: x.Bqual}.String()] = true
	}
	return m
}

// connectFeed points mysqld's receiver at this daemon and starts it.
func (n *Node) connectFeed(ctx context.Context, l *life) error {
	n.mu.Lock()
	ended := n.cluster.Disbanded != nil
	n.mu.Unlock()
	if ended {
		return errDisbanded // its receiver is the plain server's
	}
	n.tolerance.Reset()
	if err := l.admin.SetTolerant(ctx, false); err != nil { // an earlier judgement of this life may have left it
		return err
	}
	n.feed.SetPaused(false)
	if err := l.admin.SetSemisync(ctx, false); err != nil {
		return err
	}
	if err := l.admin.SetDurabilityRole(ctx, false); err != nil {
		return err
	}
	host, port, err := splitAddr(n.feed.Addr())
	if err != nil {
		return err
	}
	ch := mysqld.Channel{Host: host, Port: port, Account: mysqld.Account(n.feedLogin)}
	if err := l.admin.ConfigureChannel(ctx, ch); err != nil {
		return fmt.Errorf("pointing mysqld's receiver at the feed: %w", err)
	}
	l.fed = true
	if err := l.admin.StartReplica(ctx); err != nil {
		return fmt.Errorf("starting replication from the feed: %w", err)
	}
	return nil
}

// reportRejoin tells what the recovery did: the proof for the operator.
func (n *Node) reportRejoin(l *life, j *ledger.Judgement, rolledBack gtid.Set) {
	n.log.Info("mysqld is a prefix of the committed log and is fed", "incarnation", l.incarnation, "high", j.High,
		"plugged", j.Plug.String(), "refed", j.Refeed.String(), "rolled_back", rolledBack.String(), "rolled_back_count", rolledBack.Count())
	msg := fmt.Sprintf("mysqld (incarnation %d) rejoined", l.incarnation)
	if !rolledBack.Empty() {
		msg += fmt.Sprintf("; %d transactions that Raft did not keep were rolled back", rolledBack.Count())
	}
	e := n.event("rejoin", j.High, msg)
	e.GTIDs, e.Incarnation = rolledBack.String(), l.incarnation
	n.history.add(e)
}

// followApplied keeps the applied index and the lag current.
func (n *Node) followApplied(ctx context.Context, l *life) {
	tick := time.NewTicker(appliedInterval)
	defer tick.Stop()
	var seen uint64
	var (
		meter   rateMeter
		heavy   heavyMeter
		laggard ha.Laggard
	)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n.tellLag()
		index, _ := n.led.At()
		n.mu.Lock()
		caughtUp := n.srv.backlog.Applied >= index && seen == index
		n.mu.Unlock()
		if caughtUp {
			n.tendLag(&laggard)
			continue
		}
		applied, err := n.readApplied(ctx, l)
		if err != nil {
			continue
		}
		seen = index
		n.tendHeavy(&heavy)
		n.tendLag(&laggard)
		if n.late.active.Load() {
			continue // it applies as fast as the leader did a while ago, which says nothing
		}
		if rate := meter.take(now(), applied, index); rate > 0 {
			n.mu.Lock()
			n.srv.rate = rate
			n.mu.Unlock()
		}
	}
}

// rateMeter measures how fast mysqld applies. It counts only while the backlog is long: otherwise the leader's speed would be
// measured.
type rateMeter struct {
	at      time.Duration
	applied uint64
	rate    float64 // entries per second, smoothed
}

// rateBacklog is how many entries must be waiting.
const rateBacklog = 256

// take notes what is applied of what is committed, and returns the rate; 0: not known yet.
func (m *rateMeter) take(at time.Duration, applied, committed uint64) float64 {
	long := committed > applied+rateBacklog
	if long && m.at != 0 && at > m.at && applied >= m.applied {
		r := float64(applied-m.applied) / (at - m.at).Seconds()
		if m.rate == 0 {
			m.rate = r
		}
		m.rate = (3*m.rate + r) / 4
	}
	m.at, m.applied = at, applied
	if !long {
		m.at = 0
	}
	return m.rate
}

// readApplied reads gtid_executed and updates the backlog; it returns the applied index.
func (n *Node) readApplied(ctx context.Context, l *life) (uint64, error) {
	text, err := l.admin.GTIDExecuted(ctx)
	if err != nil {
		return 0, err
	}
	set, err := gtid.ParseSet(text)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	l.executed = set
	l.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.srv.life != l {
		return 0, errDeadLife // what a dead life held says nothing about the one behind it
	}
	n.noteBacklogLocked(n.led.Applied(set))
	if f := n.srv.failure; f != nil && f.view.Index != 0 && !f.view.Diverged && n.srv.backlog.Applied >= f.view.Index {
		n.srv.failure = nil // it was applied after all; a node that leads by now would not look at its applier again
	}
	return n.srv.backlog.Applied, nil
}

func (n *Node) noteBacklogLocked(b ledger.Backlog) {
	if b.Applied != n.srv.backlog.Applied || b.Since.IsZero() || n.srv.backlog.Since.IsZero() {
		n.srv.movedAt = now()
	}
	n.srv.backlog = b
}

// stallLimit is after how long without progress an applier that has something to apply is not called healthy any more.
const stallLimit = 10 * time.Second

// stalledLocked is for how long the applier has applied nothing of what waits; 0: it gets on, or has nothing to do. A
// large transaction or DDL may take twice as long as was estimated: heavyMeter leaves a tenth of that.
func (n *Node) stalledLocked() time.Duration {
	s := &n.srv
	if s.state != ha.ServerReady || n.serving.phase != ha.PhaseNone || s.backlog.Since.IsZero() || n.delayLocked() > 0 {
		return 0
	}
	if d := now() - s.movedAt; d > stallLimit+20*s.heavy {
		return d
	}
	return 0
}
