package alone

import (
	"log/slog"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/pki"
	"trireme/internal/router"
)

// What sessions want to see is asked of the node whose view counts, and of another one if it does not answer. They can move nothing.
func TestCluster(t *testing.T) {
	ca, err := pki.NewCA("c", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	trust, err := pki.ClientTLS(ca.CertPEM())
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{trust: trust, log: slog.New(slog.DiscardHandler), sources: map[string]*source{}}
	follow := func(addr, name string, term uint64) {
		client := api.NewClient("https://"+addr, "", trust)
		t.Cleanup(client.Close)
		f.sources[addr] = &source{client: client, heard: heard{view: api.RouteView{Node: name, Term: term}, at: time.Now()}}
	}
	if _, err := f.View(t.Context()); api.KindOf(err) != api.KindNoLeader {
		t.Errorf("of nobody: %v", err)
	}
	n1, n2 := newNode(t, ca, "n1", 1), newNode(t, ca, "n2", 2)
	follow(n1.server.Addr(), "n1", 4)
	follow(n2.server.Addr(), "n2", 5)
	if v, err := f.View(t.Context()); err != nil || v.Cluster != "as n2 sees it" {
		t.Errorf("%+v, %v", v, err)
	}
	if e, err := f.History(t.Context()); err != nil || len(e) != 1 || e[0].Node != "n2" {
		t.Errorf("%+v, %v", e, err)
	}
	follow("127.0.0.1:1", "n3", 6)
	if v, err := f.View(t.Context()); err != nil || v.Cluster == "" {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := f.Switchover(t.Context(), "n2", router.Account{}); api.KindOf(err) != api.KindForbidden {
		t.Errorf("error %v", err)
	}
}
