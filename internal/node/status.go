package node

import (
	"crypto/tls"
	"fmt"
	"os"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/node/gossip"
	"trireme/internal/node/reads"
)

// myStatus is what this node tells the others.
func (n *Node) myStatus() gossip.Status {
	st := n.cons.Status()
	sum := n.history.Sum()
	n.mu.Lock()
	defer n.mu.Unlock()
	s := gossip.Status{Clock: time.Now(), History: sum, Leader: st.Leader, Member: n.selfViewLocked(&st),
		KeepFrom: n.lives.KeepFrom(), Rate: n.srv.rate,
		Heavy: n.srv.heavy, LargeRate: n.srv.largeRate, Lagging: n.laggingLocked(), Flow: n.acks.Flow(),
		Settings: n.Settings().Version, Timeout: n.cfg.Raft.ElectionTimeout(), Bound: n.room.State().Bound,
		Reads: n.addresses.Shown().Reads, CA: n.certs.Status(n.lives.Life() != nil)}
	told := n.routing.Told()
	s.Routed, s.Quiet, s.Follows = told.Term, told.Quiet, told.Follows
	s.Unready, s.Ready = n.control.ReadyLocked()
	s.Full = s.Member.DiskFull != ""
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
	clients := n.routing.Told().Clients
	room := n.room.State()
	m := api.MemberView{Name: n.id.Name, Role: n.roleIn(st),
		Raft: api.RaftView{ID: n.id.ID, State: st.Role.String(), Term: st.Term, Voter: contains(st.Voters, n.id.ID),
			Match: st.Durable, First: first, Last: st.LastIndex, LogBytes: n.rlog.Size(), LogPinned: room.Pinned,
			Commit: st.Commit, Applied: n.srv.backlog.Applied, Durable: n.memory.Get().Durable},
		Router: api.RouterView{RWPort: n.cfg.Router.RWPort, ROPort: n.cfg.Router.ROPort, SplitPort: n.cfg.Router.SplitPort,
			StreamPort:  n.cfg.Router.StreamPort,
			Connections: clients.Connections, TiedSessions: clients.Tied, FollowedSessions: clients.Followed},
		Daemon: api.DaemonView{PID: os.Getpid(), Version: n.version, API: n.cfg.API.Advertise, Peer: n.cfg.Peer.Advertise},
	}
	m.State, m.Reason = n.stateLocked()
	m.DiskFull = room.FullDir
	if why, ok := n.control.ReadyLocked(); !ok && n.id.Role != config.RoleLogger {
		m.ReasonCode = why.Code
	}
	m.ApplyError, m.Seed = n.seeding.ApplyError(), n.seeding.View()
	m.Links, m.Warnings = n.links.Shown().Views, n.warningsLocked()
	m.VIPs = n.addresses.Shown().Views
	m.Heavy = n.heavyLocked()
	m.Delay = n.delay.View(n.appliedLocked())
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
