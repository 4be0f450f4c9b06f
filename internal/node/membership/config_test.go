package membership

import (
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
)

func TestRollbackRefused(t *testing.T) {
	member := config.Member{ID: 1, Name: "n1", Role: config.RoleVoter, Peer: "h:1", API: "h:2", MySQLHost: "h",
		MySQLPort: 3, Weight: 100}
	c := &config.Cluster{Version: 4, Name: "prod", ClusterID: 5, NextID: 2, Members: []config.Member{member}}
	next := c.Clone()
	next.Version, next.FailbackMS = 5, 2000
	next.Record(c, time.Unix(1e9, 0), "operator from here")
	for to, want := range map[uint64]string{3: "not kept any more; the oldest that is has number 4",
		6: "there is no version 6"} {
		if err := rollback(next.Clone(), &api.ConfigRollbackResult{To: to}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", to, err)
		}
	}
	res := api.ConfigRollbackResult{To: 4}
	if err := rollback(next, &res); err != nil || len(res.Changes) != 1 || *res.Changes[0].After != "1m" ||
		next.Failback() != config.DefaultFailback {
		t.Errorf("%+v, %v", res, err)
	}
	res = api.ConfigRollbackResult{To: 5}
	if err := rollback(c.Clone(), &res); err == nil {
		t.Error("a version to come")
	}
	ms, _ := newTest(t, next)
	if v := ms.ConfigHistory(t.Context()); v.Oldest != 4 || v.Version != 5 || len(v.Revisions) != 1 ||
		v.Revisions[0].By != "operator from here" {
		t.Errorf("%+v", v)
	}
	ms, _ = newTest(t, c)
	if v := ms.ConfigHistory(t.Context()); v.Revisions == nil || v.Oldest != 4 {
		t.Errorf("%+v", v)
	}
}
