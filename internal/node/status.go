package node

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/failpoint"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/node/gossip"
	"trireme/internal/node/reads"
)

// myStatus is what this node tells the others.
func (n *Node) myStatus() gossip.Status {
	st := n.cons.Status()
	sum := n.history.sum()
	n.mu.Lock()
	defer n.mu.Unlock()
	s := gossip.Status{Clock: time.Now(), History: sum, Routed: n.routed, Quiet: n.quiet, Follows: n.follows,
		Leader: st.Leader, Member: n.selfViewLocked(&st), KeepFrom: n.lives.KeepFrom(), Rate: n.srv.rate,
		Heavy: n.srv.heavy, LargeRate: n.srv.largeRate, Lagging: n.laggingLocked(), Flow: n.acks.Flow(),
		Settings: n.Settings().Version, Full: n.fullDir != "", Timeout: n.cfg.Raft.ElectionTimeout(), Bound: n.bound,
		Reads: n.readsLocked(), CA: n.certs.Status(n.lives.Life() != nil)}
	s.Unready, s.Ready = n.control.ReadyLocked()
	s.Left, s.Seen = n.gossip.Past()
	s.Archive = n.gossip.Archive()
	if st.Role == consensus.Leader {
		s.Rules = n.acks.Rules()
	}
	my := n.lives.Status()
	s.Handover = n.leads(&st) && my.Phase() == ha.PhaseHandover && my.Closing()
	s.OpenTerm, s.Epoch = n.epochOf(&st)
	return s
}

// epochOf names what mysqld serves now: its incarnation, and the term in which it takes writes, if it does.
func (n *Node) epochOf(st *consensus.Status) (openTerm uint64, epoch string) {
	s := n.lives.Status()
	if l := s.Life(); l != nil {
		epoch = fmt.Sprint(l.Incarnation)
	}
	if !n.leads(st) || !s.TakesWrites() {
		return 0, epoch
	}
	return s.Term(), fmt.Sprintf("%s/%d", epoch, s.Term())
}

// leads says whether this node is the leader in the term in which its mysqld serves.
func (n *Node) leads(st *consensus.Status) bool {
	s := n.lives.Status()
	return st.Role == consensus.Leader && s.LeadsIn(st.Term)
}

func (n *Node) selfViewLocked(st *consensus.Status) api.MemberView {
	first, _ := n.rlog.FirstIndex()
	m := api.MemberView{Name: n.id.Name, Role: n.roleIn(st),
		Raft: api.RaftView{ID: n.id.ID, State: st.Role.String(), Term: st.Term, Voter: contains(st.Voters, n.id.ID),
			Match: st.Durable, First: first, Last: st.LastIndex, LogBytes: n.rlog.Size(), LogPinned: n.pinned, Commit: st.Commit,
			Applied: n.srv.backlog.Applied, Durable: n.local.get().Durable},
		Router: api.RouterView{RWPort: n.cfg.Router.RWPort, ROPort: n.cfg.Router.ROPort, SplitPort: n.cfg.Router.SplitPort,
			StreamPort:  n.cfg.Router.StreamPort,
			Connections: n.clients.connections, TiedSessions: n.clients.tied, FollowedSessions: n.clients.followed},
		Daemon: api.DaemonView{PID: os.Getpid(), Version: n.version, API: n.cfg.API.Advertise, Peer: n.cfg.Peer.Advertise},
	}
	m.State, m.Reason = n.stateLocked()
	m.DiskFull = n.fullDir
	if why, ok := n.control.ReadyLocked(); !ok && n.id.Role != config.RoleLogger {
		m.ReasonCode = why.Code
	}
	m.ApplyError, m.Seed = n.seeding.ApplyError(), n.seeding.View()
	m.Links, m.Warnings = n.links.views, n.warningsLocked()
	m.VIPs = n.vip.views
	m.Heavy = n.heavyLocked()
	m.Delay = n.delayViewLocked()
	s := n.lives.Status()
	if s.Problem() != "" && s.Problem() != m.Reason && s.State() != ha.ServerReady {
		m.Reason += ": " + s.Problem()
	}
	if c, ok := n.Settings().MemberByID(n.id.ID); ok {
		m.Raft.Weight = c.Weight
	}
	if n.id.Role == config.RoleLogger {
		m.Raft.Applied = st.Applied
		return m
	}
	my := &api.MySQLView{Host: n.cfg.MySQLHost(), Port: n.cfg.MySQL.Port, Version: n.bin.Version.String(), ReadOnly: true}
	my.Proof = n.certs.Proof()
	if l := s.Life(); l != nil {
		my.PID = l.Process().Pid()
		_, my.Epoch = n.epochOf(st)
		my.GTIDExecuted, my.ReadOnly = l.Executed().String(), l.ReadOnly()
		if s.State() == ha.ServerReady {
			since, bytes := n.lagLocked()
			lag := since.Seconds()
			if n.hearsLeader(st) {
				my.LagSeconds, my.LagBytes, my.CatchUpSeconds = &lag, &bytes, n.catchUpLocked(bytes)
			}
		}
	}
	m.MySQL = my
	return m
}

