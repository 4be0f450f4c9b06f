package node

import (
	"context"
	"net"
	"strconv"
	"time"

	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/leave"
	"trireme/internal/node/lifecycle"
)

// openLives has mysqld start on the log, which is open.
func (n *Node) openLives() {
	n.lives.Open(lifecycle.Config{Cluster: n.id.ClusterID, Node: uint16(n.id.ID), Base: n.began, Log: n.rlog,
		Ledger: n.led,
		Memory: n.memory, Feed: lifeFeed{n}, Host: lifeHost{n}, Logger: n.log})
}

// lifeHost is what a life of mysqld sees of this node.
type lifeHost struct{ n *Node }

func (h lifeHost) Raft() lifecycle.Raft { return h.n.cons }

func (h lifeHost) NewProcess() (lifecycle.Process, error) {
	return lifecycle.NewProcess(h.n.mysqldConfig())
}

func (h lifeHost) NewSource(l *lifecycle.Life) lifecycle.Stream { return h.n.newSource(l) }

func (h lifeHost) Prove(ctx context.Context, l *lifecycle.Life, tls []byte) error {
	return h.n.certs.Prove(ctx, certMySQL{l.Admin(), l.Process()}, tls)
}

func (h lifeHost) FollowDecisions(has gtid.Set) error { return h.n.seeding.FollowDecisions(has) }

// Executed updates the backlog.
func (h lifeHost) Executed(l *lifecycle.Life, set gtid.Set) (uint64, error) {
	n := h.n
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lives.Life() != l {
		return 0, lifecycle.ErrDead // what a dead life held says nothing about the next one
	}
	n.noteBacklogLocked(n.led.Applied(set))
	n.seeding.Applied(n.srv.backlog.Applied)
	return n.srv.backlog.Applied, nil
}

func (h lifeHost) LostXA(l *lifecycle.Life, lost lifecycle.LostXA, applied uint64, executed gtid.Set) {
	h.n.seeding.LostXA(l, lost, applied, executed)
}

func (h lifeHost) ReleaseSlowed() { h.n.acks.ReleaseSlowed() }

func (h lifeHost) WhyUnacknowledged() string {
	if w := h.n.acks.LongestWait(); w.Entries > 0 {
		return w.String()
	}
	return ""
}

func (h lifeHost) Guard(until time.Duration) {
	if h.n.guard != nil {
		h.n.guard.Until(until)
	}
}

func (h lifeHost) Dying(l *lifecycle.Life) { h.n.control.Dying(l) }

func (h lifeHost) Fail(err error) { h.n.fail(err) }

// lifeFeed is the feed as a life of mysqld sees it.
type lifeFeed struct{ n *Node }

func (f lifeFeed) Begin() (ch mysqld.Channel, err error) {
	n := f.n
	if n.Settings().Disbanded != nil {
		return ch, leave.ErrEnded // its receiver is the plain server's
	}
	n.seeding.Tolerance().Reset()
	host, port, err := net.SplitHostPort(n.feed.Addr())
	if err != nil {
		return ch, err
	}
	ch = mysqld.Channel{Host: host, Account: mysqld.Account(n.feedLogin)}
	ch.Port, err = strconv.Atoi(port)
	return ch, err
}

// Pause holds the lock with which a fence ends ctx.
func (f lifeFeed) Pause(ctx context.Context) error {
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f.n.feed.SetPaused(true)
	return nil
}

func (f lifeFeed) Resume() { f.n.feed.SetPaused(false) }
