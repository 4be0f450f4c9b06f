package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/base/pki"
)

func TestHealthChecks(t *testing.T) {
	leader := Health{Name: "n1", Role: RoleLeader, State: StateHealthy, Leader: "n1", Writable: true, Readable: true,
		MySQLAlive: true, LagKnown: true}
	follower := Health{Name: "n1", Role: RoleFollower, State: StateHealthy, Leader: "n2", Readable: true, MySQLAlive: true,
		LagKnown: true, Lag: 2 * time.Second, LagBytes: 3 << 20}
	catching := follower
	catching.State, catching.Reason = StateCatchingUp, "it applies the log"
	logger := Health{Name: "n1", Role: RoleLogger, State: StateHealthy, Leader: "n2"}
	alone := follower
	alone.Leader = ""
	opening := leader
	opening.Writable = false
	dead := leader
	dead.MySQLAlive = false

	paths := []string{"/primary", "/replica", "/replica?lag=1", "/replica?lag=5s", "/replica?lag=1MiB",
		"/replica?lag=4MiB", "/replica?lag=2MB", "/replica?lag=4MB", "/read-only", "/health", "/readiness", "/liveness"}
	for _, tc := range []struct {
		name string
		h    Health
		want string // one digit per path: y is 200, n is 503
	}{
		{"leader", leader, "ynnnnnnnyyyy"},
		{"leader whose writes are not open", opening, "nnnnnnnnnyyy"},
		{"leader without mysqld", dead, "ynnnnnnnynny"},
		{"follower", follower, "nynynynyyyyy"},
		{"follower catching up", catching, "nnnnnnnnnnny"},
		{"follower without a leader", alone, "nynnnnnnyyny"},
		{"logger", logger, "nnnnnnnnnyyy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &backend{health: tc.h}
			s := NewServer(Options{Name: "n1", Backend: b, Answers: b.answers()})
			got := ""
			for _, p := range paths {
				for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
					w := httptest.NewRecorder()
					s.handler().ServeHTTP(w, httptest.NewRequest(method, p, nil))
					digit := map[int]string{200: "y", 503: "n"}[w.Code]
					if digit == "" {
						t.Fatalf("%s %s: status %d", method, p, w.Code)
					}
					if method == http.MethodGet {
						got += digit
						var h Health
						if err := json.Unmarshal(w.Body.Bytes(), &h); err != nil || h.Name != "n1" {
							t.Fatalf("%s: body %s", p, w.Body)
						}
						if digit == "n" && h.Reason == "" {
							t.Errorf("%s: 503 without a reason", p)
						}
					} else if digit != got[len(got)-1:] {
						t.Errorf("%s %s differs from GET", method, p)
					}
				}
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s\nfor %v", got, tc.want, paths)
			}
		})
	}
}

func TestBadLag(t *testing.T) {
	s := NewServer(Options{Backend: &backend{health: Health{Role: RoleFollower}}})
	for _, lag := range []string{"x", "-1", "5 apples", "5XB"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/replica", nil)
		r.URL.RawQuery = "lag=" + strings.ReplaceAll(lag, " ", "+")
		s.handler().ServeHTTP(w, r)
		if w.Code != http.StatusBadRequest {
			t.Errorf("lag=%s: status %d", lag, w.Code)
		}
	}
}

