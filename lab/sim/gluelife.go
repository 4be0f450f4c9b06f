package sim

import (
	"errors"
	"fmt"
	"time"

	"trireme/internal/dump"
	"trireme/internal/gtid"
	"trireme/internal/ha"
	"trireme/internal/ledger"
	"trireme/internal/raftlog"
	"trireme/lab/sim/fakemysql"
)

// mysqlLife is one incarnation of a node's mysqld (lifecycle.Life).
type mysqlLife struct {
	incarnation uint64
	uuid        gtid.UUID
	dead        bool

	src       *dump.Stepper
	conn      *fakemysql.Dump
	consumed  raftlog.Pos // where the next dump starts
	pumping   bool
	pumpDue   bool
	proposing bool
	pending   []byte // a payload that could not be proposed yet
	term      uint64 // of the pump
	ackDue    raftlog.Pos
}

// startServer is lifecycle.Lives.Start: a new incarnation, read-only, without the binary log of the one before (S5).
func (g *glue) startServer(k *task) {
	g.saved.incarnation++
	inc := g.saved.incarnation
	if k.sleep(time.Duration(100+g.w.rnd.IntN(400))*time.Millisecond) != nil {
		return
	}
	l := &mysqlLife{incarnation: inc, uuid: gtid.IncarnationUUID(clusterID, uint16(g.n.ID), inc),
		consumed: raftlog.Pos{File: 1, Off: 4}}
	g.srv.Flush = g.sql.mode.follower
	g.srv.Start(l.uuid, g.sql.broken("S5"))
	g.life, g.hung, g.hungAt = l, false, 0
	g.state, g.problem, g.retryAt = ha.ServerUp, "", 0
	g.guard.set(g, 0)
	g.w.Tracef("%d: mysqld is up, incarnation %d, executed %v", g.n.ID, inc, g.srv.Executed())
	g.said = true
}

// killServer ends mysqld's process at once, if there is one: how much of what it committed survives is chance.
func (g *glue) killServer(power bool) {
	if !g.srv.Running() {
		return
	}
	r := g.w.rnd
	low, all := g.srv.CrashFloor(power), g.srv.Records()
	keep := low
	if all > low {
		keep += r.IntN(all - low + 1)
	}
	g.srv.Crash(keep, func() bool { return r.IntN(4) == 0 })
	g.w.note(20, g.n.ID, uint64(keep))
	g.w.Tracef("%d: mysqld dies (power %t), keeps %d of %d", g.n.ID, power, keep, all)
	if g.life != nil {
		g.life.dead = true
	}
	g.hung = false
	g.sql.drain(g)
}

// endServer is node.endServer: SIGKILL, and the daemon notices the end a moment later.
func (g *glue) endServer() {
	g.killServer(false)
	g.noticeDeath()
}

// noticeDeath is what lifecycle.Life.Watch does: dying is seen at once, the end when the kernel is done.
func (g *glue) noticeDeath() {
	l := g.life
	if l == nil || !g.up {
		return
	}
	g.n.in(g.short(), func() {
		if g.life != l {
			return
		}
		if g.state == ha.ServerReady {
			g.state = ha.ServerDying
			g.said = true
		}
		g.poke()
		g.n.in(time.Duration(5+g.w.rnd.IntN(150))*time.Millisecond, func() {
			if g.life == l {
				g.life, g.feed.on, g.hungAt = nil, false, 0
				if g.state != ha.ServerSeeding {
					g.state = ha.ServerOff
				}
				g.said = true
				g.poke()
			}
		})
	})
}

