package ha

import (
	"fmt"
	"testing"
)

func TestZoneLosses(t *testing.T) {
	voter := func(id uint64, live bool) Peer {
		return Peer{ID: id, Name: fmt.Sprintf("n%d", id), Voter: true, Data: true, Live: live, Ready: live, Weight: 100}
	}
	logger := Peer{ID: 3, Name: "n3", Voter: true, Live: true}
	for _, tt := range []struct {
		name    string
		zoneOf  map[uint64]string
		peers   []Peer
		mustAck []uint64
		zones   int
		want    string
	}{
		{"no zones", nil, []Peer{voter(2, true), voter(3, true)}, nil, 1, "[]"},
		{"one each", map[uint64]string{1: "a", 2: "b", 3: "c"}, []Peer{voter(2, true), voter(3, true)}, nil, 1,
			"[{a 1 true true false true 2} {b 1 true false false true 0} {c 1 true false false true 0}]"},
		{"the leader's zone is a majority", map[uint64]string{1: "a", 2: "b", 3: "a"}, []Peer{voter(2, true), logger}, nil, 1,
			"[{a 2 false true false false 0} {b 1 true false false true 0}]"},
		{"and the rule asks for two", map[uint64]string{1: "a", 2: "b", 3: "a"}, []Peer{voter(2, true), logger}, nil, 2,
			"[{a 2 false true true true 0} {b 1 true false true true 0}]"},
		{"or for the node elsewhere", map[uint64]string{1: "a", 2: "b", 3: "a"}, []Peer{voter(2, true), logger},
			[]uint64{2}, 1,
			"[{a 2 false true false true 0} {b 1 true false true true 0}]"},
		{"only a logger is left with another", map[uint64]string{1: "a"}, []Peer{{ID: 2, Name: "n2", Voter: true, Live: true},
			logger}, nil, 1,
			"[{a 1 true true false true 0}]"},
		{"one is down already", map[uint64]string{1: "a", 2: "b", 3: "c"}, []Peer{voter(2, true), voter(3, false)}, nil, 1,
			"[{a 1 false true false true 0} {b 1 false false false true 0} {c 1 true false false true 0}]"},
	} {
		v := View{Self: 1, Name: "n1", Voter: true, Weight: 100, Raft: Raft{Term: 3, Leader: 1, IsLeader: true, Voters: 3},
			Server: Server{State: ServerReady}, Peers: tt.peers}
		if got := fmt.Sprint(ZoneLosses(v, tt.zoneOf, tt.mustAck, tt.zones)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
