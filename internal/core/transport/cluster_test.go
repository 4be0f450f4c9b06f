package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"trireme/internal/base/loop"
	"trireme/internal/base/pki"
)

const testCluster = "testing"

var testCA = sync.OnceValue(func() *pki.CA {
	ca, err := pki.NewCA(testCluster, time.Now())
	if err != nil {
		panic(err)
	}
	return ca
})

func bundle(t testing.TB, ca *pki.CA, id uint64) *pki.Bundle {
	t.Helper()
	b, err := ca.Issue(pki.NodeCert{Name: fmt.Sprintf("n%d", id), ID: id, Hosts: []string{"127.0.0.1"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// node is a transport with a handler that remembers.
type node struct {
	*Transport
	t    testing.TB
	own  *loop.Loop // of a node that is given none
	once sync.Once

	mu          sync.Mutex
	msgs        []*raftpb.Message
	statuses    map[uint64][]byte
	events      []string // up and down, in order
	downs       []error
	unreachable int
	snaps       []bool
	strangers   map[uint64]Generation
	onRaft      func(*raftpb.Message)
	onRequest   func(ctx context.Context, from uint64, kind uint8, body []byte) ([]byte, error)
}

func startNode(t testing.TB, id uint64, change func(*Config)) *node {
	t.Helper()
	n := &node{t: t, statuses: map[uint64][]byte{}, strangers: map[uint64]Generation{}}
	tlsConf := bundle(t, testCA(), id).PeerTLS()
	cfg := Config{ID: id, Cluster: testCluster, Listen: "127.0.0.1:0", TLS: func() *tls.Config { return tlsConf },
		Handler: n}
	if change != nil {
		change(&cfg)
	}
	if cfg.Loop == nil {
		n.own = newLoop(t)
		cfg.Loop = n.own
	}
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.Transport = tr
	if n.own != nil {
		n.own.Start()
	}
	t.Cleanup(n.close)
	return n
}

func (n *node) close() {
	n.once.Do(func() {
		n.Transport.Close()
		if n.own != nil {
			n.own.Stop()
			n.own.Wait()
		}
	})
}

func newLoop(t testing.TB) *loop.Loop {
	t.Helper()
	l, err := loop.New(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// connect makes every node dial every other and waits until they are connected.
func connect(nodes ...*node) {
	addrs := map[uint64]string{}
	for _, n := range nodes {
		addrs[n.cfg.ID] = n.Addr()
	}
	for _, n := range nodes {
		n.SetPeers(addrs)
	}
	for _, n := range nodes {
		for id := range addrs {
			if id != n.cfg.ID {
				eventually(n.t, "connected", func() bool { return n.Connected(id) && n.peer(id).bulk.isConnected() })
			}
		}
	}
}

func (n *node) HandleRaft(m *raftpb.Message) {
	n.mu.Lock()
	f := n.onRaft
	if f == nil {
		n.msgs = append(n.msgs, m)
	}
	n.mu.Unlock()
	if f != nil {
		f(m)
	}
}

func (n *node) HandleStatus(from uint64, payload []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.statuses[from] = payload
}

func (n *node) HandleRequest(ctx context.Context, from uint64, kind uint8, body []byte) ([]byte, error) {
	n.mu.Lock()
	f := n.onRequest
	n.mu.Unlock()
	return f(ctx, from, kind, body)
}

func (n *node) PeerUp(id uint64) { n.event(fmt.Sprintf("up %d", id), nil) }

func (n *node) PeerDown(id uint64, reason error) { n.event(fmt.Sprintf("down %d", id), reason) }

func (n *node) event(s string, reason error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, s)
	if reason != nil {
		n.downs = append(n.downs, reason)
	}
}

func (n *node) RaftUnreachable(uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unreachable++
}

func (n *node) OtherGeneration(from uint64, theirs Generation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.strangers[from] = theirs
}

func (n *node) SnapshotStatus(_ uint64, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.snaps = append(n.snaps, ok)
}

func (n *node) received() []*raftpb.Message {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.msgs[:len(n.msgs):len(n.msgs)]
}

func (n *node) history() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.events[:len(n.events):len(n.events)]
}

func (n *node) lastDown() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.downs) == 0 {
		return nil
	}
	return n.downs[len(n.downs)-1]
}

func (n *node) with(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// on runs f with a peer's stream to this node, on the loop.
func (n *node) on(from uint64, s stream, f func(*inbound)) {
	eventually(n.t, "the loop has the stream", func() bool {
		n.Transport.mu.RLock()
		in := n.inbound[inboundKey{from, s}]
		n.Transport.mu.RUnlock()
		if in == nil {
			return false
		}
		there := make(chan bool)
		n.loop.Do(func() {
			if in.watch != nil {
				f(in)
			}
			there <- in.watch != nil
		})
		return <-there
	})
}

// deafen has a node read a peer's stream no more, or again.
func (n *node) deafen(from uint64, s stream, on bool) {
	n.on(from, s, func(in *inbound) { in.watch.WantRead(!on) })
}

func message(t raftpb.MessageType, from, to, index uint64, data ...[]byte) *raftpb.Message {
	m := &raftpb.Message{Type: t.Enum(), From: new(from), To: new(to), Term: new(uint64(1)), Index: new(index)}
	for i, d := range data {
		m.Entries = append(m.Entries, &raftpb.Entry{Term: new(uint64(1)), Index: new(index + uint64(i) + 1), Data: d})
	}
	return m
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not reached in time: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// cable is a Dial that can be cut: the fault layer of these tests.
type cable struct {
	mu    sync.Mutex
	conns []*os.File // sockets: the transport closes what Dial has given it
	err   error
	// patient dials again until somebody listens.
	patient bool
}

func (c *cable) dial(ctx context.Context, addr string) (net.Conn, error) {
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	conn, err := DialTCP(ctx, addr)
	for err != nil && c.patient && sleep(ctx, time.Millisecond) {
		conn, err = DialTCP(ctx, addr)
	}
	if err != nil {
		return nil, err
	}
	f, err := conn.(*net.TCPConn).File()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, f)
	return conn, nil
}

func (c *cable) cut(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	for _, f := range c.conns {
		if raw, err := f.SyscallConn(); err == nil { // Fd would make the socket a blocking one
			_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
		}
		f.Close()
	}
	c.conns = nil
}

func checkLeaks(m *testing.M) { goleak.VerifyTestMain(m) }
