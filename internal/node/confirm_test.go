package node

import (
	"testing"

	"trireme/internal/api"
	"trireme/internal/core/consensus"
	"trireme/internal/node/gossip"
)

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
		{"a term behind, following another", consensus.State{Term: 3, Leader: 2}, true},
		{"a later term, following another", consensus.State{Term: 5, Leader: 2}, false},
		{"a later term without a leader", consensus.State{Term: 5}, false},
	} {
		n := listener(t)
		n.raft = c.raft
		n.gossip.Peers()[1] = &gossip.Peer{Up: true, At: now(), Status: gossip.Status{OpenTerm: 4, Epoch: "2/4",
			Member: api.MemberView{Name: "db1", MySQL: &api.MySQLView{Host: "db1", Port: 3306}}}}
		if v, term := n.routerViewLocked(gossip.Status{}); (v.RW != nil) != c.want || (term == 4) != c.want {
			t.Errorf("%s: %+v in term %d", c.what, v.RW, term)
		}
	}
}
