package alone

import (
	"testing"
	"time"

	"trireme/internal/api"
)

// TestChoose: which node's view counts.
func TestChoose(t *testing.T) {
	now := time.Now()
	rw := func(name string) *api.RouteTarget { return &api.RouteTarget{Name: name, Epoch: "1/1"} }
	view := func(node string, generation, term uint64, leader string) api.RouteView {
		v := api.RouteView{Node: node, Generation: generation, Term: term}
		if leader != "" {
			v.RW = rw(leader)
		}
		return v
	}
	holds := func(v api.RouteView) api.RouteView {
		v.Hold = 1
		return v
	}
	fresh := func(v api.RouteView) heard { return heard{v, now} }
	old := func(v api.RouteView) heard { return heard{v, now.Add(-api.RouteLimit)} }
	for _, tc := range []struct {
		name string
		all  []heard
		want string // the node whose view it is; empty: none
	}{
		{"nothing heard", []heard{{}, {}}, ""},
		{"a leader that was cut off", []heard{fresh(view("n1", 1, 4, "n1")), fresh(view("n2", 1, 5, "n2"))}, "n2"},
		{"an election", []heard{fresh(view("n1", 1, 4, "n1")), fresh(view("n2", 1, 5, ""))}, "n2"},
		{"a follower that was cut off", []heard{fresh(view("n3", 1, 5, "")), fresh(view("n1", 1, 5, "n1"))}, "n1"},
		{"the leader itself", []heard{fresh(view("n2", 1, 5, "n1")), fresh(view("n1", 1, 5, "n1")), fresh(view("n3", 1, 5, "n1"))}, "n1"},
		{"the leader holds sessions, which others have not heard", []heard{fresh(view("n2", 1, 5, "n1")), fresh(holds(view("n1", 1, 5, ""))), fresh(view("n3", 1, 5, "n1"))}, "n1"},
		{"one that held sessions, and was succeeded", []heard{fresh(holds(view("n1", 1, 5, ""))), fresh(view("n3", 1, 6, ""))}, "n3"},
		{"another generation", []heard{fresh(view("n1", 1, 9, "n1")), fresh(view("n2", 2, 8, "n2"))}, "n2"},
		{"one that is silent", []heard{old(view("n1", 1, 9, "n1")), fresh(view("n2", 1, 8, "n2"))}, "n2"},
		{"all are silent", []heard{old(view("n1", 1, 9, "n1")), old(view("n2", 1, 8, "n2"))}, ""},
	} {
		got, found := choose(tc.all, now)
		if got.view.Node != tc.want || found != (tc.want != "") {
			t.Errorf("%s: the view of %q counts, not that of %q", tc.name, got.view.Node, tc.want)
		}
	}
}
