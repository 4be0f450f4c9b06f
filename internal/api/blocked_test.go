package api

import (
	"slices"
	"testing"
)

func TestBlocked(t *testing.T) {
	node := func(name string, applied uint64, e *ApplyErrorView) MemberView {
		return MemberView{Name: name, Role: RoleFollower, State: StateCatchingUp, MySQL: &MySQLView{},
			Raft: RaftView{Applied: applied}, ApplyError: e}
	}
	bad, waits := &ApplyErrorView{Number: 1032, Index: 7, GTID: "g:7", Node: "a"},
		&ApplyErrorView{Number: 1021, Index: 7, Resources: true}
	logger := MemberView{Name: "l", Role: RoleLogger, State: StateHealthy, Raft: RaftView{Applied: 9}}
	late := node("late", 2, nil)
	late.Delay = &DelayView{}
	down := MemberView{Name: "d", Role: RoleFollower, State: StateDown}
	for _, c := range []struct {
		name    string
		members []MemberView
		nodes   []string
		unknown []string
	}{
		{"all well", []MemberView{node("a", 9, nil), node("b", 9, nil)}, nil, nil},
		{"the leader has it", []MemberView{node("a", 7, nil), node("b", 6, bad), node("c", 6, bad)}, nil, nil},
		{"no node has it", []MemberView{node("a", 6, bad), node("b", 6, bad), logger}, []string{"a", "b"}, nil},
		{"one has not come to it", []MemberView{node("a", 5, nil), node("b", 6, bad)}, nil, nil},
		{"one is delayed on purpose", []MemberView{late, node("b", 6, bad)}, []string{"b"}, nil},
		{"one is away", []MemberView{down, node("b", 6, bad)}, []string{"b"}, []string{"d"}},
		{"resources", []MemberView{node("a", 6, waits), node("b", 6, waits)}, nil, nil},
		{"resources here, data there", []MemberView{node("a", 6, waits), node("b", 6, bad)}, []string{"a", "b"}, nil},
	} {
		b := Blocked(c.members)
		if (b != nil) != (c.nodes != nil) {
			t.Errorf("%s: %+v", c.name, b)
			continue
		}
		if b != nil && (!slices.Equal(b.Nodes, c.nodes) || !slices.Equal(b.Unknown, c.unknown) || b.Index != 7 ||
			b.Told == "" || b.Next == "") {
			t.Errorf("%s: %+v", c.name, b)
		}
	}
}
