package relay_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"trireme/internal/consensus"
	"trireme/internal/pki"
	"trireme/internal/raftlog"
	"trireme/internal/relay"
	"trireme/internal/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// member is a node below internal/node: log, links, raft and relay.
type member struct {
	g      *group
	id     uint64
	dir    string
	log    *raftlog.Log
	tr     *transport.Transport
	node   atomic.Pointer[consensus.Node]
	relay  atomic.Pointer[relay.Relay]
	via    atomic.Uint64 // who forwarded the last append message; 0: the leader sent it
	closed sync.Once
}

// group is a leader (1), an upstream (2), and learners behind it.
type group struct {
	t               *testing.T
	pause, patience time.Duration
	ca              *pki.CA
	members         map[uint64]*member
	addrs           map[uint64]string
	written         uint64   // the last index that was proposed
	sent            sync.Map // address -> *atomic.Int64: bytes that the leader wrote there
}

const requestFailed = 1

func (m *member) HandleRaft(msg *raftpb.Message) {
	if msg.GetType() == raftpb.MsgApp {
		m.via.Store(0)
	}
	m.step(msg)
}

func (m *member) step(msg *raftpb.Message) {
	if n := m.node.Load(); n != nil {
		_ = n.Step(msg)
	}
}

func (m *member) HandleRelay(from uint64, r transport.Relay) {
	if p := m.relay.Load(); p != nil {
		p.HandleRelay(from, r)
	}
}

func (m *member) HandleForwarded(by uint64, msg *raftpb.Message) {
	m.via.Store(by)
	m.step(msg)
}

func (m *member) HandleRequest(_ context.Context, from uint64, _ uint8, body []byte) ([]byte, error) {
	m.relay.Load().Refused(from, uint64(body[0]), string(body[1:]))
	return nil, nil
}

func (m *member) HandleStatus(uint64, []byte)                  {}
func (m *member) PeerUp(uint64)                                {}
func (m *member) OtherGeneration(uint64, transport.Generation) {}
func (m *member) PeerDown(id uint64, reason error)             {}
func (m *member) RaftUnreachable(id uint64) {
	if n := m.node.Load(); n != nil {
		n.ReportUnreachable(id)
	}
}
func (m *member) SnapshotStatus(id uint64, ok bool) {
	if n := m.node.Load(); n != nil {
		n.ReportSnapshot(id, ok)
	}
}

// meter counts what is written to a connection.
type meter struct {
	net.Conn
	n *atomic.Int64
}

func (c meter) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.n.Add(int64(n))
	return n, err
}

func (g *group) start(id uint64, dir string) *member {
	g.t.Helper()
	m := &member{g: g, id: id, dir: dir}
	b, err := g.ca.Issue(pki.NodeCert{Name: fmt.Sprintf("n%d", id), ID: id}, time.Now())
	must(g.t, err)
	m.log, err = raftlog.Open(raftlog.Options{Dir: dir, Cluster: 1, NodeID: id, SegmentBytes: 1 << 20})
	must(g.t, err)
	listen := g.addrs[id]
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	cfg := transport.Config{ID: id, Cluster: "c", Listen: listen, TLS: func() *tls.Config { return b.PeerTLS() }, Handler: m, Relay: m}
	if id == 1 {
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			n, _ := g.sent.LoadOrStore(addr, new(atomic.Int64))
			return meter{c, n.(*atomic.Int64)}, nil
		}
	}
	m.tr, err = transport.New(cfg)
	must(g.t, err)
	p := relay.New(relay.Config{Links: m.tr, Log: m.log, Logger: discard, Patience: g.patience, Pause: g.pause, MaxPause: time.Second,
		Unreachable: m.RaftUnreachable,
		Failed: func(ctx context.Context, leader, target uint64, why string) {
			_, _ = m.tr.Request(ctx, leader, requestFailed, append([]byte{byte(target)}, why...))
		}})
	var peers []raft.Peer
	if last, _ := m.log.LastIndex(); id == 1 && last == 0 {
		peers = []raft.Peer{{ID: id}}
	}
	n, err := consensus.Start(consensus.Config{ID: id, Storage: m.log, Send: p.Send,
		OnFatal: func(err error) { g.t.Errorf("member %d: %v", id, err) }}, peers)
	must(g.t, err)
	m.node.Store(n)
	m.relay.Store(p)
	g.members[id], g.addrs[id] = m, m.tr.Addr()
	for _, o := range g.members {
		o.tr.SetPeers(g.addrs)
	}
	g.t.Cleanup(m.close)
	return m
}

func (m *member) close() {
	m.closed.Do(func() {
		m.relay.Load().Close()
		m.node.Load().Stop()
		_ = m.tr.Close()
		_ = m.log.Close()
	})
}

// newGroup is a leader and learners. pause is how long a way that failed is not tried again, patience how long an upstream waits for entries.
func newGroup(t *testing.T, size uint64, pause, patience time.Duration) *group {
	t.Helper()
	ca, err := pki.NewCA("c", time.Now())
	must(t, err)
	g := &group{t: t, ca: ca, pause: pause, patience: patience, members: map[uint64]*member{}, addrs: map[uint64]string{}}
	for id := uint64(1); id <= size; id++ {
		g.start(id, t.TempDir())
	}
	lead := g.members[1].node.Load()
	lead.Campaign()
	wait(t, "the first node leads", func() bool { return lead.Status().Role == consensus.Leader })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for id := uint64(2); id <= size; id++ {
		must(t, lead.ProposeConfChange(ctx, &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeAddLearnerNode.Enum(), NodeId: new(id)}}}))
	}
	g.caughtUp()
	return g
}