// TestWhoMayControl goes through every way of asking for a switchover.
func TestWhoMayControl(t *testing.T) {
	for _, tc := range []struct {
		name, method, from, auth string
		tls                      bool
		status                   int
	}{
		{"loopback with token", "POST", "127.0.0.1:5", "Bearer " + operatorToken, false, 200},
		{"IPv6 loopback with token", "POST", "[::1]:5", "Bearer " + operatorToken, false, 200},
		{"node's token without its certificate", "POST", "127.0.0.1:5", "Bearer node", false, 401},
		{"the same over TLS", "POST", "192.0.2.1:5", "Bearer node", true, 401},
		{"TLS from afar", "POST", "192.0.2.1:5", "Bearer " + operatorToken, true, 200},
		{"plain from afar", "POST", "192.0.2.1:5", "Bearer " + operatorToken, false, 403},
		{"no token", "POST", "127.0.0.1:5", "", false, 401},
		{"TLS without token", "POST", "192.0.2.1:5", "", true, 401},
		{"wrong token", "POST", "127.0.0.1:5", "Bearer other", false, 401},
		{"empty token", "POST", "127.0.0.1:5", "Bearer ", false, 401},
		{"other scheme", "POST", "127.0.0.1:5", "Basic " + operatorToken, false, 401},
		{"GET", "GET", "127.0.0.1:5", "Bearer " + operatorToken, false, 405},
		{"PUT", "PUT", "127.0.0.1:5", "Bearer " + operatorToken, false, 405},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &backend{leader: Leader{Name: "n1", Self: true}}
			s := NewServer(Options{Name: "n1", Backend: b, Answers: b.answers(), NodeToken: "node"})
			r := httptest.NewRequest(tc.method, "/switchover", strings.NewReader(`{"to":"n2"}`))
			r.Header.Set("Content-Type", "application/json")
			r.RemoteAddr = tc.from
			if tc.auth != "" {
				r.Header.Set("Authorization", tc.auth)
			}
			if tc.tls {
				r.TLS = &tls.ConnectionState{}
			}
			w := httptest.NewRecorder()
			s.handler().ServeHTTP(w, r)
			if w.Code != tc.status {
				t.Fatalf("status %d, want %d: %s", w.Code, tc.status, w.Body)
			}
			if done := slices.Contains(b.calls(), "switchover n2"); done != (tc.status == 200) {
				t.Fatalf("done: %v", done)
			}
			if e := new(Error); tc.status != 200 && (json.Unmarshal(w.Body.Bytes(), e) != nil || e.Message == "" ||
				e.Kind == "") {
				t.Fatalf("error body %s", w.Body)
			}
		})
	}
}

func TestEmptyNodeTokenOpensNothing(t *testing.T) {
	s := NewServer(Options{Answers: new(backend).answers(), Backend: &backend{leader: Leader{Self: true}}})
	r := httptest.NewRequest("POST", "/switchover", nil)
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = "127.0.0.1:1"
	r.Header.Set("Authorization", "Bearer ")
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, r)
	if w.Code != 401 {
		t.Fatalf("status %d", w.Code)
	}
}

