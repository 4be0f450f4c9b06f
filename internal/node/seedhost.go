package node

import (
	"context"

	"trireme/internal/api"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/membership"
	"trireme/internal/node/room"
	"trireme/internal/node/seeding"
)

// newSeeding makes the part that gives this node its data.
func (n *Node) newSeeding() *seeding.Seeding {
	h := seedHost{host{n}}
	return seeding.New(n.cfg, n.id, seeding.Parts{Time: realTime, Ledger: n.led, Cluster: seedCluster{h.host, n.members},
		Server: seedServer{n}, Memory: seedMemory{n}, Host: h, Logger: n.log})
}

// seedHost is what seeding sees of this node.
type seedHost struct{ host }

func (h seedHost) Raft() seeding.Raft { return h.n.cons }

func (h seedHost) Log() seeding.Log { return h.n.rlog }

func (h seedHost) Protect(donor uint64, s *mysqld.Seeding) { h.n.certs.Protect(donor, s) }

func (h seedHost) Record(e api.Event) {
	made := h.n.history.Event(e.Kind, e.Index, e.Message)
	made.GTIDs, made.By = e.GTIDs, e.By
	h.n.history.Add(made)
}

// seedCluster is the members to it.
type seedCluster struct {
	host
	*membership.Members
}

func (c seedCluster) Blocked(ctx context.Context) *api.BlockedView { return c.n.View(ctx).Blocked }

// seedServer is mysqld to it.
type seedServer struct{ n *Node }

func (h seedServer) Now() (lifecycle.Status, uint64) {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	return h.n.lives.Status(), h.n.srv.backlog.Applied
}

func (h seedServer) Change(f func(s *lifecycle.Status, applied uint64) (changed bool)) {
	n := h.n
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lives.Change(func(s *lifecycle.Status) {
		if f(s, n.srv.backlog.Applied) {
			n.gossip.Publish()
		}
	})
}

func (h seedServer) RestartFeed(ctx context.Context, l *lifecycle.Life) error {
	return l.RestartFeed(ctx)
}

func (h seedServer) PauseFeed() { h.n.feed.SetPaused(true) }

func (h seedServer) Restart(reason string) { h.n.restartServer(reason) }

func (h seedServer) GiveUp() error {
	h.n.mu.Lock()
	l := h.n.lives.GiveUpLife()
	h.n.gossip.Publish()
	h.n.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.Process().Kill()
}

func (h seedServer) Copy(ctx context.Context, from mysqld.Seeding) error {
	return mysqld.Seed(ctx, h.n.mysqldConfig(), from)
}

func (h seedServer) Space() (free, used uint64, err error) {
	free, err = room.Free(h.n.cfg.MySQLDir())
	return free, mysqld.TreeBytes(h.n.mysqldConfig().DataDir()), err
}

func (h seedServer) Version() string { return h.n.bin.Version.String() }

// seedMemory is node.json to it.
type seedMemory struct{ n *Node }

func (m seedMemory) Notes() *seeding.Notes { return m.n.memory.Notes() }

func (m seedMemory) Note(change func(*seeding.Notes, *lifecycle.State)) error {
	return m.n.memory.Note(change)
}
