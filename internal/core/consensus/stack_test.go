package consensus_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/loop"
	"trireme/internal/base/pki"
	"trireme/internal/core/consensus"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/transport"
	"trireme/lab/wan"
)

var _ consensus.Storage = (*raftlog.Log)(nil)

// member is the whole stack of one node below internal/node: log on disk, TLS links, raft.
type member struct {
	t         testing.TB
	id        uint64
	dir       string
	log       *raftlog.Log
	disk      *countedLog
	loop      *loop.Loop
	tr        *transport.Transport
	node      atomic.Pointer[consensus.Node]
	ca        *pki.CA
	delivered atomic.Uint64
	snapshots atomic.Uint64
	closed    sync.Once
}

func (m *member) HandleRaft(msg *raftpb.Message) {
	if n := m.node.Load(); n != nil {
		n.Step(msg)
	}
}
func (m *member) HandleStatus(uint64, []byte) {}
func (m *member) HandleRequest(context.Context, uint64, uint8, []byte) ([]byte, error) {
	return nil, errors.ErrUnsupported
}
func (m *member) PeerUp(uint64)                                {}
func (m *member) OtherGeneration(uint64, transport.Generation) {}
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

func (m *member) PeerDown(id uint64, reason error) {
	n := m.node.Load()
	var down *transport.DownError
	if n == nil || !errors.As(reason, &down) || !down.Gone() {
		return
	}
	n.PeerGone(id)
}

// countedLog counts the fsyncs of a log.
type countedLog struct {
	*raftlog.Log
	syncs atomic.Int64
}

func (l *countedLog) Sync() error {
	l.syncs.Add(1)
	return l.Log.Sync()
}

// startMember starts one on the loopback address.
func startMember(t testing.TB, ca *pki.CA, id uint64, dir string, first bool) *member {
	t.Helper()
	return startMemberOn(t, nil, ca, id, dir, first, nil)
}

// startMemberOn starts one on an emulated host, where it sends few heartbeats; nil: on the loopback address. change,
// unless nil, is of its raft.
func startMemberOn(t testing.TB, h *wan.Host, ca *pki.CA, id uint64, dir string, first bool,
	change func(*consensus.Config)) *member {
	t.Helper()
	m := &member{t: t, id: id, dir: dir, ca: ca}
	b, err := ca.Issue(pki.NodeCert{Name: fmt.Sprintf("n%d", id), ID: id}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if m.log, err = raftlog.Open(raftlog.Options{Dir: dir, Cluster: 1, NodeID: id, SegmentBytes: 64 << 10}); err != nil {
		t.Fatal(err)
	}
	m.disk = &countedLog{Log: m.log}
	if m.loop, err = loop.New(50 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	links := transport.Config{ID: id, Loop: m.loop, Cluster: "c", Listen: "127.0.0.1:0",
		TLS: func() *tls.Config { return b.PeerTLS() }, Handler: m}
	cfg := consensus.Config{
		ID: id, Loop: m.loop, Storage: m.disk,
		OnCommitted: func(ents []*raftpb.Entry) error { m.delivered.Store(ents[len(ents)-1].GetIndex()); return nil },
		OnSnapshot:  func(*raftpb.Snapshot) error { m.snapshots.Add(1); return nil },
		OnFatal:     func(err error) { t.Errorf("member %d: %v", id, err) },
	}
	inside := func(f func() error) error { return f() }
	if h != nil {
		inside = h.Do
		links.Listen = net.JoinHostPort(h.Addr.String(), "0")
		links.Dial = func(ctx context.Context, addr string) (c net.Conn, err error) {
			err = h.Do(func() (err error) {
				c, err = new(net.Dialer).DialContext(ctx, "tcp", addr)
				return err
			})
			return c, err
		}
		cfg.TickInterval, cfg.ElectionTicks, cfg.HeartbeatTicks = 250*time.Millisecond, 20, 2
	}
	if change != nil {
		change(&cfg)
	}
	if err := inside(func() (err error) { m.tr, err = transport.New(links); return err }); err != nil {
		t.Fatal(err)
	}
	cfg.Send = m.tr.Send
	var peers []raft.Peer
	if first {
		peers = []raft.Peer{{ID: id}}
	}
	n, err := consensus.Start(cfg, peers)
	if err != nil {
		t.Fatal(err)
	}
	m.node.Store(n)
	m.loop.Start()
	t.Cleanup(m.close)
	return m
}

func (m *member) close() {
	m.closed.Do(func() {
		m.node.Load().Stop()
		_ = m.tr.Close()
		m.loop.Stop()
		m.loop.Wait()
		_ = m.log.Close()
	})
}

func wait(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not reached in time: %s", what)
		}
	}
}

// startStack makes three voters; the first leads.
func startStack(t testing.TB) []*member {
	t.Helper()
	return startStackOn(t, make([]*wan.Host, 3), nil)
}