func TestReadingNeedsNothing(t *testing.T) {
	c := newCluster(t)
	s := c.start(1, "n1", &backend{leader: Leader{Name: "n1", Self: true},
		health: Health{Role: RoleLeader, State: StateHealthy}})
	for _, base := range []string{"http://" + s.Addr(), "https://" + s.Addr()} {
		cl := c.client(base, "")
		if v, err := cl.Cluster(t.Context()); err != nil || v.Leader != "n1" || v.Cluster != "c1" || len(v.Members) != 1 {
			t.Errorf("%s: %+v, %v", base, v, err)
		}
		if m, err := cl.Member(t.Context()); err != nil || m.Name != "n1" {
			t.Errorf("%s: %+v, %v", base, m, err)
		}
		if h, err := cl.History(t.Context()); err != nil || h == nil || len(h) != 0 {
			t.Errorf("%s: %v, %v: an empty history must be [], not null", base, h, err)
		}
		if ok, h, err := cl.Check(t.Context(), "/liveness"); !ok || err != nil || h.Name != "n1" {
			t.Errorf("%s: %v %+v, %v", base, ok, h, err)
		}
	}
	res, err := http.Get("http://" + s.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	if text, _ := io.ReadAll(res.Body); !strings.Contains(string(text), "trireme_test 42") {
		t.Errorf("metrics: %s", text)
	}
	if err := c.client("http://"+s.Addr(), "").do(t.Context(), "GET", "/nope", nil, nil); KindOf(err) != KindNotFound {
		t.Errorf("unknown path: %v", err)
	}
}

func TestForwardedToLeader(t *testing.T) {
	c := newCluster(t)
	lead := &backend{leader: Leader{Name: "n1", Self: true}}
	leader := c.start(1, "n1", lead)
	follow := &backend{leader: Leader{Name: "n1", API: leader.Addr()}}
	follower := c.start(2, "n2", follow)
	cl := c.client("https://"+follower.Addr(), operatorToken)

	res, err := Switchover.Ask(t.Context(), cl, SwitchoverRequest{To: "n2", DryRun: true})
	if err != nil || res.To != "n2" || !res.DryRun {
		t.Fatalf("%+v, %v", res, err)
	}
	if _, err := NewJoinToken.Ask(t.Context(), cl, JoinTokenRequest{Name: "n3"}); err != nil {
		t.Fatal(err)
	}
	j, err := Join.Ask(t.Context(), c.client("https://"+follower.Addr(), ""),
		JoinRequest{Member: config.Member{Name: "n3"}})
	if err != nil || j.ID != 7 {
		t.Fatalf("%+v, %v", j, err)
	}
	for _, verb := range []Verb[MemberRequest, MemberResult]{Remove, Reinit, Demote} {
		if res, err := verb.Ask(t.Context(), cl, MemberRequest{Name: "n3"}); err != nil || res.Name != "n3" {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if res, err := Promote.Ask(t.Context(), cl, PromoteRequest{Names: []string{"n3"}}); err != nil || res.Name != "n3" {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := lead.calls(); !slices.Equal(got, []string{"switchover n2", "join-token n3", "join n3", "remove n3",
		"reinit n3", "demote n3", "promote n3"}) || len(follow.calls()) != 0 {
		t.Fatalf("leader was asked %v", got)
	}

	// The leader's errors come through as they are.
	lead.err = Errorf(KindConflict, "n2 lags too far").With("wait")
	_, err = Switchover.Ask(t.Context(), cl, SwitchoverRequest{To: "n2"})
	if e, ok := errors.AsType[*Error](err); !ok || *e != *lead.err.(*Error) {
		t.Fatalf("error %v", err)
	}
	lead.err = errors.New("disk on fire")
	if _, err = Switchover.Ask(t.Context(), cl, SwitchoverRequest{}); KindOf(err) != KindInternal || ExitCode(err) != 1 {
		t.Fatalf("error %v", err)
	}
}

func TestForwardingEndsAfterOneHop(t *testing.T) {
	c := newCluster(t)
	a, b := &backend{}, &backend{}
	sa, sb := c.start(1, "n1", a), c.start(2, "n2", b)
	// Each believes that the other leads.
	a.leader, b.leader = Leader{Name: "n2", API: sb.Addr()}, Leader{Name: "n1", API: sa.Addr()}
	_, err := Switchover.Ask(t.Context(), c.client("https://"+sa.Addr(), operatorToken), SwitchoverRequest{})
	if KindOf(err) != KindNoLeader || ExitCode(err) != 3 {
		t.Fatalf("error %v", err)
	}
}

func TestNoLeader(t *testing.T) {
	c := newCluster(t)
	b := &backend{}
	s := c.start(1, "n1", b)
	cl := c.client("https://"+s.Addr(), operatorToken)
	if _, err := Switchover.Ask(t.Context(), cl, SwitchoverRequest{}); KindOf(err) != KindNoLeader {
		t.Fatalf("error %v", err)
	}
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = dead.Close()
	b.leader = Leader{Name: "n2", API: dead.Addr().String()}
	_, err = Switchover.Ask(t.Context(), cl, SwitchoverRequest{})
	if KindOf(err) != KindNoLeader || !strings.Contains(err.Error(), "n2") {
		t.Fatalf("error %v", err)
	}
}

func TestOnlyTheClustersCertificatesAreTrusted(t *testing.T) {
	c, other := newCluster(t), newCluster(t)
	s := c.start(1, "n1", &backend{})
	if _, err := other.client("https://"+s.Addr(), operatorToken).Cluster(t.Context()); KindOf(err) != KindUnreachable {
		t.Fatalf("a foreign CA was accepted: %v", err)
	}
	bare := NewClient("https://"+s.Addr(), operatorToken, nil)
	defer bare.Close()
	if _, err := bare.Cluster(t.Context()); err == nil {
		t.Fatal("without a CA any certificate was accepted")
	}
	joiner := NewClient("https://"+s.Addr(), "", pki.JoinTLS(c.ca.Digest()))
	defer joiner.Close()
	if _, err := joiner.Cluster(t.Context()); err != nil {
		t.Fatalf("pinned by digest: %v", err)
	}
	wrong := NewClient("https://"+s.Addr(), "", pki.JoinTLS(other.ca.Digest()))
	defer wrong.Close()
	if _, err := wrong.Cluster(t.Context()); err == nil {
		t.Fatal("the wrong digest was accepted")
	}
}

// TestPagesOfOtherSites: what a browser sends on behalf of another site changes nothing, whatever token goes with it.
func TestPagesOfOtherSites(t *testing.T) {
	b := &backend{leader: Leader{Name: "n1", Self: true}}
	s := NewServer(Options{Name: "n1", Backend: b, Answers: b.answers()})
	for name, tc := range map[string]struct {
		headers map[string]string
		status  int
	}{
		"a program":            {map[string]string{"Content-Type": "application/json"}, 200},
		"with a character set": {map[string]string{"Content-Type": "application/json; charset=utf-8"}, 200},
		"another site": {map[string]string{"Content-Type": "application/json", "Sec-Fetch-Site": "cross-site"},
			403},
		"an older browser": {map[string]string{"Content-Type": "application/json", "Origin": "https://other.example"},
			403},
		"a form":                   {map[string]string{"Content-Type": "text/plain"}, 400},
		"a form without a content": {nil, 400},
	} {
		r := httptest.NewRequest("POST", "/switchover", strings.NewReader(`{"to":"n2"}`))
		r.RemoteAddr = "127.0.0.1:1"
		r.Header.Set("Authorization", "Bearer "+operatorToken)
		for k, v := range tc.headers {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, r)
		if done := len(b.calls()) > 0; w.Code != tc.status || done != (tc.status == 200) {
			t.Errorf("%s: status %d, done: %v", name, w.Code, done)
		}
	}
}

func TestBadBodies(t *testing.T) {
	b := &backend{leader: Leader{Self: true}}
	s := NewServer(Options{Backend: b, Answers: b.answers()})
	for name, body := range map[string]string{
		"not JSON": "to=n2", "unknown field": `{"too":"n2"}`, "wrong type": `{"to":2}`,
		"something after it": `{"to":"n2"} x`, "two": `{"to":"n2"}{"to":"n3"}`,
		"too large": `{"to":"` + strings.Repeat("x", maxBody) + `"}`,
	} {
		r := httptest.NewRequest("POST", "/switchover", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.RemoteAddr = "127.0.0.1:1"
		r.Header.Set("Authorization", "Bearer "+operatorToken)
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, r)
		if w.Code != 400 || len(b.calls()) != 0 {
			t.Errorf("%s: status %d", name, w.Code)
		}
	}
}

func TestSilentAndForeignConnections(t *testing.T) {
	c := newCluster(t)
	s := c.start(1, "n1", &backend{})
	silent, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	garbage, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer garbage.Close()
	fmt.Fprintf(garbage, "\x16this is no handshake at all, whatever it begins with")
	_ = garbage.SetReadDeadline(time.Now().Add(5 * time.Second))
	if text, err := io.ReadAll(garbage); err != nil || bytes.Contains(text, []byte("HTTP/1.1 200")) {
		t.Errorf("garbage got %q, %v", text, err)
	}
	// Neither is in the way of the others, nor of Close (in Cleanup, where goleak looks too).
	if _, err := c.client("http://"+s.Addr(), "").Cluster(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	c := newCluster(t)
	s := c.start(1, "n1", &backend{})
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
	}()
	for range 30 { // MaxConns is 20
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	// Those turned away see their end; a place that is taken stays silent.
	turnedAway := map[net.Conn]bool{}
	deadline := time.Now().Add(5 * time.Second)
	for len(turnedAway) < 10 && time.Now().Before(deadline) {
		for _, conn := range conns {
			_ = conn.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
			_, err := conn.Read(make([]byte, 1))
			if ne, ok := errors.AsType[net.Error](err); !ok || !ne.Timeout() {
				turnedAway[conn] = true
			}
		}
	}
	if len(turnedAway) != 10 {
		t.Fatalf("%d of 30 connections were turned away, not 10", len(turnedAway))
	}
	for _, conn := range conns {
		conn.Close()
	}
	deadline = time.Now().Add(5 * time.Second)
	for {
		_, err := c.client("http://"+s.Addr(), "").Cluster(t.Context())
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("places are not given back: %v", err)
		}
	}
}

func TestPortInUse(t *testing.T) {
	c := newCluster(t)
	s := c.start(1, "n1", &backend{})
	err := NewServer(Options{Listen: s.Addr(), Backend: &backend{}}).Start()
	if err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Fatalf("error %v", err)
	}
}

// overdue is a context that has ended, before a goroutine that waits for that has seen it.
type overdue struct{ context.Context }

func (overdue) Err() error { return context.DeadlineExceeded }

func TestClientErrors(t *testing.T) {
	c := newCluster(t)
	b := &backend{leader: Leader{Self: true}, block: make(chan struct{})}
	s := c.start(1, "n1", b)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := Switchover.Ask(ctx, c.client("https://"+s.Addr(), operatorToken), SwitchoverRequest{})
	if KindOf(err) != KindTimeout || ExitCode(err) != 3 {
		t.Errorf("slow node: %v", err)
	}
	close(b.block)
	late := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "context canceled", http.StatusInternalServerError)
	}))
	defer late.Close()
	if _, err := c.client(late.URL, "").Cluster(overdue{t.Context()}); KindOf(err) != KindTimeout {
		t.Errorf("a node that saw that its client gave up: %v", err)
	}
	if _, err := c.client("http://127.0.0.1:1", "").Cluster(t.Context()); KindOf(err) != KindUnreachable ||
		ExitCode(err) != 3 {
		t.Errorf("dead node: %v", err)
	}
	odd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "teapot", http.StatusTeapot)
	}))
	defer odd.Close()
	if _, err := c.client(odd.URL, "").Cluster(t.Context()); err == nil || !strings.Contains(err.Error(), "418") {
		t.Errorf("something else on the port: %v", err)
	}
	for in, want := range map[string]string{
		"127.0.0.1:8008": "https://127.0.0.1:8008", "localhost:1": "https://localhost:1", "[::1]:1": "https://[::1]:1",
		"db1:8008": "https://db1:8008", "https://db1:8008/": "https://db1:8008", "http://db1:1": "http://db1:1",
	} {
		if got := BaseURL(in); got != want {
			t.Errorf("BaseURL(%q) = %q, want %q", in, got, want)
		}
	}
	if KindOf(nil) == KindInternal && ExitCode(nil) != 0 {
		t.Error("no error is no failure")
	}
}

