package consensus

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// steps are three voters that do what a Node's goroutines do, one step at a time, and a network that keeps what they
// send until the test takes it.
type steps struct {
	t     *testing.T
	net   []*raftpb.Message
	nodes [4]*steppedVoter // by raft id
}

type steppedVoter struct {
	*Stepper
	store     *memStore
	alarms    []func() // what After was asked to call: the held notices
	delivered int      // committed entries with data
	calls     int      // of OnCommitted: a leader acknowledges once in each
}

// newSteps returns them with 1 as a leader that has told the others everything.
func newSteps(t *testing.T) *steps {
	t.Helper()
	g := &steps{t: t}
	for id := uint64(1); id <= 3; id++ {
		v := &steppedVoter{store: newMemStore(1, 2, 3)}
		cfg := Config{ID: id, Storage: v.store, Clock: func() int64 { return int64(time.Hour) },
			Send: func(msgs []*raftpb.Message) { g.net = append(g.net, msgs...) },
			OnCommitted: func(ents []*raftpb.Entry) error {
				v.calls++
				for _, e := range ents {
					v.delivered += min(1, len(e.GetData()))
				}
				return nil
			}}
		var err error
		v.Stepper, err = OpenStepper(cfg, nil, StepperOptions{Life: id, Jitter: func(uint64, int) int { return 0 },
			After: func(_ time.Duration, f func()) { v.alarms = append(v.alarms, f) }})
		g.must(err)
		g.nodes[id] = v
	}
	g.nodes[1].Campaign()
	g.settle()
	g.alarm(1)
	g.settle()
	if s := g.nodes[1].Status(); s.Role != Leader || len(g.nodes[1].alarms) > 0 {
		t.Fatalf("%v of term %d, %d alarms", s.Role, s.Term, len(g.nodes[1].alarms))
	}
	return g
}

func (g *steps) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// turn is one turn of raft on a voter; what it sends is returned.
func (g *steps) turn(id uint64) []*raftpb.Message {
	g.t.Helper()
	g.must(g.nodes[id].Turn())
	return g.take()
}

// write lets a voter's disk write and sync what waits for it, and returns what is sent upon that.
func (g *steps) write(id uint64) []*raftpb.Message {
	g.t.Helper()
	v := g.nodes[id]
	g.must(v.BeginAppend())
	if len(g.net) > 0 {
		g.t.Fatalf("%d sends %v before its fsync", id, g.net)
	}
	g.must(v.EndAppend())
	return g.take()
}

// apply lets a voter's apply goroutine do all that waits for it.
func (g *steps) apply(id uint64) {
	g.t.Helper()
	for v := g.nodes[id]; v.WantsApply(); {
		g.must(v.Apply())
	}
}

// take takes all messages that are under way from the network.
func (g *steps) take() []*raftpb.Message {
	msgs := g.net
	g.net = nil
	return msgs
}

// carry gives a voter those of the messages that are for it.
func (g *steps) carry(msgs []*raftpb.Message, to uint64) {
	for _, m := range msgs {
		if m.GetTo() == to {
			g.nodes[to].Step(m)
		}
	}
}

// alarm lets the time pass that a voter's notices may wait.
func (g *steps) alarm(id uint64) {
	calls := g.nodes[id].alarms
	g.nodes[id].alarms = nil
	for _, f := range calls {
		f()
	}
}

// settle runs all until nothing moves but time, and returns everything that was sent.
func (g *steps) settle() (sent []*raftpb.Message) {
	g.t.Helper()
	for busy := true; busy; {
		busy = false
		for id := uint64(1); id <= 3; id++ {
			v := g.nodes[id]
			for !v.Idle() || v.WantsAppend() || v.WantsApply() {
				busy = true
				g.must(v.Turn())
				if v.WantsAppend() {
					g.must(errors.Join(v.BeginAppend(), v.EndAppend()))
				}
				g.apply(id)
			}
		}
		for _, m := range g.take() {
			busy = true
			sent = append(sent, m)
			g.nodes[m.GetTo()].Step(m)
		}
	}
	return sent
}

// propose gives the leader an entry.
func (g *steps) propose(data string) {
	g.nodes[1].Propose(0, []byte(data), func(_, _ uint64, err error) {
		if err != nil {
			g.t.Errorf("%s: %v", data, err)
		}
	})
}

// oneEach checks that each follower is sent one MsgApp with so many entries, and that nothing else is sent.
func (g *steps) oneEach(what string, msgs []*raftpb.Message, entries int) {
	g.t.Helper()
	to := map[uint64]int{}
	for _, m := range msgs {
		if m.GetType() != raftpb.MsgApp || len(m.GetEntries()) != entries {
			g.t.Fatalf("%s: the leader sends %v with %d entries to %d, want MsgApp with %d", what, m.GetType(),
				len(m.GetEntries()), m.GetTo(), entries)
		}
		to[m.GetTo()]++
	}
	if to[2] != 1 || to[3] != 1 {
		g.t.Fatalf("%s: %d messages to 2 and %d to 3, want one each", what, to[2], to[3])
	}
}

// answer checks that a follower answers with one message.
func (g *steps) answer(msgs []*raftpb.Message) {
	g.t.Helper()
	if len(msgs) != 1 || msgs[0].GetType() != raftpb.MsgAppResp || msgs[0].GetTo() != 1 || msgs[0].GetReject() {
		g.t.Fatalf("a follower answers with %v, want one MsgAppResp", msgs)
	}
}