func startStackOn(t testing.TB, hosts []*wan.Host, change func(*consensus.Config)) []*member {
	t.Helper()
	ca, err := pki.NewCA("c", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var ms []*member
	addrs := map[uint64]string{}
	for id := uint64(1); id <= 3; id++ {
		m := startMemberOn(t, hosts[id-1], ca, id, t.TempDir(), id == 1, change)
		ms = append(ms, m)
		addrs[id] = m.tr.Addr()
	}
	for _, m := range ms {
		m.tr.SetPeers(addrs)
	}
	n := ms[0].node.Load()
	n.Campaign()
	wait(t, "the first node leads", func() bool { return n.Status().Role == consensus.Leader })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	add := &raftpb.ConfChangeV2{}
	for id := uint64(2); id <= 3; id++ {
		add.Changes = append(add.Changes, &raftpb.ConfChangeSingle{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(id)})
	}
	if err := n.ProposeConfChange(ctx, add); err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		wait(t, "three voters", func() bool {
			s := m.node.Load().Status()
			return len(s.Voters) == 3 && len(s.Outgoing) == 0 && s.Leader == 1
		})
	}
	return ms
}

// payload is an entry that the log takes.
func payload(bytes int) []byte {
	m := raftlog.Meta{Kind: raftlog.Settings, Node: 1}
	return append(raftlog.AppendMeta(nil, &m), make([]byte, bytes)...)
}

// Three whole stacks on the loopback: the leader's links and raft end, as they do with its process; nothing
// acknowledged is lost, and the survivors go on without waiting for an election timeout, which would outlast this test.
func TestStackSurvivesItsLeader(t *testing.T) {
	ms := startStackOn(t, make([]*wan.Host, 3),
		func(c *consensus.Config) { c.TickInterval, c.ElectionTicks = 100*time.Millisecond, 6000 })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	lead := ms[0].node.Load()
	var acked, term uint64
	for range 200 {
		index, tm, err := lead.Propose(ctx, payload(500))
		if err != nil {
			t.Fatal(err)
		}
		acked, term = index, tm
	}
	if err := lead.WaitApplied(ctx, acked); err != nil {
		t.Fatal(err)
	}
	ms[0].close()
	var next *member
	wait(t, "a new leader that has committed", func() bool {
		for _, m := range ms[1:] {
			s := m.node.Load().Status()
			if s.Role == consensus.Leader {
				next = m
				got, err := m.log.Term(s.Commit)
				return err == nil && got == s.Term
			}
		}
		return false
	})
	if got, err := next.log.Term(acked); err != nil || got != term {
		t.Fatalf("an acknowledged entry is gone: term %d, %v", got, err)
	}
	index, _, err := next.node.Load().Propose(ctx, payload(10))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ms[1:] {
		wait(t, "delivered", func() bool { return m.delivered.Load() >= index })
	}
	wait(t, "a lease", next.node.Load().HoldsLease)
	for _, m := range ms {
		m.close()
	}
}

// A member that was away until its next entry was purged gets a snapshot over the wire, and goes on from there.
func TestStackSendsASnapshot(t *testing.T) {
	ms := startStack(t)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	lead := ms[0].node.Load()
	ms[2].close()
	var last uint64
	for range 100 {
		var err error
		if last, _, err = lead.Propose(ctx, payload(4<<10)); err != nil {
			t.Fatal(err)
		}
	}
	if err := lead.WaitApplied(ctx, last); err != nil {
		t.Fatal(err)
	}
	// what is applied may be purged once the log has been told so, which the next append does
	wait(t, "purged", func() bool {
		if _, _, err := lead.Propose(ctx, payload(10)); err != nil {
			t.Fatal(err)
		}
		first, err := ms[0].log.Purge(last, 0)
		if err != nil {
			t.Fatal(err)
		}
		return first >= 20
	})
	back := startMember(t, ms[0].ca, 3, ms[2].dir, false)
	addrs := map[uint64]string{1: ms[0].tr.Addr(), 2: ms[1].tr.Addr(), 3: back.tr.Addr()}
	for _, m := range []*member{ms[0], ms[1], back} {
		m.tr.SetPeers(addrs)
	}
	wait(t, "caught up", func() bool { return back.delivered.Load() >= last })
	if back.snapshots.Load() == 0 {
		t.Fatal("caught up without a snapshot: the test does not test")
	}
	if s := back.node.Load().Status(); len(s.Voters) != 3 || s.Leader != 1 {
		t.Fatalf("%+v", s)
	}
	index, _, err := lead.Propose(ctx, payload(10))
	if err != nil {
		t.Fatal(err)
	}
	wait(t, "follows again", func() bool { return back.delivered.Load() >= index })
}

// BenchmarkStack proposes from several writers and waits for each commit, as the source does.
func BenchmarkStack(b *testing.B) {
	for _, writers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			ms := startStack(b)
			n := ms[0].node.Load()
			var mu sync.Mutex
			var took []time.Duration
			left := atomic.Int64{}
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for range writers {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for left.Add(-1) >= 0 {
						start := time.Now()
						index, _, err := n.Propose(context.Background(), payload(1800))
						if err == nil {
							err = n.WaitApplied(context.Background(), index)
						}
						if err != nil {
							b.Error(err)
							return
						}
						d := time.Since(start)
						mu.Lock()
						took = append(took, d)
						mu.Unlock()
					}
				}()
			}
			wg.Wait()
			b.StopTimer()
			sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			for _, m := range ms {
				m.close()
			}
		})
	}
}
