package api

import (
	"context"
	"net"
	"testing"
	"time"

	"trireme/internal/base/pki"
	"trireme/lab/needs"
	"trireme/lab/wan"
)

// TestLostHost: when the network between a router and a node silently drops everything, the node's kernel ends the
// router's stream, so that switchovers stop waiting for that router, and the router's kernel ends a connection on which
// it waits for an answer. Some 7 seconds.
func TestLostHost(t *testing.T) {
	topo, err := wan.Load("lan")
	if err != nil {
		t.Fatal(err)
	}
	n, err := wan.New(topo, []string{"n1"})
	needs.Netns(t, err)
	t.Cleanup(func() { _ = n.Close() })
	c := newCluster(t)
	host := n.Host("n1")
	bundle, err := c.ca.Issue(pki.NodeCert{Name: "n1", ID: 1, Hosts: []string{host.Addr.String()}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	routers := &Routers{}
	s := NewServer(Options{Name: "n1", Listen: net.JoinHostPort(host.Addr.String(), "0"),
		Backend: &backend{route: RouteView{Node: "n1"}}, TLS: bundle.ServerTLS(), Routers: routers})
	if err := host.Do(s.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	client := NewClient("https://"+s.Addr(), "the-viewers", c.trust()).ForRouter("r1")
	t.Cleanup(client.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	followed := make(chan error, 1)
	go func() { followed <- client.WatchRoute(ctx, func(RouteView) {}) }()
	within(t, "the router is not waited for", routers.Any)
	if _, err := client.Quiet(ctx, 1); err != nil { // its connection is kept for the next one
		t.Fatal(err)
	}
	if err := n.Cut(wan.Observer, "n1"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Quiet(ctx, 2); KindOf(err) != KindUnreachable {
		t.Errorf("a question to a lost host: %v", err)
	}
	if err := <-followed; KindOf(err) != KindUnreachable {
		t.Errorf("the stream of a lost host: %v", err)
	}
	within(t, "a router whose host is lost is waited for", func() bool { return !routers.Any() })
}