// silent checks that something makes no member send a message.
func (g *steps) silent(what string, msgs []*raftpb.Message) {
	g.t.Helper()
	if len(msgs) > 0 {
		g.t.Fatalf("%s leads to %v", what, msgs)
	}
}

// syncs that each voter's log has had.
func (g *steps) syncs() (n [4]int) {
	for id := 1; id <= 3; id++ {
		n[id] = g.nodes[id].store.syncs
	}
	return n
}

// TestCommitIsOneRoundTrip counts messages and fsyncs of commits one after the other. Each goes out in the turn that
// takes it, before the leader's own fsync begins, once to each follower. It is committed by one answer, which comes
// after that follower's fsync, and by the leader's own fsync, in whichever order they end. Nothing else is sent. The
// followers learn of the commit with the next entry, or by a message of its own if none comes.
func TestCommitIsOneRoundTrip(t *testing.T) {
	g := newSteps(t)
	const commits = 6
	before := g.syncs()
	for i := 1; i <= commits; i++ {
		g.propose("x")
		out := g.turn(1)
		g.oneEach("a proposal", out, 1)
		if last := g.nodes[1].Status().LastIndex; out[0].GetCommit() != last-1 {
			t.Fatalf("entry %d tells of commit index %d, all before it is committed", last, out[0].GetCommit())
		}
		var back []*raftpb.Message
		for to := uint64(2); to <= 3; to++ {
			g.carry(out, to)
			g.silent("an entry that is not on disk yet", g.turn(to))
			answer := g.write(to)
			g.answer(answer)
			back = append(back, answer...)
		}
		slow := i%2 == 0 // the leader's own disk is the slowest of all: both answers are here before it is done
		if slow {
			g.carry(back, 1)
			g.silent("the commit", g.turn(1))
			if s := g.nodes[1].Status(); s.Commit != s.LastIndex {
				t.Fatalf("two answers committed up to %d, want %d", s.Commit, s.LastIndex)
			}
		}
		g.silent("the leader's fsync", g.write(1))
		if !slow {
			g.carry(back[:1], 1)
		}
		g.silent("the commit", g.turn(1))
		g.apply(1)
		if n := g.nodes[1].delivered; n != i {
			t.Fatalf("one round trip committed %d entries, want %d", n, i)
		}
		if !slow {
			g.carry(back[1:], 1)
		}
		g.silent("the last answer", g.settle())
	}
	after := g.syncs()
	for id := 1; id <= 3; id++ {
		if n := after[id] - before[id]; n != commits {
			t.Errorf("%d has synced its log %d times for %d commits", id, n, commits)
		}
	}
	g.alarm(1)
	g.oneEach("a notice", g.turn(1), 0)
	if d := g.nodes[2].delivered; d != commits-1 {
		t.Errorf("a follower has delivered %d of %d before it was told", d, commits)
	}
}

// TestBatchIsOneMessage: what waits when a turn begins is one message to each follower, one answer, one fsync
// everywhere and one delivery; and what comes while the disk is busy goes out at once and shares the next fsync.
func TestBatchIsOneMessage(t *testing.T) {
	g := newSteps(t)
	before, calls := g.syncs(), g.nodes[1].calls
	const batch = 16
	for range batch {
		g.propose("x")
	}
	out := g.turn(1)
	g.oneEach("a batch", out, batch)
	g.carry(out, 2)
	g.turn(2)
	back := g.write(2)
	g.answer(back)
	g.carry(back, 1)
	g.must(g.nodes[1].BeginAppend()) // and its disk takes its time
	for range batch {
		g.propose("y")
		g.oneEach("an entry after a batch", g.turn(1), 1)
	}
	g.must(g.nodes[1].EndAppend())
	g.turn(1)
	g.apply(1)
	if n := g.nodes[1].delivered; n != batch {
		t.Errorf("%d entries are committed, want the %d of the first batch", n, batch)
	}
	if n := g.nodes[1].calls - calls; n != 1 {
		t.Errorf("a batch is delivered, and acknowledged to mysqld, in %d pieces", n)
	}
	g.write(1)
	after := g.syncs()
	if lead, follower := after[1]-before[1], after[2]-before[2]; lead != 2 || follower != 1 {
		t.Errorf("%d fsyncs of the leader for two batches, %d of a follower for one", lead, follower)
	}
}

// TestEntryIsSentBeforeTheLeadersFsync: a running leader has it on the others' disks, and knows it to be committed,
// while its own hangs.
func TestEntryIsSentBeforeTheLeadersFsync(t *testing.T) {
	g := newGroup(t)
	lead, _, _ := g.trio(func(c *Config) { c.TickInterval = time.Hour }) // no heartbeat may make up for what was not sent
	release := make(chan struct{})
	t.Cleanup(func() { close(release) }) // before the group's own: it waits for the disk
	lead.store.setHooks(func() error { <-release; return nil }, nil)
	index, _, err := lead.Propose(within(t, 10*time.Second), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the entry is committed while the leader's fsync hangs",
		func() bool { return lead.Status().Commit >= index })
	if d := lead.Status().Durable; d >= index {
		t.Errorf("the leader's own log counts as synced up to %d, entry %d hangs", d, index)
	}
}
