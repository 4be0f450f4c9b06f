package sim

import (
	"time"

	"trireme/internal/core/ha"
	"trireme/internal/node/lifecycle"
)

const stopPatience = 5 * time.Second

// stopPolitely is SIGTERM to the daemon (node.shutdown): leadership first, then mysqld, then everything else. It is
// started again after d.
func (g *glue) stopPolitely(d time.Duration) {
	if !g.n.up || g.n.paused || g.stopping() {
		return
	}
	leaderHost{g}.Change((*lifecycle.Status).BeginStop)
	life := g.n.life
	g.spawn("stop", func(k *task) {
		_ = k.until(stopPatience, "stopping", func() bool { // then it stops all the same
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

// stopping says whether the daemon was asked to stop.
func (g *glue) stopping() bool {
	s := g.lives.Status()
	return s.Stopping()
}

// stopServer is node.stopServer: it shuts mysqld down cleanly only if no session waits for an acknowledgement (S4).
func (g *glue) stopServer(k *task) {
	s := g.lives.Status()
	l, serving := s.Life(), s.Phase() != ha.PhaseNone
	if serving {
		g.lives.Change((*lifecycle.Status).Stop)
		g.guardStep(lifecycle.DrainPatience)
	}
	switch {
	case l == nil:
		return
	case g.sql.broken("S4stop"):
		g.srv.Disconnect()
		g.srv.Shutdown()
		g.proc.dead = true
		g.sql.drain(g)
		return
	}
	var err error
	if serving {
		err = l.Close(k.within(lifecycle.DrainPatience))
	}
	if err == nil {
		g.guardStep(0)
		err = l.StopPolitely(k.within(stopPatience))
	}
	if err != nil {
		g.w.Tracef("%d: mysqld is killed: %v", g.n.ID, err)
		g.killServer(false)
		return
	}
	g.w.Tracef("%d: mysqld was shut down", g.n.ID)
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
