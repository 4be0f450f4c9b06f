package sim

import (
	"time"

	"trireme/internal/ha"
)

// stopPolitely is SIGTERM to the daemon (node.shutdown): leadership first, then mysqld, then everything else. It is
// started again after d.
func (g *glue) stopPolitely(d time.Duration) {
	if !g.n.up || g.n.paused || g.stopping {
		return
	}
	g.stopping, g.said = true, true
	life := g.n.life
	g.spawn("stop", func(k *task) {
		_ = k.until(5*time.Second, "stopping", func() bool { // then it stops all the same
			v := g.view()
			busy := v.Serving.Phase != ha.PhaseNone || v.Server.State == ha.ServerStarting || v.Server.State == ha.ServerJudging
			movable := len(ha.Candidates(v)) > 0
			return v.Serving.Phase == ha.PhaseOpen && !movable || !busy && !(v.Raft.IsLeader && movable)
		})
		g.stopServer(k)
		g.w.At(0, func() {
			if g.n.life == life {
				g.n.kill()
				g.w.At(d, g.n.start)
			}
		})
	})
}

// stopServer is node.stopServer: it shuts mysqld down cleanly only if no session waits for an acknowledgement (S4).
func (g *glue) stopServer(k *task) {
	l := g.life
	if l == nil || l.dead {
		return
	}
	careless := g.sql.broken("S4stop")
	if g.serving.phase != ha.PhaseNone && !careless {
		g.serving.task.cancel()
		g.serving.phase, g.serving.until = ha.PhaseFencing, 0
		if err := g.drain(k, l, 2*time.Second); err != nil {
			g.w.Tracef("%d: mysqld is killed: %v", g.n.ID, err)
			g.killServer(false)
			return
		}
	}
	if k.command(l, time.Second) != nil {
		return
	}
	if len(g.srv.Waiting()) > 0 && !careless {
		g.killServer(false)
		return
	}
	g.srv.Disconnect()
	g.srv.Shutdown()
	l.dead = true
	g.w.Tracef("%d: mysqld was shut down", g.n.ID)
	g.sql.drain(g)
}

// reinit is an operator's word that a node's data may be thrown away (node.reinitHere).
func (g *glue) reinit() {
	if g.n.lost {
		return
	}
	if !g.up || g.state != ha.ServerBroken {
		g.w.At(time.Second, g.reinit)
		return
	}
	g.state, g.bare = ha.ServerBehind, true
	g.poke()
}