// TestTokenNeedsTLS: what listens on a port without being a node never gets a token, on this host neither, and an
// answer that lacks what a node sends is an error.
func TestTokenNeedsTLS(t *testing.T) {
	c := newCluster(t)
	var got atomic.Value
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Header.Get("Authorization"))
		_, _ = w.Write([]byte(`{}`))
	})
	plain, tls := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	defer plain.Close()
	defer tls.Close()
	for _, base := range []string{plain.URL, strings.TrimPrefix(plain.URL, "http://"), tls.URL} {
		cl := c.client(base, operatorToken)
		if v, err := Switchover.Ask(t.Context(), cl, SwitchoverRequest{}); err == nil || got.Load() != nil {
			t.Errorf("%s: %+v, %v; it was sent %v", base, v, err, got.Load())
		}
		if err := cl.WatchRoute(t.Context(), func(RouteView) {}); err == nil || got.Load() != nil {
			t.Errorf("%s: %v; it was sent %v", base, err, got.Load())
		}
	}
	guest := c.client(plain.URL, "")
	_, err1 := guest.Cluster(t.Context())
	_, err2 := Switchover.Ask(t.Context(), guest, SwitchoverRequest{})
	_, _, err3 := guest.Check(t.Context(), "/primary")
	for _, err := range []error{err1, err2, err3} {
		if KindOf(err) != KindInternal {
			t.Errorf("an empty answer: %v", err)
		}
	}
}

