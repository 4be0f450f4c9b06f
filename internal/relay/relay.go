// Package relay lets a learner get its entries from another node, its upstream, instead of from the leader, so that a remote region's
// learners load the long way once. Raft does not know of it.
//
//	leader --- append message without its entries' data ---> upstream --- the same with data, from its own log ---> learner
//	   ^---------------------------------------- MsgAppResp ------------------------------------------------------------'
//
// An entry is named by its index and term (Raft's log matching), so what the upstream fills in is what the leader has. The learner fsyncs and
// answers as always; what it answers is all that the leader counts (S2). All append messages to a learner take one way, empty ones too: one
// that overtook another would look like a gap.
//
// The leader sends directly again as soon as the upstream is not there, or says that it could not pass a message on, and tries the way
// through it again after a pause. What was lost on the way Raft sends again.
package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/transport"
)

// Links are a node's connections to the others; *transport.Transport.
type Links interface {
	Send(msgs []*raftpb.Message)
	Relay(by uint64, m *raftpb.Message) bool
	Forward(m *raftpb.Message) bool
	CanRelay(by uint64) bool
}

// Log is a node's raft log; *raftlog.Log.
type Log interface {
	LastIndex() (uint64, error)
	Term(index uint64) (uint64, error)
	Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error)
	// Appended is closed when something is appended after the call.
	Appended() <-chan struct{}
}

// Config of a Relay. Zero times take the defaults.
type Config struct {
	Links Links
	Log   Log
	// Unreachable tells Raft that messages to a member were lost. Must not block.
	Unreachable func(id uint64)
	// Failed tells the leader that its messages to target are not passed on, and why. It may take a moment.
	Failed func(ctx context.Context, leader, target uint64, why string)
	Logger *slog.Logger

	Patience time.Duration // how long an upstream waits for entries that it has not got yet, or for room to the learner; 1 s
	Pause    time.Duration // of a leader before it tries a way again that failed; 2 s, doubling to MaxPause
	MaxPause time.Duration // 1 min
}

const (
	maxQueued  = 8 << 20 // bytes of messages waiting for one learner, without their data
	maxTargets = 64      // learners that a node passes messages on to
	idle       = 10 * time.Second
)

// Relay is both sides of one node: a leader's, and an upstream's. All methods are safe for concurrent use.
type Relay struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	paths  atomic.Pointer[map[uint64]uint64] // learner -> upstream, in use now; read for every message

	mu     sync.Mutex
	want   map[uint64]uint64
	failed map[uint64]*failure
	queues map[uint64]*queue
}

// failure is a way that did not work.
type failure struct {
	by    uint64
	until time.Time
	pause time.Duration
}

// queue is what waits to be passed on to one learner.
type queue struct {
	items []queued
	bytes int
	wake  chan struct{}
}

type queued struct {
	from uint64
	r    transport.Relay
}

func (q queued) weight() int { return 256 + 160*len(q.r.Sizes) }

