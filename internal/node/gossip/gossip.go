package gossip

import (
	"encoding/json"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/run"
	"trireme/internal/core/ledger"
	"trireme/internal/core/transport"
)

const (
	// Interval: the status of a node goes to all others at least this often.
	Interval = time.Second
	// Lifetime is for how long a status can be relied on.
	Lifetime = 3500 * time.Millisecond
	// Grace is for members whose first status is on its way to this one or to a new leader, and for restarts that an
	// operator need not know of.
	Grace = 2 * Lifetime
)

// Host is the rest of the member.
type Host interface {
	Settings() *config.Cluster
	// Links is nil as long as the node starts.
	Links() Links
	// Status is what this node tells of itself.
	Status() Status
	// Heard is called for each status that arrives, one at a time.
	Heard(p *Peer)
	WakeLoop()
}

// Links are those to the other members (transport.Transport).
type Links interface {
	Broadcast(status []byte)
	RTT(id uint64) transport.RTT
	Silence(id uint64) (time.Duration, bool)
}

// Gossip is of one member. Its methods may be called from any goroutine, but for Due, which is the loop's.
type Gossip struct {
	cfg   config.Node
	id    config.Identity
	led   *ledger.Ledger
	clock run.Clock
	host  Host
	log   *slog.Logger

	changed atomic.Bool   // this node's status has, in a way that others wait for
	told    time.Duration // when it was told last

	peers   atomic.Pointer[Peers]
	least   atomic.Int64 // the shortest election timeout of any member that is known, ns
	raft    atomic.Int64 // CLOCK_BOOTTIME of the last raft message of the leader, ns
	hearing sync.Mutex   // held while a status is taken

	mu      sync.Mutex // held while peers is replaced; never over a call of the host
	leader  uint64     // whom this node follows, by raft id; 0: none is known
	awaited notYetReceived
	past    past
	archive *api.BackupArchive
}

// New makes what a member knows when it starts: what its life before has written down.
func New(cfg config.Node, id config.Identity, led *ledger.Ledger, clock run.Clock, host Host,
	log *slog.Logger) *Gossip {
	g := &Gossip{cfg: cfg, id: id, led: led, clock: clock, host: host, log: log}
	g.peers.Store(&Peers{})
	g.least.Store(int64(cfg.Raft.ElectionTimeout()))
	g.loadOpen()
	return g
}

// Publish sends this node's status to the others at the loop's next turn.
func (g *Gossip) Publish() { g.changed.Store(true) }

// Due says whether it is time to tell the others.
func (g *Gossip) Due() bool {
	if !g.changed.Swap(false) && g.now() <= g.told+Interval {
		return false
	}
	g.told = g.now()
	return true
}

// Broadcast tells all peers this node's status.
func (g *Gossip) Broadcast() {
	b, err := json.Marshal(g.host.Status())
	if err != nil {
		g.log.Error("encoding the status", "err", err)
		return
	}
	g.host.Links().Broadcast(b)
}

// Peers is what is known of the other members.
func (g *Gossip) Peers() Peers { return *g.peers.Load() }

// LeastTimeout is the shortest election timeout of any member that is known, which bounds every lease.
func (g *Gossip) LeastTimeout() time.Duration { return time.Duration(g.least.Load()) }

// Clocks are what to add to each peer's time of day for this host's.
func (g *Gossip) Clocks() map[uint64]time.Duration {
	all := map[uint64]time.Duration{}
	for id, p := range g.Peers() {
		if d, known := p.ahead.get(); known {
			all[id] = d
		}
	}
	return all
}

// Awaiting is how long this node has waited for the oldest commit that the leader has reported and that is not here.
func (g *Gossip) Awaiting() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.awaited.have(g.led.Index())
	return g.awaited.age(g.now())
}

// Hear takes a peer's status.
func (g *Gossip) Hear(from uint64, payload []byte) {
	var s Status
	if err := json.Unmarshal(payload, &s); err != nil {
		g.log.Warn("a peer's status is not readable", "peer", from, "err", err)
		return
	}
	g.Take(from, s)
}

