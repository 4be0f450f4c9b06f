package sim

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/dump"
	"trireme/internal/core/ha"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/node/lifecycle"
)

// killServer ends mysqld's process at once, if there is one: how much of what it committed survives is chance.
func (g *member) killServer(power bool) {
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
	g.hung, g.hungAt, g.feed.on = false, 0, false
	g.sql.drain(g)
	g.proc.die()
}

// connectFeed: mysqld's receiver connects to the feed.
func (g *member) connectFeed() {
	g.feed.on, g.feed.dump = true, nil
	g.feedSoon()
}

// feeder is the feed and its one receiver (dump.Feed).
type feeder struct {
	on     bool // a receiver is connected
	paused bool
	due    bool
	dump   *dump.FeedStepper // nil: it has not begun
	trx    []byte            // the events of the transaction that is being received
	asm    binlog.Assembler  // the same
	last   uint64            // the entry of the newest one
}

// feedSoon lets the feed look for what is new.
func (g *member) feedSoon() {
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
func (g *member) feedSome() {
	f := &g.feed
	if !f.on || f.paused || !g.alive() {
		return
	}
	var err error
	if f.dump == nil {
		f.trx, f.asm, f.last = nil, binlog.Assembler{}, 0
		cfg := dump.FeedConfig{ServerID: 1 << 20, Appliers: 4, Void: g.seeding.FollowsVoid, Tolerance: g.seeding.Tolerance()}
		f.dump, err = dump.NewFeedStepper(cfg, g.feedLog(), g.srv.Held().Clone())
	}
	more := false
	if err == nil {
		more, err = f.dump.Next(context.Background(), feedBatch, g.receive)
	}
	switch {
	case errors.Is(err, raftlog.ErrPurged) || errors.Is(err, raftlog.ErrCorrupt):
		f.dump = nil
		g.feedFailed(err)
	case err != nil && (g.n.disk.mayFail() || g.n.disk.powerCut): // mysqld's receiver connects again
		f.dump = nil
		g.n.in(time.Second, g.feedSoon)
	case err != nil:
		g.w.Violate("S3", "node %d: the feed: %v", g.n.ID, err)
	case more:
		g.feedSoon()
		fallthrough
	default:
		g.applySoon()
	}
}

// feedLog is what the feed reads.
func (g *member) feedLog() dump.Log {
	log := lifecycle.NewFeedLog(g.n.Log(), g.led)
	if g.sql.broken("S3") {
		return eagerLog{log, g}
	}
	return log
}

// eagerLog shows what is not committed, too.
type eagerLog struct {
	*lifecycle.FeedLog
	g *member
}

// Committed implements dump.Log.
func (l eagerLog) Committed() uint64 {
	last, _ := l.g.n.Log().LastIndex()
	return last
}

// Read implements dump.Log.
func (l eagerLog) Read(_ context.Context, from, to uint64, maxBytes int) (all []dump.Entry, err error) {
	es, err := l.g.n.Log().NewReader(from).Next(to, maxBytes)
	for _, e := range es {
		all = append(all, dump.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Data: e.GetData()})
		if e.GetType() != raftpb.EntryNormal {
			all[len(all)-1].Data = nil
		}
	}
	return all, err
}

// receive is mysqld's receiver: it takes an event of the feed.
func (g *member) receive(ev []byte) error {
	f := &g.feed
	h, _, _, err := binlog.Cut(ev)
	if err != nil || h.Type == binlog.TypeRotate || h.Type == binlog.TypeFormatDescription {
		return err
	}
	b, err := f.asm.Feed(h, ev)
	if err != nil {
		return err
	}
	f.trx = append(f.trx, ev...)
	if b != binlog.End {
		return nil
	}
	trx := f.trx
	f.trx = nil
	g.sql.fed(g, f.asm.Trx().GTID)
	return g.srv.Receive(trx)
}

// feedFailed is node.feedFailed: the log was purged below what mysqld needs, or has rotted.
func (g *member) feedFailed(err error) {
	if s := g.lives.Status(); s.Follows() || s.Phase() == ha.PhasePromoting {
		g.feed.on = false
	} else { // mysqld's receiver connects again
		g.n.in(time.Second, g.feedSoon)
	}
	g.control.FeedFailed(err)
}

// applySoon lets the applier work.
func (g *member) applySoon() {
	p := g.proc
	if p == nil || g.srv.Backlog() == 0 || g.sql.applying[g.n.ID] || g.srv.ApplyError() != nil {
		return
	}
	g.sql.applying[g.n.ID] = true
	g.w.At(g.sql.applyTime(), func() {
		g.sql.applying[g.n.ID] = false
		if g.alive() && g.proc == p {
			for range 1 + g.w.rnd.IntN(4) {
				g.srv.Apply(g.w.rnd.IntN(4))
			}
			if err := g.srv.ApplyError(); err != nil && g.applyFault() == nil {
				g.w.Violate("S5", "node %d: the applier stopped: %v", g.n.ID, err)
			}
			g.wakeLoop()
		}
		g.applySoon()
	})
}
