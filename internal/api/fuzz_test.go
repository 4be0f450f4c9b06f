package api

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"trireme/lab/heap"
)

// open are the paths that answer without a token.
var open = []string{"/cluster", "/member", "/history", "/why-not", "/config", "/metrics", "/join"}

// FuzzServer asks with any method, path, query, token and body: there is an answer in JSON with a known status, and
// nothing is done for somebody without the token.
func FuzzServer(f *testing.F) {
	f.Add("GET", "/cluster", "", "", []byte(nil))
	f.Add("POST", "/switchover", "", "node", []byte(`{"to":"n2"}`))
	f.Add("POST", "/switchover", "", "", []byte(`{"to":"n2"}`))
	f.Add("POST", "//switchover/../remove", "", "node ", []byte(`{"name":"n2"}`))
	f.Add("GET", "/replica", "lag=5s&lag=x%00", "", []byte(nil))
	f.Add("GET", "/why-not", "node=%ff%fe", "", []byte(nil))
	f.Add("POST", "/join-tokens", "", "node", []byte(`{"name":{}}`))
	f.Add("POST", "/promote", "", "node", []byte(`{"names":["a"]}`))
	f.Add("PATCH", "/config", "", "node", []byte(`{}`))
	f.Add("POST", "/force-quorum", "", "node", bytes.Repeat([]byte("["), 20_000))
	b := &backend{leader: Leader{Self: true}}
	h := NewServer(Options{Backend: b, Answers: b.answers(), NodeToken: "node"}).handler()
	f.Fuzz(func(t *testing.T, method, path, query, token string, body []byte) {
		if method == "" ||
			strings.ContainsFunc(method,
				func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c) }) {
			return // net/http refuses it before a handler sees it
		}
		if path == "/promote" && !bytes.Contains(body, []byte(`"names":["`)) {
			return // the stand-in takes the first name
		}
		r := &http.Request{Method: method, URL: &url.URL{Path: path, RawQuery: query},
			Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
			RemoteAddr: "127.0.0.1:1", ProtoMajor: 1, ProtoMinor: 1}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		heap.Within(t, 1<<20+64*(len(body)+len(path)+len(query)), func() { h.ServeHTTP(w, r) })
		asked := b.calls()
		if token != "node" && token != operatorToken && slices.ContainsFunc(asked, func(what string) bool {
			return what != "history" && !strings.HasPrefix(what, "why-not ") && !strings.HasPrefix(what, "join ")
		}) {
			t.Fatalf("%s %s without the token: %q", method, path, asked)
		}
		if method != http.MethodPost && len(asked) > 0 && !strings.HasPrefix(asked[0], "history") &&
			!strings.HasPrefix(asked[0], "why-not ") {
			t.Fatalf("%s %s: %q", method, path, asked)
		}
		switch w.Code {
		case 200, 204, 301, 307, 400, 401, 403, 404, 405, 409, 503:
		default:
			t.Fatalf("status %d", w.Code)
		}
		if ct := w.Header().Get("Content-Type"); ct == "application/json" && method != http.MethodHead &&
			!json.Valid(w.Body.Bytes()) {
			t.Fatalf("not JSON: %q", w.Body)
		}
		if w.Code == 200 && method == http.MethodGet && !slices.Contains(open, path) && healthChecks[path] == nil {
			t.Fatalf("%s was answered", path)
		}
	})
}

// answers is a node that says anything.
type answers struct {
	status int
	body   []byte
}

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(a.body)),
		Request: r}, nil
}

// FuzzClient asks a node that answers anything: errors are of the known kinds and say something.
func FuzzClient(f *testing.F) {
	b := &backend{}
	view, err := json.Marshal(b.View(f.Context()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(200, view)
	f.Add(503, []byte(`{"error":"no leader","kind":"no-leader","hint":"x"}`))
	f.Add(500, []byte("<html>"))
	f.Add(200, []byte(`null`))
	f.Add(302, []byte(nil))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		c := NewClient("127.0.0.1:1", "", nil)
		c.http.Transport = answers{status, body}
		heap.Within(t, 1<<20+2048*len(body), func() {
			check := func(err error) {
				t.Helper()
				if err != nil && (KindOf(err) == "" || err.Error() == "") {
					t.Fatalf("unclassified: %#v", err)
				}
			}
			_, err := c.Cluster(t.Context())
			check(err)
			_, err = c.Member(t.Context())
			check(err)
			_, err = c.History(t.Context())
			check(err)
			_, err = Config.Ask(t.Context(), c)
			check(err)
			_, err = Join.Ask(t.Context(), c, JoinRequest{})
			check(err)
			_, err = ForceQuorum.Ask(t.Context(), c, ForceRequest{})
			check(err)
			ok, _, err := c.Check(t.Context(), "/primary")
			check(err)
			if ok && status != 200 {
				t.Fatalf("status %d is healthy", status)
			}
		})
	})
}
