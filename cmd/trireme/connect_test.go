package main

import (
	"slices"
	"testing"

	"trireme/internal/api"
	"trireme/internal/setup"
)

// TestRemember: the credential learns the nodes' addresses, also from the local node, which is asked by another address than theirs. Another cluster's of the same
// name stays as it is.
func TestRemember(t *testing.T) {
	for name, tc := range map[string]struct {
		base, cluster string
		known, want   []string
	}{
		"asked by its name":            {"http://db1:8008", "shop", []string{"db1:8008"}, []string{"db1:8008", "db2:8008"}},
		"the local node":               {"http://127.0.0.1:8008", "shop", []string{"db1:8008"}, []string{"db1:8008", "db2:8008"}},
		"a node that is no member now": {"http://127.0.0.1:8008", "shop", []string{"db9:8008", "db2:8008"}, []string{"db1:8008", "db2:8008"}},
		"another one of that name":     {"http://127.0.0.1:8008", "shop", []string{"x1:8008"}, []string{"x1:8008"}},
		"another one":                  {"http://db1:8008", "other", []string{"db1:8008"}, []string{"db1:8008"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CONFIG_HOME", t.TempDir())
			if _, err := (setup.Credential{Cluster: tc.cluster, API: tc.known}).Save(""); err != nil {
				t.Fatal(err)
			}
			remote{}.remember(tc.base, api.ClusterView{Cluster: "shop", Members: []api.MemberView{
				{Name: "db1", Daemon: api.DaemonView{API: "db1:8008"}}, {Name: "db2", Daemon: api.DaemonView{API: "db2:8008"}}, {Name: "new"}}})
			stored, err := setup.Credentials("")
			if err != nil || len(stored) != 1 || !slices.Equal(stored[0].API, tc.want) {
				t.Errorf("%+v, %v", stored, err)
			}
		})
	}
}
