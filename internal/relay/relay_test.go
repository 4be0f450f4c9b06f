package relay_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/relay"
	"trireme/internal/transport"
)

var discard = slog.New(slog.DiscardHandler)

// fake is links and a log whose entries are all of term 5, with "data" in them.
type fake struct {
	mu        sync.Mutex
	sent      []*raftpb.Message
	relayed   []*raftpb.Message
	forwarded []*raftpb.Message
	full      bool // Relay and Forward take nothing
	last      uint64
	first     uint64
	more      chan struct{}
	failed    []string
	lost      []uint64
}

func (f *fake) with(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *fake) Send(msgs []*raftpb.Message) { f.with(func() { f.sent = append(f.sent, msgs...) }) }
func (f *fake) Relay(_ uint64, m *raftpb.Message) (ok bool) {
	f.with(func() {
		if ok = !f.full; ok {
			f.relayed = append(f.relayed, m)
		}
	})
	return ok
}
func (f *fake) Forward(m *raftpb.Message) (ok bool) {
	f.with(func() {
		if ok = !f.full; ok {
			f.forwarded = append(f.forwarded, m)
		}
	})
	return ok
}
func (f *fake) CanRelay(uint64) bool { return true }
func (f *fake) LastIndex() (last uint64, err error) {
	f.with(func() { last = f.last })
	return last, nil
}
func (f *fake) Term(i uint64) (uint64, error) {
	if i < f.first {
		return 0, raft.ErrCompacted
	}
	return 5, nil
}
func (f *fake) Entries(lo, hi, _ uint64) (es []*raftpb.Entry, err error) {
	for i := lo; i < hi; i++ {
		es = append(es, &raftpb.Entry{Index: new(i), Term: new(uint64(5)), Data: []byte("data")})
	}
	return es, nil
}
func (f *fake) Appended() (c <-chan struct{}) {
	f.with(func() { c = f.more })
	return c
}
func (f *fake) grow(last uint64) {
	f.with(func() {
		f.last = last
		close(f.more)
		f.more = make(chan struct{})
	})
}

func start(t *testing.T) (*relay.Relay, *fake) { return startWith(t, 100*time.Millisecond) }

func startWith(t *testing.T, patience time.Duration) (*relay.Relay, *fake) {
	f := &fake{first: 1, last: 10, more: make(chan struct{})}
	r := relay.New(relay.Config{Links: f, Log: f, Logger: discard, Patience: patience, Pause: 50 * time.Millisecond, MaxPause: 200 * time.Millisecond,
		Unreachable: func(id uint64) { f.with(func() { f.lost = append(f.lost, id) }) },
		Failed:      func(_ context.Context, _, _ uint64, why string) { f.with(func() { f.failed = append(f.failed, why) }) }})
	t.Cleanup(r.Close)
	return r, f
}

func app(first, last, term uint64, size int) transport.Relay {
	r := transport.Relay{Message: &raftpb.Message{Type: raftpb.MsgApp.Enum(), From: new(uint64(1)), To: new(uint64(3)), Index: new(first - 1)}}
	for i := first; i <= last; i++ {
		r.Message.Entries = append(r.Message.Entries, &raftpb.Entry{Index: new(i), Term: new(term)})
		r.Sizes = append(r.Sizes, size)
	}
	return r
}

