package advise

import (
	"slices"
	"testing"
)

func TestUnsafeCascades(t *testing.T) {
	tables := []Table{
		{Name: "d.plain", Cascades: []string{"d.leaf"}},
		{Name: "d.leaf", Triggers: true},
		{Name: "d.parent", Cascades: []string{"d.leaf"}, Triggers: true},
		{Name: "d.a", Cascades: []string{"d.leaf", "d.b"}},
		{Name: "d.b", Cascades: []string{"d.c"}},
		{Name: "d.c", Cascades: []string{"d.b"}},
		{Name: "d.self", Cascades: []string{"d.self"}},
	}
	for setting, want := range map[string][]string{"OFF": {"d.b", "d.c", "d.parent", "d.self"}, "ON": nil, "": nil} {
		var got []string
		for _, f := range Judge(Facts{Tables: tables,
			Nodes: []Node{{Name: "n1", Settings: map[string]string{nativeForeignKeys: setting}}}}) {
			if f.Code == UnsafeCascade {
				got = append(got, f.Where)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", setting, got, want)
		}
	}
	if got := cycle(map[string][]string{"x": {"y"}, "y": {"z", "x"}, "z": {"x"}}, "x"); !slices.Equal(got, []string{"x", "y", "x"}) {
		t.Error(got)
	}
}

// TestDeletedParents: a child whose trigger deletes its parent is named whatever innodb_native_foreign_keys is; one
// whose trigger deletes something else, or whose parent does not cascade, is not.
func TestDeletedParents(t *testing.T) {
	tables := []Table{
		{Name: "d.Parent", Cascades: []string{"d.child", "d.other", "d.late"},
			Children: []string{"d.child", "d.other", "d.late", "d.strict"}},
		{Name: "d.child", Triggers: true,
			BeforeDelete: []string{"BEGIN INSERT INTO log VALUES (1); DELETE FROM `parent` WHERE id=OLD.p; END"}},
		{Name: "d.other", Triggers: true, BeforeDelete: []string{"DELETE FROM parents WHERE id=OLD.p",
			"INSERT INTO log SELECT * FROM parent"}},
		{Name: "d.late", Triggers: true},
		{Name: "d.strict", Triggers: true, BeforeDelete: []string{"DELETE FROM parent WHERE id=OLD.p"}},
	}
	for _, setting := range []string{"ON", ""} {
		var got []string
		for _, f := range Judge(Facts{Tables: tables,
			Nodes: []Node{{Name: "n1", Settings: map[string]string{nativeForeignKeys: setting}}}}) {
			if f.Code == UnsafeCascade {
				got = append(got, f.Where)
			}
		}
		if !slices.Equal(got, []string{"d.child"}) {
			t.Errorf("%q: %v", setting, got)
		}
	}
}

// TestUnseenTriggers: an account that cannot see triggers is told so, if there is a cascade that they could matter for.
func TestUnseenTriggers(t *testing.T) {
	cascading := []Table{{Name: "d.parent", Cascades: []string{"d.leaf"}}, {Name: "d.leaf"}}
	for _, c := range []struct {
		f    Facts
		told bool
	}{{Facts{Tables: cascading, Blind: true}, true}, {Facts{Tables: cascading}, false},
		{Facts{Tables: []Table{{Name: "d.leaf"}}, Blind: true}, false}} {
		found := slices.ContainsFunc(Judge(c.f),
			func(f Finding) bool { return f.Code == UnsafeCascade && f.Severity == Info })
		if found != c.told {
			t.Errorf("%+v: told %t", c.f, found)
		}
	}
}
