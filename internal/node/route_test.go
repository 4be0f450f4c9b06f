package node

import (
	"testing"

	"trireme/internal/access/router"
	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/node/gossip"
)

// TestRouteNews: who waits hears of each change, and of nothing else.
func TestRouteNews(t *testing.T) {
	var news routeNews
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

// TestProofs: routers hear of each member what it says itself. Before a node has looked at its mysqld no server is that
// one, and of an older node nothing is known.
func TestProofs(t *testing.T) {
	n := newTestNode(t)
	said := &api.MySQLProof{Certificates: []string{"c2"}}
	n.Settings().Members = []config.Member{{ID: 1, Name: n.id.Name}, {ID: 2, Name: "n2"}, {ID: 3, Name: "n3"}}
	peers := n.gossip.Peers()
	peers[2], peers[3], peers[4] = &gossip.Peer{}, &gossip.Peer{}, &gossip.Peer{}
	peers[2].Member.MySQL = &api.MySQLView{Proof: said} // not fresh: what was said stays true for it
	peers[3].Member.MySQL = &api.MySQLView{}
	peers[4].Member.MySQL = &api.MySQLView{Proof: said}
	all := n.proofs()
	if own, ok := all[n.id.Name]; !ok || len(own.Certificates) != 0 || own.Key != "" {
		t.Errorf("own: %+v", own)
	}
	if p, ok := all["n2"]; !ok || p.Certificates[0] != "c2" || len(all) != 2 {
		t.Errorf("%+v", all)
	}
}

// A node that knows no leader sends no client to one of an earlier term: that one may have been fenced, and its mysqld
// started again at the same address, before the status that said so has arrived.
func TestNoLeaderKnownIsNoLeader(t *testing.T) {
	for _, c := range []struct {
		what string
		raft consensus.State
		want bool
	}{
		{"its term", consensus.State{Term: 4, Leader: 1}, true},
		{"its term, and it was silent", consensus.State{Term: 4}, true},
		{"in an older term, following another", consensus.State{Term: 3, Leader: 2}, true},
		{"a later term, following another", consensus.State{Term: 5, Leader: 2}, false},
		{"a later term without a leader", consensus.State{Term: 5}, false},
	} {
		n := listener(t)
		n.control.SoftState(c.raft)
		n.gossip.Peers()[1] = &gossip.Peer{Up: true, At: now(), Status: gossip.Status{OpenTerm: 4, Epoch: "2/4",
			Member: api.MemberView{Name: "db1", MySQL: &api.MySQLView{Host: "db1", Port: 3306}}}}
		if v, term := n.routerViewLocked(gossip.Status{}); (v.RW != nil) != c.want || (term == 4) != c.want {
			t.Errorf("%s: %+v in term %d", c.what, v.RW, term)
		}
	}
}
