package node

import (
	"sync"
	"sync/atomic"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/ha"
	"trireme/internal/raftlog"
)

const (
	// flowHeard is how old a follower's word about its backlog may be: it speaks several times a second while it is behind.
	flowHeard = statusInterval + appliedInterval
	// flowQuiet is for how long commits have not been slowed when that is said.
	flowQuiet = 10 * time.Second
)

// flow holds the OKs of commits back for lag_objective (ha.FlowDelay). Without a delay the commit path reads one number of it.
type flow struct {
	delay atomic.Int64 // ns

	mu   sync.Mutex // never held while n.mu is asked for
	held heldAck    // the newest that was held back

	// Guarded by Node.mu.
	view   *api.FlowView // as the leader has it; nil elsewhere and without an objective
	slowed time.Duration // when commits were last slowed; 0: they go as fast as they can, and it was said
}

// acknowledgeSoon is acknowledge behind the delay of now. Acknowledgements are cumulative, so that they may overtake each other.
func (n *Node) acknowledgeSoon(term uint64, m *raftlog.Meta) {
	d := time.Duration(n.flow.delay.Load())
	if d == 0 || uint64(m.Node) != n.id.ID {
		n.acknowledge(term, m)
		return
	}
	h := heldAck{term, raftlog.Meta{Node: m.Node, Incarnation: m.Incarnation, End: m.End}}
	n.flow.mu.Lock()
	n.flow.held = h
	n.flow.mu.Unlock()
	if n.flow.delay.Load() == 0 { // releaseFlow may have passed
		n.acknowledge(term, m)
		return
	}
	time.AfterFunc(d, func() {
		if n.ctx.Err() == nil {
			n.acknowledge(h.term, &h.meta)
		}
	})
}

// releaseFlow acknowledges what is held back. Writes are being closed, which must not wait for followers' sake.
func (n *Node) releaseFlow() {
	n.mu.Lock()
	n.flow.delay.Store(0)
	n.mu.Unlock()
	n.flow.mu.Lock()
	h := n.flow.held
	n.flow.held = heldAck{}
	n.flow.mu.Unlock()
	if h.term != 0 {
		n.acknowledge(h.term, &h.meta)
	}
}

// tendFlow is the loop's part: how much commits are slowed, and on whose account.
func (n *Node) tendFlow() {
	n.mu.Lock()
	defer n.mu.Unlock()
	objective := n.cluster.LagObjective()
	if objective == 0 || !n.takesWritesLocked() {
		n.flow.delay.Store(0)
		n.flow.view, n.flow.slowed = nil, 0
		return
	}
	v := &api.FlowView{ObjectiveSeconds: objective.Seconds()}
	for _, m := range n.cluster.Members {
		p := n.peers[m.ID]
		if p != nil && m.ID != n.id.ID && p.up && now() < p.at+flowHeard && p.status.Lagging.Seconds() > v.BacklogSeconds {
			v.Node, v.BacklogSeconds = m.Name, p.status.Lagging.Seconds()
		}
	}
	d := ha.FlowDelay(objective, secondsOf(v.BacklogSeconds))
	v.DelaySeconds = d.Seconds()
	n.flow.delay.Store(int64(d))
	n.flow.view = v
	switch {
	case d > 0 && n.flow.slowed == 0:
		n.log.Warn("commits are slowed: a follower nears lag_objective", "node", v.Node, "backlog_s", v.BacklogSeconds, "lag_objective", config.Duration(objective).String())
		n.flow.slowed = now()
	case d > 0:
		n.flow.slowed = now()
	case n.flow.slowed != 0 && now() > n.flow.slowed+flowQuiet:
		n.log.Info("commits are not slowed any more")
		n.flow.slowed = 0
	}
}

// laggingLocked is what the leader is asked to mind. A mysqld that has not answered for a while asks for nothing.
func (n *Node) laggingLocked() time.Duration {
	if now() > n.srv.laggingAt+flowHeard {
		return 0
	}
	return n.srv.lagging
}

// tendLag is a follower's part: whether its backlog is the leader's business. Who only stores the log, or has no vote, is waited for by nobody.
func (n *Node) tendLag(f *ha.Laggard) {
	n.mu.Lock()
	m, _ := n.cluster.MemberByID(n.id.ID)
	_, ready := n.readyLocked()
	was := n.srv.lagging
	n.srv.laggingAt = now()
	n.srv.lagging = f.Ask(now(), n.cluster.LagObjective(), n.load.bytes.Load(), uint64(n.srv.backlog.Bytes),
		ready && m.Role == config.RoleVoter && n.serving.phase == ha.PhaseNone)
	n.srv.applyRate = f.Rate()
	told := n.srv.lagging != was
	n.publishNow = n.publishNow || told
	n.mu.Unlock()
	if told {
		n.poke()
	}
}

// catchUpLocked is about how long mysqld needs for so many bytes, in seconds, if nothing is added: as fast as it applied when it last had a backlog, and what
// is known of large transactions and DDL. nil: not known.
func (n *Node) catchUpLocked(bytes uint64) *float64 {
	s := 0.0
	switch {
	case bytes == 0:
	case n.srv.applyRate == 0 || n.delayLocked() > 0:
		return nil
	default:
		s = max(float64(bytes)/n.srv.applyRate, n.srv.heavy.Seconds())
	}
	return &s
}
