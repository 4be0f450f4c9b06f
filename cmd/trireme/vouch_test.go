package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/pki"
	"trireme/internal/ops/setup"
)

// witness is a node that only says whom it takes for members, and notes the tokens that it gets.
type witness struct {
	addr, serial string

	mu     sync.Mutex
	view   api.RouteView
	tokens int
}

func (w *witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Header.Get("Authorization") != "" {
		w.tokens++
	}
	if r.URL.Path == "/route" {
		_ = json.NewEncoder(rw).Encode(w.view)
		return
	}
	_ = json.NewEncoder(rw).Encode(api.PauseResult{})
}

func (w *witness) says(next uint64, nodes []api.RouteNode, revoked ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.view.Next, w.view.Nodes, w.view.Revoked = next, nodes, revoked
}

func newWitness(t *testing.T, ca *pki.CA, id uint64, name string) *witness {
	t.Helper()
	bundle, err := ca.Issue(pki.NodeCert{ID: id, Name: name, Hosts: []string{"127.0.0.1"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{addr: l.Addr().String(), serial: bundle.Serial(), view: api.RouteView{Cluster: "c1", Node: name,
		Term: id}}
	server := &http.Server{Handler: w, TLSConfig: bundle.ServerTLS(), ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(l, "", "")
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return w
}

// TestTokensForMembersOnly: a token does not go to a node which the others disown, whatever that one says itself; the
// next one of the credential gets it.
func TestTokensForMembersOnly(t *testing.T) {
	ca, err := pki.NewCA("c1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	n1, n2, n3 := newWitness(t, ca, 1, "n1"), newWitness(t, ca, 2, "n2"), newWitness(t, ca, 3, "n3")
	two, three := []api.RouteNode{{Name: "n1", ID: 1}, {Name: "n2", ID: 2}},
		[]api.RouteNode{{Name: "n1", ID: 1}, {Name: "n2", ID: 2}, {Name: "n3", ID: 3}}
	off := []api.RouteNode{two[0], two[1], {Name: "n3", ID: 3, Revoked: true}}
	const nowhere = "127.0.0.1:1"
	for name, tc := range map[string]struct {
		asked string   // --api
		known []string // addresses of the credential
		views func()
		gets  *witness // nil: no witness
		kind  api.Kind
	}{
		"a member": {n3.addr, []string{n1.addr, n2.addr}, func() { n1.says(4, three); n2.says(4, three); n3.says(4, three) },
			n3, ""},
		"removed": {n3.addr, []string{n1.addr}, func() { n1.says(4, two); n3.says(4, three) }, nil, api.KindForbidden},
		"removed, and disowns the others": {n3.addr, []string{n1.addr, n2.addr, n3.addr},
			func() { n1.says(4, two); n2.says(4, two); n3.says(9, off[2:]) }, nil, api.KindForbidden},
		"disowned by a former node": {n1.addr, []string{n1.addr, n2.addr, n3.addr},
			func() { n1.says(4, two); n2.says(4, two); n3.says(9, off[2:]) }, n1, ""},
		"revoked": {n3.addr, []string{n1.addr, nowhere}, func() { n1.says(4, off); n3.says(4, three) }, nil,
			api.KindForbidden},
		"its certificate is revoked": {n3.addr, []string{n2.addr, nowhere},
			func() { n2.says(4, three, n3.serial); n3.says(4, three) }, nil, api.KindForbidden},
		"the next one of the credential": {"", []string{n3.addr, n1.addr, n2.addr},
			func() { n1.says(4, two); n2.says(4, two); n3.says(4, three) }, n1, ""},
		"no other one answers": {n3.addr, []string{nowhere}, func() { n3.says(4, three) }, n3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CONFIG_HOME", t.TempDir())
			t.Setenv("TRIREME_CONFIG", filepath.Join(t.TempDir(), "none"))
			if _, err := (setup.Credential{Cluster: "c1", CA: string(ca.CertPEM()), Token: "secret", API: tc.known}).Save(""); err != nil {
				t.Fatal(err)
			}
			for _, n := range []*witness{n1, n2, n3} {
				n.mu.Lock()
				n.tokens = 0
				n.mu.Unlock()
			}
			tc.views()
			client, err := remote{API: tc.asked}.client(t.Context(), true)
			if err == nil {
				_, err = api.Pause.Ask(t.Context(), client, api.PauseRequest{})
				client.Close()
			}
			if (err == nil) != (tc.kind == "") || err != nil && api.KindOf(err) != tc.kind {
				t.Errorf("got %v", err)
			}
			for _, n := range []*witness{n1, n2, n3} {
				n.mu.Lock()
				if got := n.tokens > 0; got != (n == tc.gets) {
					t.Errorf("%s got %d tokens", n.view.Node, n.tokens)
				}
				n.mu.Unlock()
			}
		})
	}
}

// TestDisownedNodeIsReadWithoutToken, and the credential does not take its word for where the nodes are.
func TestDisownedNodeIsReadWithoutToken(t *testing.T) {
	ca, err := pki.NewCA("c1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	n1, n3 := newWitness(t, ca, 1, "n1"), newWitness(t, ca, 3, "n3")
	n1.says(4, []api.RouteNode{{Name: "n1", ID: 1}})
	n3.says(4, []api.RouteNode{{Name: "n1", ID: 1}, {Name: "n3", ID: 3}})
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("TRIREME_CONFIG", filepath.Join(t.TempDir(), "none"))
	path, err := setup.Credential{Cluster: "c1", CA: string(ca.CertPEM()), Token: "secret",
		API: []string{n1.addr}}.Save("")
	if err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(path)
	got, err := remote{API: n3.addr}.choose(t.Context(), false)
	if err != nil || got.base != "https://"+n3.addr || got.cred.Token != "" {
		t.Fatalf("%+v, %v", got.base, err)
	}
	got.remember(api.ClusterView{Cluster: "c1", Members: []api.MemberView{{Daemon: api.DaemonView{API: n3.addr}}}})
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Errorf("the credential is now %s", after)
	}
}

// TestOtherNodeAtTheSameAddress: what a target trusts does not include nodes that the members disown.
func TestOtherNodeAtTheSameAddress(t *testing.T) {
	ca, err := pki.NewCA("c1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	n1, n3 := newWitness(t, ca, 1, "n1"), newWitness(t, ca, 3, "n3")
	n1.says(4, []api.RouteNode{{Name: "n1", ID: 1}})
	t.Setenv("TRIREME_CONFIG", filepath.Join(t.TempDir(), "none"))
	got, err := prove(t.Context(), n1.addr,
		[]setup.Credential{{CA: string(ca.CertPEM()), Token: "secret", API: []string{n1.addr}}})
	if err == nil {
		err = got.vouched(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := handshake(t.Context(), n1.addr, got.trust); err != nil {
		t.Error(err)
	}
	if _, err := handshake(t.Context(), n3.addr, got.trust); err == nil {
		t.Error("a former node is trusted")
	}
}

// TestSilentWitnesses: addresses that take connections and say nothing, such as a dead host's, leave time for the
// question itself.
func TestSilentWitnesses(t *testing.T) {
	ca, err := pki.NewCA("c1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	n1 := newWitness(t, ca, 1, "n1")
	n1.says(4, []api.RouteNode{{Name: "n1", ID: 1}})
	known := []string{n1.addr}
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		known = append(known, l.Addr().String())
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("TRIREME_CONFIG", filepath.Join(t.TempDir(), "none"))
	if _, err := (setup.Credential{Cluster: "c1", CA: string(ca.CertPEM()), Token: "secret", API: known}).Save(""); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	client, err := remote{API: n1.addr}.client(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := api.Pause.Ask(ctx, client, api.PauseRequest{}); err != nil {
		t.Error(err)
	}
}
