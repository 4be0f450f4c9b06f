package api

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/base/pki"
)

// TestConsole: the pages of a follower show and do what the leader's would.
func TestConsole(t *testing.T) {
	c := newCluster(t)
	lead := &backend{leader: Leader{Self: true, Name: "n1"}}
	s1 := c.start(1, "n1", lead)
	follower := &backend{leader: Leader{Name: "n1", API: s1.Addr()}}
	s2 := c.start(2, "n2", follower)
	con := s2.Console()
	defer con.Rest()

	for token, want := range map[string]pki.Role{"": "", "node-to-node": "", "the-old": "", operatorToken: pki.Admin,
		"the-viewers": pki.Viewer} {
		who, ok := con.Login(token)
		if again, found := con.Holder(who.ID); who.Role != want || ok != (want != "") || found != ok || again != who {
			t.Errorf("%q: %+v %v, later %+v", token, who, ok, again)
		}
	}
	operator, _ := con.Login(operatorToken)
	ctx := WithPrincipal(t.Context(), operator)
	if res, err := con.Switchover(ctx, SwitchoverRequest{To: "n3"}); err != nil || res.To != "n3" {
		t.Error(res, err)
	}
	if asked := lead.calls(); !slices.Equal(asked, []string{"switchover n3"}) {
		t.Errorf("the leader was asked %q", asked)
	}
	if res, err := Do(ctx, con, Failover, FailoverRequest{To: "n2"}); err != nil || res.To != "n2" {
		t.Error(res, err)
	}
	if here, there := follower.calls(), lead.calls(); !slices.Equal(here, []string{"failover n2"}) || len(there) != 0 {
		t.Errorf("failover, which goes without the leader: the follower was asked %q, the leader %q", here, there)
	}
	viewer, _ := con.Login("the-viewers")
	for _, ctx := range []context.Context{t.Context(), WithPrincipal(t.Context(), viewer)} {
		if _, err := con.Resume(ctx); KindOf(err) != KindForbidden {
			t.Error(err)
		}
		if res, err := con.Invite(ctx, JoinTokenRequest{Name: "n4"}); KindOf(err) != KindForbidden || res.Token != "" {
			t.Error(res, err)
		}
	}
	if asked := lead.calls(); len(asked) != 0 {
		t.Errorf("done: %q", asked)
	}
	if res, err := con.Invite(ctx, JoinTokenRequest{Name: "n4", Role: "logger"}); err != nil || res.Token != "t" {
		t.Error(res, err)
	}
	if asked := lead.calls(); !slices.Equal(asked, []string{"join-token n4"}) {
		t.Errorf("the leader was asked %q", asked)
	}
	view := ClusterView{Members: []MemberView{
		{Name: "n1", Daemon: DaemonView{API: s1.Addr()}}, {Name: "n2"},
		{Name: "gone", State: StateDown, Daemon: DaemonView{API: "127.0.0.1:1"}},
		{Name: "deaf", Daemon: DaemonView{API: "127.0.0.1:1"}},
		{Name: "mistaken", Daemon: DaemonView{API: s1.Addr()}},
	}}
	loads := con.Loads(t.Context(), view)
	if len(loads) != 2 || loads["n1"].Transactions != 5 || loads["n2"].Node != "n2" {
		t.Errorf("%+v", loads)
	}
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	follower.calls()
	if r, err := con.Report(t.Context(), at, at.Add(time.Hour)); err != nil || r.Cluster != "c1" || len(r.Nodes) != 1 ||
		r.Nodes[0].Node != "n2" || !r.To.Equal(at.Add(time.Hour)) {
		t.Errorf("%+v, %v", r, err)
	}
	if asked := follower.calls(); !slices.Equal(asked, []string{"history", "period"}) {
		t.Errorf("asked %q", asked)
	}
	events := []Event{{Time: at.Add(-1), Kind: "before"}, {Time: at, Kind: "inside"},
		{Time: at.Add(time.Hour + 1), Kind: "after"}}
	r, err := MakeReport(view, events, at, at.Add(time.Hour), func(node string) (PeriodView, error) {
		if node == "n2" {
			return PeriodView{Node: node, StepS: 10}, nil
		}
		return PeriodView{}, Errorf(KindBusy, "not now")
	})
	if err != nil || len(r.Nodes) != 5 || r.Nodes[0].Node != "n1" || r.Nodes[0].Problem != "not now" ||
		r.Nodes[1].StepS != 10 {
		t.Errorf("%+v, %v", r, err)
	}
	if len(r.Events) != 1 || r.Events[0].Kind != "inside" {
		t.Errorf("%+v", r.Events)
	}
	if _, err := MakeReport(view, nil, at, at.Add(time.Hour),
		func(string) (PeriodView, error) { return PeriodView{}, Errorf(KindForbidden, "no") }); KindOf(err) != KindForbidden {
		t.Error(err)
	}
}

// TestPages: they get their own paths and no others.
func TestPages(t *testing.T) {
	c := newCluster(t)
	b := &backend{leader: Leader{Self: true}}
	b.health.Name = "n1"
	s := NewServer(Options{Name: "n1", Listen: "127.0.0.1:0", Backend: b, Answers: b.answers(), TLS: c.bundle(1, "n1").
		ServerJoinTLS()})
	s.SetPages(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(t.Context()) }()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: c.trust(),
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}}
	defer client.CloseIdleConnections()
	for path, want := range map[string]int{"/": 418, "/ui/x": 418, "/uix": 404, "/nothing": 404, "/member": 200,
		"/load": 200} {
		res, err := client.Get("https://" + s.Addr() + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: status %d, want %d", path, res.StatusCode, want)
		}
	}
}

