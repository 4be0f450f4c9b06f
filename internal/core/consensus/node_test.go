package consensus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"trireme/lab/child"
	"trireme/lab/wan"
)

func TestMain(m *testing.M) {
	child.Main(wan.Forwarder)
	goleak.VerifyTestMain(m)
}

func TestProposalsAreDeliveredEverywhereInOrder(t *testing.T) {
	g := newGroup(t)
	a, b, c := g.trio(nil)
	const writers, each = 8, 200
	type place struct{ index, term uint64 }
	var mu sync.Mutex
	places := map[string]place{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			last := uint64(0)
			for i := range each {
				data := fmt.Sprintf("%d-%d", w, i)
				index, term, err := a.Propose(within(t, 20*time.Second), []byte(data))
				if err != nil || index <= last {
					t.Errorf("%s: index %d after %d, %v", data, index, last, err)
					return
				}
				last = index
				mu.Lock()
				places[data] = place{index, term}
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	for _, r := range []*runner{a, b, c} {
		eventually(t, "all delivered", func() bool { return len(r.data()) == writers*each })
		r.mu.Lock()
		for i, e := range r.delivered {
			if e.GetIndex() != uint64(i+1) {
				t.Fatalf("member %d: entry %d delivered at place %d", r.id, e.GetIndex(), i+1)
			}
			if p, ok := places[string(e.GetData())]; ok && (p.index != e.GetIndex() || p.term != e.GetTerm()) {
				t.Fatalf("%q was accepted at %+v and committed at %d/%d", e.GetData(), p, e.GetTerm(), e.GetIndex())
			}
		}
		r.mu.Unlock()
	}
	if n := a.sentCount(raftpb.MsgApp); n > 2*2*writers*each {
		t.Errorf("%d messages for %d proposals: they do not share", n, writers*each)
	}
	eventually(t, "no bytes in flight", func() bool { return a.core.props.used.Load() == 0 })
}

// A follower whose fsync does not return is not counted, however long it has had the entries; nor is what it has after
// a crash more than what it has acknowledged.
func TestOnlyFsyncedEntriesAreCounted(t *testing.T) {
	const timeout = 100 // ticks: much more than a loaded machine takes for a heartbeat, and less than the wait below
	g := newGroup(t)
	a, b, _ := g.trio(func(c *Config) { c.ElectionTicks = timeout })
	g.isolate(3)
	release, held := make(chan struct{}), make(chan struct{})
	free, hold := sync.OnceFunc(func() { close(release) }), sync.OnceFunc(func() { close(held) })
	t.Cleanup(free) // the group cannot end before
	before, _ := a.store.LastIndex()
	b.store.setHooks(func() error {
		if last, _ := b.store.LastIndex(); last > before { // not the sync of the leader's first entry, if b is late
			hold()
			<-release
		}
		return nil
	}, nil)
	index, _, err := a.Propose(within(t, 20*time.Second), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	select { // b has the entry, and its disk has not
	case <-held:
	case <-time.After(10 * time.Second):
		t.Fatal("b has not begun to fsync")
	}
	last, _ := b.store.LastIndex()
	if err := a.waitCommitted(within(t, 3*timeout*testTick), index); err == nil {
		t.Fatalf("committed without a majority on disk: %v", err)
	}
	if last != index || b.Status().Durable >= index || a.Status().Members[2].Match >= index {
		t.Fatalf("b has entries up to %d, durable %d, counted %d", last, b.Status().Durable, a.Status().Members[2].Match)
	}
	if n := b.acknowledged(); n >= index {
		t.Fatalf("the acknowledgement of entry %d passed an fsync that has not returned", n)
	}
	if after, _ := b.store.crash().LastIndex(); after >= index {
		t.Fatal("the test's crash does not lose what was not synced")
	}
	if a.Status().Role != Leader {
		t.Fatal("heartbeats do not get through while the disk is slow")
	}
	free()
	if err := a.waitCommitted(within(t, 20*time.Second), index); err != nil {
		t.Fatal(err)
	}
	if after, _ := b.store.crash().LastIndex(); after < index {
		t.Fatal("committed by an acknowledgement that a crash takes back")
	}
}

// One sync covers everything that has queued up after the previous one.
func TestAppendsShareASync(t *testing.T) {
	g := newGroup(t)
	r := g.add(1, newMemStore(1), nil)
	g.elect(r)
	gate := make(chan struct{}, 1)
	gate <- struct{}{}
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open) // the group cannot end before
	first := make(chan struct{})
	var once sync.Once
	r.store.setHooks(func() error {
		once.Do(func() { close(first) })
		<-gate
		return nil
	}, nil)
	<-gate // the next sync hangs
	if _, _, err := r.Propose(within(t, 20*time.Second), []byte("first")); err != nil {
		t.Fatal(err)
	}
	<-first
	before := r.store.syncs
	var index uint64
	for i := range 100 {
		var err error
		if index, _, err = r.Propose(within(t, 20*time.Second), fmt.Appendf(nil, "%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	open()
	if err := r.waitCommitted(within(t, 20*time.Second), index); err != nil {
		t.Fatal(err)
	}
	if n := r.store.syncs - before; n > 3 {
		t.Fatalf("%d syncs for 100 queued appends", n)
	}
}

func TestProposeBlocksWhileTooMuchIsInFlight(t *testing.T) {
	g := newGroup(t)
	a, _, _ := g.trio(func(c *Config) {
		c.MaxUncommittedBytes = 1000
		c.ElectionTicks = 400 // two seconds without a quorum
	})
	eventually(t, "nothing in flight", func() bool { return a.core.props.used.Load() == 0 })
	g.isolate(1)
	data := make([]byte, 250)
	var err error
	accepted := 0
	for ; accepted < 10; accepted++ {
		if _, _, err = a.Propose(within(t, 100*time.Millisecond), data); err != nil {
			break
		}
	}
	if accepted != 3 || !errors.Is(err, ErrProposeTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%d proposals of 250 bytes accepted with a limit of 1000, then %v", accepted, err)
	}
	done := make(chan error, 1)
	go func() {
		_, _, err := a.Propose(within(t, 20*time.Second), data)
		done <- err
	}()
	g.isolate()
	if err := <-done; err != nil {
		t.Fatalf("still blocked with a quorum back: %v", err)
	}
	// A proposal larger than the limit passes alone.
	index, _, err := a.Propose(within(t, 20*time.Second), make([]byte, 5000))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.waitCommitted(within(t, 20*time.Second), index); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing in flight", func() bool { return a.core.props.used.Load() == 0 })
}

func TestLostLeadershipFreesProposals(t *testing.T) {
	g := newGroup(t)
	a, _, _ := g.trio(func(c *Config) { c.MaxUncommittedBytes = 500 })
	eventually(t, "nothing in flight", func() bool { return a.core.props.used.Load() == 0 })
	g.isolate(1)
	if _, _, err := a.Propose(within(t, 20*time.Second), make([]byte, 400)); err != nil {
		t.Fatal(err)
	}
	_, _, err := a.Propose(within(t, 20*time.Second), make([]byte, 400)) // blocked, then woken by the step-down
	if !errors.Is(err, ErrNotLeader) {
		t.Fatalf("got %v", err)
	}
	// What waits is told first of all in that turn.
	eventually(t, "nothing in flight", func() bool { return a.core.props.used.Load() == 0 })
	if a.LeaseUntil() != 0 || a.HoldsLease() {
		t.Fatal("a lease outlives the leadership")
	}
}

func TestFailedSyncIsFinal(t *testing.T) {
	g := newGroup(t)
	a, b, _ := g.trio(nil)
	broken := errors.New("disk is gone")
	b.store.setHooks(func() error { return broken }, nil)
	if _, _, err := a.Propose(within(t, 20*time.Second), []byte("x")); err != nil {
		t.Fatal(err)
	}
	<-b.ctx.Done()
	eventually(t, "OnFatal", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.fatal) > 0
	})
	acks := b.sentCount(raftpb.MsgAppResp)
	b.store.setHooks(nil, nil) // a disk that claims to be well again is not believed
	b.Step(&raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), To: new(uint64(2)), From: new(uint64(1)),
		Term: new(uint64(99))})
	if _, err := b.ReadIndex(within(t, 20*time.Second)); !errors.Is(err, ErrStopped) {
		t.Fatalf("ReadIndex: %v", err)
	}
	if err := b.Answers(within(t, 20*time.Second)); !errors.Is(err, ErrStopped) {
		t.Fatalf("Answers: %v", err)
	}
	if err := a.Answers(within(t, 20*time.Second)); err != nil {
		t.Fatalf("one that works: %v", err)
	}
	b.Stop()
	if n := b.sentCount(raftpb.MsgAppResp); n != acks {
		t.Fatalf("%d acknowledgements after the failure", n-acks)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.fatal) != 1 || !errors.Is(b.fatal[0], broken) {
		t.Fatalf("OnFatal: %v", b.fatal)
	}
}

func TestPanicIsFatal(t *testing.T) {
	g := newGroup(t)
	r := g.add(1, newMemStore(1), nil)
	err := r.do(context.Background(), func(*core) { panic("tocommit is out of range") }, nil)
	if !errors.Is(err, ErrStopped) {
		t.Fatalf("got %v", err)
	}
	r.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.fatal) != 1 || !errors.Is(r.fatal[0], ErrInvariant) {
		t.Fatalf("OnFatal: %v", r.fatal)
	}
}

