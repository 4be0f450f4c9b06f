package advise

import (
	"fmt"
	"reflect"
	"testing"

	"trireme/internal/api"
)

func settings(changes ...string) map[string]string {
	out := map[string]string{bufferPool: "1073741824", "replica_parallel_workers": "8"}
	for _, name := range alike {
		out[name] = "x"
	}
	for i := 0; i < len(changes); i += 2 {
		out[changes[i]] = changes[i+1]
	}
	return out
}

// quiet are facts that nothing can be said about.
func quiet() Facts {
	lag := 0.2
	member := func(name string) api.MemberView {
		return api.MemberView{Name: name, State: api.StateHealthy, MySQL: &api.MySQLView{LagSeconds: &lag}}
	}
	return Facts{
		View: api.ClusterView{Cluster: "shop", Leader: "n1", Members: []api.MemberView{member("n1"), member("n2"),
			{Name: "l1"}}},
		Tables: []Table{{Name: "s.good", Rows: 1e6, Primary: true, Indexes: 3, Changed: 1e6},
			{Name: "s.unique", Rows: 1e6, Unique: true, Indexes: 1, Changed: 1e6}},
		Statements: []Statement{{Text: "UPDATE …", Count: 1000, Rows: 49_000_000, LockMS: 5000, AllMS: 30_000},
			{Text: "INSERT …", Count: 0}},
		Transactions: []Transaction{{Thread: 5, AgeS: 59, Rows: 99_999}},
		Status:       map[string]uint64{"binlog_cache_use": 100_000, "binlog_cache_disk_use": 999},
		Nodes: []Node{{Name: "n1", Settings: settings()}, {Name: "n2", Settings: settings(bufferPool, "536870912"),
			Waits: map[string]int{dependentState: 2, "": 8}}},
		Hot:     map[Key]int{{"s.good", "PRIMARY", "7"}: 2},
		Samples: 10,
	}
}

func TestNothingToSay(t *testing.T) {
	if got := Judge(quiet()); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if got := Judge(Facts{}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestJudge: each rule by itself, just beyond its limit.
func TestJudge(t *testing.T) {
	lag := 1.5
	for _, c := range []struct {
		want   string // severity code where
		change func(*Facts)
	}{
		{"warn no-failover shop", func(f *Facts) { f.View.Failover.Problem = "n2 is down" }},
		{"warn lag n2", func(f *Facts) { f.View.Members[1].MySQL.LagSeconds = &lag }},
		{"warn no-primary-key s.a",
			func(f *Facts) { f.Tables = append(f.Tables, Table{Name: "s.a", Rows: 1000, Indexes: 1, Changed: 1}) }},
		{"info no-primary-key s.a",
			func(f *Facts) { f.Tables = append(f.Tables, Table{Name: "s.a", Rows: 1e6, Indexes: 1}) }},
		{"warn no-index s.a", func(f *Facts) { f.Tables = append(f.Tables, Table{Name: "s.a", Rows: 1000, Changed: 1}) }},
		{"info no-index s.a", func(f *Facts) { f.Tables = append(f.Tables, Table{Name: "s.a", Rows: 999, Changed: 1}) }},
		{"warn spatial-key s.a",
			func(f *Facts) { f.Tables = append(f.Tables, Table{Name: "s.a", Indexes: 2, Spatial: true}) }},
		{"info foreign-keys s.good", func(f *Facts) { f.Tables[0].Children = []string{"s.child"} }},
		{"warn hot-row s.good", func(f *Facts) { f.Hot[Key{"s.good", "PRIMARY", "7"}] = 3 }},
		{"warn large-statement UPDATE …", func(f *Facts) { f.Statements[0].Rows = 50_000_000 }},
		{"warn lock-waits UPDATE …", func(f *Facts) { f.Statements[0].LockMS = 6000 }},
		{"warn large-transaction thread 5", func(f *Facts) { f.Transactions[0].Rows = 100_000 }},
		{"warn long-transaction thread 5", func(f *Facts) { f.Transactions[0].AgeS = 60 }},
		{"info long-transaction thread 5", func(f *Facts) { f.Transactions[0] = Transaction{Thread: 5, AgeS: 60} }},
		{"info binlog-cache-on-disk binlog_cache_size", func(f *Facts) { f.Status["binlog_cache_disk_use"] = 1000 }},
		{"warn settings-differ n2", func(f *Facts) { f.Nodes[1].Settings["sql_mode"] = "y" }},
		{"warn follower-with-less-memory n2", func(f *Facts) { f.Nodes[1].Settings[bufferPool] = "536870911" }},
		{"warn one-applier-worker n1", func(f *Facts) { f.Nodes[0].Settings["replica_parallel_workers"] = "1" }},
		{"warn dependent-transactions n2", func(f *Facts) { f.Nodes[1].Waits[dependentState] = 3 }},
	} {
		f := quiet()
		c.change(&f)
		var got []string
		for _, x := range Judge(f) {
			got = append(got, fmt.Sprintf("%s %s %s", x.Severity, x.Code, x.Where))
			if x.What == "" || x.Cost == "" || x.Do == "" {
				t.Errorf("%+v does not say everything", x)
			}
		}
		if !reflect.DeepEqual(got, []string{c.want}) {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
}

// TestOrder: what costs something comes first, the most changed table before others, and no rule drowns the rest.
func TestOrder(t *testing.T) {
	f := Facts{View: api.ClusterView{Failover: api.FailoverView{Problem: "x"}}}
	for i := range 2 * mostOfOne {
		f.Tables = append(f.Tables, Table{Name: fmt.Sprint(i), Rows: 5000, Changed: uint64(i % 2 * i)})
	}
	got := Judge(f)
	if len(got) != 1+mostOfOne || got[0].Code != NoFailover || got[1].Where != "39" || got[1].Severity != Warn {
		t.Errorf("%d: %+v", len(got), got)
	}
}