// TestWireNames pins the JSON names that tools rely on.
func TestWireNames(t *testing.T) {
	lag, bytesBehind := 0.5, uint64(10)
	view := ClusterView{Cluster: "c", Members: []MemberView{{MySQL: &MySQLView{LagSeconds: &lag, LagBytes: &bytesBehind}},
		DownView(config.Member{Name: "l1", Role: config.RoleLogger}, "gone")}}
	text, err := json.Marshal(view)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	want := func(where string, got any, names ...string) {
		m, ok := got.(map[string]any)
		if !ok {
			t.Fatalf("%s is %T", where, got)
		}
		for _, n := range names {
			if _, there := m[n]; !there {
				t.Errorf("%s has no %q", where, n)
			}
		}
	}
	want("cluster", tree, "cluster", "term", "leader", "commit_index", "members")
	members := tree["members"].([]any)
	m := members[0].(map[string]any)
	want("member", m, "name", "role", "state", "raft", "mysql", "daemon")
	want("raft", m["raft"], "id", "state", "term", "match", "last", "durable", "voter")
	want("mysql", m["mysql"], "host", "port", "pid", "version", "read_only", "gtid_executed", "lag_seconds", "lag_bytes")
	want("daemon", m["daemon"], "pid", "api", "peer")
	if logger := members[1].(map[string]any); logger["mysql"] != nil || logger["role"] != "logger" ||
		logger["state"] != "down" {
		t.Errorf("logger %v", logger)
	}
}