// judgeServer is node.judgeServer.
func (g *glue) judgeServer(k *task, l *mysqlLife) {
	j, err := g.judgeLife(k, l)
	if g.life != l || l.dead || g.state != ha.ServerJudging {
		return
	}
	switch {
	case err != nil:
		g.state, g.retryAt, g.problem = ha.ServerUp, g.now()+100*time.Millisecond, err.Error()
	case j.Behind:
		g.state, g.retryAt = ha.ServerBehind, 0
		g.w.Tracef("%d: lags: %v", g.n.ID, &j.Missing)
	case !g.consistent(j):
		g.state, g.problem = ha.ServerBroken, fmt.Sprint(j.Problems)
		if g.tampered {
			g.w.Tracef("%d: broken: %v", g.n.ID, j.Problems)
			g.w.At(time.Duration(500+g.w.rnd.IntN(2000))*time.Millisecond, g.reinit)
			break
		}
		g.w.Violate("S5", "node %d: mysqld's data does not match the committed log: %v", g.n.ID, j.Problems)
	default:
		g.state, g.readyAt = ha.ServerReady, g.now()
		g.w.Tracef("%d: ready, plugged %v, refed %v", g.n.ID, &j.Plug, &j.Refeed)
		g.sql.counts.plugged += int64(j.Plug.Count())
		g.sql.counts.refed += int64(j.Refeed.Count())
		g.sql.ready(g)
	}
	g.said = true
}

// judgeLife is lifecycle.Life.Judge: judge against the log up to a read index obtained after the start, plug, feed.
func (g *glue) judgeLife(k *task, l *mysqlLife) (*ledger.Judgement, error) {
	var index uint64
	answered := false
	if g.sql.broken("S11") {
		answered = true
	} else {
		g.n.ReadIndex(func(i uint64) { index, answered = i, true })
	}
	if err := k.until(2*time.Second, "read index", func() bool { return answered && g.led.Index() >= index }); err != nil {
		return nil, err
	}
	if err := k.command(l, 2*time.Second); err != nil {
		return nil, err
	}
	executed, xids := g.srv.Executed().Clone(), g.srv.Prepared()
	upTo, committed := g.led.Snapshot()
	log := g.n.Log()
	purged := log.Boundary()
	in := ledger.JudgeInput{Executed: executed, Committed: committed, Purged: purged.GTIDs, PurgedTo: purged.Index,
		Durable: g.saved.durable, XARecover: map[string]bool{}, Inherited: g.saved.inherited,
		Local: g.saved.lives.Harmless(clusterID, uint16(g.n.ID))}
	for _, x := range xids {
		in.XARecover[fakemysql.XIDKey(x)] = true
	}
	marks := ledger.Marker{Executed: executed}
	j, err := ledger.Judge(in, func(known gtid.Set, f func(ledger.Txn) error) error {
		return scanLog(log, known, upTo, func(t ledger.Txn) error { marks.Add(t); return f(t) })
	})
	if err != nil || !g.consistent(j) {
		return j, err
	}
	if !j.Plug.Empty() && !g.sql.broken("S5plug") {
		if err := k.command(l, 2*time.Second); err != nil {
			return nil, err
		}
		g.srv.Plug(j.Plug)
	}
	next, _, err := log.SeekGTID(executed.Union(j.Plug).Union(log.Boundary().GTIDs), upTo)
	if err != nil {
		return nil, err
	}
	g.keepFrom = 0
	if len(xids) == 0 {
		g.keepFrom = min(g.saved.durable, next-1)
	}
	g.led.Restart(marks.List, upTo)
	if err := k.command(l, 2*time.Second); err != nil {
		return nil, err
	}
	g.connectFeed()
	return j, nil
}

// consistent reports whether mysqld may be fed and promoted.
func (g *glue) consistent(j *ledger.Judgement) bool {
	return j.Consistent() || g.sql.broken("S5judge")
}

// scanLog is lifecycle.Lives.scanLog.
func scanLog(log *raftlog.Log, known gtid.Set, upTo uint64, f func(ledger.Txn) error) error {
	from, _, err := log.SeekGTID(known, upTo)
	if err != nil || from > upTo {
		return err
	}
	var s ledger.Scanner
	return log.Scan(from, upTo, func(m *raftlog.Meta, index, _ uint64, events []byte) error {
		return s.Entry(m, index, events, f)
	})
}

