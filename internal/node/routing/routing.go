// Package routing is where a member's router leads clients, and what the routers of all members have told of their
// sessions.
//
// Whom it leads to follows from what members say of themselves (gossip): who says that its writes are open in the
// highest term takes writes, and who is healthy is read from. A router without a member asks one for the same (Route).
package routing

import (
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/failpoint"
	"trireme/internal/node/gossip"
)

// Host is the rest of the member.
type Host interface {
	Settings() *config.Cluster
	// Status is what this member tells others of itself.
	Status() gossip.Status
	// Term is the newest that this member knows of.
	Term() uint64
	// Lags is how far the members' mysqlds lag; math.MaxInt64: it is not known.
	Lags() map[string]time.Duration
	// Proof is how this member's mysqld is known.
	Proof() *api.MySQLProof
	// Held is the attempt of a switchover for which sessions are held (leadership.Held).
	Held() uint64
	// Generation of the cluster (recovery.Generation).
	Generation() uint64
}

// Routing is of one member. Its methods may be called from any goroutine, but for Start and Close.
type Routing struct {
	// Elsewhere are routers without a member that follow this one.
	Elsewhere api.Routers

	id     config.Identity
	gossip *gossip.Gossip
	host   Host
	router *router.Router
	lags   bool // the router goes by lags
	news   news

	mu   sync.Mutex // never held over a call of the host
	told Told
}

// Told is what this member's router tells of itself.
type Told struct {
	Term    uint64  // of the leader that it leads to; 0: none
	Quiet   uint64  // term of the leader whose sessions it holds, with nothing under way; 0: none
	Follows bool    // it may have sessions that can be held
	Clients Clients // when this member's status was last due: the router looks at each session for it
}

// Clients is what a router counted.
type Clients struct {
	Connections int
	Followed    int                     // of the read-write and the splitting port
	Tied        map[string]int          // never changed
	Ports       map[string]api.PortView // never changed
}

// New makes the part of a member whose router does not run.
func New(id config.Identity, g *gossip.Gossip, host Host) *Routing {
	return &Routing{id: id, gossip: g, host: host}
}

// Start starts the router. goesByLags: it leaves out followers that lag.
func (r *Routing) Start(c router.Config, goesByLags bool) error {
	r.router, r.lags = router.New(c), goesByLags
	return r.router.Start()
}

// Close ends the router, if there is one.
func (r *Routing) Close() {
	if r.router != nil {
		r.router.Close()
	}
}

// Streams says whether the router has a port for the change stream.
func (r *Routing) Streams() bool { return r.router.StreamAddr() != "" }

// Stats are the router's counters.
func (r *Routing) Stats() router.Stats { return r.router.Stats() }

// Told is what the router tells of itself now.
func (r *Routing) Told() Told {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told
}

// Update points the router at the leader and the followers, as members tell now.
func (r *Routing) Update() {
	failpoint.Hit("routes.before-view")
	v, term := r.RouterView(r.host.Status())
	r.Leads(term)
	if r.lags {
		r.router.SetLags(r.host.Lags())
	}
	r.router.SetProofs(r.proofs())
	r.router.SetView(v)
	r.news.tell(v)
	quiet, follows := uint64(0), r.router.Follows()
	if r.router.Quiet() {
		quiet = r.host.Term()
	}
	r.change(func(t *Told) bool {
		changed := t.Quiet != quiet || t.Follows != follows
		t.Quiet, t.Follows = quiet, follows
		return changed
	})
}

// Leads notes that the router leads to the leader of a term; 0: to none.
func (r *Routing) Leads(term uint64) {
	r.change(func(t *Told) bool {
		changed := t.Term != term
		t.Term = term
		return changed
	})
}

// change changes what is told; others are told at once if f says that they wait for it.
func (r *Routing) change(f func(*Told) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f(&r.told) {
		r.gossip.Publish()
	}
}

// Followed says whether there are routers whose sessions a switchover can hold.
func (r *Routing) Followed() bool {
	if r.Told().Follows || r.Elsewhere.Any() {
		return true
	}
	for _, p := range r.gossip.Peers() {
		if p.Fresh() && p.Follows {
			return true
		}
	}
	return false
}

// Quiet says whether nothing is under way on any router that holds its sessions in a term, for an attempt of a
// switchover.
func (r *Routing) Quiet(hold, term uint64) bool {
	all := r.router.Quiet() && r.Elsewhere.AllQuiet(hold)
	for _, p := range r.gossip.Peers() {
		all = all && (!p.Fresh() || p.Quiet == term)
	}
	return all
}

// IsQuiet says whether nothing is under way on this member's router.
func (r *Routing) IsQuiet() bool { return r.router.Quiet() }

