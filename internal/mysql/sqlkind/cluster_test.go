package sqlkind

import "testing"

func TestParseCluster(t *testing.T) {
	for _, tc := range []struct {
		sql  []string
		want ClusterStatement
	}{
		{[]string{"SHOW TRIREME STATUS", "show trireme status;",
			" \n/* x */ -- y\n# z\nShow /*+ h */ Trireme Status ; -- end", "SHOW TRIREME STATUS;;"},
			ClusterStatement{Verb: ShowStatus, Limit: -1}},
		{[]string{"SHOW TRIREME MEMBERS"}, ClusterStatement{Verb: ShowMembers, Limit: -1}},
		{[]string{"SHOW TRIREME HISTORY"}, ClusterStatement{Verb: ShowHistory, Limit: -1}},
		{[]string{"SHOW TRIREME HISTORY LIMIT 5", "show trireme history limit/**/5;"},
			ClusterStatement{Verb: ShowHistory, Limit: 5}},
		{[]string{"SHOW TRIREME HISTORY LIMIT 0"}, ClusterStatement{Verb: ShowHistory}},
	} {
		for _, q := range tc.sql {
			got, ok := ParseCluster([]byte(q))
			if !ok || got.Wrong != "" || got.Verb != tc.want.Verb || got.Limit != tc.want.Limit || got.Several {
				t.Errorf("%s: %+v, %v", q, got, ok)
			}
		}
	}
	for _, q := range []string{
		"SHOW TRIREME", "SHOW TRIREME TABLES", "SHOW TRIREME STATUS LIKE 'x'", "SHOW TRIREME HISTORY LIMIT",
		"SHOW TRIREME HISTORY LIMIT x", "SHOW TRIREME HISTORY LIMIT -1", "SHOW TRIREME HISTORY LIMIT 1, 2",
		"SHOW TRIREME HISTORY LIMIT 99999999999999999999",
	} {
		if got, ok := ParseCluster([]byte(q)); !ok || got.Wrong == "" {
			t.Errorf("%s: %+v, %v", q, got, ok)
		}
	}
	if got, ok := ParseCluster([]byte("SHOW TRIREME STATUS; SELECT 1")); !ok || !got.Several {
		t.Errorf("%+v, %v", got, ok)
	}
	for _, q := range notCluster {
		if got, ok := ParseCluster([]byte(q)); ok {
			t.Errorf("%s: %+v", q, got)
		}
	}
}

// notCluster is for the server, whatever it says to it.
var notCluster = []string{
	"", "SHOW", "CALL", "SHOW TABLES", "SHOW `TRIREME` STATUS", "SHOW TRIREMES", "CALL trireme.switchover('n2')",
	"SELECT 'SHOW TRIREME STATUS'", "SELECT 1; SHOW TRIREME STATUS", "/*!80000 SHOW TRIREME STATUS */",
	"SHOW TRIREME HISTORY /*!99999 LIMIT 1 */", "/* SHOW TRIREME STATUS", "EXPLAIN SHOW TRIREME STATUS",
	"PREPARE s FROM 'SHOW TRIREME STATUS'",
}

func TestParseClusterDoesNotAllocate(t *testing.T) {
	for _, q := range append(notCluster, "/* app:shop,action:cart */ SELECT c FROM sbtest1 WHERE id = 5012345",
		"SHOW TRIREME MEMBERS") {
		text := []byte(q)
		if n := testing.AllocsPerRun(20, func() { ParseCluster(text) }); n != 0 {
			t.Errorf("%s: %v allocations", q, n)
		}
	}
}

func FuzzParseCluster(f *testing.F) {
	for _, q := range append(notCluster, "SHOW TRIREME HISTORY LIMIT 5", "SHOW TRIREME STATUS; x") {
		f.Add([]byte(q))
	}
	f.Fuzz(func(t *testing.T, q []byte) {
		c, ok := ParseCluster(q)
		if !ok && (c.Verb != 0 || c.Wrong != "") || ok && c.Wrong == "" && (c.Verb == 0 || c.Verb > ShowHistory) {
			t.Errorf("%q: %+v, %v", q, c, ok)
		}
	})
}
