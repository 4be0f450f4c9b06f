package node

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"trireme/internal/access/vip"
	"trireme/internal/api"
	"trireme/internal/core/consensus"
	"trireme/internal/node/gossip"
	"trireme/internal/node/lifecycle"
)

var (
	readA = netip.MustParseAddr("10.0.0.101")
	readB = netip.MustParseAddr("10.0.0.102")
)

// vipNode is node 1 of three, with two read addresses; nothing of it runs.
func vipNode(t *testing.T) *Node {
	t.Helper()
	n := newTestNode(t)
	n.control.SoftState(consensus.State{Term: 5})
	n.lives.Change((*lifecycle.Status).Ready)
	n.vip.ro = []netip.Addr{readA, readB}
	for _, id := range []uint64{2, 3} {
		p := &gossip.Peer{Up: true, At: now()}
		p.Ready, p.Member.State = true, api.StateHealthy
		p.Member.VIPs = []api.VIPView{{Address: readA.String()}, {Address: readB.String()}}
		n.gossip.Peers()[id] = p
	}
	return n
}

// TestGiveReads: a leader gives one to each follower, leaves them where they are, and keeps them only when no other
// node can have them.
func TestGiveReads(t *testing.T) {
	n := vipNode(t)
	n.giveReadsLocked()
	if n.readsLocked() != nil {
		t.Fatalf("a follower gives %v", n.vip.given)
	}
	n.lives.Change(func(s *lifecycle.Status) { s.Promote(5) })
	n.lives.Change((*lifecycle.Status).Open)
	n.gossip.Due()
	n.gossip.Peers()[2].Member.VIPs[1].Held = true // from the leader before
	n.giveReadsLocked()
	if n.vip.given[readA] != 3 || n.vip.given[readB] != 2 || !n.gossip.Due() {
		t.Errorf("given %v, want A to 3 and B to 2", n.vip.given)
	}
	n.gossip.Peers()[3].Up = false
	n.giveReadsLocked()
	if n.vip.given[readA] != 2 || n.vip.given[readB] != 2 {
		t.Errorf("without node 3: %v", n.vip.given)
	}
	n.gossip.Peers()[2].Ready = false
	n.giveReadsLocked()
	n.borrowReadsLocked()
	if n.vip.given[readA] != 1 || !slices.Equal(n.vip.lent, n.vip.ro) {
		t.Errorf("alone: given %v, held %v", n.vip.given, n.vip.lent)
	}
}

// TestBorrowReads: a follower has what the leader of its term gives it, keeps it for a while without a leader, and not
// while it serves nothing.
func TestBorrowReads(t *testing.T) {
	n := vipNode(t)
	lent := func(what string, want ...netip.Addr) {
		t.Helper()
		n.borrowReadsLocked()
		if !slices.Equal(n.vip.lent, want) {
			t.Errorf("%s: %v, want %v", what, n.vip.lent, want)
		}
	}
	lent("without a giver")
	leader := n.gossip.Peers()[2]
	leader.OpenTerm, leader.Reads = 5, map[string]uint64{readA.String(): 3, readB.String(): 1}
	lent("the leader gives", readB)
	leader.Reads = nil
	lent("the leader does not say yet", readB)
	n.control.SoftState(consensus.State{Term: 6})
	leader.Reads = map[string]uint64{readA.String(): 1}
	lent("an old leader says something else", readB)
	n.vip.lentAt = now() - readLoan - 1
	lent("for too long no leader")
	leader.OpenTerm = 6
	lent("the leader again", readA)
	n.lives.Change((*lifecycle.Status).Off)
	lent("mysqld is down")
}

// TestAddressesHoldNobodyUp: a kernel that lets a change of its addresses wait keeps neither the loop, whose signs of
// life mysqld lives by, nor a fence.
func TestAddressesHoldNobodyUp(t *testing.T) {
	n := vipNode(t)
	p := netip.MustParsePrefix("127.77.0.100/8")
	began, kernel := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(began) })
	n.vip = addresses{rw: []netip.Addr{p.Addr()}, due: make(chan struct{}, 1)}
	n.vip.manager = vip.New(vip.Config{Addresses: []netip.Prefix{p}, Interface: "lo", Logger: n.log,
		May:    func(netip.Addr) bool { begin(); <-kernel; return false }, // as in the kernel, with the manager's lock
		Member: func(net.HardwareAddr) string { return "" }, Moved: func(vip.Move) {}})
	go n.keepVIP(t.Context())
	n.vip.manager.Want(n.vip.rw)
	<-began
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3 {
			n.updateVIPSoon()
		}
		n.dropVIP()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("held up")
	}
	close(kernel)
	n.vip.manager.Close()
	<-done
}
