package verify

import (
	"errors"
	"maps"
	"testing"

	"trireme/internal/gtid"
)

func TestWithoutInherited(t *testing.T) {
	one, two := gtid.IncarnationUUID(7, 1, 1).String(), gtid.IncarnationUUID(7, 2, 3).String()
	sets := map[string]string{"a": one + ":1-9", "b": one + ":1-9," + two + ":1-4", "c": one + ":1-9," + two + ":1-3"}
	if err := withoutInherited([]Endpoint{{Name: "a"}, {Name: "b"}, {Name: "c", Inherited: two + ":1-3"}}, sets); err != nil {
		t.Fatal(err)
	}
	if _, local, err := withoutLocal(sets); err != nil || !maps.Equal(local, map[string]string{"b": two + ":1-4"}) {
		t.Errorf("local %v, %v", local, err)
	}
	if err := withoutInherited([]Endpoint{{Name: "a", Inherited: "x"}}, sets); err == nil {
		t.Error("nonsense was taken")
	}
}

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
		{name: "local statements of a follower", sets: map[string]string{"a": one + ":1-9", "b": one + ":1-9," + two + ":1-4"},
			common: one + ":1-9", local: map[string]string{"b": two + ":1-4"}},
		{name: "what was logged before leading", sets: map[string]string{"a": one + ":1-9", "b": one + ":3-9", "c": one + ":3-9"},
			common: one + ":3-9", local: map[string]string{"a": one + ":1-2"}},
		{name: "missing on one of three", sets: map[string]string{"a": one + ":1-9", "b": one + ":1-9", "c": one + ":1-5:7-9"}, fails: true},
		{name: "of no incarnation", sets: map[string]string{"a": one + ":1-9," + foreign + ":1", "b": one + ":1-9"}, fails: true},
		{name: "nonsense", sets: map[string]string{"a": "x", "b": "x"}, fails: true},
	} {
		common, local, err := withoutLocal(c.sets)
		if (err != nil) != c.fails || err != nil && c.name != "nonsense" && !errors.Is(err, ErrNotEqual) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if err == nil && (common != c.common || !maps.Equal(local, c.local)) {
			t.Errorf("%s: common %s local %v, want %s and %v", c.name, common, local, c.common, c.local)
		}
	}
}
