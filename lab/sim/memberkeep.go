package sim

import (
	"context"
	"errors"
	"syscall"
	"time"

	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/node/membership"
	"trireme/internal/node/room"
	"trireme/lab/sim/fakemysql"
)

// keepDurable is node.keepDurable.
func (g *member) keepDurable() {
	g.n.After(durableEvery, g.keepDurable)
	if s := g.lives.Status(); s.Life() != nil && s.State() == ha.ServerReady {
		g.spawn(func(ctx context.Context) {
			ctx, cancel := exec{g}.WithTimeout(ctx, durablePatience)
			defer cancel()
			err := s.Life().KeepDurable(ctx, g.applied)
			if err == nil {
				return
			}
			g.w.Tracef("%d: the durable index was not written down: %v", g.n.ID, err)
			if !errors.Is(err, syscall.ENOSPC) { // node.fail
				g.n.disk.failed = g.n.disk.failed || isFault(err)
				g.n.in(0, func() { g.n.fatal(err) })
			}
		})
	}
}

// tendApplier is node.restartApplier, of what can stop an applier here. It asks mysqld where there is something to
// hear.
func (g *member) tendApplier() {
	g.n.After(tendEvery, g.tendApplier)
	s := g.lives.Status()
	l := s.Life()
	if l == nil || g.tending || g.applyFault() == nil && g.seeding.Applier() == "" {
		return
	}
	g.tending = true
	g.spawn(func(ctx context.Context) {
		defer func() { g.tending = false }()
		if s := g.lives.Status(); !s.Follows() {
			return
		}
		switch st, err := g.proc.ReplicaStatus(ctx); {
		case err != nil:
		case !st.SQLRunning:
			g.seeding.Mend(ctx, l, st)
		default:
			g.seeding.NoteApplier(l, "")
		}
	})
}

// applyFault is what has stopped the applier on purpose; nil: nothing.
func (g *member) applyFault() (f *fakemysql.ApplyFault) {
	errors.As(g.srv.ApplyError(), &f)
	return f
}

// ready reports whether mysqld is judged and fed, or leads.
func (g *member) ready() bool {
	s := g.lives.Status()
	return s.State() == ha.ServerReady
}

// PurgeBelow implements Top: room.PurgeLog's figures.
func (g *member) PurgeBelow() uint64 {
	st := g.n.Status()
	_, ready := g.control.ReadyLocked()
	own := ledger.LogRetainer{ID: g.n.ID, Ready: ready, Keep: g.lives.KeepFrom()}
	var safe uint64
	var given []string
	room.Purge(own, &st, g.Settings(), g.gossip.Peers(), func(at uint64) bool {
		safe = at
		return g.sql.holds.atBound()
	}, func(at uint64, who []string) {
		if at > safe {
			safe, given = at, who
		}
	})
	if g.sql.broken("S8") {
		safe = st.Commit
	}
	g.sql.purging(g, membership.VotesOf(&st), safe, given)
	return safe
}

// MayChange implements Top: what membership.nextStep and membership.reconcileOnce ask before votes are given and taken.
func (g *member) MayChange(in, out []uint64) bool {
	if g.sql.someStuck() {
		return false // the others are needed to copy from
	}
	c := g.census()
	for _, id := range in { // node.standing.caughtUp
		if s := c.Nodes[id]; !s.Live || s.Data && !s.Ready {
			return false
		}
	}
	return c.Leave(in, out) == ledger.MayLeave
}

// guardTimer is the guard process: it kills mysqld at a moment of its clock that the daemon has not moved ahead.
type guardTimer struct {
	until time.Duration // 0: mysqld serves nothing
	asked bool
}

// Guard implements lifecycle.Host.
func (g *member) Guard(until time.Duration) { g.guard.set(g, until) }

// set is guard.Until.
func (t *guardTimer) set(g *member, until time.Duration) {
	t.until = until
	if until != 0 && !t.asked {
		t.wait(g)
	}
}

// wait acts some time after the moment that it was told, as a process does that has to wake up first. A lease that
// comes in between comes too late.
func (t *guardTimer) wait(g *member) {
	t.asked = true
	g.w.At(g.n.clock.true(max(t.until-g.now(), 0)), func() {
		held := g.n.HoldsLease()
		g.w.At(time.Millisecond, func() { t.act(g, held) })
	})
}

func (t *guardTimer) act(g *member, held bool) {
	t.asked = false
	switch {
	case t.until == 0 || g.proc == nil || g.proc.dead:
	case t.until > g.now():
		t.wait(g)
	default:
		t.until = 0
		g.w.Tracef("%d: the guard kills mysqld", g.n.ID)
		g.sql.counts.guards++
		s := g.lives.Status()
		_, told := s.GuardUntil(g.now(), time.Duration(g.n.LeaseUntil()))
		if told && !g.n.paused && held && g.n.HoldsLease() {
			g.w.Violate("S10", "node %d runs and holds a lease, and its guard kills mysqld", g.n.ID)
		}
		g.killServer(false)
	}
}

// Finish implements Top.
func (g *member) Finish() { g.sql.finish(g) }
