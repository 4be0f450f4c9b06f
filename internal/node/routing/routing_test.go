package routing

import (
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/gossip"
)

// TestRouteNews: who waits hears of each change, and of nothing else.
func TestRouteNews(t *testing.T) {
	var news news
	told := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	view := func(epoch string) router.View { return router.View{RW: &router.Target{Name: "n1", Epoch: epoch}} }
	for _, step := range []struct {
		view router.View
		want bool
	}{{view("1/1"), true}, {view("1/1"), false}, {view("1/2"), true}, {router.View{KeepRW: true}, true},
		{router.View{KeepRW: true}, false}} {
		one, other := news.next(), news.next()
		news.tell(step.view)
		if told(one) != step.want || told(other) != step.want {
			t.Errorf("%+v: told %v and %v, wanted %v", step.view, told(one), told(other), step.want)
		}
	}
}

// testHost is db1 of db1, db2 and db3, which have told what a test says.
type testHost struct {
	settings *config.Cluster
	term     uint64
}

func (h *testHost) Settings() *config.Cluster    { return h.settings }
func (*testHost) Links() gossip.Links            { return nil }
func (*testHost) Heard(*gossip.Peer)             {}
func (*testHost) WakeLoop()                      {}
func (*testHost) Status() gossip.Status          { return gossip.Status{} }
func (h *testHost) Term() uint64                 { return h.term }
func (*testHost) Lags() map[string]time.Duration { return nil }
func (*testHost) Proof() *api.MySQLProof         { return &api.MySQLProof{} }
func (*testHost) Held() uint64                   { return 0 }
func (*testHost) Generation() uint64             { return 1 }

var realTime = run.Real{Boottime: consensus.Boottime}

// newTest is a member with a router that does not run.
func newTest(t *testing.T) (*Routing, *testHost) {
	t.Helper()
	h := &testHost{settings: &config.Cluster{}}
	for id := range uint64(3) {
		h.settings.Members = append(h.settings.Members, config.Member{ID: id + 1, Name: fmt.Sprint("db", id+1),
			Role: config.RoleVoter})
	}
	cfg := config.Default()
	cfg.Dir = t.TempDir()
	id, log := config.Identity{ID: 1, Name: "db1", Role: config.RoleVoter}, slog.New(slog.DiscardHandler)
	r := New(id, gossip.New(cfg, id, ledger.New(raftlog.Boundary{}), realTime, h, log), h)
	r.router = router.New(router.Config{Logger: log})
	t.Cleanup(r.Close)
	return r, h
}

// hear takes a status of a member.
func hear(r *Routing, id uint64, s gossip.Status) { r.gossip.Take(id, s) }

// TestProofs: routers hear of each member what it says itself. Before a node has looked at its mysqld no server is that
// one, and of an older node, or of no member, nothing is known.
func TestProofs(t *testing.T) {
	r, _ := newTest(t)
	for id, proof := range map[uint64]*api.MySQLProof{2: {Certificates: []string{"c2"}}, 3: nil,
		4: {Certificates: []string{"c2"}}} {
		hear(r, id, gossip.Status{Member: api.MemberView{MySQL: &api.MySQLView{Proof: proof}}})
	}
	r.gossip.Down(2, true) // what it said stays true
	all := r.proofs()
	if own, ok := all["db1"]; !ok || len(own.Certificates) != 0 || own.Key != "" {
		t.Errorf("own: %+v", own)
	}
	if p, ok := all["db2"]; !ok || p.Certificates[0] != "c2" || len(all) != 2 {
		t.Errorf("%+v", all)
	}
}

// TestNoLeaderKnownIsNoLeader: a node that knows no leader sends no client to one of an earlier term: that one may have
// been fenced, and its mysqld started again at the same address, before the status that said so has arrived.
func TestNoLeaderKnownIsNoLeader(t *testing.T) {
	for _, c := range []struct {
		what string
		term uint64 // that it knows of
		want bool
	}{
		{"its term", 4, true},
		{"in an older term", 3, true},
		{"a later term", 5, false},
	} {
		r, h := newTest(t)
		h.term = c.term
		hear(r, 2, gossip.Status{OpenTerm: 4, Epoch: "2/4",
			Member: api.MemberView{Name: "db2", MySQL: &api.MySQLView{Host: "db2", Port: 3306}}})
		if v, term := r.RouterView(gossip.Status{}); (v.RW != nil) != c.want || (term == 4) != c.want {
			t.Errorf("%s: %+v in term %d", c.what, v.RW, term)
		}
	}
}

// TestQuiet: writes are not closed before a router without a node has said that it is quiet in this very switchover,
// and every node that is heard has said so of this term.
func TestQuiet(t *testing.T) {
	r, _ := newTest(t)
	r.router.SetView(router.View{KeepRW: true})
	if r.Followed() || !r.Quiet(4, 7) {
		t.Error("there is no router")
	}
	leave := r.Elsewhere.Follow("r1")
	if !r.Followed() {
		t.Error("a router without a node is not asked")
	}
	r.Elsewhere.Quiet("r1", 3) // of an attempt before
	if r.Quiet(4, 7) {
		t.Error("a router is quiet that was so at an attempt before")
	}
	if r.Elsewhere.Quiet("r1", 4); !r.Quiet(4, 7) || r.Quiet(5, 7) {
		t.Error("a router's word is not taken for the attempt that it names")
	}
	leave()
	hear(r, 2, gossip.Status{Quiet: 6, Follows: true})
	if !r.Followed() || r.Quiet(5, 7) {
		t.Error("a node's router is quiet that was so in a term before")
	}
	if hear(r, 2, gossip.Status{Quiet: 7, Follows: true}); !r.Quiet(5, 7) {
		t.Error("a node's router is not quiet")
	}
}

// TestTiedSessions: those that the nodes that are heard have told of count, and a daemon that knows nothing of them
// tells of none.
func TestTiedSessions(t *testing.T) {
	r, _ := newTest(t)
	told := gossip.Status{Member: api.MemberView{Router: api.RouterView{TiedSessions: map[string]int{"user locks": 2},
		FollowedSessions: 3}}}
	for id := range uint64(3) {
		hear(r, id+1, told)
	}
	hear(r, 3, gossip.Status{})
	r.gossip.Down(2, true)
	if got := r.Tied(); !maps.Equal(got, map[string]int{"user locks": 2}) {
		t.Errorf("%v", got)
	}
	if got := r.Moves(); got != 3 {
		t.Errorf("%d sessions would move, not 3", got)
	}
}
