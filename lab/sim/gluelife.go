package sim

import (
	"errors"
	"fmt"
	"time"

	"trireme/internal/core/ha"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/node/lifecycle"
)

// startServer is node.startServer.
func (g *glue) startServer(k *task) {
	l, err := g.lives.Start(k.ctx())
	if err != nil {
		g.w.Tracef("%d: mysqld did not start: %v", g.n.ID, err)
		g.lives.Change(func(s *lifecycle.Status) { s.StartFailed(err, "") })
		return
	}
	g.lives.GuardStep(0, 0)
	g.lives.Change(func(s *lifecycle.Status) { s.Started(l) })
	g.w.Tracef("%d: mysqld is up, incarnation %d, executed %v", g.n.ID, l.Incarnation, g.srv.Executed())
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
	if g.proc != nil {
		g.proc.dead = true
	}
	g.hung = false
	g.sql.drain(g)
}

// endServer is node.endServer: SIGKILL, and the daemon notices the end a moment later.
func (g *glue) endServer(l *lifecycle.Life) {
	if g.lives.Life() != l {
		return
	}
	g.killServer(false)
	g.lives.Change((*lifecycle.Status).Dying)
	g.noticeDeath()
}

// noticeDeath is what lifecycle.Life.Watch does, and node.watch: dying is seen at once, its end later.
func (g *glue) noticeDeath() {
	l := g.lives.Life()
	if l == nil || !g.up {
		return
	}
	g.n.in(g.short(), func() {
		if s := g.lives.Status(); s.Life() == l && s.State() == ha.ServerReady {
			g.lives.Change((*lifecycle.Status).Dying)
			g.said = true
		}
		g.wakeLoop()
		g.n.in(time.Duration(5+g.w.rnd.IntN(150))*time.Millisecond, func() {
			l.EndStream()
			if g.lives.Life() == l {
				g.lives.Change((*lifecycle.Status).Dead)
				g.feed.on, g.hungAt, g.said = false, 0, true
				g.wakeLoop()
			}
		})
	})
}

// judgeServer is node.judgeServer.
func (g *glue) judgeServer(k *task, l *lifecycle.Life) {
	j, _, err := l.Judge(k.ctx())
	s := g.lives.Status()
	if s.Life() != l || s.State() != ha.ServerJudging {
		return
	}
	g.said = true
	switch {
	case err != nil:
		g.w.Tracef("%d: could not be judged yet: %v", g.n.ID, err)
		g.lives.Change(func(s *lifecycle.Status) { s.Unjudged(err.Error()) })
	case j.Behind:
		g.lives.Change(func(s *lifecycle.Status) { s.Behind("the log does not have what mysqld needs") })
		g.w.Tracef("%d: lags: %v", g.n.ID, &j.Missing)
	case !j.Consistent():
		g.lives.Change(func(s *lifecycle.Status) { s.Broken(fmt.Sprint(j.Problems)) })
		if g.tampered {
			g.w.Tracef("%d: broken: %v", g.n.ID, j.Problems)
			g.w.At(time.Duration(500+g.w.rnd.IntN(2000))*time.Millisecond, g.reinit)
			break
		}
		g.w.Violate("S5", "node %d: mysqld's data does not match the committed log: %v", g.n.ID, j.Problems)
	default:
		g.lives.Change((*lifecycle.Status).Ready)
		g.w.Tracef("%d: ready, plugged %v, refed %v", g.n.ID, &j.Plug, &j.Refeed)
		g.sql.counts.plugged += int64(j.Plug.Count())
		g.sql.counts.refed += int64(j.Refeed.Count())
		g.sql.ready(g)
	}
}

// connectFeed: mysqld's receiver connects to the feed.
func (g *glue) connectFeed() {
	g.feed.on, g.feed.begun = true, false
	g.feedSoon()
}

// feeder is the feed's one receiver (dump.Feed): it hands out what is committed, in log order, whole transactions only.
type feeder struct {
	on     bool // a receiver is connected
	paused bool
	due    bool
	begun  bool // next is known
	next   uint64
	has    gtid.Set
	trx    trxAssembler
	last   uint64 // entry of the newest transaction handed out
}

// feedSoon lets the feed look for what is new.
func (g *glue) feedSoon() {
	if !g.up || !g.feed.on || g.feed.paused || g.feed.due {
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
	if !f.on || f.paused || !g.alive() {
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
			g.feedFailed(err)
			return
		}
		f.begun, f.next, f.last, f.trx = true, next, 0, trxAssembler{}
	}
	to = min(to, f.next+feedBatch-1)
	if f.next > to {
		return
	}
	r := log.NewReader(f.next)
	for f.next <= to {
		es, err := r.Next(to, 1<<20)
		if err != nil || len(es) == 0 {
			if errors.Is(err, raftlog.ErrPurged) || errors.Is(err, raftlog.ErrCorrupt) {
				g.feedFailed(err)
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

// feedFailed is node.feedFailed: the log was purged below what mysqld needs, or has rotted.
func (g *glue) feedFailed(err error) {
	if s := g.lives.Status(); s.Follows() || s.Phase() == ha.PhasePromoting {
		g.feed.on = false
	} else { // mysqld's receiver connects again
		g.n.in(time.Second, g.feedSoon)
	}
	leaderHost{g}.Fence("promotion failed: the feed: "+err.Error(),
		func(s *lifecycle.Status) bool { return s.FeedFailed(err) })
	g.said = true
	g.wakeLoop()
}

// applySoon lets the applier work.
func (g *glue) applySoon() {
	p := g.proc
	if p == nil || g.srv.Backlog() == 0 || g.sql.applying[g.n.ID] {
		return
	}
	g.sql.applying[g.n.ID] = true
	g.w.At(g.sql.applyTime(), func() {
		g.sql.applying[g.n.ID] = false
		if g.alive() && g.proc == p {
			for range 1 + g.w.rnd.IntN(4) {
				g.srv.Apply(g.w.rnd.IntN(4))
			}
			if err := g.srv.ApplyError(); err != nil {
				g.w.Violate("S5", "node %d: the applier stopped: %v", g.n.ID, err)
			}
			g.wakeLoop()
		}
		g.applySoon()
	})
}
