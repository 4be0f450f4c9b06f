package consensus

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/base/loop"
)

// group is a few Nodes joined by a network in memory. Each pair has a queue of its own and keeps its order; a full
// queue drops, as the transport does.
type group struct {
	t     testing.TB
	mu    sync.Mutex
	nodes map[uint64]*runner
	cut   map[uint64]bool
	stop  chan struct{}
	wg    sync.WaitGroup
}

type runner struct {
	*Node
	g      *group
	id     uint64
	store  *memStore
	queues map[uint64]chan *raftpb.Message

	mu        sync.Mutex
	delivered []*raftpb.Entry
	states    []State
	fatal     []error
	sent      map[raftpb.MessageType]int
	acked     uint64
}

const testTick = 5 * time.Millisecond

func newGroup(t testing.TB) *group {
	g := &group{t: t, nodes: map[uint64]*runner{}, cut: map[uint64]bool{}, stop: make(chan struct{})}
	t.Cleanup(g.close)
	return g
}

func (g *group) close() {
	g.mu.Lock()
	var rs []*runner
	for _, r := range g.nodes {
		rs = append(rs, r)
	}
	g.mu.Unlock()
	for _, r := range rs {
		r.Stop()
	}
	close(g.stop)
	g.wg.Wait()
}

func (g *group) add(id uint64, store *memStore, change func(*Config), first ...raft.Peer) *runner {
	g.t.Helper()
	r := &runner{g: g, id: id, store: store, queues: map[uint64]chan *raftpb.Message{}, sent: map[raftpb.MessageType]int{}}
	cfg := Config{ID: id, Storage: store, Send: r.send, TickInterval: testTick, OnCommitted: r.onCommitted,
		OnSoftState: r.onState, OnFatal: r.onFatal}
	if change != nil {
		change(&cfg)
	}
	l, err := loop.New(min(cmp.Or(cfg.TickInterval, 50*time.Millisecond), 100*time.Millisecond))
	if err != nil {
		g.t.Fatal(err)
	}
	cfg.Loop = l
	if r.Node, err = Start(cfg, first); err != nil {
		g.t.Fatal(err)
	}
	l.Start()
	g.mu.Lock()
	g.nodes[id] = r
	g.mu.Unlock()
	return r
}

// trio starts three voters, with 1 as leader.
func (g *group) trio(change func(*Config)) (a, b, c *runner) {
	for id := uint64(1); id <= 3; id++ {
		g.add(id, newMemStore(1, 2, 3), change)
	}
	a, b, c = g.nodes[1], g.nodes[2], g.nodes[3]
	g.elect(a)
	return a, b, c
}

func (g *group) elect(r *runner) {
	g.t.Helper()
	r.Campaign()
	eventually(g.t, "an elected leader that has committed in its term", func() bool {
		s := r.Status()
		if s.Role != Leader || s.Leader != r.id {
			if s.Leader != 0 && s.Leader != r.id {
				l := g.nodes[s.Leader]
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_ = l.TransferLeadership(ctx, r.id)
			} else if s.Role == Follower {
				r.Campaign()
			}
			return false
		}
		term, err := r.store.Term(s.Commit)
		return err == nil && term == s.Term
	})
}

func (r *runner) send(msgs []*raftpb.Message) {
	for _, m := range msgs {
		r.mu.Lock()
		r.sent[m.GetType()]++
		if m.GetType() == raftpb.MsgAppResp && !m.GetReject() {
			r.acked = max(r.acked, m.GetIndex())
		}
		q := r.queues[m.GetTo()]
		if q == nil {
			q = make(chan *raftpb.Message, 4096)
			r.queues[m.GetTo()] = q
			r.g.wg.Add(1)
			go r.g.carry(q)
		}
		r.mu.Unlock()
		select {
		case q <- m:
		default:
		}
	}
}

func (g *group) carry(q chan *raftpb.Message) {
	defer g.wg.Done()
	for {
		select {
		case <-g.stop:
			return
		case m := <-q:
			g.mu.Lock()
			to := g.nodes[m.GetTo()]
			if g.cut[m.GetFrom()] || g.cut[m.GetTo()] {
				to = nil
			}
			g.mu.Unlock()
			if to != nil {
				to.Step(m)
			}
		}
	}
}

func (g *group) isolate(ids ...uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.cut)
	for _, id := range ids {
		g.cut[id] = true
	}
}

func (r *runner) onCommitted(ents []*raftpb.Entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delivered = append(r.delivered, ents...)
	return nil
}

func (r *runner) onState(s State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states = append(r.states, s)
}

func (r *runner) onFatal(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fatal = append(r.fatal, err)
}

// data is what was delivered, less raft's own entries.
func (r *runner) data() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, e := range r.delivered {
		if e.GetType() == raftpb.EntryNormal && len(e.GetData()) > 0 {
			out = append(out, string(e.GetData()))
		}
	}
	return out
}

func (r *runner) sentCount(t raftpb.MessageType) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent[t]
}

// acknowledged is the highest entry that r has said to have on disk.
func (r *runner) acknowledged() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acked
}

// Stop ends the node, and its loop.
func (r *runner) Stop() {
	r.Node.Stop()
	r.cfg.Loop.Stop()
	r.cfg.Loop.Wait()
}

// waitCommitted waits until the commit index has reached index.
func (r *runner) waitCommitted(ctx context.Context, index uint64) error {
	for r.Status().Commit < index {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
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