// Count counts the router's clients.
func (r *Routing) Count() {
	s := r.router.Stats()
	c := Clients{Followed: s.RW.Followed + s.Split.Followed, Tied: s.TiedBy, Ports: map[string]api.PortView{}}
	for port, p := range map[string]router.PortStats{"rw": s.RW, "ro": s.RO, "split": s.Split, "stream": s.Stream} {
		c.Ports[port] = api.PortView{Sessions: p.Followed + p.Tied, Waiting: p.Held, Tied: p.Tied}
	}
	for _, p := range []router.PortStats{s.RW, s.RO, s.Split, s.SplitReads, s.Stream} {
		c.Connections += p.Open
	}
	r.Counted(c)
}

// Counted notes what the router counted.
func (r *Routing) Counted(c Clients) {
	r.change(func(t *Told) bool {
		t.Clients = c
		return false
	})
}

// Tied is what a planned switchover would end now, as far as members' routers told: why, and how many.
func (r *Routing) Tied() map[string]int { return api.TiedSessions(r.views()...) }

// Moves is how many sessions a planned switchover moves now, as far as members' routers told.
func (r *Routing) Moves() int { return api.FollowedSessions(r.views()...) }

// views is what the routers of the members that are heard have told last of their sessions.
func (r *Routing) views() []api.RouterView {
	r.Count()
	c := r.Told().Clients
	views := []api.RouterView{{TiedSessions: c.Tied, FollowedSessions: c.Followed}}
	for _, s := range r.gossip.Members() {
		views = append(views, s.Member.Router)
	}
	return views
}

// RouterView is where the router leads, and the term of that leader, 0: none; self is what this member tells of itself.
// The leader is who says that its writes are open in the highest term, unless this member knows of a newer one. That
// this member knows no leader makes no other one: what it heard last may be seconds old.
func (r *Routing) RouterView(self gossip.Status) (v router.View, term uint64) {
	var best gossip.Status
	all := append([]gossip.Status{self}, r.gossip.Members()...)
	for _, s := range all {
		if s.OpenTerm > best.OpenTerm && s.Member.MySQL != nil {
			best = s
		}
		v.KeepRW = v.KeepRW || s.Handover
	}
	if best.OpenTerm != 0 && best.OpenTerm >= r.host.Term() {
		v.RW, term = target(best), best.OpenTerm
	}
	for _, s := range all {
		if s.Ready && s.OpenTerm == 0 && !s.Handover && s.Member.State == api.StateHealthy && s.Member.MySQL != nil {
			v.RO = append(v.RO, *target(s))
		}
	}
	slices.SortFunc(v.RO, func(a, b router.Target) int { return strings.Compare(a.Name, b.Name) })
	return v, term
}

func target(s gossip.Status) *router.Target {
	m := s.Member.MySQL
	return &router.Target{Name: s.Member.Name, Addr: net.JoinHostPort(m.Host, strconv.Itoa(m.Port)), Epoch: s.Epoch}
}

// Route implements api.Backend. The view is made again for each call, so that a loop of this member that hangs passes
// nothing old off as new.
func (r *Routing) Route() (api.RouteView, <-chan struct{}) {
	changed := r.news.next() // before the view is made: no change is missed
	self := r.host.Status()
	v, _ := r.RouterView(self)
	out := api.RouteView{Cluster: r.id.Cluster, Node: r.id.Name, Generation: r.host.Generation(),
		Term: self.Member.Raft.Term, KeepRW: v.KeepRW, RO: []api.RouteTarget{}, Lags: map[string]float64{},
		Proofs: r.proofs()}
	for name, lag := range r.host.Lags() {
		if lag != math.MaxInt64 {
			out.Lags[name] = lag.Seconds()
		}
	}
	if self.Handover {
		out.Hold = r.host.Held()
	}
	if v.RW != nil {
		out.RW = (*api.RouteTarget)(v.RW)
	}
	for _, t := range v.RO {
		out.RO = append(out.RO, api.RouteTarget(t))
	}
	c := r.host.Settings()
	for _, m := range c.Members {
		out.Nodes = append(out.Nodes, api.RouteNode{Name: m.Name, API: m.API, ID: m.ID,
			Revoked: c.WhyRevoked(m.ID, "") != ""})
	}
	out.Next = c.NextID
	for _, c := range c.RevokedCerts {
		if c.Serial != "" {
			out.Revoked = append(out.Revoked, c.Serial)
		}
	}
	return out, changed
}

// proofs are how routers know the members' mysqlds, as those members say. Those of older ones are not in it.
func (r *Routing) proofs() map[string]api.MySQLProof {
	all := map[string]api.MySQLProof{}
	if r.id.Role != config.RoleLogger {
		all[r.id.Name] = *r.host.Proof()
	}
	for id, p := range r.gossip.Peers() {
		m, member := r.host.Settings().MemberByID(id)
		if proof := p.Proof(); member && proof != nil {
			all[m.Name] = *proof
		}
	}
	return all
}
