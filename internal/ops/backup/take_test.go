package backup

import (
	"errors"
	"strings"
	"testing"

	"trireme/internal/api"
	"trireme/internal/mysql/gtid"
)

// TestDonors: never the leader if there is another donor; nodes of this host before others; then the node that lags
// least. Only what CLONE can copy.
func TestDonors(t *testing.T) {
	lag := func(n uint64) *uint64 { return &n }
	my := func(version string, lag *uint64) *api.MySQLView {
		return &api.MySQLView{PID: 7, Version: version, LagBytes: lag, Epoch: "3/9"}
	}
	v := api.ClusterView{Leader: "db1", Members: []api.MemberView{
		{Name: "db1", State: api.StateHealthy, MySQL: my("9.7.4", lag(0))},
		{Name: "db2", State: api.StateHealthy, MySQL: my("9.7.4", lag(9<<20))},
		{Name: "db3", State: api.StateHealthy, MySQL: my("9.7.2", lag(0))},
		{Name: "sick", State: api.StateCatchingUp, MySQL: my("9.7.4", lag(0))},
		{Name: "old", State: api.StateHealthy, MySQL: my("8.4.9", lag(0))},
		{Name: "unknown", State: api.StateHealthy, MySQL: my("9.7.4", nil)},
		{Name: "log1", State: api.StateHealthy},
	}}
	for self, want := range map[string]string{"log1": "db3 db2 unknown db1", "db2": "db2 db3 unknown db1",
		"db1": "db3 db2 unknown db1"} {
		var got []string
		for _, m := range donors(v, self, "9.7") {
			got = append(got, m.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("from %s: %v, want %s", self, got, want)
		}
	}

	donor := v.Members[1]
	if err := sameLife(v, donor); err != nil {
		t.Error(err)
	}
	donor.MySQL = &api.MySQLView{Epoch: "3"} // it has lost leadership, and lives
	if err := sameLife(v, donor); err != nil {
		t.Error(err)
	}
	donor.MySQL = &api.MySQLView{Epoch: "4"}
	if sameLife(v, donor) == nil {
		t.Error("a new life is taken for the old one")
	}
	donor.Name = "gone"
	if sameLife(v, donor) == nil {
		t.Error("a donor that is no member any more")
	}
}

// TestHoles: what CLONE did not bring makes a copy useless, and is named.
func TestHoles(t *testing.T) {
	set := func(text string) gtid.Set {
		s, err := gtid.ParseSet(text)
		check(t, err)
		return s
	}
	const uuid = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
	if err := checkHoles("db2", set(uuid+":1-9"), set(uuid+":1-12")); err != nil {
		t.Error(err)
	}
	err := checkHoles("db2", set(uuid+":1-9"), set(uuid+":1-4:6-12"))
	if !errors.Is(err, ErrHoles) || !strings.Contains(err.Error(), uuid+":5,") {
		t.Errorf("a hole: %v", err)
	}
}

// TestFollows: segments are one piece of log only if term and GTIDs fit as well as the numbers.
func TestFollows(t *testing.T) {
	s := newScript(t)
	to := newDir(t)
	for range 2 {
		s.some(5)
		s.archive(to)
	}
	c, err := Read(to)
	check(t, err)
	a, b := &c.Segments[0], c.Segments[1]
	check(t, a.follows(&b))
	term, gtids := b, b
	term.PrevTerm++
	gtids.Before = gtids.Before.Union(gtid.SetOf(gtid.GTID{SID: s.sid(), GNO: 1000}))
	for what, other := range map[string]*Segment{"another term": &term, "other transactions before": &gtids,
		"the same again": a} {
		if err := a.follows(other); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
