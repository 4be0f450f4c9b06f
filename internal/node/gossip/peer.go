package gossip

import (
	"fmt"
	"maps"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
)

// Peers are the other members that were heard of, by raft id. It never changes.
type Peers map[uint64]*Peer

// Peer is another member as this node knows it; nil: it has not been heard of. It never changes: another one takes its
// place.
type Peer struct {
	Status
	At     time.Duration // when the status came, by CLOCK_BOOTTIME
	OpenAt time.Duration // when it first said OpenTerm
	Since  time.Duration // since when it has been fresh and ready
	LeftAt time.Duration // when it stopped taking writes, as Left says
	Up     bool          // its link is up
	Gone   bool          // its daemon has ended for sure, and has not been heard of since

	ahead clockDifference
	clock run.Clock // of this host; nil: the real one
}

// time is this host's.
func (p *Peer) time() run.Clock {
	if p.clock == nil {
		return run.Real{Boottime: consensus.Boottime}
	}
	return p.clock
}

// now is CLOCK_BOOTTIME.
func (p *Peer) now() time.Duration { return p.time().Now() }

// Fresh says whether what the peer said last can still be relied on.
func (p *Peer) Fresh() bool { return p != nil && p.Up && p.now() < p.At+Lifetime }

// Silence says for how long it has not been heard of.
func (p *Peer) Silence() string {
	if p == nil {
		return "it has not been heard of since this daemon started"
	}
	return fmt.Sprintf("not heard of for %.1f s", (p.now() - p.At).Seconds())
}

// heard is the peer after another status, which was on its way for some time.
func (p *Peer) heard(s Status, way time.Duration) *Peer {
	next := *p
	if s.Ready && !(p.Ready && p.Fresh()) {
		next.Since = p.now()
	}
	if s.OpenTerm != 0 && p.OpenTerm != s.OpenTerm {
		next.OpenAt = p.now()
	}
	if s.Left.Term != 0 && (p.LeftAt == 0 || s.Left.Term != p.Left.Term) {
		next.LeftAt = p.now() - s.Left.Ago
	}
	if !s.Clock.IsZero() { // else it is an older version's
		next.ahead.heard(s.Clock, p.time().Wall(), way)
	}
	next.Status, next.At, next.Up, next.Gone = s, p.now(), true, false
	return &next
}

// differs says whether the loop has to look at once at what a peer says now.
func (p *Peer) differs(q *Peer) bool {
	return p.OpenTerm != q.OpenTerm || p.Ready != q.Ready || p.Handover != q.Handover || p.Epoch != q.Epoch ||
		p.Member.State != q.Member.State || !maps.Equal(p.Reads, q.Reads) || p.Lagging != q.Lagging || !p.Up
}

// Lag is how far a peer's mysqld lags by now; false: it does not know.
func (p *Peer) Lag() (time.Duration, bool) {
	if my := p.Member.MySQL; my != nil && my.LagSeconds != nil {
		return agedLag(time.Duration(*my.LagSeconds*float64(time.Second)), p.now()-p.At), true
	}
	return 0, false
}

// Proof is how its mysqld is known; nil: it has none, or it is an older node's.
func (p *Peer) Proof() *api.MySQLProof {
	if p == nil || p.Member.MySQL == nil {
		return nil
	}
	return p.Member.MySQL.Proof
}

// agedView is a peer's own report, with its lag as of now.
func (p *Peer) agedView() api.MemberView {
	m := p.Member
	if lag, known := p.Lag(); known && m.Role != api.RoleLeader {
		my, s := *m.MySQL, lag.Seconds()
		my.LagSeconds, m.MySQL = &s, &my
	}
	return m
}

// unknownView is a peer that has just fallen silent: what it is stays, all else is not known.
func (p *Peer) unknownView() api.MemberView {
	m, r := p.Member, p.Member.Router
	v := api.MemberView{Name: m.Name, Role: m.Role, State: api.StateUnknown, ReasonCode: ha.Unreachable,
		Reason: "it has fallen silent; " + p.Silence(), Raft: m.Raft, Delay: m.Delay, Daemon: m.Daemon,
		Router: api.RouterView{RWPort: r.RWPort, ROPort: r.ROPort, SplitPort: r.SplitPort, StreamPort: r.StreamPort}}
	if m.MySQL != nil {
		my := *m.MySQL
		my.LagSeconds, my.LagBytes, my.CatchUpSeconds = nil, nil, nil
		v.MySQL = &my
	}
	return v
}
