package node

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/consensus"
	"trireme/internal/failpoint"
	"trireme/internal/ha"
	"trireme/internal/node/certs"
	"trireme/internal/node/reads"
	"trireme/internal/router"
)

// status is what each daemon tells all others, at every change that they wait for and a few times a second.
type status struct {
	Member    api.MemberView `json:"member"`
	Leader    uint64         `json:"leader"`               // raft id, 0 when it knows none
	OpenTerm  uint64         `json:"open_term"`            // its mysqld takes writes in this term; 0: it does not
	Handover  bool           `json:"handover"`             // a planned switchover is under way: hold, do not cut
	Ready     bool           `json:"ready"`                // its mysqld is judged and fed
	Unready   ha.Reason      `json:"unready"`              // not Ready: why
	Rate      float64        `json:"rate"`                 // entries per second that its mysqld applied when it last had a backlog; 0: not known
	Heavy     time.Duration  `json:"heavy_ns,omitempty"`   // about how long its mysqld needs for what is heavy in its backlog
	LargeRate float64        `json:"large_rate,omitempty"` // bytes per second of large transactions that its mysqld applies; 0: not known
	Lagging   time.Duration  `json:"lagging_ns,omitempty"` // how long its backlog will take, when the leader should mind it (ha.Laggard)
	Flow      *api.FlowView  `json:"flow,omitempty"`       // of the leader
	Clock     time.Time      `json:"clock,omitzero"`       // its time of day as this is sent
	Epoch     string         `json:"epoch"`                // of its mysqld, for routers
	Left      leave          `json:"left"`                 // when and why it last stopped taking writes
	Routed    uint64         `json:"routed"`               // term of the leader that its router leads to; 0: none
	Quiet     uint64         `json:"quiet,omitempty"`      // term of the leader whose sessions its router holds, with nothing under way; 0: none
	Follows   bool           `json:"follows,omitempty"`    // its router follows sessions that write
	History   uint64         `json:"history"`              // digest of the history that it knows; 0: none
	Seen      openSeen       `json:"open_seen,omitzero"`   // when it last knew somebody to take writes
	Full      bool           `json:"full"`                 // a disk is nearly full: it should not lead
	Settings  uint64         `json:"settings"`             // version of the cluster settings it has
	// Rules are the commit rules as they are on the leader; nil elsewhere and without any.
	Rules    *api.CommitRulesView `json:"rules,omitempty"`
	Timeout  time.Duration        `json:"election_timeout_ns"` // its raft.election_timeout_ms
	KeepFrom uint64               `json:"keep_from"`           // lowest index that its recovery may need (S8); 0: not known
	// Reads says who is to hold which read-only virtual address, as the leader gives them: address to raft id; nil: it gives none.
	Reads map[string]uint64 `json:"reads,omitempty"`
	CA    certs.Status      `json:"ca,omitzero"`
	// Bound says why its raft log should take no more; empty: it has room.
	Bound string `json:"bound,omitempty"`
}

// peer is another member as this node knows it.
type peer struct {
	status status
	at     time.Duration // when the status came
	openAt time.Duration // when it first said OpenTerm
	since  time.Duration // since when it has been fresh and ready
	leftAt time.Duration // when it stopped taking writes, as status.Left says
	clock  clockDifference
	up     bool // its link is up
	gone   bool // its daemon has ended for sure, and has not been heard of since
}

// fresh says whether what the peer said last can still be relied on.
func (p *peer) fresh() bool { return p.up && now() < p.at+statusLifetime }

// incarnation of the peer's mysqld, 0 while it has none.
func (s *status) incarnation() uint64 {
	text, _, _ := strings.Cut(s.Epoch, "/")
	i, _ := strconv.ParseUint(text, 10, 64)
	return i
}