// TestWhyNotAsksTheLeader: any node answers why-not with what the leader says, and with what it knows itself when the
// leader cannot be reached.
func TestWhyNotAsksTheLeader(t *testing.T) {
	c := newCluster(t)
	b1, b2 := &backend{leader: Leader{Name: "n1", Self: true}}, &backend{}
	s1, s2 := c.start(1, "n1", b1), c.start(2, "n2", b2)
	b2.leader = Leader{Name: "n1", API: s1.Addr()}
	cl := c.client(s2.Addr(), "")
	if v, err := cl.WhyNot(t.Context(), "n 3"); err != nil || v.SeenBy != "n1" || v.Node != "n 3" {
		t.Errorf("%+v, %v", v, err)
	}
	if got := b2.calls(); len(got) != 0 {
		t.Errorf("n2 was asked %q too", got)
	}
	b2.mu.Lock()
	b2.leader.API = "127.0.0.1:1"
	b2.mu.Unlock()
	if v, err := cl.WhyNot(t.Context(), "n3"); err != nil || v.SeenBy != "n2" {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestSteeringNeedsTheToken: settings are shown to everybody and changed, like a pause, by operators only.
func TestSteeringNeedsTheToken(t *testing.T) {
	c := newCluster(t)
	b := &backend{leader: Leader{Name: "n1", Self: true}}
	s := c.start(1, "n1", b)
	guest, operator := c.client(s.Addr(), ""), c.client(s.Addr(), operatorToken)
	if v, err := Config.Ask(t.Context(), guest); err != nil || v.Version != 3 {
		t.Errorf("%+v, %v", v, err)
	}
	for _, cl := range []*Client{guest, operator} {
		_, err1 := ChangeConfig.Ask(t.Context(), cl, ConfigChange{Set: map[string]string{"weight.n1": "1"}})
		_, err2 := Pause.Ask(t.Context(), cl, PauseRequest{})
		_, err3 := Resume.Ask(t.Context(), cl, ResumeRequest{})
		for _, err := range []error{err1, err2, err3} {
			if cl == guest && KindOf(err) != KindUnauthorized || cl == operator && err != nil {
				t.Errorf("guest %t: %v", cl == guest, err)
			}
		}
	}
	if got := b.calls(); len(got) != 3 {
		t.Errorf("%q", got)
	}
}
