package standalone

import (
	"fmt"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/pki"
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
		{"the leader itself", []heard{fresh(view("n2", 1, 5, "n1")), fresh(view("n1", 1, 5, "n1")),
			fresh(view("n3", 1, 5, "n1"))}, "n1"},
		{"the leader holds sessions, which others have not heard", []heard{fresh(view("n2", 1, 5, "n1")),
			fresh(holds(view("n1", 1, 5, ""))), fresh(view("n3", 1, 5, "n1"))}, "n1"},
		{"one that held sessions, and was succeeded", []heard{fresh(holds(view("n1", 1, 5, ""))),
			fresh(view("n3", 1, 6, ""))}, "n3"},
		{"another generation", []heard{fresh(view("n1", 1, 9, "n1")), fresh(view("n2", 2, 8, "n2"))}, "n2"},
		{"one that is silent", []heard{old(view("n1", 1, 9, "n1")), fresh(view("n2", 1, 8, "n2"))}, "n2"},
		{"all are silent", []heard{old(view("n1", 1, 9, "n1")), old(view("n2", 1, 8, "n2"))}, ""},
	} {
		got, found := choose(tc.all, api.RouteView{}, now)
		if got.view.Node != tc.want || found != (tc.want != "") {
			t.Errorf("%s: the view of %q counts, not that of %q", tc.name, got.view.Node, tc.want)
		}
	}
}

// TestFormerMembers: what a node says that was removed or revoked never counts, whatever it claims, while members are
// heard; and a new term needs a second member.
func TestFormerMembers(t *testing.T) {
	now := time.Now()
	list := func(ids ...uint64) (out []api.RouteNode) {
		for _, id := range ids {
			out = append(out, api.RouteNode{Name: fmt.Sprint("n", id), ID: id})
		}
		return out
	}
	from := func(id, term uint64, nodes []api.RouteNode, revoked ...string) heard {
		name := fmt.Sprint("n", id)
		return heard{api.RouteView{Node: name, From: pki.Identity{Cluster: "c", ID: id, Name: name},
			Serial: fmt.Sprint("s", id), Term: term,
			RW: &api.RouteTarget{Name: name, Epoch: "e"}, Nodes: nodes, Next: 9, Revoked: revoked}, now}
	}
	three, last := list(1, 2, 3), api.RouteView{Term: 5, Nodes: list(1, 2, 3)}
	off := list(1, 2, 3, 4)
	off[3].Revoked = true
	for name, tc := range map[string]struct {
		last api.RouteView
		all  []heard
		want string
	}{
		"removed, and says so": {last, []heard{from(1, 5, three), from(2, 4, three), from(4, 99, three)},
			"n1"},
		"removed, and claims to be a member": {last, []heard{from(1, 5, three), from(2, 4, three),
			from(4, 99, list(1, 2, 3, 4))}, "n1"},
		"removed, and disowns the others": {last, []heard{from(1, 5, three), from(2, 4, three), from(4, 99, list(4))},
			"n1"},
		"one against one": {last, []heard{from(1, 5, three), from(4, 99, list(4))}, ""},
		"one against one, and a member before": {api.RouteView{Term: 5, Nodes: three, Next: 9},
			[]heard{from(1, 5, three), from(4, 99, list(4))}, "n1"},
		"its certificate is revoked": {last, []heard{from(1, 5, off, "s4"), from(2, 4, off), from(4, 99, off)},
			"n1"},
		"one certificate is revoked": {last, []heard{from(1, 5, three, "s3"), from(2, 4, three),
			from(3, 99, three)}, "n1"},
		"a new term without a second member": {last, []heard{from(1, 5, three), from(2, 99, three)}, "n1"},
		"a new term with one": {last, []heard{from(1, 6, three), from(2, 6, three), from(3, 5, three)},
			"n1"},
		"alone at the start":                  {api.RouteView{}, []heard{from(1, 5, three)}, ""},
		"the only member":                     {api.RouteView{}, []heard{from(1, 5, list(1))}, "n1"},
		"one that says to be the only member": {api.RouteView{}, []heard{from(4, 9, list(4)), {}}, ""},
		"the only survivor": {api.RouteView{Term: 5, Nodes: three, Next: 9}, []heard{from(1, 9, list(1))},
			"n1"},
		"the only one heard": {api.RouteView{Term: 5, Nodes: three, Next: 9}, []heard{from(4, 9, list(4))},
			""},
		"a member that is new": {last, []heard{from(1, 5, three), from(2, 5, three),
			func() heard { h := from(9, 5, three); h.view.RW = nil; return h }()}, "n1"},
	} {
		got, found := choose(tc.all, tc.last, now)
		if found != (tc.want != "") || found && got.view.RW.Name != tc.want && !(tc.want == "n1" && got.view.Node == "n2" &&
			got.view.Term == 6) {
			t.Errorf("%s: %q of %q counts, not %q", name, got.view.RW, got.view.Node, tc.want)
		}
	}
}