// myStatus is what this node tells the others.
func (n *Node) myStatus() status {
	st := n.cons.Status()
	sum := n.history.sum()
	n.mu.Lock()
	defer n.mu.Unlock()
	s := status{Clock: time.Now(), History: sum, Routed: n.routed, Quiet: n.quiet, Follows: n.follows, Leader: st.Leader, Member: n.selfViewLocked(&st), KeepFrom: n.lives.KeepFrom(), Rate: n.srv.rate,
		Heavy: n.srv.heavy, LargeRate: n.srv.largeRate, Lagging: n.laggingLocked(), Flow: n.acks.Flow(),
		Settings: n.cluster.Version, Full: n.full != "", Timeout: n.cfg.Raft.ElectionTimeout(), Bound: n.bound, Reads: n.readsLocked(), CA: n.certs.Status(n.srv.Life() != nil)}
	s.Unready, s.Ready = n.readyLocked()
	if s.Left = n.left; s.Left.Term != 0 {
		s.Left.Ago = now() - n.leftAt
	}
	s.Seen = n.openSeen
	if st.Role == consensus.Leader {
		s.Rules = n.acks.Rules()
	}
	s.Handover = n.leadsLocked(&st) && n.serving.Phase() == ha.PhaseHandover && n.serving.Closing()
	s.OpenTerm, s.Epoch = n.epochLocked(&st)
	return s
}

// epochLocked names what mysqld serves now: its incarnation, and the term in which it takes writes, if it does.
func (n *Node) epochLocked(st *consensus.Status) (openTerm uint64, epoch string) {
	if l := n.srv.Life(); l != nil {
		epoch = fmt.Sprint(l.Incarnation)
	}
	if !n.leadsLocked(st) || !n.serving.TakesWrites() {
		return 0, epoch
	}
	return n.serving.Term(), fmt.Sprintf("%s/%d", epoch, n.serving.Term())
}

// readyLocked says whether this node's mysqld is judged and fed, and if not why.
func (n *Node) readyLocked() (ha.Reason, bool) {
	return ha.Unready(n.serverViewLocked(), n.logStuck.Why, n.stopping, now())
}

// leadsLocked says whether this node is the leader in the term in which its mysqld serves.
func (n *Node) leadsLocked(st *consensus.Status) bool {
	return st.Role == consensus.Leader && n.serving.Term() == st.Term && n.serving.Phase() != ha.PhaseFencing && n.serving.Phase() != ha.PhaseNone
}

func (n *Node) selfViewLocked(st *consensus.Status) api.MemberView {
	first, _ := n.rlog.FirstIndex()
	m := api.MemberView{Name: n.id.Name, Role: n.roleLocked(st),
		Raft: api.RaftView{ID: n.id.ID, State: st.Role.String(), Term: st.Term, Voter: contains(st.Voters, n.id.ID),
			Match: st.Durable, First: first, Last: st.LastIndex, LogBytes: n.rlog.Size(), LogPinned: n.pinned, Commit: st.Commit, Applied: n.srv.backlog.Applied, Durable: n.local.get().Durable},
		Router: api.RouterView{RWPort: n.cfg.Router.RWPort, ROPort: n.cfg.Router.ROPort, SplitPort: n.cfg.Router.SplitPort, StreamPort: n.cfg.Router.StreamPort,
			Connections: n.clients.connections, TiedSessions: n.clients.tied},
		Daemon: api.DaemonView{PID: os.Getpid(), Version: n.version, API: n.cfg.API.Advertise, Peer: n.cfg.Peer.Advertise},
	}
	m.State, m.Reason = n.stateLocked()
	m.DiskFull = n.fullDir
	if why, ok := n.readyLocked(); !ok && n.id.Role != config.RoleLogger {
		m.ReasonCode = why.Code
	}
	if f := n.srv.failure; f != nil {
		m.ApplyError = &f.view
	}
	m.Seed = n.seedViewLocked()
	m.Links, m.Warnings = n.links.views, n.warningsLocked()
	m.VIPs = n.vip.views
	m.Heavy = n.heavyLocked()
	m.Delay = n.delayViewLocked()
	if n.srv.Problem() != "" && n.srv.Problem() != m.Reason && n.srv.State() != ha.ServerReady {
		m.Reason += ": " + n.srv.Problem()
	}
	if c, ok := n.cluster.MemberByID(n.id.ID); ok {
		m.Raft.Weight = c.Weight
	}
	if n.id.Role == config.RoleLogger {
		m.Raft.Applied = st.Applied
		return m
	}
	my := &api.MySQLView{Host: n.cfg.MySQLHost(), Port: n.cfg.MySQL.Port, Version: n.bin.Version.String(), ReadOnly: true}
	my.Proof = n.certs.Proof()
	if l := n.srv.Life(); l != nil {
		my.PID = l.Process().Pid()
		_, my.Epoch = n.epochLocked(st)
		my.GTIDExecuted, my.ReadOnly = l.Executed().String(), l.ReadOnly()
		if n.srv.State() == ha.ServerReady {
			behind, bytes := n.lagLocked()
			lag := behind.Seconds()
			if n.hearsLeaderLocked(st) {
				my.LagSeconds, my.LagBytes, my.CatchUpSeconds = &lag, &bytes, n.catchUpLocked(bytes)
			}
		}
	}
	m.MySQL = my
	return m
}