func TestReadIndexOnEveryMember(t *testing.T) {
	g := newGroup(t)
	a, b, c := g.trio(nil)
	index, _, err := a.Propose(within(t, 20*time.Second), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.waitCommitted(within(t, 20*time.Second), index); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, r := range []*runner{a, b, c} {
		for range 20 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				got, err := r.ReadIndex(within(t, 20*time.Second))
				if err != nil || got < index {
					t.Errorf("member %d: read index %d after a commit at %d, %v", r.id, got, index, err)
				}
			}()
		}
	}
	wg.Wait()
	g.isolate(1)
	if _, err := a.ReadIndex(within(t, 10*testTick)); !errors.Is(err, ErrReadIndexTimeout) {
		t.Fatalf("a leader without a quorum answered: %v", err)
	}
}

func TestLeaseEndsBeforeAnotherCanLead(t *testing.T) {
	g := newGroup(t)
	const timeout = 10 // ticks
	a, b, c := g.trio(func(cfg *Config) { cfg.ElectionTicks = timeout })
	eventually(t, "a lease", a.HoldsLease)
	// On a busy machine the next leader may be elected late enough for any lease. So how long one lasts is looked at
	// too, when it was just renewed: no longer than no other node can be elected, even if its round began now.
	for range 5 {
		before := a.LeaseUntil()
		eventually(t, "the next lease", func() bool { return a.LeaseUntil() > before })
		if more := a.LeaseUntil() - Boottime() - int64(timeout*testTick); more > 0 {
			t.Fatalf("a lease lasts %v longer than an election timeout", time.Duration(more))
		}
	}
	g.isolate(1)
	eventually(t, "a new leader", func() bool { return b.Status().Role == Leader || c.Status().Role == Leader })
	if a.HoldsLease() {
		t.Fatal("two leaders, and the old one still holds its lease")
	}
}