func TestHistogram(t *testing.T) {
	h := Histogram{Buckets: make([]uint64, len(LatencyBounds)+1)}
	if h.Mean() != 0 || h.Quantile(0.5) != 0 {
		t.Error("of nothing")
	}
	before := h.Since(Histogram{})
	h.Count, h.SumS = 4, 0.006
	h.Buckets = slices.Clone(h.Buckets)
	h.Buckets[6], h.Buckets[7] = 2, 2 // two up to 1 ms, two up to 1.5 ms
	d := h.Since(before)
	if d.Count != 4 || d.Mean() != 0.0015 {
		t.Errorf("%+v", d)
	}
	for q, want := range map[float64]float64{0.25: 0.875e-3, 0.5: 1e-3, 0.75: 1.25e-3, 1: 1.5e-3} {
		if got := d.Quantile(q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	if again := before.Since(h); again.Count != 0 {
		t.Errorf("a node that restarted: %+v", again)
	}
	above := Histogram{Count: 1, Buckets: append(make([]uint64, len(LatencyBounds)), 1)}
	if above.Quantile(0.5) != 10 {
		t.Errorf("%v", above.Quantile(0.5))
	}
}

// TestLoginAt: a node makes a code for somebody who is logged in at another one. Both nodes prove who they are, the
// audit log has it, and no other client is taken for a node.
func TestLoginAt(t *testing.T) {
	c := newCluster(t)
	var asked []string
	var other *Console
	pages := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, r.Method+" "+r.URL.Path+" "+strings.TrimSpace(string(body)))
		if !other.FromNode(r) {
			writeJSON(w, http.StatusUnauthorized, Errorf(KindUnauthorized, "no"))
			return
		}
		var req CodeRequest
		_ = json.Unmarshal(body, &req)
		other.AuditCode(r, req, nil)
		writeJSON(w, http.StatusOK, LoginCode{Code: "trd1.x", Seconds: 20})
	})
	b1 := &backend{}
	s1 := c.start(1, "n1", b1, func(s *Server) { s.SetPages(pages) })
	other = s1.Console()
	b2 := &backend{members: []MemberView{{Name: "n1", Daemon: DaemonView{API: s1.Addr()}}, {Name: "n2"}}}
	con := c.start(2, "n2", b2).Console()
	viewer, _ := con.Login("the-viewers")
	at, code, err := con.LoginAt(t.Context(), viewer, "n1", time.Hour)
	if err != nil || at != "https://"+s1.Addr() || code.Code != "trd1.x" {
		t.Errorf("%s %+v %v", at, code, err)
	}
	request := `{"holder":"` + viewer.ID + `","seconds":3598}`
	want := "POST /ui/code " + request
	if len(asked) != 1 || asked[0] != want || viewer.ID == "" {
		t.Errorf("asked %q, want %q", asked, want)
	}
	for _, node := range []string{"n2", "n9", ""} {
		if _, code, err := con.LoginAt(t.Context(), viewer, node, time.Hour); KindOf(err) != KindNotFound || code.Code != "" {
			t.Errorf("%q: %+v %v", node, code, err)
		}
	}
	if log := b2.audits(); len(log) != 1 || log[0].Verb != "ui/code" || log[0].By != viewer.By || log[0].Error != "" ||
		string(log[0].Request) != `{"node":"n1"}` || log[0].Via != "" {
		t.Errorf("audited: %+v", log)
	}
	if log := b1.audits(); len(log) != 1 || log[0].Verb != "ui/code" || log[0].By != viewer.By || log[0].Error != "" ||
		string(log[0].Request) != request || log[0].Via != "n2" || log[0].From != "dashboard" {
		t.Errorf("audited by the other node: %+v", log)
	}
	// An operator's token, and the nodes' token without a certificate, do not make a node.
	for _, token := range []string{operatorToken, "node-to-node", ""} {
		cl := c.client("https://"+s1.Addr(), token)
		cl.header.Set(forwardedBy, "n2")
		err := cl.do(t.Context(), http.MethodPost, "/ui/code", CodeRequest{Holder: viewer.ID, Seconds: 9}, &code)
		if KindOf(err) != KindUnauthorized {
			t.Errorf("%q: %v", token, err)
		}
	}
	// Nor does a certificate without the nodes' token.
	trust, err := c.bundle(2, "n2").NodeClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"", operatorToken} {
		cl := NewClient("https://"+s1.Addr(), token, trust)
		cl.header.Set(forwardedBy, "n2")
		err := cl.do(t.Context(), http.MethodPost, "/ui/code", CodeRequest{}, &code)
		if cl.Close(); KindOf(err) != KindUnauthorized {
			t.Errorf("a certificate with %q: %v", token, err)
		}
	}
	// What a node that was removed asks for is refused before anybody reads it.
	n := len(asked)
	b1.mu.Lock()
	b1.gone = 2
	b1.mu.Unlock()
	if _, code, err := con.LoginAt(t.Context(), viewer, "n1", time.Hour); KindOf(err) != KindForbidden || code.Code != "" ||
		len(asked) != n {
		t.Errorf("a removed node: %+v %v, asked %q", code, err, asked[n:])
	}
}
