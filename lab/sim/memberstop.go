package sim

import (
	"context"
	"time"

	"trireme/internal/core/ha"
	"trireme/internal/core/transport"
	"trireme/internal/node/lifecycle"
)

// stopPolitely is SIGTERM to the daemon (node.shutdown): leadership first, then mysqld, then everything else. It is
// started again after d.
func (g *member) stopPolitely(d time.Duration) {
	if !g.n.up || g.n.paused || g.stopping() {
		return
	}
	g.control.LeaderHost().Change((*lifecycle.Status).BeginStop)
	life := g.n.life
	g.spawn(func(ctx context.Context) {
		if g.lives.StepDown(ctx, g.control.View) != nil {
			return
		}
		if s := g.lives.Status(); s.Phase() != ha.PhaseNone {
			g.w.Count("stopped while it served", 1)
		}
		if g.sql.broken("S4stop") && g.srv.Running() {
			g.srv.Disconnect()
			g.proc.shutDown()
			g.sql.drain(g)
		} else {
			g.lives.Stop(ctx, g.control.LeaderHost())
		}
		g.w.At(0, func() {
			if g.n.life == life {
				g.n.kill()
				g.w.At(d, g.n.start)
			}
		})
	})
}

// stopping says whether the daemon was asked to stop.
func (g *member) stopping() bool {
	s := g.lives.Status()
	return s.Stopping()
}

// reinit is an operator's, again and again until the data has been given up.
func (g *member) reinit() {
	if g.n.lost || !g.tampered {
		return
	}
	g.w.At(time.Second, g.reinit)
	if s := g.lives.Status(); g.up && s.State() == ha.ServerBroken {
		g.giveUp()
	}
}

// giveUp is `trireme reinit`.
func (g *member) giveUp() {
	g.spawn(func(ctx context.Context) {
		err := g.seeding.ReinitHere(ctx, 0, transport.None{})
		g.w.Tracef("%d: its data is given up: %v", g.n.ID, err)
		g.bare = g.bare || err == nil
	})
}
