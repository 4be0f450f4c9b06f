package dashboard

import (
	"testing"

	"trireme/internal/api"
)

// TestNextSteps: the advice names the nodes, and says to wait while one has just started.
func TestNextSteps(t *testing.T) {
	member := func(name, role, state string) api.MemberView {
		return api.MemberView{Name: name, Role: role, State: state, MySQL: &api.MySQLView{}, Raft: api.RaftView{Voter: true}}
	}
	leads := member("n1", api.RoleLeader, api.StateHealthy)
	follows := func(name, state string) api.MemberView { return member(name, api.RoleFollower, state) }
	up, down, starting, fenced := api.StateHealthy, api.StateDown, api.StateStarting, api.StateFenced
	doubt := "n2 has not heard from the cluster yet"
	for name, c := range map[string]struct {
		v    api.ClusterView
		want string
	}{
		"the only node starts": {api.ClusterView{Members: []api.MemberView{follows("n1", starting)}},
			"wait some seconds for the start of n1; if nothing changes: ask each data node why it does not lead: " +
				"`trireme why-not n1`"},
		"it has just joined": {api.ClusterView{Doubt: doubt, Members: []api.MemberView{follows("n1", down),
			follows("n2", starting)}},
			"wait some seconds for the start of n2; if nothing changes: on n1: `systemctl status trireme`, " +
				"then `journalctl -u trireme -n 100`"},
		"two voters": {api.ClusterView{Leader: "n1", Members: []api.MemberView{leads, follows("n2", up)}},
			"add voters until there are 3, which survive the loss of one: `trireme add NAME`; a node that has just joined " +
				"gets its vote by itself"},
		"no candidate": {api.ClusterView{Leader: "n1", Members: []api.MemberView{leads, follows("n2", up),
			follows("n3", up)}}, "ask n2, n3 why not: `trireme why-not NODE`"},
		"a failover during a pause": {api.ClusterView{Pause: &api.PauseView{}, Members: []api.MemberView{follows("n1", up),
			follows("n2", up)}}, "have another node lead: `trireme resume`, or `trireme failover` during the pause"},
		"fenced": {api.ClusterView{Doubt: doubt, Members: []api.MemberView{follows("n1", fenced)}},
			"read the reason of n1 above, or `trireme why-not n1`"},
	} {
		steps := NextSteps(c.v, "above")
		if len(steps) != 1 || steps[0].Do != c.want {
			t.Errorf("%s: %+v, want %q", name, steps, c.want)
		}
	}
}
