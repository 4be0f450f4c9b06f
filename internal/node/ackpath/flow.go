package ackpath

import (
	"sync"
	"sync/atomic"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/ha"
	"trireme/internal/core/raftlog"
)

// flowQuiet is for how long commits have not been slowed when that is said.
const flowQuiet = 10 * time.Second

// flow holds the OKs of commits back for lag_objective (ha.FlowDelay). Without a delay the commit path reads one
// number.
type flow struct {
	delay atomic.Int64 // ns

	mu     sync.Mutex
	held   held          // the newest that was held back
	view   *api.FlowView // as status shows it; nil: nothing is slowed
	slowed time.Duration // when commits were last slowed (CLOCK_BOOTTIME); 0: they are not, and it was said
}

// Slowing is a change that Slow made.
type Slowing int

// Changes that Slow makes.
const (
	SlowingSame Slowing = iota
	SlowingBegan
	SlowingEnded
)

// Slow sets by how much commits are slowed. backlog is what the slowest node still has to apply, as it
// asks for.
func (p *Path) Slow(objective time.Duration, node string, backlog time.Duration) Slowing {
	d := ha.FlowDelay(objective, backlog)
	f := &p.flow
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delay.Store(int64(d))
	f.view = &api.FlowView{ObjectiveSeconds: objective.Seconds(), Node: node, BacklogSeconds: backlog.Seconds(),
		DelaySeconds: d.Seconds()}
	switch {
	case d > 0 && f.slowed == 0:
		f.slowed = p.clock.Now()
		return SlowingBegan
	case d > 0:
		f.slowed = p.clock.Now()
	case f.slowed != 0 && p.clock.Now() > f.slowed+flowQuiet:
		f.slowed = 0
		return SlowingEnded
	}
	return SlowingSame
}

// SlowNothing is for a node that takes no writes, and a cluster without an objective.
func (p *Path) SlowNothing() {
	p.flow.mu.Lock()
	defer p.flow.mu.Unlock()
	p.flow.delay.Store(0)
	p.flow.view, p.flow.slowed = nil, 0
}

// Flow is what status shows, nil when nothing is slowed.
func (p *Path) Flow() *api.FlowView {
	p.flow.mu.Lock()
	defer p.flow.mu.Unlock()
	return p.flow.view
}

// Delay is by how much commits are slowed.
func (p *Path) Delay() time.Duration { return time.Duration(p.flow.delay.Load()) }

// acknowledgeSoon is Acknowledge after the delay of now.
func (p *Path) acknowledgeSoon(term uint64, m *raftlog.Meta) {
	d := p.Delay()
	if d == 0 || uint64(m.Node) != p.self {
		p.Acknowledge(term, m)
		return
	}
	h := holdBack(term, m)
	p.flow.mu.Lock()
	p.flow.held = h
	p.flow.mu.Unlock()
	if p.Delay() == 0 { // ReleaseSlowed may have passed
		p.Acknowledge(term, m)
		return
	}
	p.clock.AfterFunc(d, func() { p.Acknowledge(h.term, &h.meta) })
}

// ReleaseSlowed acknowledges what is held back. Writes are being closed, which must not wait for the sake of followers.
func (p *Path) ReleaseSlowed() {
	p.flow.mu.Lock()
	p.flow.delay.Store(0)
	h := p.flow.held
	p.flow.held = held{}
	p.flow.mu.Unlock()
	if h.term != 0 {
		p.Acknowledge(h.term, &h.meta)
	}
}