// stateLocked is this node's state as it is told, and why. A node is healthy while its log and its applier move.
func (n *Node) stateLocked() (state, reason string) {
	if n.srv.applier != "" {
		return api.StateCatchingUp, n.srv.applier
	}
	if d := n.stalledLocked(); d > 0 && n.stateName == api.StateHealthy {
		return api.StateCatchingUp, fmt.Sprintf("mysqld has applied nothing for %.0f s, and %.1f MiB wait for it",
			d.Seconds(), float64(n.srv.backlog.Bytes)/(1<<20))
	}
	return n.stateName, n.why
}

func (n *Node) roleLocked(st *consensus.Status) string {
	switch {
	case n.id.Role == config.RoleLogger:
		return api.RoleLogger
	case n.leadsLocked(st) && n.serving.Phase() != ha.PhasePromoting:
		return api.RoleLeader
	case st.Learner:
		return api.RoleLearner
	}
	return api.RoleFollower
}

// broadcastStatus tells all peers.
func (n *Node) broadcastStatus() {
	b, err := json.Marshal(n.myStatus())
	if err != nil {
		n.log.Error("encoding the status", "err", err)
		return
	}
	n.tr.Broadcast(b)
}

// HandleStatus takes a peer's status.
func (n *Node) HandleStatus(from uint64, payload []byte) {
	if !n.isUp() {
		return
	}
	var s status
	if err := json.Unmarshal(payload, &s); err != nil {
		n.log.Warn("a peer's status is not readable", "peer", from, "err", err)
		return
	}
	n.mu.Lock()
	p := n.peers[from]
	if p == nil {
		p = &peer{up: true}
		n.peers[from] = p
	}
	changed := p.status.OpenTerm != s.OpenTerm || p.status.Ready != s.Ready || p.status.Handover != s.Handover ||
		p.status.Epoch != s.Epoch || p.status.Member.State != s.Member.State || !maps.Equal(p.status.Reads, s.Reads) || p.status.Lagging != s.Lagging || !p.up
	if s.Ready && !(p.status.Ready && p.fresh()) {
		p.since = now()
	}
	if s.OpenTerm != 0 && p.status.OpenTerm != s.OpenTerm {
		p.openAt = now()
	}
	if s.Left.Term != 0 && (p.leftAt == 0 || s.Left.Term != p.status.Left.Term) {
		p.leftAt = now() - s.Left.Ago
	}
	p.status, p.at, p.up, p.gone = s, now(), true, false
	n.noteTimeoutsLocked()
	n.noteClockLocked(from, p, &s)
	if s.OpenTerm != 0 {
		n.noteOpenLocked(from, s.OpenTerm)
	}
	n.mu.Unlock()
	if s.Rules != nil {
		n.acks.HeardRules(s.Member.Raft.Term, s.Rules)
	}
	if changed {
		n.poke()
	}
}

// routes points this node's router at the leader and the followers.
func (n *Node) routes() {
	failpoint.Hit("routes.before-view")
	self := n.myStatus()
	n.mu.Lock()
	v, term := n.routerViewLocked(self)
	proofs := n.proofsLocked()
	if term != n.routed {
		n.routed, n.publishNow = term, true
	}
	n.mu.Unlock()
	if n.cfg.Router.MaxLag > 0 {
		n.router.SetLags(n.followerLags())
	}
	n.router.SetProofs(proofs)
	n.router.SetView(v)
	n.news.tell(v)
	held, follows := n.router.Quiet(), n.router.Follows()
	n.mu.Lock()
	if follows != n.follows {
		n.follows, n.publishNow = follows, true
	}
	quiet := uint64(0)
	if held {
		quiet = n.raft.Term
	}
	if quiet != n.quiet {
		n.quiet, n.publishNow = quiet, true
	}
	n.mu.Unlock()
}

