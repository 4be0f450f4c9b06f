package verify

import (
	"errors"
	"maps"
	"testing"

	"trireme/internal/mysql/gtid"
)

// at is what nodes have executed; node a is the first one of the cluster, b the second, and so on.
func at(sets map[string]string) map[string]executed {
	out := map[string]executed{}
	for name, set := range sets {
		out[name] = executed{set: set, node: uint16(name[0]-'a') + 1}
	}
	return out
}

// TestWithoutInherited: what a node says to have inherited is taken away if it is of another node's lives, and that
// node was seen to hold it.
func TestWithoutInherited(t *testing.T) {
	one, two, three := gtid.IncarnationUUID(7, 1, 1).String(), gtid.IncarnationUUID(7, 2, 3).String(),
		gtid.IncarnationUUID(7, 3, 1).String()
	donor := func(node uint16, set string) *Owned {
		held, err := gtid.ParseSet(set)
		if err != nil {
			t.Fatal(err)
		}
		o := &Owned{}
		o.note(node, held)
		return o
	}
	nodes := map[string]string{"a": one + ":1-9", "b": one + ":1-9," + two + ":1-4", "c": one + ":1-9," + two + ":1-3"}
	alone := map[string]string{"a": one + ":1-9", "b": one + ":1-9", "c": one + ":1-9," + two + ":1-3"}
	for _, c := range []struct {
		name  string
		sets  map[string]string
		claim string
		owned *Owned
		local map[string]string
		fails bool
	}{
		{"of a donor that holds it", nodes, two + ":1-3", nil, map[string]string{"b": two + ":1-4"}, false},
		{"of a donor that was seen to hold it", nodes, two + ":1-3", donor(2, two+":1-4"),
			map[string]string{"b": two + ":1-4"}, false},
		{"the donor has other data now", alone, two + ":1-3", donor(2, two+":1-4"), nil, false},
		{"no claim", nodes, "", nil, nil, true},
		{"of a donor that never held it", alone, two + ":1-3", donor(2, one+":1-9"), nil, true},
		{"of a donor that held less", alone, two + ":1-3", donor(2, two+":1-2"), nil, true},
		{"seen on the one that claims it only", alone, two + ":1-3", donor(3, two+":1-3"), nil, true},
		{"of its own lives", map[string]string{"a": one + ":1-9", "b": one + ":1-9," + three + ":1", "c": one + ":1-9," +
			three + ":1"},
			three + ":1", nil, nil, true},
		{"what all should have", map[string]string{"a": one + ":1-9", "b": one + ":1-9", "c": one + ":1-8"}, one + ":9", nil,
			nil, true},
	} {
		sets := at(c.sets)
		if err := withoutInherited([]Endpoint{{Name: "a"}, {Name: "b"}, {Name: "c", Inherited: c.claim, Owned: c.owned}},
			sets); err != nil {
			t.Fatal(err)
		}
		if _, local, err := withoutLocal(sets); (err != nil) != c.fails || err == nil && !maps.Equal(local, c.local) {
			t.Errorf("%s: local %v, %v", c.name, local, err)
		}
	}
	if err := withoutInherited([]Endpoint{{Name: "a", Inherited: "x"}}, at(nodes)); err == nil {
		t.Error("nonsense was taken")
	}
}

// TestWithoutLocal: a node's own statements are its affair; what another node's life has made, and is missing on
// others, is not.
func TestWithoutLocal(t *testing.T) {
	one, two := gtid.IncarnationUUID(7, 1, 1).String(), gtid.IncarnationUUID(7, 2, 3).String()
	foreign := "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
	for _, c := range []struct {
		name   string
		sets   map[string]string
		common string
		local  map[string]string
		fails  bool
	}{
		{name: "equal", sets: map[string]string{"a": one + ":1-9", "b": one + ":1-9"}, common: one + ":1-9"},
		{name: "one node", sets: map[string]string{"a": one + ":1-9"}, common: one + ":1-9"},
		{name: "local statements of a follower", sets: map[string]string{"a": one + ":1-9", "b": one + ":1-9," + two +
			":1-4"},
			common: one + ":1-9", local: map[string]string{"b": two + ":1-4"}},
		{name: "what was logged before leading", sets: map[string]string{"a": one + ":1-9", "b": one + ":3-9",
			"c": one + ":3-9"},
			common: one + ":3-9", local: map[string]string{"a": one + ":1-2"}},
		{name: "missing on one of three", sets: map[string]string{"a": one + ":1-9", "b": one + ":1-9",
			"c": one + ":1-5:7-9"}, fails: true},
		{name: "of no incarnation", sets: map[string]string{"a": one + ":1-9," + foreign + ":1", "b": one + ":1-9"},
			fails: true},
		{name: "of another node's life", sets: map[string]string{"a": one + ":1-9", "b": one + ":1-10"}, fails: true},
		{name: "of another node's life that led nothing", sets: map[string]string{"a": one + ":1-9", "b": one + ":1-9",
			"c": one + ":1-9," + two + ":1"}, fails: true},
		{name: "what it logged while it followed, between two times that it led", sets: map[string]string{"a": one + ":1-9",
			"b": one + ":1-5:7-9", "c": one + ":1-5:7-9"}, common: one + ":1-5:7-9", local: map[string]string{"a": one + ":6"}},
		{name: "nonsense", sets: map[string]string{"a": "x", "b": "x"}, fails: true},
	} {
		common, local, err := withoutLocal(at(c.sets))
		if (err != nil) != c.fails || err != nil && c.name != "nonsense" && !errors.Is(err, ErrNotEqual) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if err == nil && (common != c.common || !maps.Equal(local, c.local)) {
			t.Errorf("%s: common %s local %v, want %s and %v", c.name, common, local, c.common, c.local)
		}
	}
}

// TestApplyingIsNotAtRest: what one node alone has is not local to it while a node applies what may be the same.
func TestApplyingIsNotAtRest(t *testing.T) {
	sets := at(map[string]string{"a": "00000000-0000-8007-8001-000000000001:1-6",
		"b": "00000000-0000-8007-8001-000000000001:1-5"})
	if _, local, err := withoutLocal(sets); err != nil || len(local) != 1 {
		t.Fatal(local, err)
	}
	busy := sets["b"]
	busy.applying = 1
	sets["b"] = busy
	if _, _, err := withoutLocal(sets); !errors.Is(err, ErrNotEqual) {
		t.Errorf("b applies a transaction: %v", err)
	}
}