// Take takes what Hear has read.
func (g *Gossip) Take(from uint64, s Status) {
	g.hearing.Lock()
	defer g.hearing.Unlock()
	way := time.Duration(0)
	if links := g.host.Links(); links != nil {
		way = links.RTT(from).Median / 2
	}
	g.mu.Lock()
	before := g.Peers()[from]
	if before == nil {
		before = &Peer{Up: true, clock: g.clock}
	}
	p := before.heard(s, way)
	g.put(from, p)
	if from == g.leader && !s.Clock.IsZero() {
		g.awaited.told(s.Member.Raft.Commit, g.led.Index(), g.now())
	}
	if s.OpenTerm != 0 {
		g.opened(from, s.OpenTerm)
	}
	g.mu.Unlock()
	least := g.cfg.Raft.ElectionTimeout()
	for _, m := range g.host.Settings().Members {
		if p := g.Peers()[m.ID]; p != nil && p.Timeout > 0 {
			least = min(least, p.Timeout)
		}
	}
	g.least.Store(int64(least))
	g.host.Heard(p)
	if before.differs(p) {
		g.host.WakeLoop()
	}
}

// Up notes that a peer's link works.
func (g *Gossip) Up(id uint64) {
	g.change(id, func(p *Peer) {
		if p.Gone {
			p.At = g.now() - Lifetime // its former life said that: what this one has is not known yet
		}
		p.Up, p.Gone = true, false
	})
}

// Down notes that a peer's link broke, and whether its daemon has ended for sure.
func (g *Gossip) Down(id uint64, gone bool) {
	g.change(id, func(p *Peer) { p.Up, p.Gone = false, gone })
	g.mu.Lock()
	defer g.mu.Unlock()
	if gone && g.past.open.id == id {
		g.past.open.cause = "its daemon ended"
	}
}

// change makes another record of a peer that was heard of, and has others told what this node sees now.
func (g *Gossip) change(id uint64, f func(*Peer)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if before := g.Peers()[id]; before != nil {
		p := *before
		f(&p)
		g.put(id, &p)
	}
	g.Publish()
}

// put replaces what is known of a peer. mu is held.
func (g *Gossip) put(id uint64, p *Peer) {
	next := maps.Clone(g.Peers())
	next[id] = p
	g.peers.Store(&next)
}

// View is another member as this node knows it: as it told, or nothing but what its settings say.
func (g *Gossip) View(m config.Member) api.MemberView {
	p := g.Peers()[m.ID]
	var v api.MemberView
	switch fresh := p.Fresh(); {
	case m.Pending && !fresh:
		v = api.DownView(m, "it has joined and was never started; start its daemon, or take it out with `trireme remove "+
			m.Name+"`")
		v.ReasonCode = api.NeverStarted
	case !fresh:
		v = api.DownView(m, p.Silence())
		if p != nil {
			v.Raft = p.Member.Raft
		}
	case g.Silent(m.ID):
		v = p.unknownView()
	default:
		v = p.agedView()
	}
	if p != nil {
		age := (g.now() - p.At).Seconds()
		v.AgeSeconds = &age
	}
	return v
}

// silentLimit is after how long without a sign of life a member is shown as unknown: three of its answers to pings are
// missing.
const silentLimit = 1500 * time.Millisecond

// Silent says whether a member that was heard of has given no sign of life for so long that what it told last may not
// be so any more. It is for what people see: elections and fences go by raft and its leases.
func (g *Gossip) Silent(id uint64) bool {
	p := g.Peers()[id]
	if p == nil {
		return false
	}
	silence := g.now() - p.At
	if links := g.host.Links(); links != nil {
		if d, known := links.Silence(id); known {
			silence = min(silence, d)
		}
	}
	return silence > silentLimit
}

// Hears is another member that tells of itself now; nil: it does not.
func (g *Gossip) Hears(id uint64) *Peer {
	if p := g.Peers()[id]; p.Fresh() && !g.Silent(id) {
		return p
	}
	return nil
}

// Doubt says that another node still hears a leader whom this one does not; empty: none does.
func (g *Gossip) Doubt(term uint64) string {
	c := g.host.Settings()
	for _, m := range c.Members {
		p := g.Hears(m.ID)
		if p == nil || p.Leader == m.ID || p.Member.Raft.Term < term {
			continue
		}
		if leader, ok := c.MemberByID(p.Leader); ok && leader.ID != g.id.ID && g.Hears(leader.ID) == nil {
			return g.id.Name + " does not hear " + leader.Name + ", whom " + m.Name + " follows"
		}
	}
	return ""
}

// Members are the statuses of members that can be relied on.
func (g *Gossip) Members() (all []Status) {
	c := g.host.Settings()
	for id, p := range g.Peers() {
		if _, member := c.MemberByID(id); member && p.Fresh() {
			all = append(all, p.Status)
		}
	}
	return all
}

// now is CLOCK_BOOTTIME.
func (g *Gossip) now() time.Duration { return g.clock.Now() }
