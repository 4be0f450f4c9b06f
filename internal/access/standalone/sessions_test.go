package standalone

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"testing"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/api"
)

// Without a certificate of its own a router makes one: clients that ask for TLS are followed, too.
func TestSelfMadeCertificate(t *testing.T) {
	cfg, err := certificate("", "")
	if err != nil {
		t.Fatal(err)
	}
	client, server := net.Pipe()
	defer func() { _, _ = client.Close(), server.Close() }()
	go func() { _ = tls.Server(server, cfg).HandshakeContext(t.Context()) }()
	c := tls.Client(client, &tls.Config{InsecureSkipVerify: true})
	if err := c.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if shown := c.ConnectionState().PeerCertificates[0]; time.Until(shown.NotAfter) < selfMadeLife/2 ||
		shown.NotBefore.After(time.Now()) {
		t.Errorf("from %v to %v", shown.NotBefore, shown.NotAfter)
	}
	if _, err := certificate("/nowhere", "/nowhere"); err == nil {
		t.Error("a file that is not there is no error")
	}
}

// Questions about lost statements go to any node that answers; the leader says how far its log has come.
func TestOutcomes(t *testing.T) {
	ca, trust := authority(t)
	n1, n2 := newNode(t, ca, "n1", 1), newNode(t, ca, "n2", 2)
	f := newFollower(t.Context(), trust, slog.New(slog.DiscardHandler))
	for _, n := range []*node{n1, n2} {
		follow(t, f, n.server.Addr(), api.RouteView{Node: n.name})
	}
	n1.epoch = "3/7"
	target := router.Target{Name: "n1", Epoch: "3/7"}
	n1.index = 42
	if index, err := f.Reached(t.Context(), target); err != nil || index != 42 {
		t.Errorf("%d, %v", index, err)
	}
	sent := api.OutcomeQuery{Node: "n1", Epoch: "3/7", Thread: 9, Index: 42, Sole: true, Others: 1}
	for _, want := range []api.OutcomeResult{api.Committed, api.NotCommitted, api.OutcomeUnknown} {
		n2.mu.Lock()
		n2.outcome, n2.asked = api.Outcome{Result: want}, nil
		n2.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if want == api.OutcomeUnknown {
			ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
		}
		if got := f.Outcome(ctx, sent); got != want {
			t.Errorf("%s: %s", want, got)
		}
		cancel()
		n2.mu.Lock()
		if len(n2.asked) == 0 || n2.asked[0] != sent {
			t.Errorf("asked %+v", n2.asked)
		}
		n2.mu.Unlock()
	}
}
