package node

import (
	"maps"
	"slices"
	"testing"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/consensus"
	"trireme/internal/mysqld"
)

// upstreamNode is n1 of n1 n2 r3 r4 r5: r3 is behind n2, r4 behind r3, r5 behind n1.
func upstreamNode() *Node {
	n := &Node{id: config.Identity{ID: 1, Name: "n1"}, peers: map[uint64]*peer{}, cluster: &config.Cluster{}, bin: mysqld.Binary{}}
	for id, m := range []config.Member{{}, {Name: "n1", Role: config.RoleVoter}, {Name: "n2", Role: config.RoleVoter}, {Name: "r3", Role: config.RoleLearner, Upstream: 2},
		{Name: "r4", Role: config.RoleLearner, Upstream: 3}, {Name: "r5", Role: config.RoleLearner, Upstream: 1}} {
		if m.ID = uint64(id); id == 0 {
			continue
		}
		n.cluster.Members = append(n.cluster.Members, m)
		n.peers[m.ID] = &peer{up: true, at: now(), status: status{Ready: true, Member: api.MemberView{Name: m.Name, MySQL: &api.MySQLView{Version: n.bin.Version.String()}}}}
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
		n := upstreamNode()
		tt.change(n)
		if got := n.pathsLocked(tt.st); !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestDonorIsUpstream: a learner copies from its upstream, even if that leads, and from others when it cannot.
func TestDonorIsUpstream(t *testing.T) {
	n := upstreamNode()
	n.id = config.Identity{ID: 5, Name: "r5"}
	n.peers[1].status.OpenTerm = 1
	if got := n.donors(); len(got) != 4 || got[0] != 1 {
		t.Errorf("donors of r5 are %v", got)
	}
	n.peers[1].status.Ready = false
	if got := n.donors(); slices.Contains(got, 1) || len(got) != 3 {
		t.Errorf("donors of r5 are %v", got)
	}
}
