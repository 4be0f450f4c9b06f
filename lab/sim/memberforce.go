package sim

import (
	"context"
	"errors"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/transport"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/recovery"
)

// nodeDir is where a node has its generation.json.
const nodeDir = "/node"

// generations are what a member and the checks know of its generations, over all lives but for told.
type generations struct {
	generation *config.Generation // of cluster.json
	knew       uint64             // the newest one that it was of
	left       bool               // generation.json says that it was given up
	said       uint64             // where its log ended when it was asked to hold still last
	told       int64              // when it was told of a newer one, in this life; 0: it was not
}

// recoveryHost is the node as package recovery sees it (node.recoveryHost).
type recoveryHost struct{ leadershipHost }

// Raft and the next ones implement recovery.Host.
func (h recoveryHost) Raft() recovery.Raft                              { return h.leadershipHost.Raft() }
func (h recoveryHost) Log() *raftlog.Log                                { return h.g.n.Log() }
func (h recoveryHost) Heard() time.Duration                             { return h.g.gossip.RaftHeard() }
func (h recoveryHost) Remember(api.Event)                               {}
func (h recoveryHost) AuditForce(_, _ string, _ *api.ForceReport) error { return nil }
func (h recoveryHost) RandomID() uint64                                 { return h.g.sql.force.rnd.Uint64() | 1 }

// Quiesce implements recovery.Host: mysqld dies, and raft's log is at rest when it returns.
func (h recoveryHost) Quiesce() {
	g := h.g
	if g.sql.broken("served after") {
		return
	}
	g.lives.Change((*lifecycle.Status).BeginStop)
	g.killServer(false)
	g.n.halt()
	_ = exec(h.leadershipHost).until(g.root, func() bool { return !g.n.syncing })
	g.sql.force.hurt(&g.n.disk)
}

// Fail implements recovery.Host. It is a task of the life that ends.
func (h recoveryHost) Fail(err error) {
	h.g.n.in(0, func() { h.g.ended(err) })
}

// ended is what comes after a run of the node that recovery has ended (node.Run): it starts again in another
// generation, or somebody starts it who does not know that it was given up.
func (g *member) ended(err error) {
	n, again := g.n, time.Duration(0)
	n.w.Tracef("%d: ends: %v", n.ID, err)
	if g.srv.Running() || n.syncing {
		n.w.Violate("generations", "node %d ends for another generation, mysqld runs: %t, its log is written to: %t", n.ID,
			g.srv.Running(), n.syncing)
	}
	switch failed := n.disk.mayFail(); {
	case n.disk.powerCut:
		n.cutOff()
		return
	case errors.Is(err, recovery.ErrNewGeneration) && failed:
		// Whether generation.json is there for good shows when it has been written again: Opening.
	case errors.Is(err, recovery.ErrNewGeneration):
		g.sql.generationOf(g)
		st, err := recovery.Load(n.fs, nodeDir)
		if err == nil && st.Takeover == nil && st.Generation.NumberOf() > n.generation.Number {
			g.sql.follows(g, st.Generation)
		}
	case errors.Is(err, recovery.ErrLeftBehind):
		g.sql.leftBehind(g, failed)
		again = time.Duration(200+g.sql.force.rnd.IntN(2000)) * time.Millisecond
	case failed:
		again = time.Second
	default:
		n.w.Violate("S13", "node %d: %v", n.ID, err)
	}
	n.end(false)
	n.fs.Kill()
	n.w.At(again, n.start)
}

// Opening implements Top: the daemon finds out which generation it belongs to.
func (g *member) Opening() error {
	g.id = config.Identity{ID: g.n.ID, Name: name(g.n.ID), Role: g.sql.role(g.n.ID)}
	cfg := config.Node{Dir: nodeDir, Raft: gossipConfig.Raft}
	host := recoveryHost{leadershipHost{g}}
	g.recovery, g.told = recovery.New(cfg, g.id, exec{g}, g.diskFS("forgets generation"), host, noLog), 0
	err := g.recovery.Open(&config.Cluster{Generation: g.generation})
	if errors.Is(err, recovery.ErrLeftBehind) && g.sql.broken("starts again") {
		err = nil
	}
	if err == nil {
		g.sql.generationOf(g)
	}
	return err
}

// LogOpened implements Top.
func (g *member) LogOpened() error { return g.recovery.CarryOut() }

// Generation implements Top.
func (g *member) Generation() transport.Generation {
	t, err := g.recovery.ForPeers()
	if err != nil {
		g.w.Violate("generations", "node %d: %v", g.n.ID, err)
	}
	return t
}

// OtherGeneration implements Top (node.OtherGeneration).
func (g *member) OtherGeneration(from uint64, theirs transport.Generation) {
	if theirs.Number > g.n.generation.Number {
		g.sql.toldNewer(g)
		if g.sql.broken("never ends") {
			return
		}
	}
	if g.sql.rule != "" {
		theirs = g.altered(theirs)
	}
	g.recovery.Other(from, theirs)
}

// Takes implements Top (node.stepRaft).
func (g *member) Takes(from uint64) bool {
	if g.recovery.StandsStill() {
		return false
	}
	if from == g.n.status.Leader {
		g.gossip.HearRaft()
	}
	return true
}

// survey answers recovery.ReqSurvey.
func (g *member) survey(ctx context.Context, from uint64, hold bool) (recovery.Survey, error) {
	s, err := g.recovery.SurveyForPeer(ctx, from, hold)
	if err == nil && hold {
		g.said = g.w.check.log(g.n).last()
	}
	if g.sql.broken("shorter log") {
		s.Last, s.LastTerm, s.Commit = 1, 1, 1
	}
	return s, err
}

// adopt takes note of settings that are committed: of those only the generation changes here, and is remembered.
func (g *member) adopt(body []byte) error {
	c, err := config.ParseCluster(body)
	if err == nil && c.Generation.NumberOf() > g.generation.NumberOf() {
		g.generation = c.Generation
	}
	return err
}