// TestUpstream: what an upstream does with what it has, gets a moment later, and never gets.
func TestUpstream(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    transport.Relay
		prep func(*fake)
		why  string // "": it is forwarded
	}{
		{"has it", app(8, 10, 5, 4), nil, ""},
		{"nothing to fill in", app(99, 98, 5, 4), nil, ""},
		{"comes in time", app(10, 12, 5, 4), func(f *fake) { f.grow(12) }, ""},
		{"does not come", app(10, 12, 5, 4), nil, "its log ends at 10"},
		{"another term", app(10, 10, 6, 4), nil, "has not got entry 10 of term 6"},
		{"purged", app(2, 3, 5, 4), func(f *fake) { f.with(func() { f.first = 5 }) }, "compaction"},
		{"not the same data", app(10, 10, 5, 7), nil, "is not the leader's entry"},
		{"no way to the learner", app(10, 10, 5, 4), func(f *fake) { f.with(func() { f.full = true }) }, "the link to the learner"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, f := start(t)
			if tt.prep != nil && tt.why != "" {
				tt.prep(f)
			}
			r.HandleRelay(1, tt.r)
			if tt.prep != nil && tt.why == "" {
				tt.prep(f)
			}
			wait(t, "it is done", func() (done bool) {
				f.with(func() { done = len(f.forwarded)+len(f.failed) > 0 })
				return done
			})
			f.mu.Lock()
			defer f.mu.Unlock()
			switch {
			case tt.why == "" && (len(f.forwarded) != 1 || len(f.failed) > 0):
				t.Errorf("forwarded %v, failed %q", f.forwarded, f.failed)
			case tt.why == "":
				for _, e := range f.forwarded[0].GetEntries() {
					if string(e.GetData()) != "data" {
						t.Errorf("entry %d has %q", e.GetIndex(), e.GetData())
					}
				}
			case len(f.forwarded) > 0 || len(f.failed) != 1 || !strings.Contains(f.failed[0], tt.why):
				t.Errorf("forwarded %v, failed %q, want %q", f.forwarded, f.failed, tt.why)
			}
		})
	}
}

// TestUpstreamIsBounded: an upstream that does not get on holds a bounded number of messages and says that it passes nothing on.
func TestUpstreamIsBounded(t *testing.T) {
	r, f := startWith(t, time.Minute)
	for range 100 {
		r.HandleRelay(1, app(11, 2010, 5, 4)) // some 320 KB each, without data
	}
	wait(t, "it says so", func() (done bool) {
		f.with(func() { done = len(f.failed) > 0 })
		return done
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if !strings.Contains(f.failed[0], "too many") || len(f.forwarded) > 0 {
		t.Errorf("failed %q, forwarded %d", f.failed[0], len(f.forwarded))
	}
}

// TestLeader: all append messages of a learner take its way, nothing else does; a way that fails is given up, and tried again after a pause.
func TestLeader(t *testing.T) { synctest.Test(t, leader) }

func leader(t *testing.T) {
	r, f := start(t)
	msg := func(kind raftpb.MessageType, to uint64) *raftpb.Message {
		return &raftpb.Message{Type: kind.Enum(), To: &to}
	}
	all := []*raftpb.Message{msg(raftpb.MsgApp, 3), msg(raftpb.MsgHeartbeat, 3), msg(raftpb.MsgSnap, 3), msg(raftpb.MsgApp, 2)}
	send := func(direct, relayed int) {
		t.Helper()
		f.with(func() { f.sent, f.relayed = nil, nil })
		r.Send(all)
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.sent) != direct || len(f.relayed) != relayed {
			t.Fatalf("%d sent, %d relayed; want %d and %d", len(f.sent), len(f.relayed), direct, relayed)
		}
	}
	paths := map[uint64]uint64{3: 2}
	send(4, 0)
	r.SetPaths(paths)
	send(3, 1)
	r.Refused(7, 3, "by another one")
	send(3, 1)
	r.Refused(2, 3, "no")
	send(4, 0)
	again := func() bool { r.SetPaths(paths); return r.By(3) == 2 }
	if again() {
		t.Fatal("without a pause")
	}
	wait(t, "it is tried again", again)
	f.with(func() { f.full = true })
	send(4, 0)
	f.with(func() { f.full = false })
	wait(t, "it is tried again", again)
	r.SetPaths(nil)
	send(4, 0)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.lost) != 3 {
		t.Errorf("raft was told of %d losses", len(f.lost))
	}
}