// TestSlowReadsDoNotStarveHeartbeats: raft reads from a slow disk for a follower that lags far. It must
// not fill the window of what may be in flight in one go: heartbeats, and with them the lease, would wait. The test
// counts reads between two heartbeats, some twenty, and not time: a machine that stops for a moment adds none.
func TestSlowReadsDoNotStarveHeartbeats(t *testing.T) {
	const entries, read = 300, 3 * time.Millisecond // all of it: 0.9 s of reading
	g := newGroup(t)
	a, b, c := g.trio(func(cfg *Config) {
		cfg.TickInterval, cfg.HeartbeatTicks, cfg.ElectionTicks = 20*time.Millisecond, 1, 100
		cfg.MaxSizePerMsg, cfg.MaxInflightBytes = 1<<10, 1<<20 // one entry in a message
	})
	g.isolate(c.id)
	for range entries {
		if _, _, err := a.Propose(within(t, 20*time.Second), make([]byte, 1<<10)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all is committed",
		func() bool { return b.Status().Commit == a.Status().LastIndex && b.Status().Commit > entries })
	var mu sync.Mutex
	beats, reads, all, most := 0, 0, 0, 0
	a.store.mu.Lock()
	a.store.beforeRead = func() error {
		<-time.After(read)
		mu.Lock()
		defer mu.Unlock()
		if n := a.sentCount(raftpb.MsgHeartbeat); n != beats {
			beats, reads = n, 0
		}
		reads, all = reads+1, all+1
		most = max(most, reads)
		return nil
	}
	a.store.mu.Unlock()
	g.isolate()
	eventually(t, "the follower has caught up", func() bool { return c.Status().Commit >= entries })
	mu.Lock()
	defer mu.Unlock()
	if all < entries/2 {
		t.Fatalf("%d reads for %d entries: the follower was not read for one by one", all, entries)
	}
	if most > entries/3 {
		t.Errorf("%d of %d reads without a heartbeat", most, all)
	}
	t.Logf("at most %d reads without a heartbeat", most)
}

func TestTransferLeadership(t *testing.T) {
	g := newGroup(t)
	a, b, _ := g.trio(nil)
	if err := a.TransferLeadership(within(t, 20*time.Second), 2); err != nil {
		t.Fatal(err)
	}
	if s := b.Status(); s.Role != Leader {
		t.Fatalf("%+v", s)
	}
	if a.LeaseUntil() != 0 {
		t.Fatal("a lease outlives the transfer")
	}
	if err := a.TransferLeadership(within(t, 20*time.Second), 3); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("got %v", err)
	}
	// S7: every step-down is seen, in order.
	eventually(t, "the state changes", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		led := false
		for _, s := range a.states {
			led = led || s.Role == Leader
			if led && s.Role == Follower && s.Leader == 2 {
				return true
			}
		}
		return false
	})
}

