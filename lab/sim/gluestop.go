package sim

import (
	"time"

	"trireme/internal/core/ha"
	"trireme/internal/node/lifecycle"
)

// stopPolitely is SIGTERM to the daemon (node.shutdown): leadership first, then mysqld, then everything else. It is
// started again after d.
func (g *glue) stopPolitely(d time.Duration) {
	if !g.n.up || g.n.paused || g.stopping() {
		return
	}
	leaderHost{g}.Change((*lifecycle.Status).BeginStop)
	life := g.n.life
	g.spawn("stop", func(k *task) {
		if g.lives.StepDown(k.ctx(), g.view) != nil {
			return
		}
		if s := g.lives.Status(); s.Phase() != ha.PhaseNone {
			g.w.Count("stopped while it served", 1)
		}
		if g.sql.broken("S4stop") && g.srv.Running() {
			g.srv.Disconnect()
			g.srv.Shutdown()
			g.proc.dead = true
			g.sql.drain(g)
		} else {
			g.lives.Stop(k.ctx(), leaderHost{g})
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
func (g *glue) stopping() bool {
	s := g.lives.Status()
	return s.Stopping()
}

// reinit is an operator's word that a node's data may be thrown away (node.reinitHere).
func (g *glue) reinit() {
	if g.n.lost {
		return
	}
	if s := g.lives.Status(); !g.up || s.State() != ha.ServerBroken {
		g.w.At(time.Second, g.reinit)
		return
	}
	g.lives.Change(func(s *lifecycle.Status) { s.Behind("an operator has given the data up") })
	g.bare = true
	g.wakeLoop()
}
