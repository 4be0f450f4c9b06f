package api

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// within polls until something is so.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// TestRouters: a switchover waits for routers that have shown a token and call themselves something, as long as their
// streams last and the token is good.
func TestRouters(t *testing.T) {
	b := &backend{}
	b.move(RouteView{Node: "n1", Term: 1, Hold: 5})
	routers := &Routers{}
	cl := newCluster(t)
	s := NewServer(Options{Name: "n1", Listen: "127.0.0.1:0", Backend: b, Answers: b.answers(), Routers: routers,
		Audit: b.audit, TLS: cl.bundle(1, "n1").ServerJoinTLS()})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.Background()) }()
	client := func(token, name string) *Client {
		c := NewClient(s.Addr(), token, cl.trust()).ForRouter(name)
		t.Cleanup(c.Close)
		return c
	}
	follow := func(token, name string) (c *Client, leave func()) {
		c = client(token, name)
		ctx, cancel := context.WithCancel(t.Context())
		heard, ended := make(chan RouteView, 1000), make(chan struct{})
		go func() {
			defer close(ended)
			_ = c.WatchRoute(ctx, func(v RouteView) { heard <- v })
		}()
		leave = func() { cancel(); <-ended }
		t.Cleanup(leave)
		select {
		case v := <-heard:
			if v.Hold != 5 {
				t.Fatalf("heard %+v", v)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no view")
		}
		return c, leave
	}
	for _, stranger := range [][2]string{{"", "r0"}, {"guessed", "r0"}, {"the-old", "r0"}, {"the-viewers", ""},
		{"the-viewers", strings.Repeat("r", maxRouterName+1)}} {
		follow(stranger[0], stranger[1])
		if routers.Any() || !routers.AllQuiet(5) {
			t.Errorf("%q is waited for", stranger)
		}
	}
	one, leaveOne := follow("the-viewers", "r1")
	two, leaveTwo := follow("the-operators", "r2")
	if !routers.Any() || routers.AllQuiet(5) {
		t.Error("no router is waited for")
	}
	if res, err := one.Quiet(t.Context(), 5); err != nil || !res.Waited || routers.AllQuiet(5) {
		t.Error("one of two:", res, err)
	}
	if res, err := two.Quiet(t.Context(), 4); err != nil || !res.Waited || routers.AllQuiet(5) {
		t.Error("of the hold before:", res, err)
	}
	if res, err := two.Quiet(t.Context(), 5); err != nil || !res.Waited || !routers.AllQuiet(5) || routers.AllQuiet(6) {
		t.Error("both:", res, err)
	}
	if _, err := client("", "r1").Quiet(t.Context(), 6); KindOf(err) != KindUnauthorized {
		t.Errorf("without a token: %v", err)
	}
	if res, err := client("the-viewers", "r9").Quiet(t.Context(), 6); err != nil || res.Waited {
		t.Error("a stranger:", res, err)
	}
	leaveTwo()
	within(t, "who has gone is waited for", func() bool {
		routers.mu.Lock()
		defer routers.mu.Unlock()
		return len(routers.all) == 1
	})
	b.mu.Lock()
	b.untoken = true
	b.mu.Unlock()
	within(t, "who has no token any more is waited for", func() bool { return !routers.Any() })
	leaveOne()
	if audits := b.audits(); len(audits) != 0 {
		t.Errorf("audit: %+v", audits)
	}
	for from, want := range map[string]string{"127.0.0.1:5": "r1", "192.0.2.1:5": ""} {
		r := httptest.NewRequest("GET", "/route?router=r1", nil)
		r.RemoteAddr = from
		r.Header.Set("Authorization", "Bearer "+operatorToken)
		if got := s.waitsFor(r); got != want {
			t.Errorf("over plain HTTP from %s: %q", from, got)
		}
	}
}
