package gossip

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
)

// testHost is db1 of db1, db2 and db3.
type testHost struct {
	settings *config.Cluster
	heard    []*Peer
	woken    int
}

func newTest(t *testing.T) (*Gossip, *testHost) {
	h := &testHost{settings: &config.Cluster{}}
	for id := range uint64(3) {
		h.settings.Members = append(h.settings.Members, config.Member{ID: id + 1, Name: fmt.Sprint("db", id+1),
			Role: config.RoleVoter})
	}
	cfg := config.Default()
	cfg.Dir = t.TempDir()
	return New(cfg, config.Identity{ID: 1, Name: "db1"}, ledger.New(raftlog.Boundary{}),
		run.Real{Boottime: consensus.Boottime}, h, slog.New(slog.DiscardHandler)), h
}

func (h *testHost) Settings() *config.Cluster { return h.settings }
func (*testHost) Links() Links                { return nil }
func (*testHost) Status() Status              { return Status{} }
func (h *testHost) Heard(p *Peer)             { h.heard = append(h.heard, p) }
func (h *testHost) WakeLoop()                 { h.woken++ }

// What a daemon said in its former life does not count for the present one: it was healthy then, and is being seeded
// now perhaps. A link that was broken for a moment changes nothing.
func TestFormerLifeIsNotBelieved(t *testing.T) {
	for gone, fresh := range map[bool]bool{true: false, false: true} {
		g, _ := newTest(t)
		g.Hear(2, []byte(`{"member":{"state":"healthy"}}`))
		g.Down(2, gone)
		if g.Peers()[2].Fresh() {
			t.Error("its link is down")
		}
		if g.Up(2); g.Peers()[2].Fresh() != fresh {
			t.Errorf("its process has ended %v: believed %v", gone, !fresh)
		}
	}
}

// TestSnapshotStays: what a reader holds does not change under it.
func TestSnapshotStays(t *testing.T) {
	g, h := newTest(t)
	g.Hear(2, []byte(`{"ready":true,"settings":1}`))
	all, db2 := g.Peers(), g.Peers()[2]
	since := db2.Since
	g.Hear(2, []byte(`{"ready":true,"settings":2}`))
	g.Hear(3, []byte(`{"settings":2}`))
	g.Down(2, true)
	if len(all) != 1 || all[2] != db2 || db2.Settings != 1 || !db2.Fresh() {
		t.Errorf("%+v", db2)
	}
	if p := g.Peers()[2]; p.Settings != 2 || p.Since != since || p.Fresh() || !p.Gone || len(h.heard) != 3 ||
		h.woken != 1 {
		t.Errorf("%+v, heard %d times, woken %d times", p, len(h.heard), h.woken)
	}
}

// TestDue: the others are told once for what they wait for, and once per interval.
func TestDue(t *testing.T) {
	g, _ := newTest(t)
	if !g.Due() || g.Due() {
		t.Error("not told once at the start")
	}
	g.Publish()
	g.Publish()
	if !g.Due() || g.Due() {
		t.Error("not told once of a change")
	}
	if g.told -= Interval + time.Millisecond; !g.Due() {
		t.Error("not told after the interval")
	}
}

// TestLeastTimeout: the lease follows the shortest election timeout of those that are members (S10).
func TestLeastTimeout(t *testing.T) {
	g, _ := newTest(t)
	own := g.LeastTimeout()
	if own <= 0 {
		t.Fatal(own)
	}
	g.Hear(2, []byte(`{"election_timeout_ns":1000000000000}`))
	g.Hear(9, []byte(`{"election_timeout_ns":5000000}`))
	if got := g.LeastTimeout(); got != own {
		t.Errorf("%v, its own is %v", got, own)
	}
	g.Hear(3, []byte(`{"election_timeout_ns":7000000}`))
	if got := g.LeastTimeout(); got != 7*time.Millisecond {
		t.Error(got)
	}
}

// TestBehind: what the leader has reported and has not arrived counts, and only what the leader reports.
func TestBehind(t *testing.T) {
	g, _ := newTest(t)
	g.Follows(2)
	g.Hear(3, []byte(`{"clock":"2026-01-02T03:04:05Z","member":{"raft":{"commit":7}}}`))
	if d := g.Awaiting(); d != 0 {
		t.Errorf("%v, by the word of a follower", d)
	}
	g.Hear(2, []byte(`{"clock":"2026-01-02T03:04:05Z","member":{"raft":{"commit":7}}}`))
	if len(g.awaited) != 1 {
		t.Fatal("what the leader told of is not waited for")
	}
	at := g.now()
	g.awaited[0].at = at - time.Minute
	if d := g.Awaiting(); d < time.Minute || d > time.Minute+g.now()-at {
		t.Error(d)
	}
}

// TestLoss: the end of a leadership is noticed once, with the last sign of life; who is seen again had not ended.
func TestLoss(t *testing.T) {
	g, _ := newTest(t)
	g.Follows(2)
	g.Hear(2, []byte(`{"open_term":4}`))
	g.HearRaft()
	g.Follows(2)
	if l, _ := g.LossOf(2, 4); l != (Loss{}) {
		t.Errorf("it leads: %+v", l)
	}
	g.Down(2, true)
	g.Follows(0)
	l, cause := g.LossOf(2, 4)
	if l.Noticed == 0 || l.Sign != g.RaftHeard() || cause != "its daemon ended" {
		t.Errorf("%+v, %q", l, cause)
	}
	g.Follows(0)
	g.Asked()
	if again, _ := g.LossOf(2, 4); again.Noticed != l.Noticed || again.Asked == 0 {
		t.Errorf("%+v, not %+v", again, l)
	}
	if other, _ := g.LossOf(3, 4); other != (Loss{}) {
		t.Errorf("of another leader: %+v", other)
	}
	g.Follows(2)
	g.Hear(2, []byte(`{"open_term":4}`))
	if l, _ := g.LossOf(2, 4); l != (Loss{}) {
		t.Errorf("it was lost from sight for a moment: %+v", l)
	}
}

// TestLeave: a node says once for each term why it stopped taking writes, and nothing once it goes on.
func TestLeave(t *testing.T) {
	g, _ := newTest(t)
	g.Leave(4, Leave{Cause: "a"})
	g.Leave(4, Leave{Cause: "b"})
	if l, at := g.LeaveOf(1, 4); l.Cause != "a" || l.Term != 4 || at == 0 {
		t.Errorf("%+v at %v", l, at)
	}
	if told, _ := g.Past(); told.Cause != "a" || told.Ago < 0 {
		t.Errorf("%+v", told)
	}
	if l, _ := g.LeaveOf(1, 5); l != (Leave{}) {
		t.Errorf("of another term: %+v", l)
	}
	g.Opened(4)
	if told, _ := g.Past(); told != (Leave{}) {
		t.Errorf("it goes on: %+v", told)
	}
	g.Leave(4, Leave{Cause: "d"})
	g.Opened(5)
	if l, _ := g.LeaveOf(1, 4); l.Cause != "d" {
		t.Errorf("the second end of a term: %+v", l)
	}
	g.Hear(2, []byte(`{"left":{"term":5,"cause":"c","ago_ns":1000000000}}`))
	if l, at := g.LeaveOf(2, 5); l.Cause != "c" || at > g.now()-time.Second {
		t.Errorf("%+v at %v", l, at)
	}
}
