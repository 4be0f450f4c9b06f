package node

import (
	"maps"
	"slices"
	"testing"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/consensus"
)

// upstreamNode is a node of two voters and three learners: 3 has 2 as upstream, 4 has 3, and 5 has 1.
func upstreamNode(t *testing.T, changes ...func(*testDir)) *Node {
	t.Helper()
	members := testVoters(5)
	for i, upstream := range map[int]uint64{2: 2, 3: 3, 4: 1} {
		members[i].Role, members[i].Upstream = config.RoleLearner, upstream
	}
	n := newTestNode(t, append(changes, withMembers(members...))...)
	for _, m := range members {
		n.peers[m.ID] = &peer{up: true, at: now(), status: status{Ready: true,
			Member: api.MemberView{Name: m.Name, MySQL: &api.MySQLView{Version: n.bin.Version.String()}}}}
	}
	return n
}

// TestPaths: only a leader sends through upstreams, and only through those that are there and are another node.
func TestPaths(t *testing.T) {
	lead := &consensus.Status{State: consensus.State{Role: consensus.Leader}, Learners: []uint64{3, 4, 5}}
	for _, tt := range []struct {
		name   string
		st     *consensus.Status
		change func(*Node)
		want   map[uint64]uint64
	}{
		{"all are there", lead, func(*Node) {}, map[uint64]uint64{3: 2, 4: 3}},
		{"a follower", &consensus.Status{Learners: []uint64{3, 4, 5}}, func(*Node) {}, nil},
		{"the link is down", lead, func(n *Node) { n.peers[3].up = false }, map[uint64]uint64{3: 2}},
		{"silent", lead, func(n *Node) { n.peers[2].at -= 2 * statusLifetime }, map[uint64]uint64{4: 3}},
		{"never heard of", lead, func(n *Node) { delete(n.peers, 2) }, map[uint64]uint64{4: 3}},
		{"still a voter", &consensus.Status{State: lead.State, Voters: []uint64{3}, Learners: []uint64{4, 5}}, func(*Node) {}, map[uint64]uint64{4: 3}},
	} {
		n := upstreamNode(t)
		tt.change(n)
		if got := n.pathsLocked(tt.st); !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestDonorIsUpstream: a learner copies from its upstream, even if that leads, and from others when it cannot.
func TestDonorIsUpstream(t *testing.T) {
	n := upstreamNode(t, as(5))
	n.peers[1].status.OpenTerm = 1
	if got := n.donors(); len(got) != 4 || got[0] != 1 {
		t.Errorf("donors of db5 are %v", got)
	}
	n.peers[1].status.Ready = false
	if got := n.donors(); slices.Contains(got, 1) || len(got) != 3 {
		t.Errorf("donors of db5 are %v", got)
	}
}