// New makes a Relay. Close ends it.
func New(cfg Config) *Relay {
	def(&cfg.Patience, time.Second)
	def(&cfg.Pause, 2*time.Second)
	def(&cfg.MaxPause, time.Minute)
	r := &Relay{cfg: cfg, failed: map[uint64]*failure{}, queues: map[uint64]*queue{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.paths.Store(&map[uint64]uint64{})
	return r
}

func def(d *time.Duration, v time.Duration) {
	if *d == 0 {
		*d = v
	}
}

// Close waits for everything that is under way.
func (r *Relay) Close() {
	r.mu.Lock()
	r.cancel()
	r.mu.Unlock()
	r.wg.Wait()
}

// Send is transport.Send, by way of the upstreams.
func (r *Relay) Send(msgs []*raftpb.Message) {
	paths := *r.paths.Load()
	if len(paths) == 0 {
		r.cfg.Links.Send(msgs)
		return
	}
	direct := msgs[:0:0]
	for _, m := range msgs {
		if by := paths[m.GetTo()]; by != 0 && m.GetType() == raftpb.MsgApp {
			if r.cfg.Links.Relay(by, m) {
				continue
			}
			r.fail(m.GetTo(), by, "the link to it takes nothing")
		}
		direct = append(direct, m)
	}
	r.cfg.Links.Send(direct)
}

// SetPaths tells the leader's side which learners have an upstream that can be used now, learner to upstream; on other nodes it is empty.
func (r *Relay) SetPaths(want map[uint64]uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want = maps.Clone(want)
	r.choose()
}

// choose brings paths up to date; r.mu is held.
func (r *Relay) choose() {
	before, next := *r.paths.Load(), map[uint64]uint64{}
	for to, by := range r.want {
		f := r.failed[to]
		if f != nil && f.by == by && time.Now().Before(f.until) || !r.cfg.Links.CanRelay(by) {
			continue
		}
		next[to] = by
	}
	if maps.Equal(before, next) {
		return
	}
	r.paths.Store(&next)
	for to, by := range before {
		if next[to] != by {
			r.cfg.Logger.Info("a learner gets its entries from its upstream no longer", "learner", to, "upstream", by)
			r.cfg.Unreachable(to) // what is on the way there may be lost
		}
	}
	for to, by := range next {
		if before[to] != by {
			r.cfg.Logger.Info("a learner gets its entries from its upstream", "learner", to, "upstream", by)
		}
	}
}

// By is the upstream that messages to a learner go through now; 0: none.
func (r *Relay) By(learner uint64) uint64 { return (*r.paths.Load())[learner] }

// Refused is told on the leader when an upstream could not pass a message on.
func (r *Relay) Refused(by, learner uint64, why string) {
	if r.By(learner) == by {
		r.fail(learner, by, why)
	}
}

// fail gives a way up for a while.
func (r *Relay) fail(to, by uint64, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.By(to) != by {
		return
	}
	f := r.failed[to]
	if f == nil || f.by != by || time.Since(f.until) > r.cfg.MaxPause { // the last time is long ago
		f = &failure{by: by, pause: r.cfg.Pause}
		r.failed[to] = f
	} else {
		f.pause = min(2*f.pause, r.cfg.MaxPause)
	}
	f.until = time.Now().Add(f.pause)
	r.cfg.Logger.Warn("an upstream does not pass entries on; they are sent directly", "learner", to, "upstream", by, "err", why, "pause", f.pause)
	r.choose()
}

// HandleRelay implements transport.RelayHandler.
func (r *Relay) HandleRelay(from uint64, rel transport.Relay) {
	to := rel.Message.GetTo()
	item := queued{from, rel}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return
	}
	q := r.queues[to]
	if q == nil {
		if len(r.queues) >= maxTargets {
			r.refuse(from, to, fmt.Sprintf("it passes messages on to %d others already", maxTargets))
			return
		}
		q = &queue{wake: make(chan struct{}, 1)}
		r.queues[to] = q
		r.wg.Add(1)
		go func() {
			defer r.wg.Done()
			r.pass(to, q)
		}()
	}
	if q.bytes+item.weight() > maxQueued {
		q.items, q.bytes = nil, 0 // a gap would be refused by the learner anyhow
		r.refuse(from, to, "too many messages wait to be passed on")
		return
	}
	q.items, q.bytes = append(q.items, item), q.bytes+item.weight()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// refuse tells the leader. r.mu is held, or the caller is counted in r.wg.
func (r *Relay) refuse(leader, to uint64, why string) {
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		ctx, cancel := context.WithTimeout(r.ctx, 2*r.cfg.Patience)
		defer cancel()
		r.cfg.Failed(ctx, leader, to, why)
	}()
}

// pass is the goroutine of one queue; it ends when there was nothing to do for some time.
func (r *Relay) pass(to uint64, q *queue) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		item, ok := r.next(q)
		if !ok {
			timer.Reset(idle)
			select {
			case <-r.ctx.Done():
				return
			case <-q.wake:
				continue
			case <-timer.C:
			}
			if r.retire(to, q) {
				return
			}
			continue
		}
		if err := r.passOne(item.r); err != nil && r.ctx.Err() == nil {
			// Those behind it would only make a gap.
			r.mu.Lock()
			q.items, q.bytes = nil, 0
			r.mu.Unlock()
			r.refuse(item.from, to, err.Error())
		}
	}
}

// retire forgets a queue that is empty.
func (r *Relay) retire(to uint64, q *queue) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(q.items) > 0 {
		return false
	}
	delete(r.queues, to)
	return true
}

func (r *Relay) next(q *queue) (queued, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(q.items) == 0 {
		q.items = nil
		return queued{}, false
	}
	item := q.items[0]
	q.items, q.bytes = q.items[1:], q.bytes-item.weight()
	return item, true
}

// passOne fills a message in and forwards it.
func (r *Relay) passOne(rel transport.Relay) error {
	ctx, cancel := context.WithTimeout(r.ctx, r.cfg.Patience)
	defer cancel()
	if err := r.fill(ctx, rel); err != nil {
		return err
	}
	for !r.cfg.Links.Forward(rel.Message) {
		select {
		case <-ctx.Done():
			return errors.New("the link to the learner is down, or takes nothing")
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// fill waits until the log holds the message's entries, and puts their data in.
func (r *Relay) fill(ctx context.Context, rel transport.Relay) error {
	es := rel.Message.GetEntries()
	if len(es) == 0 {
		return nil
	}
	first, end := es[0], es[len(es)-1]
	if err := r.await(ctx, end.GetIndex(), end.GetTerm()); err != nil {
		return err
	}
	got, err := r.cfg.Log.Entries(first.GetIndex(), end.GetIndex()+1, math.MaxUint64)
	if err != nil {
		return fmt.Errorf("entries %d to %d: %w", first.GetIndex(), end.GetIndex(), err)
	}
	if len(got) != len(es) {
		return fmt.Errorf("entries %d to %d: %d of %d are there", first.GetIndex(), end.GetIndex(), len(got), len(es))
	}
	for i, e := range got {
		if e.GetIndex() != es[i].GetIndex() || e.GetTerm() != es[i].GetTerm() || e.GetType() != es[i].GetType() || len(e.GetData()) != rel.Sizes[i] {
			return fmt.Errorf("entry %d of term %d is not the leader's entry %d of term %d", e.GetIndex(), e.GetTerm(), es[i].GetIndex(), es[i].GetTerm())
		}
	}
	rel.Message.Entries = got
	return nil
}

// await waits until the log holds an entry.
func (r *Relay) await(ctx context.Context, index, term uint64) error {
	for {
		more := r.cfg.Log.Appended()
		last, err := r.cfg.Log.LastIndex()
		if err != nil {
			return err
		}
		if last >= index {
			t, err := r.cfg.Log.Term(index)
			if err != nil {
				return fmt.Errorf("entry %d: %w", index, err)
			}
			if t == term {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it has not got entry %d of term %d yet, its log ends at %d", index, term, last)
		case <-more:
		}
	}
}