// Two survivors of a dead leader need one round trip for each vote, not an election timeout, which would outlast this
// test.
func TestDeadLeaderIsReplacedAtOnce(t *testing.T) {
	g := newGroup(t)
	a, b, c := g.trio(func(cfg *Config) {
		cfg.TickInterval, cfg.ElectionTicks = 50*time.Millisecond, 12_000 // 10 min
		cfg.CampaignDelay = func(uint64) time.Duration { return time.Duration(cfg.ID-2) * 500 * time.Millisecond }
	})
	eventually(t, "a known leader", func() bool { return b.Status().Leader == 1 && c.Status().Leader == 1 })
	a.Stop()
	g.isolate(1)
	b.PeerGone(1)
	c.PeerGone(1)
	eventually(t, "a new leader", func() bool { return b.Status().Role == Leader })
	if _, _, err := b.Propose(within(t, 20*time.Second), []byte("x")); err != nil {
		t.Fatal(err)
	}
}

func TestMembershipGrowsAndSurvivesARestart(t *testing.T) {
	g := newGroup(t)
	a := g.add(1, newMemStore(), nil, raft.Peer{ID: 1})
	g.elect(a)
	b := g.add(2, newMemStore(), nil)
	change := func(typ raftpb.ConfChangeType, id uint64) error {
		return a.ProposeConfChange(within(t, 20*time.Second),
			&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{Type: typ.Enum(), NodeId: new(id)}}})
	}
	if err := change(raftpb.ConfChangeAddLearnerNode, 2); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the learner knows", func() bool { return b.Status().Learner })
	if err := change(raftpb.ConfChangeAddNode, 2); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the voter knows", func() bool { return len(b.Status().Voters) == 2 && !b.Status().Learner })
	if err := change(raftpb.ConfChangeRemoveNode, 7); err != nil {
		t.Fatalf("removing no member: %v", err)
	}
	applied := b.Status().Applied
	b.Stop()
	b = g.add(2, b.store.crash(), func(c *Config) { c.Applied = applied })
	eventually(t, "the restarted voter follows",
		func() bool { return b.Status().Leader == 1 && len(b.Status().Voters) == 2 })
	if got := b.data(); len(got) != 0 {
		t.Fatalf("delivered again: %q", got)
	}
	index, _, err := a.Propose(within(t, 20*time.Second), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.WaitApplied(within(t, 20*time.Second), index); err != nil {
		t.Fatal(err)
	}
}

