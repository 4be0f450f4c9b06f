package addresses

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"trireme/internal/access/vip"
	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/node/gossip"
	"trireme/internal/node/lifecycle"
)

var (
	readA = netip.MustParseAddr("10.0.0.101")
	readB = netip.MustParseAddr("10.0.0.102")
)

// member is the rest of node 1 of three, which knows the others by id.
type member struct {
	peers     gossip.Peers
	lives     *lifecycle.Lives
	term      uint64
	published bool
}

func (m *member) Settings() *config.Cluster {
	return &config.Cluster{Members: []config.Member{{ID: 1}, {ID: 2}, {ID: 3}}}
}
func (m *member) Peers() gossip.Peers { return m.peers }
func (m *member) Term() uint64        { return m.term }
func (m *member) HoldsLease() bool    { return false }
func (m *member) Ready() bool {
	s := m.lives.Status()
	return s.State() == ha.ServerReady
}
func (m *member) Record(string, string, string) {}
func (m *member) Publish()                      { m.published = true }
func (m *member) Go(func(context.Context))      {}

// twoReads are the addresses of node 1: two for reads. Nothing of it runs.
func twoReads() (*Addresses, *member) {
	realTime := run.Real{Boottime: consensus.Boottime}
	m := &member{peers: gossip.Peers{}, lives: lifecycle.New(realTime), term: 5}
	m.lives.Change((*lifecycle.Status).Ready)
	for _, id := range []uint64{2, 3} {
		p := &gossip.Peer{Up: true, At: now()}
		p.Ready, p.Member.State = true, api.StateHealthy
		p.Member.VIPs = []api.VIPView{{Address: readA.String()}, {Address: readB.String()}}
		m.peers[id] = p
	}
	a := New(config.VIP{}, config.Identity{Name: "db1", ID: 1}, m.lives, m, slog.New(slog.DiscardHandler))
	a.ro = []netip.Addr{readA, readB}
	return a, m
}

// TestGiveReads: a leader gives one to each follower, leaves them where they are, and keeps them only when no other
// node can have them.
func TestGiveReads(t *testing.T) {
	a, m := twoReads()
	a.giveReadsLocked()
	if a.Shown().Reads != nil {
		t.Fatalf("a follower gives %v", a.Shown().Reads)
	}
	m.lives.Change(func(s *lifecycle.Status) { s.Promote(5) })
	m.lives.Change((*lifecycle.Status).Open)
	m.published = false
	m.peers[2].Member.VIPs[1].Held = true // from the leader before
	a.giveReadsLocked()
	if a.Shown().Reads[readA] != 3 || a.Shown().Reads[readB] != 2 || !m.published {
		t.Errorf("given %v, want A to 3 and B to 2", a.Shown().Reads)
	}
	m.peers[3].Up = false
	a.giveReadsLocked()
	if a.Shown().Reads[readA] != 2 || a.Shown().Reads[readB] != 2 {
		t.Errorf("without node 3: %v", a.Shown().Reads)
	}
	m.peers[2].Ready = false
	a.giveReadsLocked()
	a.borrowReadsLocked()
	if a.Shown().Reads[readA] != 1 || !slices.Equal(a.lent, a.ro) {
		t.Errorf("alone: given %v, held %v", a.Shown().Reads, a.lent)
	}
}

// TestBorrowReads: a follower has what the leader of its term gives it, keeps it for a while without a leader, and not
// while it serves nothing.
func TestBorrowReads(t *testing.T) {
	a, m := twoReads()
	lent := func(what string, want ...netip.Addr) {
		t.Helper()
		a.borrowReadsLocked()
		if !slices.Equal(a.lent, want) {
			t.Errorf("%s: %v, want %v", what, a.lent, want)
		}
	}
	lent("without a giver")
	leader := m.peers[2]
	leader.OpenTerm, leader.Reads = 5, map[netip.Addr]uint64{readA: 3, readB: 1}
	lent("the leader gives", readB)
	leader.Reads = nil
	lent("the leader does not say yet", readB)
	m.term = 6
	leader.Reads = map[netip.Addr]uint64{readA: 1}
	lent("an old leader says something else", readB)
	a.lentAt = now() - readLoan - 1
	lent("for too long no leader")
	leader.OpenTerm = 6
	lent("the leader again", readA)
	m.lives.Change((*lifecycle.Status).Off)
	lent("mysqld is down")
}

// TestAddressesHoldNobodyUp: a kernel that lets a change of its addresses wait keeps neither the loop, whose signs of
// life mysqld lives by, nor a fence.
func TestAddressesHoldNobodyUp(t *testing.T) {
	a, _ := twoReads()
	p := netip.MustParsePrefix("127.77.0.100/8")
	began, kernel := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(began) })
	a.rw, a.ro = []netip.Addr{p.Addr()}, nil
	a.manager = vip.New(vip.Config{Addresses: []netip.Prefix{p}, Interface: "lo", Logger: a.log,
		May:    func(netip.Addr) bool { begin(); <-kernel; return false }, // as in the kernel, with the manager's lock
		Member: func(net.HardwareAddr) string { return "" }, Moved: func(vip.Move) {}})
	go a.keep(t.Context())
	a.manager.Want(a.rw)
	<-began
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3 {
			a.UpdateSoon()
		}
		a.Drop()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("held up")
	}
	close(kernel)
	a.manager.Close()
	<-done
}
