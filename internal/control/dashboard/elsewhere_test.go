package dashboard

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/pki"
)

// TestElsewhere: who is logged in at one node gets a link that logs in at another one, once and at once, with the role
// that the other one knows, and for no longer than the login that it comes from.
func TestElsewhere(t *testing.T) {
	f, g := healthy(), healthy()
	g.here = "n1"
	f.role = pki.Admin // this node is wrong, or lies
	asks, other := serve(t, f), serve(t, g)
	f.others = map[string]*served{"n1": other}
	c := asks.browser(t)
	if status, _ := asks.post(t, c, "/ui/login", "token", viewToken); status != http.StatusSeeOther {
		t.Fatal(status)
	}
	_, page := asks.get(t, c, "/")
	act := actionToken(t, page)
	link := func(act, node string) (int, string) {
		t.Helper()
		status, body := asks.post(t, c, "/ui/elsewhere", "action_token", act, "node", node)
		var a struct{ Link string }
		_ = json.Unmarshal([]byte(body), &a)
		_, code, _ := strings.Cut(a.Link, "/ui/login#")
		return status, code
	}
	if status, code := link("", "n1"); status != http.StatusForbidden || code != "" {
		t.Errorf("without the action token: %d %q", status, code)
	}
	if status, code := link(act, "n9"); status != http.StatusBadGateway || code != "" {
		t.Errorf("no node: %d %q", status, code)
	}
	asks.advance(sessionLife - time.Hour)
	other.advance(sessionLife - time.Hour)
	status, code := link(act, "n1")
	if status != http.StatusOK || !strings.HasPrefix(code, codePrefix) {
		t.Fatalf("%d %q", status, code)
	}
	there := other.browser(t)
	for i, want := range []int{http.StatusSeeOther, http.StatusUnauthorized} {
		c := []*http.Client{there, other.browser(t)}[i]
		if status, _ := other.post(t, c, "/ui/login", "token", code); status != want {
			t.Errorf("use %d: %d", i, status)
		}
	}
	_, page = other.get(t, there, "/")
	if !strings.Contains(page, "This login has the role viewer") {
		t.Errorf("another role: %.300s", page)
	}
	other.advance(time.Hour - time.Second)
	if _, page = other.get(t, there, "/"); strings.Contains(page, `id="token"`) {
		t.Error("the session has ended too early")
	}
	other.advance(time.Second)
	if _, page = other.get(t, there, "/"); !strings.Contains(page, `id="token"`) {
		t.Error("the session lasts longer than the one that it comes from")
	}

	// A code that was not used ends soon, and with its token; a token that is gone gets no code.
	if _, code = link(act, "n1"); code == "" {
		t.Fatal("no code")
	}
	other.advance(linkLife)
	if status, _ := other.post(t, there, "/ui/login", "token", code); status != http.StatusUnauthorized {
		t.Errorf("too late: %d", status)
	}
	if _, code = link(act, "n1"); code == "" {
		t.Fatal("no code")
	}
	g.mu.Lock()
	g.taken = true
	g.mu.Unlock()
	if status, _ := other.post(t, there, "/ui/login", "token", code); status != http.StatusUnauthorized {
		t.Errorf("its token is gone: %d", status)
	}
	if status, code := link(act, "n1"); status != http.StatusBadGateway || code != "" {
		t.Errorf("a token that the node does not know: %d %q", status, code)
	}
	asks.advance(time.Hour)
	if status, code := link(act, "n1"); status != http.StatusUnauthorized || code != "" {
		t.Errorf("a session that has ended: %d %q", status, code)
	}
}

// TestCodeForNode: only a node gets a code for somebody whose token it does not have, and that leaves a line.
func TestCodeForNode(t *testing.T) {
	f := healthy()
	s := serve(t, f)
	ask := func(node bool, req any) (int, string) {
		t.Helper()
		body, _ := json.Marshal(req)
		r, _ := http.NewRequest("POST", s.URL+"/ui/code", strings.NewReader(string(body)))
		if node {
			r.Header.Set("From-Node", "yes")
		}
		res, err := s.browser(t).Do(r)
		return answer(t, res, err)
	}
	const refused = "there is no such login"
	good := api.CodeRequest{Holder: admin.ID, Seconds: 60}
	for name, c := range map[string]struct {
		node    bool
		req     any
		want    int
		audited string
	}{
		"a node":  {true, good, http.StatusOK, "code for " + admin.ID + ": <nil>"},
		"no node": {false, good, http.StatusUnauthorized, ""},
		"an unknown token": {true, api.CodeRequest{Holder: "00112233445566ff", Seconds: 60}, http.StatusUnauthorized,
			refused},
		"no holder":         {true, api.CodeRequest{Seconds: 60}, http.StatusUnauthorized, refused},
		"a login that ends": {true, api.CodeRequest{Holder: admin.ID}, http.StatusUnauthorized, refused},
		"nonsense":          {true, "x", http.StatusUnauthorized, refused},
	} {
		if status, body := ask(c.node, c.req); status != c.want || strings.Contains(body, codePrefix) != (c.want == 200) {
			t.Errorf("%s: %d %s", name, status, body)
		}
		if log := f.calls(); !strings.Contains(log, c.audited) || (log == "") != (c.audited == "") {
			t.Errorf("%s: audited %q, want %q", name, log, c.audited)
		}
	}
	_, body := ask(true, api.CodeRequest{Holder: admin.ID, Seconds: 1 << 30})
	var v api.LoginCode
	_ = json.Unmarshal([]byte(body), &v)
	c := s.browser(t)
	if status, _ := s.post(t, c, "/ui/login", "token", v.Code); status != http.StatusSeeOther {
		t.Fatal(status)
	}
	s.advance(sessionLife)
	if _, page := s.get(t, c, "/"); !strings.Contains(page, `id="token"`) {
		t.Error("a node can have a session last longer than any other")
	}
}
