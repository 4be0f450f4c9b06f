package sim

import (
	"context"
	"errors"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ledger"
	"trireme/internal/core/transport"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/membership"
	"trireme/internal/node/seeding"
	"trireme/lab/sim/fakemysql"
)

// mysqlVersion is that of all servers.
const mysqlVersion = "9.7.4"

// seedHost is the node as package seeding sees it (node.seedHost).
type seedHost struct{ loopHost }

// Raft and the next ones implement seeding.Host.
func (h seedHost) Raft() seeding.Raft              { return seedRaft{raftOf(h.loopHost)} }
func (h seedHost) Log() seeding.Log                { return h.g.n.Log() }
func (h seedHost) Protect(uint64, *mysqld.Seeding) {}
func (h seedHost) Record(e api.Event)              { h.g.w.Tracef("%d: %s: %s", h.g.n.ID, e.Kind, e.Message) }
func (h seedHost) IsNew(string, error) bool        { return true }
func (h seedHost) Publish()                        { h.g.gossip.Publish(); h.g.wakeLoop() }

// seedRaft is consensus as package seeding sees it.
type seedRaft struct{ raftOf }

// Status implements seeding.Raft.
func (r seedRaft) Status() consensus.Status { return r.g.n.Status() }

// seedCluster is the members to it.
type seedCluster struct{ leadershipHost }

// Census and the next ones implement seeding.Cluster. Every entry can be applied, so there are no decisions
// about them.
func (c seedCluster) Census() membership.Census { return membership.Census{Census: c.g.census()} }
func (c seedCluster) Change(context.Context, uint64, func(*config.Cluster) error) (*config.Cluster, error) {
	return nil, errors.New("no settings are changed here")
}
func (c seedCluster) Result(uint64, string, string) (r api.MemberResult) { return r }
func (c seedCluster) Blocked(context.Context) *api.BlockedView           { return nil }

// census is membership.Members.Census.
func (g *member) census() ledger.Census {
	st := g.n.Status()
	_, ready := g.control.ReadyLocked()
	return membership.CensusOf(g.id, ready, &st, g.n.Log().Boundary(), g.Settings(), g.gossip.Peers())
}

// seedServer is mysqld to it (node.seedServer).
type seedServer struct{ g *member }

// Now implements seeding.Server.
func (s seedServer) Now() (lifecycle.Status, uint64) { return s.g.lives.Status(), s.g.applied }

// Change implements seeding.Server.
func (s seedServer) Change(f func(s *lifecycle.Status, applied uint64) (changed bool)) {
	g := s.g
	g.lock.Lock()
	defer g.lock.Unlock()
	g.lives.Change(func(st *lifecycle.Status) {
		if f(st, g.applied) {
			g.gossip.Publish()
		}
	})
}

// RestartFeed and the next ones implement seeding.Server.
func (s seedServer) RestartFeed(ctx context.Context, l *lifecycle.Life) error {
	return l.RestartFeed(ctx)
}
func (s seedServer) PauseFeed()                            { s.g.feed.paused = true }
func (s seedServer) Restart(reason string)                 { loopHost(s).Restart(reason) }
func (s seedServer) Space() (free, used uint64, err error) { return 1 << 40, 1, nil }
func (s seedServer) Version() string                       { return mysqlVersion }

// GiveUp implements seeding.Server.
func (s seedServer) GiveUp() error {
	s.g.lives.GiveUpLife()
	s.g.gossip.Publish()
	s.g.killServer(false)
	return nil
}

// Copy implements seeding.Server (mysqld.Seed). What the donor's clients wait for is waited for: a copy has nothing
// that is not committed.
func (s seedServer) Copy(ctx context.Context, from mysqld.Seeding) error {
	g, x, donor := s.g, exec(s), s.g.sql.member(uint64(from.Port))
	if !from.KeepOld {
		g.noData()
	}
	if err := x.Sleep(ctx, time.Duration(200+g.w.rnd.IntN(1500))*time.Millisecond); err != nil {
		return err
	}
	proc, fresh := donor.proc, fakemysql.New(uint32(g.n.ID))
	err := x.within(ctx, 3*time.Second, "copying", func() bool {
		return donor.proc != proc || donor.alive() && !g.w.net.cut(donor.n.ID, g.n.ID) && fresh.Clone(donor.srv)
	})
	switch {
	case err != nil:
		return err
	case donor.proc != proc:
		return errors.New("the donor's mysqld has ended")
	}
	from.Progress(mysqld.SeedProgress{Done: 1})
	if err := from.Check(ctx); err != nil {
		return err
	}
	g.noData()
	if err := x.Sleep(ctx, g.short()); err != nil {
		return err
	}
	if err := from.Confirm(ctx); err != nil {
		return err
	}
	if err := x.Sleep(ctx, g.short()); err != nil {
		return err
	}
	fresh.Flush, fresh.OnCommit = g.srv.Flush, g.srv.OnCommit
	g.srv, g.noDirectory = fresh, false
	g.sql.counts.seeds++
	return nil
}

// noData: there is no data directory until a copy is in its place, or the daemon has made an empty one at its start.
func (g *member) noData() {
	g.newData()
	g.noDirectory = true
}

// newSeeding makes the part that gives the node its data.
func (g *member) newSeeding() {
	g.seeding = seeding.New(gossipConfig, g.id, seeding.Parts{Time: exec{g}, Ledger: g.led,
		Cluster: seedCluster{leadershipHost{g}}, Server: seedServer{g}, Memory: memoryOf{g}, Host: seedHost{loopHost{g}},
		Logger: g.log})
}

// donate answers a member that wants a copy (seeding.ReqDonate).
func (g *member) donate(ctx context.Context, to uint64, none transport.None) (seeding.Donation, error) {
	d, err := g.seeding.DonationFor(ctx, to, none)
	d.Port = int(g.n.ID)
	if g.sql.broken("S8xa") {
		d.Prepared = nil
	}
	return d, err
}
