package main

import (
	"slices"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/pki"
	"trireme/internal/setup"
)

// TestRemember: the credential by which a node was asked learns the nodes' addresses. Another cluster's of the same
// name stays as it is, and so does one when a node was asked over plain HTTP, where anything may have answered.
func TestRemember(t *testing.T) {
	var cas []string
	for range 2 {
		ca, err := pki.NewCA("shop", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		cas = append(cas, string(ca.CertPEM()))
	}
	trust, err := pki.ClientTLS([]byte(cas[0]))
	if err != nil {
		t.Fatal(err)
	}
	known, all := []string{"db1:8008"}, []string{"db1:8008", "db2:8008"}
	for name, tc := range map[string]struct {
		asked target
		in    string
		want  []string
	}{
		"asked by it":              {target{cred: setup.Credential{CA: cas[0]}, trust: trust}, "shop", all},
		"another one of that name": {target{cred: setup.Credential{CA: cas[1]}, trust: trust}, "shop", known},
		"another one":              {target{cred: setup.Credential{CA: cas[0]}, trust: trust}, "other", known},
		"plain HTTP":               {target{}, "shop", known},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CONFIG_HOME", t.TempDir())
			if _, err := (setup.Credential{Cluster: "shop", CA: cas[0], API: known}).Save(""); err != nil {
				t.Fatal(err)
			}
			tc.asked.remember(api.ClusterView{Cluster: tc.in, Members: []api.MemberView{
				{Name: "db1", Daemon: api.DaemonView{API: "db1:8008"}}, {Name: "db2", Daemon: api.DaemonView{API: "db2:8008"}},
				{Name: "new"}}})
			stored, err := setup.Credentials("")
			if err != nil || len(stored) != 1 || !slices.Equal(stored[0].API, tc.want) {
				t.Errorf("%+v, %v", stored, err)
			}
		})
	}
}