// Who proposes waits for room in the order in which it came, unless it gives up. What is larger than the limit goes
// alone. Offers do not wait: they get no more than the limit, and stand back while others wait.
func TestRoom(t *testing.T) {
	e := newEnv(t) // at most 200 bytes
	if err := e.start(1, newMemStore(1), nil); err != nil {
		t.Fatal(err)
	}
	m := e.members[1]
	m.core.campaign()
	e.settle()
	var took []string
	propose := func(name string, bytes uint64) *proposal {
		p := &proposal{entry: &raftpb.Entry{Data: []byte(name)}, bytes: bytes}
		p.done = func(_, _ uint64, err error) {
			if err != nil {
				t.Error(err)
			}
			took = append(took, name)
		}
		m.core.props.waiting = append(m.core.props.waiting, p)
		return p
	}
	offer := func(name string, bytes uint64) (more bool) {
		m.core.props.count(propose(name, bytes))
		return m.core.props.hasRoom()
	}
	expect := func(want string) {
		t.Helper()
		if got := strings.Join(took, " "); got != want {
			t.Fatalf("raft took %q, want %q", got, want)
		}
	}
	m.diskHeld = true
	room := 0
	if !offer("a", 110) || offer("b", 110) {
		t.Fatal("more may be offered than the limit")
	}
	m.core.props.room = func() { room++ }
	gone := propose("gone", 10)
	propose("c", 190)
	propose("d", 10) // would fit beside a, and must not overtake
	e.settle()
	expect("a b")
	gone.claimed.Store(true)
	m.diskHeld = false
	m.disk()
	m.diskHeld = true
	m.apply()
	e.settle() // a and b are committed
	expect("a b c d")
	if room != 0 || m.core.props.used.Load() != 200 {
		t.Fatalf("room was told %d times, %d bytes are in flight", room, m.core.props.used.Load())
	}
	propose("large", 500)
	e.settle()
	expect("a b c d")
	m.diskHeld = false
	e.settle()
	expect("a b c d large")
	if room != 1 || m.core.props.used.Load() != 0 {
		t.Fatalf("room was told %d times, want 1; %d bytes are in flight", room, m.core.props.used.Load())
	}
	// One that waited and was given up while raft takes none, as in a transfer, does not keep the room.
	m.diskHeld = true
	offer("e", 200)
	m.core.props.room = func() { room++ }
	gone = propose("gone", 10)
	e.settle()
	gone.claimed.Store(true)
	m.core.props.clean(m.core.state.Term)
	m.diskHeld = false
	e.settle()
	expect("a b c d large e")
	if room != 2 {
		t.Fatalf("room was told %d times, want 2", room)
	}
}

