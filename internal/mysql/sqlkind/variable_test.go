package sqlkind

import "testing"

func TestParseVariable(t *testing.T) {
	for q, want := range map[string]Variable{
		"SET @@trireme_consistency = 'BEFORE'": {Verb: SetVariable, Name: []byte("trireme_consistency"),
			Value: []byte("BEFORE")},
		" set session group_replication_consistency=before_and ;": {Verb: SetVariable,
			Name: []byte("group_replication_consistency"), Value: []byte("before_and")},
		"SET @@SESSION.x := 5": {Verb: SetVariable, Name: []byte("x"), Value: []byte("5")},
		"SET GLOBAL x = ON": {Verb: SetVariable, Global: true, Name: []byte("x"),
			Value: []byte("ON")},
		"SET @@global.x = ON": {Verb: SetVariable, Global: true, Name: []byte("x"),
			Value: []byte("ON")},
		"SET x = \"a b\"": {Verb: SetVariable, Name: []byte("x"),
			Value: []byte("a b")},
		"SELECT @@trireme_token": {Verb: GetVariable, Name: []byte("trireme_token"),
			Column: []byte("@@trireme_token")},
		"select @@Session.`x`;": {Verb: GetVariable, Name: []byte("x"),
			Column: []byte("@@Session.`x`")},
		"SELECT @@x AS y": {Verb: GetVariable, Name: []byte("x"),
			Column: []byte("y")},
		"SELECT @@x 'z' LIMIT 1": {Verb: GetVariable, Name: []byte("x"),
			Column: []byte("z")},
		"SELECT @@x limit 1": {Verb: GetVariable, Name: []byte("x"),
			Column: []byte("@@x")},
		"ROUTER SET access_mode='read_only'": {Verb: RouterSet, Name: []byte("access_mode"),
			Value: []byte("read_only")},
		"router set wait_for_my_writes = 0": {Verb: RouterSet, Name: []byte("wait_for_my_writes"),
			Value: []byte("0")},
		"SET x=1, y=2": {}, "SET @x = 1": {}, "SET @@x": {},
		"SET x = (SELECT 1)": {}, "SET x = -1": {}, "SELECT 1": {}, "SELECT @@x, @@y": {}, "SELECT @@x FROM t": {},
		"SELECT @x": {}, "SELECT @@x; SELECT 1": {}, "SET x = 1; DELETE FROM t": {}, "SELECT @@x LIMIT a": {},
		"ROUTER SHOW": {}, "": {}, "SET": {}, "SET SESSION @@x = 1": {}, "SELECT @@x AS y z": {},
		"INSERT INTO t SET x = 1": {}, "SET @@session x = 1": {}, "SELECT x": {}, "ROUTER SET a": {},
	} {
		got, ok := ParseVariable([]byte(q))
		if ok != (want.Verb != 0) {
			t.Errorf("%q: %v", q, ok)
			continue
		}
		if ok && (got.Verb != want.Verb || got.Global != want.Global || string(got.Name) != string(want.Name) ||
			string(got.Value) != string(want.Value) ||
			string(got.Column) != string(want.Column)) {
			t.Errorf("%q: %d %v name %q value %q column %q", q, got.Verb, got.Global, got.Name, got.Value, got.Column)
		}
	}
}

func TestHint(t *testing.T) {
	for q, want := range map[string]string{
		"SELECT /*+ trireme_consistency(BEFORE) */ 1":                  "BEFORE",
		"/* TRIREME_CONSISTENCY ( after ) */ INSERT INTO t VALUES (1)": "after",
		"SELECT 1 /* x */ /* trireme_consistency(BEFORE) */":           "BEFORE",
		"SELECT '/*+ trireme_consistency(BEFORE) */'":                  "", "SELECT `/*+ trireme_consistency(BEFORE) */`": "",
		"SELECT /*+ trireme_consistency() */ 1": "", "SELECT /*+ trireme_consistency(BEFORE": "", "SELECT 1": "", "": "",
		"-- /*+ x */\nSELECT 1": "", "SELECT /*+ other(BEFORE) */ 1": "",
	} {
		if got, ok := Hint([]byte(q), "TRIREME_CONSISTENCY"); string(got) != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", q, got, ok)
		}
	}
}

func FuzzParseVariable(f *testing.F) {
	for _, q := range []string{"SET @@x = 'y'", "SELECT @@x AS y LIMIT 1", "ROUTER SET a=1", "/*+ x(y) */", "SET `"} {
		f.Add([]byte(q))
	}
	f.Fuzz(func(t *testing.T, q []byte) {
		if v, ok := ParseVariable(q); ok && (len(v.Name) > len(q) || v.Verb == 0) {
			t.Errorf("%q: %+v", q, v)
		}
		Hint(q, "X")
	})
}