// connectFeed is lifecycle.Life.connectFeed.
func (g *glue) connectFeed() {
	g.srv.SetSemiSync(false)
	g.sql.drain(g)
	g.srv.Flush = g.sql.mode.follower
	g.feed = feeder{on: true}
	g.feedSoon()
}

// feeder is the feed's one receiver (dump.Feed): it hands out what is committed, in log order, whole transactions only.
type feeder struct {
	on    bool
	due   bool
	begun bool // next is known
	next  uint64
	has   gtid.Set
	trx   trxAssembler
	last  uint64 // entry of the newest transaction handed out
}

// feedSoon lets the feed look for what is new.
func (g *glue) feedSoon() {
	if !g.up || !g.feed.on || g.feed.due {
		return
	}
	g.feed.due = true
	g.n.in(g.short(), func() {
		g.feed.due = false
		g.feedSome()
	})
}

const feedBatch = 4 // entries at a time

// feedSome hands out a few entries.
func (g *glue) feedSome() {
	f := &g.feed
	if !f.on || g.hung || g.life == nil || g.life.dead || g.serving.phase != ha.PhaseNone &&
		g.serving.phase != ha.PhasePromoting {
		return
	}
	log := g.n.Log()
	to := g.led.Index()
	if g.sql.broken("S3") {
		to, _ = log.LastIndex()
	}
	if !f.begun {
		f.has = g.srv.Held().Clone()
		next, _, err := log.SeekGTID(f.has, to)
		if err != nil {
			g.feedFailed()
			return
		}
		f.begun, f.next = true, next
	}
	to = min(to, f.next+feedBatch-1)
	if f.next > to {
		return
	}
	r := log.NewReader(f.next)
	defer r.Close()
	for f.next <= to {
		es, err := r.Next(to, 1<<20)
		if err != nil || len(es) == 0 {
			if errors.Is(err, raftlog.ErrPurged) {
				g.feedFailed()
			}
			return
		}
		for _, e := range es {
			f.next = e.GetIndex() + 1
			data := e.GetData()
			if e.GetType() != 0 || len(data) == 0 {
				continue
			}
			if err := g.feedEntry(e.GetTerm(), data); err != nil {
				g.w.Violate("S3", "node %d: the feed at entry %d: %v", g.n.ID, e.GetIndex(), err)
				return
			}
		}
	}
	g.feedSoon()
	g.applySoon()
}

// feedEntry is walker.entry.
func (g *glue) feedEntry(term uint64, data []byte) error {
	m, events, err := raftlog.DecodeMeta(data)
	if err != nil {
		return err
	}
	return g.feed.trx.entry(term, &m, events, func(t gtid.GTID, trx []byte) error {
		if g.feed.has.Contains(t) {
			return nil
		}
		g.sql.fed(g, t)
		return g.srv.Receive(trx)
	})
}

// feedFailed is node.feedFailed: the log was purged below what mysqld needs.
func (g *glue) feedFailed() {
	g.feed.on = false
	if g.state == ha.ServerReady && g.serving.phase == ha.PhaseNone {
		g.state, g.retryAt = ha.ServerUp, g.now()+100*time.Millisecond
		g.said = true
		g.poke()
	}
}

// applySoon lets the applier work.
func (g *glue) applySoon() {
	l := g.life
	if l == nil || g.srv.Backlog() == 0 || g.sql.applying[g.n.ID] {
		return
	}
	g.sql.applying[g.n.ID] = true
	g.w.At(g.sql.applyTime(), func() {
		g.sql.applying[g.n.ID] = false
		if l.dead || g.life != l && g.up {
			return
		}
		if !g.hung {
			for range 1 + g.w.rnd.IntN(4) {
				g.srv.Apply(g.w.rnd.IntN(4))
			}
			if err := g.srv.ApplyError(); err != nil {
				g.w.Violate("S5", "node %d: the applier stopped: %v", g.n.ID, err)
			}
			g.poke()
		}
		g.applySoon()
	})
}