// TestOffer: offers come into the log in their order, and one in another term is refused.
func TestOffer(t *testing.T) {
	g := newGroup(t)
	a, _, _ := g.trio(nil)
	term := a.Status().Term
	refused := make(chan error, 1)
	a.cfg.Loop.Do(func() {
		for i := range 10 {
			if !a.Offer(term, []byte{byte(i)}, func(_, _ uint64, err error) {
				if err != nil {
					t.Errorf("offer %d: %v", i, err)
				}
			}, nil) {
				t.Errorf("no room after offer %d", i)
			}
		}
		a.Offer(term+1, []byte("other"), func(_, _ uint64, err error) { refused <- err }, nil)
	})
	if err := <-refused; !errors.Is(err, ErrNotLeader) {
		t.Fatalf("refused with %v", err)
	}
	eventually(t, "all are applied", func() bool { return len(a.data()) == 10 })
	for i, d := range a.data() {
		if d != string([]byte{byte(i)}) {
			t.Fatalf("%q is at place %d", d, i)
		}
	}
}

// TestOfferGivesBack: raft makes a copy of what is offered, so the memory can be used for the next offer while the
// entry is still under way.
func TestOfferGivesBack(t *testing.T) {
	g := newGroup(t)
	a, b, _ := g.trio(nil)
	term, data := a.Status().Term, []byte("0")
	var offer func()
	offer = func() {
		if data[0]++; data[0] <= '9' {
			a.Offer(term, data, func(_, _ uint64, err error) {
				if err != nil {
					t.Error(err)
				}
			}, offer)
		}
	}
	a.cfg.Loop.Do(offer)
	for _, m := range []*runner{a, b} {
		eventually(t, "all are applied", func() bool { return len(m.data()) == 9 })
		if got := strings.Join(m.data(), ""); got != "123456789" {
			t.Errorf("%q came into the log", got)
		}
	}
}

// TestLargeAppendIsBesideTheLoop: by the size of what waits for the disk.
func TestLargeAppendIsBesideTheLoop(t *testing.T) {
	piece := func(size int) *raftpb.Message {
		return &raftpb.Message{Entries: []*raftpb.Entry{{Data: make([]byte, size)}}}
	}
	if isLarge([]*raftpb.Message{piece(100), {}, piece(largeAppend / 2)}) {
		t.Error("a small append is large")
	}
	if !isLarge([]*raftpb.Message{piece(largeAppend / 2), {}, piece(largeAppend / 2)}) {
		t.Error("a large append is small")
	}
}

