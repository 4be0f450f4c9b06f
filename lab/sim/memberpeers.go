package sim

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/node/gossip"
)

// question and answer are a request between daemons and what comes back.
type question struct {
	id   uint64
	what any
}

type answer struct {
	id   uint64
	what any
}

// request is a transport.Kind, and reply what is answered.
type (
	request struct {
		kind uint8
		body []byte
	}
	reply struct {
		body []byte
		err  error
	}
)

// gossipConfig has no folder: who took writes last is not kept over a restart here.
var gossipConfig = config.Node{Dir: os.DevNull,
	Raft: config.Raft{ElectionTimeoutMS: int(electionTimeout / time.Millisecond)}}

// gossipHost is the node as package gossip sees it (node.gossipHost).
type gossipHost struct{ g *member }

// Settings and the next ones implement gossip.Host. There are no links: a status is taken as it was told.
func (h gossipHost) Settings() *config.Cluster { return h.g.Settings() }
func (h gossipHost) Links() gossip.Links       { return nil }
func (h gossipHost) Status() gossip.Status     { return h.g.status() }
func (h gossipHost) WakeLoop()                 { h.g.wakeLoop() }

// Heard implements gossip.Host.
func (h gossipHost) Heard(p *gossip.Peer) {
	h.g.acks.SetClocks(h.g.gossip.Clocks())
	if p.Rules != nil {
		h.g.acks.HeardRules(p.Member.Raft.Term, p.Rules)
	}
}

// name of a member.
func name(id uint64) string { return fmt.Sprint("n", id) }

func (s *sqlWorld) role(id uint64) string {
	if s.isLogger(id) {
		return config.RoleLogger
	}
	return config.RoleVoter
}

// failback is how long a preferred member has been healthy before it gets leadership back.
const failback = 2 * time.Second

// settings are what the cluster agrees on, here made of raft's membership.
type settings struct {
	at         uint64 // the entry of that
	version    uint64 // of the rest
	generation *config.Generation
	now        *config.Cluster
}

// Settings of the cluster, as this node knows them.
func (g *member) Settings() *config.Cluster {
	if s, h := &g.settings, &g.sql.holds; s.now == nil || s.at != g.n.confAt || s.version != h.version ||
		s.generation != g.generation {
		st := g.n.Status()
		s.at, s.version, s.generation = g.n.confAt, h.version, g.generation
		s.now = &config.Cluster{Name: "sim", ClusterID: clusterID, NextID: maxNodes + 1, Version: g.generation.NumberOf() - 1,
			Generation: g.generation, Pause: h.pause, FailbackMS: failback.Milliseconds()}
		for _, id := range memberIDs(&st) {
			host := fmt.Sprintf("10.0.0.%d", id)
			m := config.Member{ID: id, Name: name(id), Role: g.sql.role(id), Weight: 1,
				Peer: host + ":7000", API: host + ":7001"}
			if m.Role != config.RoleLogger {
				m.MySQLHost, m.MySQLPort = host, 3306
			}
			if h.weights {
				m.Weight = 1 + int(id)%3
			}
			if m.Role == config.RoleVoter && slices.Contains(st.Learners, id) {
				m.Role = config.RoleLearner
			}
			s.now.Members = append(s.now.Members, m)
		}
	}
	return g.settings.now
}

// status is what this node tells of itself (node.myStatus).
func (g *member) status() gossip.Status {
	st, my := g.n.Status(), g.lives.Status()
	s := gossip.Status{Clock: exec{g}.Wall(), Leader: st.Leader, KeepFrom: g.lives.KeepFrom(), Timeout: electionTimeout}
	s.Member.Raft.Term, s.Member.Raft.Commit, s.Member.Raft.Applied = st.Term, st.Commit, g.applied
	s.Unready, s.Ready = g.control.ReadyLocked()
	s.Member.ApplyError, s.Member.Seed = g.seeding.ApplyError(), g.seeding.View()
	s.Left, s.Seen = g.gossip.Past()
	s.Full = g.full != ""
	if !g.logger {
		s.Member.MySQL = &api.MySQLView{Version: mysqlVersion}
	}
	if l := my.Life(); l != nil {
		s.Epoch = fmt.Sprint(l.Incarnation)
	}
	if st.Role == consensus.Leader {
		s.Rules = g.acks.Rules()
		if my.LeadsIn(st.Term) && my.TakesWrites() {
			s.OpenTerm = my.Term()
		}
	}
	return s
}

func (g *member) broadcast() {
	st := g.n.Status()
	s := g.status()
	for _, id := range memberIDs(&st) {
		if id != g.n.ID {
			g.n.Tell(id, s)
		}
	}
}

// Asked implements Top (node.HandleRaft).
func (g *member) Asked(term uint64) {
	g.lead.Told(term)
	g.gossip.Asked()
}

// PeerGone implements Top (node.PeerDown).
func (g *member) PeerGone(id uint64) {
	g.gossip.Down(id, true)
	g.wakeLoop()
}

// Told implements Top.
func (g *member) Told(from uint64, what any) {
	switch m := what.(type) {
	case gossip.Status:
		g.gossip.Take(from, m)
	case question:
		g.answer(from, m)
	case answer:
		if f := g.asks[m.id]; f != nil {
			delete(g.asks, m.id)
			f(m.what)
		}
	}
}

// ask puts a question to another node and waits for its answer.
func (g *member) ask(ctx context.Context, to uint64, what any) (any, error) {
	g.nextAsk++
	id := g.nextAsk
	var got any
	g.asks[id] = func(x any) { got = x }
	g.n.Tell(to, question{id, what})
	err := exec{g}.until(ctx, func() bool { return got != nil })
	delete(g.asks, id)
	return got, err
}

func (g *member) answer(from uint64, q question) {
	switch m := q.what.(type) {
	case request:
		g.spawn(func(ctx context.Context) {
			body, err := g.answers().HandleRequest(ctx, from, m.kind, m.body)
			g.n.Tell(from, answer{q.id, reply{body, err}})
		})
	}
}