// clients is what the router counted when this node's status was last due: it looks at each session for it.
type clients struct {
	connections int
	tied        map[string]int          // never changed
	ports       map[string]api.PortView // never changed
}

func (n *Node) countClients() {
	s := n.router.Stats()
	c := clients{tied: s.TiedBy, ports: map[string]api.PortView{}}
	for port, p := range map[string]router.PortStats{"rw": s.RW, "ro": s.RO, "split": s.Split, "stream": s.Stream} {
		c.ports[port] = api.PortView{Sessions: p.Followed + p.Tied, Waiting: p.Held, Tied: p.Tied}
	}
	for _, p := range []router.PortStats{s.RW, s.RO, s.Split, s.SplitReads, s.Stream} {
		c.connections += p.Open
	}
	n.mu.Lock()
	n.clients = c
	n.mu.Unlock()
}

// tiedSessions is what a planned switchover would end now, as far as nodes' routers told: why, and how many.
func (n *Node) tiedSessions() map[string]int {
	n.countClients()
	n.mu.Lock()
	defer n.mu.Unlock()
	views := []api.RouterView{{TiedSessions: n.clients.tied}}
	for id, p := range n.peers {
		if _, member := n.cluster.MemberByID(id); member && p.fresh() {
			views = append(views, p.status.Member.Router)
		}
	}
	return api.TiedSessions(views...)
}

// routerConfig is this node's router's.
func (n *Node) routerConfig() (router.Config, error) {
	r := n.cfg.Router
	c, err := router.FromSettings(r)
	if err != nil {
		return c, err
	}
	c.Confirm, c.Cluster, c.Logger, c.OnQuiet, c.Streams, c.Reads = n.confirmRoute, sessionCluster{n}, n.log, n.poke, changeStream{n}, reads.Router{Reads: n.reads, LogName: fmt.Sprintf("%s/%d", n.id.Cluster, n.recovery.Generation().NumberOf())}
	if !c.Sessions && c.SplitListen == "" && c.StreamListen == "" && len(r.Sockets()) == 0 {
		return c, nil
	}
	c.TLS, c.Outcomes = n.certs.Bundle().RouterTLS(), sessionOutcomes{n}
	switch pair, err := n.routerCertificate(); {
	case err != nil:
		return c, err
	case pair != nil:
		c.TLS.GetCertificate, c.TLS.Certificates = nil, []tls.Certificate{*pair}
	}
	return c, nil
}

// routerCertificate is what the router's clients are shown instead of the node's certificate; nil: that one. Who was given a certificate for mysqld
// has clients that may know it.
func (n *Node) routerCertificate() (*tls.Certificate, error) {
	r, o := n.cfg.Router, n.cfg.MySQL.Options
	switch {
	case r.TLSCert != "":
		pair, err := tls.LoadX509KeyPair(r.TLSCert, r.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("router.tls_cert: %w", err)
		}
		return &pair, nil
	case o["ssl_cert"] != "" && o["ssl_key"] != "":
		pair, err := tls.LoadX509KeyPair(o["ssl_cert"], o["ssl_key"])
		if err != nil {
			n.log.Warn("the router shows the node's own certificate instead of mysqld's, which cannot be read; set router.tls_cert and router.tls_key", "error", err)
			return nil, nil
		}
		return &pair, nil
	}
	return nil, nil
}

// routerViewLocked: the leader is who says that its writes are open in the highest term, unless this node knows of a newer one. That this node
// knows no leader makes nobody one: what it heard last may be seconds old.
func (n *Node) routerViewLocked(self status) (v router.View, term uint64) {
	var best status
	all := []status{self}
	for id, p := range n.peers {
		if _, member := n.cluster.MemberByID(id); member && p.fresh() {
			all = append(all, p.status)
		}
	}
	for _, s := range all {
		if s.OpenTerm > best.OpenTerm && s.Member.MySQL != nil {
			best = s
		}
		v.KeepRW = v.KeepRW || s.Handover
	}
	if best.OpenTerm != 0 && best.OpenTerm >= n.raft.Term {
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

func target(s status) *router.Target {
	m := s.Member.MySQL
	return &router.Target{Name: s.Member.Name, Addr: net.JoinHostPort(m.Host, strconv.Itoa(m.Port)), Epoch: s.Epoch}
}