// TestHungDisk: while a leader's disk hangs it keeps its lease, and says how long the write has lasted.
func TestHungDisk(t *testing.T) {
	g := newGroup(t)
	a, _, _ := g.trio(nil)
	release := make(chan struct{})
	a.store.setHooks(func() error { <-release; return nil }, nil)
	if _, _, err := a.Propose(within(t, 10*time.Second), []byte("x")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the write is under way", func() bool { return a.AppendingSince() != 0 })
	term, beats := a.Status().Term, a.sentCount(raftpb.MsgHeartbeat)
	eventually(t, "heartbeats go on", func() bool { return a.sentCount(raftpb.MsgHeartbeat) > beats+100 })
	if st := a.Status(); st.Role != Leader || st.Term != term {
		t.Errorf("%+v: the disk of the leader of term %d hangs", st, term)
	}
	close(release)
	a.store.setHooks(nil, nil)
	eventually(t, "the write has ended", func() bool { return a.AppendingSince() == 0 })
}

func TestIndexWaits(t *testing.T) {
	var w indexWaits
	w.reach(5)
	var told []uint64
	wait := func(index uint64) *indexWait { return w.wait(index, func() { told = append(told, index) }) }
	expect := func(want ...uint64) {
		t.Helper()
		if !slices.Equal(told, want) {
			t.Fatalf("told of %v, want %v", told, want)
		}
	}
	wait(5)
	expect(5)
	x, _, z := wait(9), wait(6), wait(7)
	w.cancel(z)
	w.cancel(z)
	w.reach(8)
	expect(5, 6)
	w.reach(3) // never goes back
	wait(8)
	expect(5, 6, 8)
	w.reach(9)
	expect(5, 6, 8, 9)
	w.cancel(x)
	if len(w.waits) != 0 {
		t.Fatal("leaks")
	}
}

// TestWhatIsDoneCounts: also when the time for it, or the node, has ended meanwhile.
func TestWhatIsDoneCounts(t *testing.T) {
	n := &Node{}
	n.ctx, n.halt = context.WithCancel(t.Context())
	n.applyWaits.reach(5)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 100 {
		if i == 50 {
			n.halt()
		}
		if err := n.WaitApplied(over, 5); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.WaitApplied(over, 6); !errors.Is(err, ErrStopped) {
		t.Errorf("entry 6: %v", err)
	}
}

func BenchmarkPropose(b *testing.B) {
	for _, members := range []int{1, 3} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			g := newGroup(b)
			var voters []uint64
			for id := 1; id <= members; id++ {
				voters = append(voters, uint64(id))
			}
			for _, id := range voters {
				g.add(id, newMemStore(voters...), func(c *Config) { c.OnCommitted = nil; c.TickInterval = 0 })
			}
			g.elect(g.nodes[1])
			b.SetBytes(2048)
			b.ReportAllocs()
			b.ResetTimer()
			var last uint64
			for range b.N {
				index, _, err := g.nodes[1].Propose(context.Background(), make([]byte, 2048))
				if err != nil {
					b.Fatal(err)
				}
				last = index
			}
			if err := g.nodes[1].waitCommitted(within(b, time.Minute), last); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// A voter that knows a leader keeps its promise to it when it is asked to campaign.
func TestCampaignBesideALeader(t *testing.T) {
	g := newGroup(t)
	_, _, c := g.trio(func(c *Config) { c.TickInterval = 100 * time.Millisecond }) // no member is silent for long
	eventually(t, "it knows the leader", func() bool { return c.Status().Leader == 1 })
	asked := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.sent[raftpb.MsgPreVote]
	}
	before := asked()
	c.Campaign()
	if _, err := c.ReadIndex(within(t, 20*time.Second)); err != nil { // queued after it
		t.Fatal(err)
	}
	if n := asked(); n != before {
		t.Errorf("it has asked %d times", n-before)
	}
}

// TestRefusedEntryIsNotApplied: an entry that the caller cannot take ends the node, and no commit index on disk goes
// beyond it: the next life is given it again.
func TestRefusedEntryIsNotApplied(t *testing.T) {
	g := newGroup(t)
	refused := errors.New("cannot be read")
	var bad atomic.Uint64
	var after atomic.Bool
	r := g.add(1, newMemStore(1), func(c *Config) {
		deliver := c.OnCommitted
		c.OnCommitted = func(ents []*raftpb.Entry) error {
			for _, e := range ents {
				after.Store(after.Load() || bad.Load() != 0)
				if string(e.GetData()) == "bad" {
					bad.Store(e.GetIndex())
					return refused
				}
			}
			return deliver(ents)
		}
	})
	g.elect(r)
	for _, data := range []string{"good", "bad", "next"} {
		if _, _, err := r.Propose(within(t, 20*time.Second), []byte(data)); err != nil && !errors.Is(err, ErrStopped) {
			t.Fatal(err)
		}
	}
	<-r.ctx.Done()
	r.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.fatal) != 1 || !errors.Is(r.fatal[0], refused) {
		t.Errorf("OnFatal: %v", r.fatal)
	}
	hs, _, _ := r.store.InitialState()
	if bad.Load() == 0 || r.Status().Applied >= bad.Load() || hs.GetCommit() >= bad.Load() || after.Load() {
		t.Errorf("entry %d was refused, %d are applied, commit index %d is on disk, more was delivered: %t",
			bad.Load(), r.Status().Applied, hs.GetCommit(), after.Load())
	}
}