// write commits entries and returns how many bytes their data has.
func (g *group) write(entries, size int) int64 {
	g.t.Helper()
	lead := g.members[1].node.Load()
	ctx, cancel := context.WithTimeout(g.t.Context(), 20*time.Second)
	defer cancel()
	m := raftlog.Meta{Kind: raftlog.Settings, Node: 1}
	for range entries {
		index, _, err := lead.Propose(ctx, append(raftlog.AppendMeta(nil, &m), make([]byte, size)...))
		if err != nil {
			g.t.Fatal(err)
		}
		g.written = index
	}
	return int64(entries * size)
}

// caughtUp waits until all running members have all entries, as they were proposed. An accepted proposal need not be in the leader's log yet.
func (g *group) caughtUp() {
	g.t.Helper()
	for id, m := range g.members {
		wait(g.t, fmt.Sprintf("member %d has everything", id), func() bool {
			last, _ := g.members[1].log.LastIndex()
			got, _ := m.log.LastIndex()
			a, _ := g.members[1].log.Term(last)
			b, _ := m.log.Term(last)
			return last >= g.written && got == last && a == b && m.node.Load().Status().Commit == last
		})
	}
}

func (g *group) bytesTo(id uint64) int64 {
	n, ok := g.sent.Load(g.addrs[id])
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

// spared waits until the leader feeds a group, its direct learners all of it and those of these paths next to nothing. On a machine without CPU
// an upstream may be too late with an entry; the leader sends that directly, and tries the way again.
func (g *group) spared(paths map[uint64]uint64) {
	g.t.Helper()
	lead := g.members[1].relay.Load()
	wait(g.t, "a batch that the leader does not send to learners with an upstream", func() bool {
		lead.SetPaths(paths)
		before := map[uint64]int64{}
		for id := range g.members {
			before[id] = g.bytesTo(id)
		}
		data := g.write(200, 10_000)
		g.caughtUp()
		spared := true
		for id := range g.members {
			to := g.bytesTo(id) - before[id]
			switch {
			case paths[id] == 0 && id != 1 && to < data:
				g.t.Fatalf("of %d bytes the leader sent %d to %d, who has no other way", data, to, id)
			case paths[id] != 0 && to > data/20:
				g.t.Logf("of %d bytes the leader sent %d to %d", data, to, id)
				spared = false
			}
		}
		return spared
	})
}

// TestLearnerBehindItsUpstream: as long as the upstream is there the leader sends the learner no data; when it dies the learner gets it from the
// leader, and from the upstream again once that is back.
func TestLearnerBehindItsUpstream(t *testing.T) {
	g := newGroup(t, 3, 200*time.Millisecond, 2*time.Second)
	lead, learner := g.members[1].relay.Load(), g.members[3]
	paths := map[uint64]uint64{3: 2}
	through := func(want uint64) {
		t.Helper()
		wait(t, fmt.Sprintf("the way by %d", want), func() bool {
			lead.SetPaths(paths)
			g.write(1, 10)
			return lead.By(3) == want && learner.via.Load() == want
		})
		g.caughtUp()
	}
	through(2)
	g.spared(paths)

	// Its process is gone: nobody tells the relay, its link does.
	dir := g.members[2].dir
	g.members[2].close()
	delete(g.members, 2)
	before3 := g.bytesTo(3)
	data := g.write(100, 10_000)
	g.caughtUp()
	if to3 := g.bytesTo(3) - before3; to3 < data/2 {
		t.Errorf("of %d bytes the leader sent %d to the learner whose upstream is dead", data, to3)
	}
	through(0)

	g.start(2, dir)
	through(2)
	g.spared(paths)
}

// TestChain: 1 -> 2 -> 3 -> 4.
func TestChain(t *testing.T) {
	g := newGroup(t, 4, 200*time.Millisecond, 10*time.Second)
	lead := g.members[1].relay.Load()
	paths := map[uint64]uint64{3: 2, 4: 3}
	wait(t, "both ways", func() bool {
		lead.SetPaths(paths)
		g.write(1, 10)
		return g.members[3].via.Load() == 2 && g.members[4].via.Load() == 3
	})
	g.caughtUp()
	g.spared(paths)
}

// TestUpstreamWithoutTheEntries: an upstream that is not a member never gets the entries. It says so, and the learner gets them from the leader.
func TestUpstreamWithoutTheEntries(t *testing.T) {
	g := newGroup(t, 3, time.Minute, 300*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	two := uint64(2)
	must(t, g.members[1].node.Load().ProposeConfChange(ctx, &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: &two}}}))
	lead := g.members[1].relay.Load()
	lead.SetPaths(map[uint64]uint64{3: 2})
	if lead.By(3) != 2 {
		t.Fatal("not tried")
	}
	upstream := g.members[2]
	delete(g.members, 2)
	g.write(50, 1000)
	g.caughtUp()
	if lead.By(3) != 0 {
		t.Error("the upstream is still asked")
	}
	lead.SetPaths(map[uint64]uint64{3: 2})
	if lead.By(3) != 0 {
		t.Error("it is asked again without a pause")
	}
	g.members[2] = upstream
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wait(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(errors.New("not reached in time: " + what))
		}
	}
}
