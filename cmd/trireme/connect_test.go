package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"trireme/internal/api"
	"trireme/internal/base/pki"
	"trireme/internal/ops/setup"
)

// TestHostPort: the port of a node that --api names without one.
func TestHostPort(t *testing.T) {
	for named, want := range map[string]string{"db3": "db3:8008", "db3:18008": "db3:18008", "http://db3:1": "db3:1",
		"https://db3": "db3", "2001:db8::1": "[2001:db8::1]:8008", "[2001:db8::1]": "[2001:db8::1]:8008",
		"[2001:db8::1]:1": "[2001:db8::1]:1"} {
		if got := hostPort(named); got != want {
			t.Errorf("%s: %s, want %s", named, got, want)
		}
	}
}

// TestMySQLArguments: the client's options reach it as they were typed.
func TestMySQLArguments(t *testing.T) {
	for line, want := range map[string]string{"mysql": "", "mysql -e x": "-e x", "mysql -- -e x": "-e x",
		"mysql --config f -e x -h db2": "-e x -h db2", "mysql shop -e x": "shop -e x", "mysql --batch -e x": "--batch -e x"} {
		var c commands
		k, err := kong.New(&c, groups)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Parse(strings.Fields(line)); err != nil || strings.Join(c.MySQL.options(), " ") != want {
			t.Errorf("%s: %q, %v", line, c.MySQL.Args, err)
		}
	}
}

// TestReadOnlyText: what `trireme mysql` says on a node that does not lead.
func TestReadOnlyText(t *testing.T) {
	for leader, want := range map[string]string{"": "there is no leader now",
		"db1": "db1 leads. To write, run `trireme mysql` there"} {
		if got := readOnlyText("db2", leader); !strings.Contains(got, want) {
			t.Errorf("%q: %q", leader, got)
		}
	}
}

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