// stateLocked is this node's state as it is told, and why. A node is healthy while its log and its applier move.
func (n *Node) stateLocked() (state, reason string) {
	if why := n.seeding.Applier(); why != "" {
		return api.StateCatchingUp, why
	}
	if d := n.stalledLocked(); d > 0 && n.stateName == api.StateHealthy {
		return api.StateCatchingUp, fmt.Sprintf("mysqld has applied nothing for %.0f s, and %.1f MiB wait for it",
			d.Seconds(), float64(n.srv.backlog.Bytes)/(1<<20))
	}
	return n.stateName, n.why
}

func (n *Node) roleIn(st *consensus.Status) string {
	s := n.lives.Status()
	switch {
	case n.id.Role == config.RoleLogger:
		return api.RoleLogger
	case n.leads(st) && s.Phase() != ha.PhasePromoting:
		return api.RoleLeader
	case st.Learner:
		return api.RoleLearner
	}
	return api.RoleFollower
}

// routes points this node's router at the leader and the followers.
func (n *Node) routes() {
	failpoint.Hit("routes.before-view")
	self := n.myStatus()
	n.mu.Lock()
	v, term := n.routerViewLocked(self)
	proofs := n.proofs()
	if term != n.routed {
		n.routed = term
		n.gossip.Publish()
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
		n.follows = follows
		n.gossip.Publish()
	}
	quiet := uint64(0)
	if held {
		quiet = n.control.Soft().Term
	}
	if quiet != n.quiet {
		n.quiet = quiet
		n.gossip.Publish()
	}
	n.mu.Unlock()
}

// clients is what the router counted when this node's status was last due: it looks at each session for it.
type clients struct {
	connections int
	followed    int                     // of the read-write and the splitting port
	tied        map[string]int          // never changed
	ports       map[string]api.PortView // never changed
}

func (n *Node) countClients() {
	s := n.router.Stats()
	c := clients{followed: s.RW.Followed + s.Split.Followed, tied: s.TiedBy, ports: map[string]api.PortView{}}
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
func (n *Node) tiedSessions() map[string]int { return api.TiedSessions(n.routersNow()...) }

// followedSessions is how many sessions a planned switchover moves now, as far as nodes' routers told.
func (n *Node) followedSessions() int { return api.FollowedSessions(n.routersNow()...) }

// routersNow is what the routers of the nodes that are heard have told last of their sessions.
func (n *Node) routersNow() []api.RouterView {
	n.countClients()
	n.mu.Lock()
	views := []api.RouterView{{TiedSessions: n.clients.tied, FollowedSessions: n.clients.followed}}
	n.mu.Unlock()
	for _, s := range n.gossip.Members() {
		views = append(views, s.Member.Router)
	}
	return views
}

// routerConfig is this node's router's.
func (n *Node) routerConfig() (router.Config, error) {
	r := n.cfg.Router
	c, err := router.FromSettings(r)
	if err != nil {
		return c, err
	}
	c.Confirm, c.Cluster, c.Logger, c.OnQuiet = sessionServers{n}.confirm, sessionCluster{n}, n.log, n.wakeLoop
	c.Streams, c.Reads = changeStream{n}, reads.Router{Reads: n.reads,
		LogName: fmt.Sprintf("%s/%d", n.id.Cluster, n.recovery.Generation().NumberOf())}
	if !c.Sessions && c.SplitListen == "" && c.StreamListen == "" && len(r.Sockets()) == 0 {
		return c, nil
	}
	c.TLS, c.Outcomes = n.certs.Bundle().RouterTLS(), sessionServers{n}
	switch pair, err := n.routerCertificate(); {
	case err != nil:
		return c, err
	case pair != nil:
		c.TLS.GetCertificate, c.TLS.Certificates = nil, []tls.Certificate{*pair}
	}
	return c, nil
}

// routerCertificate is what the router's clients are shown instead of the node's certificate; nil: that one. Who was
// given a certificate for mysqld has clients that may know it.
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

// routerViewLocked: the leader is who says that its writes are open in the highest term, unless this node knows of a
// newer one. That this node knows no leader makes no other node one: what it heard last may be seconds old.
func (n *Node) routerViewLocked(self gossip.Status) (v router.View, term uint64) {
	var best gossip.Status
	all := append([]gossip.Status{self}, n.gossip.Members()...)
	for _, s := range all {
		if s.OpenTerm > best.OpenTerm && s.Member.MySQL != nil {
			best = s
		}
		v.KeepRW = v.KeepRW || s.Handover
	}
	if best.OpenTerm != 0 && best.OpenTerm >= n.control.Soft().Term {
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
