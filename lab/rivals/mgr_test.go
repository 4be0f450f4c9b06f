package rivals

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trireme/internal/mysql/mysqld"
)

// TestGroup looks at what performance_schema, off in comparisons, tells of a group, and restarts a member of it.
func TestGroup(t *testing.T) {
	l := newLab(t)
	shape := small(t, l, mgrEventualSystem)
	shape.Variant = mgrEventualSystem.Variants[len(mgrEventualSystem.Variants)-1]
	shape.Options = map[string]string{"performance_schema": "ON"}
	m, err := startMGR(t.Context(), l, shape, mgrSetup{consistency: "EVENTUAL"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Stop()
	var capable bool
	var leaders, primary string
	err = m.DB("n1").
		QueryRowContext(t.Context(),
			"SELECT write_consensus_single_leader_capable, write_consensus_leaders_actual, @@GLOBAL.server_uuid "+
				"FROM performance_schema.replication_group_communication_information").Scan(&capable, &leaders, &primary)
	if err != nil || !capable || leaders != primary {
		t.Errorf("%q: capable of a single leader %v, leaders %q, the primary is %q, %v", shape.Variant.Name, capable, leaders,
			primary, err)
	}
	n1 := m.servers[0]
	// it leaves the group; one that is killed is taken back only after the others have given it up
	execute(t, n1.db, "SHUTDOWN")
	select {
	case <-n1.proc.Done():
	case <-time.After(startLimit):
		t.Fatal("n1 does not end")
	}
	if err := n1.restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range m.servers {
		if v, err := s.groupView(t.Context()); err != nil || v != (groupView{online: 2, primary: n1.addr()}) {
			t.Errorf("%s sees %+v, %v", s.host.name, v, err)
		}
	}
}

func TestGroupSize(t *testing.T) {
	if _, err := mgrAfterSystem.Start(t.Context(), &Lab{}, Shape{Nodes: mgrMaxNodes + 1}); !errors.Is(err, ErrNotHere) {
		t.Error(err)
	}
}

func TestFindRouter(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("TRIREME_CACHE", cache)
	t.Setenv("PATH", t.TempDir())
	t.Setenv("MYSQLROUTER", "")
	if _, err := findRouter(); !errors.Is(err, ErrNotHere) || !strings.Contains(err.Error(), "scripts/mysql-router.sh") {
		t.Error(err)
	}
	fetched := filepath.Join(cache, "mysql-router-"+mysqld.TestedSeries, "bin", "mysqlrouter")
	if err := os.MkdirAll(filepath.Dir(fetched), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fetched, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := findRouter(); got != fetched || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	t.Setenv("MYSQLROUTER", filepath.Join(cache, "none"))
	if got, err := findRouter(); !errors.Is(err, ErrNotHere) {
		t.Errorf("%q, %v", got, err)
	}
}
