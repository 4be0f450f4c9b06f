package node

import (
	"context"
	"fmt"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/mysql/gtid"
	"trireme/internal/node/controlloop"
	"trireme/internal/node/lifecycle"
)

// watchLocked hands mysqld to the guard.
func (n *Node) watchLocked(l *lifecycle.Life) {
	fd, err := l.Process().Pidfd()
	if err != nil {
		n.log.Warn("mysqld is not guarded: it keeps running when this daemon is stopped", "err", err)
		return
	}
	n.lives.GuardStep(0, 0)
	n.guard.Watch(fd)
}

// watch waits for the end of one incarnation, or of this daemon: a mysqld that was killed and whose disk hangs may not
// end before.
func (n *Node) watch(ctx context.Context, l *lifecycle.Life) {
	polling, stop := context.WithCancel(ctx)
	defer stop()
	n.tasks.Add(1)
	go func() { defer n.tasks.Done(); n.followApplied(polling, l) }()
	if !l.Watch(ctx) {
		return // stopParts ends it
	}
	n.control.Dead(l)
	if n.isStopping() {
		return
	}
	exit, _ := l.Process().Exit()
	n.log.Warn("mysqld ended", "exit", exit.String(), "incarnation", l.Incarnation)
	if n.guard.Killed() {
		n.log.Error(guardKilled, "incarnation", l.Incarnation)
		n.history.Record("guard", "", guardKilled)
	}
}

const guardKilled = "the guard killed mysqld: the daemon was stopped, or hung, or got no CPU for longer than its lease"

// tellJudged tells of a judgement.
func (n *Node) tellJudged(ctx context.Context, l *lifecycle.Life, v controlloop.Verdict) {
	switch v.Outcome {
	case controlloop.Void:
		n.log.Warn("this node is seeded from another one", "why", v.Err)
		n.history.Record(api.EventDivergent, "", v.Err.Error())
	case controlloop.Unjudged:
		if ctx.Err() == nil && !v.Again {
			n.log.Warn("mysqld could not be judged yet", "err", v.Err)
		}
	case controlloop.Lags:
		n.log.Warn("the log no longer has what mysqld needs: it is seeded from another node", "missing",
			v.Missing.String())
	case controlloop.Broken:
		n.log.Error("mysqld's data does not match the committed log; this node must be seeded again", "problems", v.Problems,
			"rule", "S5")
		n.history.Record(api.EventDivergent, "", fmt.Sprintf("data does not match the committed log: %v", v.Problems))
	default:
		n.reportRejoin(l, v.Judgement, v.RolledBack)
	}
}

// reportRejoin tells what the recovery did: the proof for the operator.
func (n *Node) reportRejoin(l *lifecycle.Life, j *ledger.Judgement, rolledBack gtid.Set) {
	n.log.Info("mysqld is a prefix of the committed log and is fed", "incarnation", l.Incarnation, "high", j.High,
		"plugged", j.Plug.String(), "refed", j.Refeed.String(), "rolled_back", rolledBack.String(), "rolled_back_count",
		rolledBack.Count())
	msg := fmt.Sprintf("mysqld (incarnation %d) rejoined", l.Incarnation)
	if n := rolledBack.Count(); n > 0 {
		what := "a transaction was rolled back"
		if n > 1 {
			what = fmt.Sprintf("%d transactions were rolled back", n)
		}
		msg += "; " + what + " that no majority had: no client was told that it is committed"
	}
	e := n.history.Event("rejoin", j.High, msg)
	e.GTIDs, e.Incarnation = rolledBack.String(), l.Incarnation
	n.history.Add(e)
}

// probeServer finds a mysqld that is alive and makes no progress, and a raft log whose disk hangs.
func (n *Node) probeServer() func(ctx context.Context) {
	probe := n.lives.Probe()
	return func(ctx context.Context) {
		n.mu.Lock()
		s, applied := n.lives.Status(), n.srv.backlog.Applied
		n.mu.Unlock()
		server, log := probe.Look(ctx, s.Life(), s.TakesWrites(), applied, n.cons.AppendingSince)
		n.mu.Lock()
		defer n.mu.Unlock()
		var changed bool
		n.lives.Change(func(now *lifecycle.Status) { changed = now.Life() == s.Life() && now.Probed(server, log) })
		if changed {
			n.gossip.Publish()
			n.wakeLoop()
		}
	}
}

// restartServer ends a mysqld that serves nothing and makes no progress; its end brings the next start.
func (n *Node) restartServer(reason string) {
	l := n.lives.Life()
	if l == nil {
		return
	}
	n.log.Error("killing mysqld", "why", reason, "pid", l.Process().Pid())
	n.history.Record("restart", "", "mysqld was killed: "+reason)
	n.control.EndServer(l)
}

// followApplied keeps the applied index and the lag current.
func (n *Node) followApplied(ctx context.Context, l *lifecycle.Life) {
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
			n.updateLag(&laggard)
			continue
		}
		applied, err := l.ReadExecuted(ctx)
		if err != nil {
			continue
		}
		seen = index
		n.updateHeavy(&heavy)
		n.updateLag(&laggard)
		if n.delay.Active() {
			continue // it applies as fast as the leader did a while ago, which says nothing
		}
		if rate := meter.take(now(), applied, index); rate > 0 {
			n.mu.Lock()
			n.srv.rate = rate
			n.mu.Unlock()
		}
	}
}

// rateMeter measures how fast mysqld applies. It counts only while the backlog is long: otherwise the leader's speed
// would be measured.
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

func (n *Node) noteBacklogLocked(b ledger.Backlog) {
	if b.Applied != n.srv.backlog.Applied || b.Since.IsZero() || n.srv.backlog.Since.IsZero() {
		n.srv.movedAt = now()
	}
	n.srv.backlog = b
}

// stallLimit is after how long without progress an applier that has something to apply is not called healthy any more.
const stallLimit = 10 * time.Second

// stalledLocked is for how long the applier has applied nothing of what waits; 0: it makes progress, or has nothing to
// do. A large transaction or DDL may take twice as long as was estimated: heavyMeter leaves a tenth of that.
func (n *Node) stalledLocked() time.Duration {
	s := &n.srv
	if st := n.lives.Status(); !st.Follows() || s.backlog.Since.IsZero() || n.delay.Configured() > 0 {
		return 0
	}
	if d := now() - s.movedAt; d > stallLimit+20*s.heavy {
		return d
	}
	return 0
}
