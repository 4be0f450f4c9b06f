package main

import (
	"strings"
	"testing"

	"trireme/internal/api"
)

// TestStatusTellsOfLogsAndUpstreams: whose log cannot be purged, one line for each reason, and who follows whom.
func TestStatusTellsOfLogsAndUpstreams(t *testing.T) {
	member := func(name, pinned string, up *api.UpstreamView, state string) api.MemberView {
		return api.MemberView{Name: name, State: state, Upstream: up, Raft: api.RaftView{LogBytes: 5 << 30, LogPinned: pinned}}
	}
	v := api.ClusterView{Leader: "n1", Members: []api.MemberView{
		member("n1", "n2 is away", nil, api.StateHealthy),
		member("n2", "n2 is away", nil, api.StateDown),
		member("l1", "n2 is away", nil, api.StateHealthy),
		member("r1", "r1 recovers", &api.UpstreamView{Name: "l1", Followed: true}, api.StateHealthy),
		member("r2", "", &api.UpstreamView{Name: "r1"}, api.StateHealthy),
		member("r3", "", &api.UpstreamView{Name: "r1", Followed: true}, api.StateDown),
	}}
	var b strings.Builder
	printStatus(&b, false, v)
	for _, want := range []string{
		"raft log cannot be purged on n1 (5120 MiB), l1 (5120 MiB): n2 is away\n",
		"raft log cannot be purged on r1 (5120 MiB): r1 recovers\n",
		"r1 follows l1\n", "r2 follows the leader directly, not its upstream r1\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "r3 follows") {
		t.Errorf("a node that is down follows:\n%s", b.String())
	}
}

// TestStatusTellsOfVirtualAddresses: who holds each, if anybody; what a node that is down said last does not count.
func TestStatusTellsOfVirtualAddresses(t *testing.T) {
	member := func(name, state string, held ...bool) api.MemberView {
		return api.MemberView{Name: name, State: state, VIPs: []api.VIPView{{Address: "10.0.0.100", Access: "read-write", Held: held[0]},
			{Address: "10.0.0.101", Access: "read-only", Held: held[1]}}}
	}
	var b strings.Builder
	printStatus(&b, false, api.ClusterView{Leader: "n1", Members: []api.MemberView{
		member("n1", api.StateHealthy, true, false), member("n2", api.StateDown, true, true), member("n3", api.StateHealthy, false, false)}})
	for _, want := range []string{"virtual address 10.0.0.100 (read-write): n1\n", "virtual address 10.0.0.101 (read-only): nobody\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}

// TestTopology: everybody is drawn once, under the node that its entries come from, whatever members say of each other.
func TestTopology(t *testing.T) {
	lag := 1.25
	member := func(name, role, state string, up *api.UpstreamView) api.MemberView {
		m := api.MemberView{Name: name, Role: role, State: state, Upstream: up, Daemon: api.DaemonView{API: name + ":8008"}}
		if role != api.RoleLogger {
			m.MySQL = &api.MySQLView{LagSeconds: &lag}
		}
		return m
	}
	v := api.ClusterView{Leader: "n1", Members: []api.MemberView{
		member("r2", api.RoleLearner, api.StateHealthy, &api.UpstreamView{Name: "r1", Followed: true}),
		member("n1", api.RoleLeader, api.StateHealthy, nil),
		member("l1", api.RoleLogger, api.StateHealthy, nil),
		member("r1", api.RoleLearner, api.StateHealthy, &api.UpstreamView{Name: "l1", Followed: true}),
		member("r3", api.RoleLearner, api.StateHealthy, &api.UpstreamView{Name: "l1"}),
		member("n2", api.RoleFollower, api.StateDown, nil),
		member("x1", api.RoleLearner, api.StateHealthy, &api.UpstreamView{Name: "x2", Followed: true}),
		member("x2", api.RoleLearner, api.StateHealthy, &api.UpstreamView{Name: "x1", Followed: true}),
	}}
	v.Members[1].Raft.Zone = "a"
	v.Members[1].Links = []api.LinkView{{To: "l1", RTTMS: 0.34}, {To: "r1", RTTMS: 9}}
	var b strings.Builder
	printTopology(&b, false, v)
	want := `n1  leader, healthy, zone a, n1:8008
├─ l1  logger, healthy, l1:8008, 0.3 ms
│  └─ r1  learner, healthy, r1:8008, 1.2 s behind
│     └─ r2  learner, healthy, r2:8008, 1.2 s behind
├─ r3  learner, healthy, r3:8008, 1.2 s behind, without its upstream l1
└─ n2  follower, down, n2:8008
x1
└─ x2  learner, healthy, x2:8008, 1.2 s behind
   └─ x1  learner, healthy, x1:8008, 1.2 s behind
`
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
	b.Reset()
	v.Leader = ""
	printTopology(&b, false, v)
	if !strings.HasPrefix(b.String(), "no leader\n├─ n1  leader") {
		t.Errorf("%s", b.String())
	}
}
