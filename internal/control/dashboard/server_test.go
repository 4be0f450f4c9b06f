package dashboard

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
)

var tokenField = regexp.MustCompile(`name="action_token" value="([^"]+)"`)

// actionToken is what the page gives to its own forms.
func actionToken(t *testing.T, page string) string {
	t.Helper()
	m := tokenField.FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("no token in %s", page)
	}
	return m[1]
}

func TestLogin(t *testing.T) {
	s := serve(t, healthy())
	c := s.browser(t)
	if status, page := s.get(t, c, "/"); status != 200 || !strings.Contains(page, `id="token"`) ||
		strings.Contains(page, "n1") {
		t.Errorf("a stranger sees, with status %d: %s", status, page)
	}
	res, err := c.PostForm(s.URL+"/ui/login", map[string][]string{"token": {" " + token + "\n"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	set := res.Header.Get("Set-Cookie")
	for _, want := range []string{"__Host-", "Path=/;", "HttpOnly", "Secure", "SameSite=Strict"} {
		if !strings.Contains(set, want) {
			t.Errorf("the cookie %q lacks %s", set, want)
		}
	}
	if strings.Contains(set, "Domain") || strings.Contains(set, token) {
		t.Errorf("cookie %q", set)
	}
	status, page := s.get(t, c, "/")
	if status != 200 || !strings.Contains(page, "1\u202f841\u202f233") {
		t.Fatalf("the page, status %d: %s", status, page)
	}
	if status, _ := s.post(t, c, "/ui/logout", "action_token", actionToken(t, page)); status != http.StatusSeeOther {
		t.Errorf("logout: %d", status)
	}
	// The cookie itself is not accepted any more.
	r, _ := http.NewRequest("GET", s.URL+"/", nil)
	r.Header.Set("Cookie", strings.Split(set, ";")[0])
	res, err = c.Do(r)
	if _, page := answer(t, res, err); !strings.Contains(page, `id="token"`) {
		t.Error("a session goes on after its logout")
	}
}

func TestSessionEnds(t *testing.T) {
	for name, end := range map[string]func(*served, *fake){
		"in time":        func(s *served, _ *fake) { s.advance(sessionLife) },
		"with the token": func(_ *served, f *fake) { f.mu.Lock(); f.gone = true; f.mu.Unlock() },
	} {
		f := healthy()
		s := serve(t, f)
		c := s.loggedIn(t)
		_, page := s.get(t, c, "/")
		act := actionToken(t, page)
		end(s, f)
		if _, page := s.get(t, c, "/"); !strings.Contains(page, `id="token"`) {
			t.Errorf("%s: it did not end", name)
		}
		if status, _ := s.post(t, c, "/ui/resume", "action_token", act); status != http.StatusUnauthorized ||
			f.calls() != "" {
			t.Errorf("%s: an action went through with status %d", name, status)
		}
	}
}

// TestSessionsAreOfOneNode: no node can make what is a session on another one, and what has ended on one is good
// nowhere.
func TestSessionsAreOfOneNode(t *testing.T) {
	f := healthy()
	mine, other := serve(t, f), serve(t, f)
	sess := mine.pages.sessions.issue(admin, mine.pages.opts.Now().Add(sessionLife))
	for s, want := range map[*served]bool{mine: true, other: false} {
		r, _ := http.NewRequest("GET", s.URL+"/", nil)
		r.AddCookie(&http.Cookie{Name: s.pages.cookie, Value: sess})
		res, err := s.browser(t).Do(r)
		if _, page := answer(t, res, err); strings.Contains(page, `id="token"`) == want {
			t.Errorf("a session: %v, want %v", !want, want)
		}
	}
}

// TestLinksDoNotLogIn: a link with somebody else's code must not begin a session unseen, and no other site may send the
// form.
func TestLinksDoNotLogIn(t *testing.T) {
	s := serve(t, healthy())
	if _, script := s.get(t, s.browser(t), "/ui/live.js"); strings.Contains(script, "submit(") ||
		strings.Contains(script, ".click(") {
		t.Error("the script sends a form by itself")
	}
	r, _ := http.NewRequest("POST", s.URL+"/ui/login", strings.NewReader("token="+token))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	res, err := s.browser(t).Do(r)
	if status, _ := answer(t, res, err); status != http.StatusForbidden || res.Header.Get("Set-Cookie") != "" {
		t.Errorf("a login from another site: %d", status)
	}
}

// TestLoginsAreLimited by address, more strictly when there are many failures in all, and the right token does not get
// in either while they are.
func TestLoginsAreLimited(t *testing.T) {
	s := serve(t, healthy())
	c := s.browser(t)
	for i := range sourceTries {
		if status, _ := s.post(t, c, "/ui/login", "token", fmt.Sprint("wrong", i)); status != http.StatusUnauthorized {
			t.Fatalf("try %d: %d", i, status)
		}
	}
	if status, _ := s.post(t, c, "/ui/login", "token", token); status != http.StatusTooManyRequests {
		t.Errorf("after %d failures: %d", sourceTries, status)
	}
	s.advance(loginWindow)
	if status, _ := s.post(t, c, "/ui/login", "token", token); status != http.StatusSeeOther {
		t.Errorf("later: %d", status)
	}
	a := attempts{now: s.clock}
	for i := range 2 * maxSources {
		if ok, _ := a.begin(fmt.Sprint("10.0.0.", i)); !ok {
			t.Fatalf("address %d is kept out by others", i)
		}
	}
	if ok, wait := a.begin("10.0.0.0"); ok || wait <= 0 || wait > loginWindow {
		t.Error("many addresses have many tries each")
	}
	if len(a.by) > maxSources {
		t.Errorf("%d addresses are kept", len(a.by))
	}
	for remote, want := range map[string]string{"10.0.0.1:5": "10.0.0.1", "[::ffff:10.0.0.1]:5": "10.0.0.1",
		"[2001:db8:1:2:3::4]:5": "2001:db8:1:2::/64", "?": ""} {
		if got := sourceOf(&http.Request{RemoteAddr: remote}); got != want {
			t.Errorf("%s counts as %q", remote, got)
		}
	}
}

// TestCode: a code logs in once, in its time, and only who has the token gets one.
func TestCode(t *testing.T) {
	s := serve(t, healthy())
	c := s.browser(t)
	code := func(bearer string) (int, string) {
		r, _ := http.NewRequest("POST", s.URL+"/ui/code", strings.NewReader("{}"))
		r.Header.Set("Authorization", "Bearer "+bearer)
		res, err := c.Do(r)
		status, body := answer(t, res, err)
		return status, regexp.MustCompile(`trd1\.[\w-]+`).FindString(body)
	}
	if status, got := code("wrong"); status != http.StatusUnauthorized || got != "" {
		t.Errorf("without the token: %d %s", status, got)
	}
	_, first := code(token)
	_, second := code(token)
	if first == "" || first == second {
		t.Fatalf("codes %q and %q", first, second)
	}
	for i, want := range []int{http.StatusSeeOther, http.StatusUnauthorized} {
		if status, _ := s.post(t, c, "/ui/login", "token", first); status != want {
			t.Errorf("use %d: %d", i, status)
		}
	}
	s.advance(codeLife)
	if status, _ := s.post(t, c, "/ui/login", "token", second); status != http.StatusUnauthorized {
		t.Errorf("too late: %d", status)
	}
	for range 3 * maxCodes {
		s.pages.sessions.newCode(admin, codeLife, sessionLife)
	}
	if n := len(s.pages.sessions.codes); n > maxCodes {
		t.Errorf("%d codes are kept", n)
	}
}

// TestHostile: what is not the page's own request does nothing, and says little.
func TestHostile(t *testing.T) {
	f := healthy()
	s := serve(t, f)
	c := s.loggedIn(t)
	_, page := s.get(t, c, "/")
	act := actionToken(t, page)
	other := s.loggedIn(t)
	_, page = s.get(t, other, "/")
	foreign := actionToken(t, page)
	_ = f.calls()

	for name, test := range map[string]struct {
		client  *http.Client
		method  string
		path    string
		headers map[string]string
		body    string
		want    int
	}{
		"no cookie":               {s.browser(t), "POST", "/ui/pause", nil, "for=1h&action_token=" + act, 401},
		"no action token":         {c, "POST", "/ui/pause", nil, "for=1h", 403},
		"another session's token": {c, "POST", "/ui/pause", nil, "for=1h&action_token=" + foreign, 403},
		"a token in the URL only": {c, "POST", "/ui/pause?action_token=" + act, nil, "for=1h", 403},
		"from another site": {c, "POST", "/ui/pause", map[string]string{"Sec-Fetch-Site": "cross-site"},
			"for=1h&action_token=" + act, 403},
		"from a sibling": {c, "POST", "/ui/pause", map[string]string{"Sec-Fetch-Site": "same-site"},
			"for=1h&action_token=" + act, 403},
		"an old browser, elsewhere": {c, "POST", "/ui/pause", map[string]string{"Origin": "https://evil.example"},
			"for=1h&action_token=" + act, 403},
		"a sandboxed page": {c, "POST", "/ui/pause", map[string]string{"Origin": "null"}, "for=1h&action_token=" +
			act, 403},
		"a login from elsewhere": {s.browser(t), "POST", "/ui/login", map[string]string{"Sec-Fetch-Site": "cross-site"},
			"token=" + token, 403},
		"JSON": {c, "POST", "/ui/pause", map[string]string{"Content-Type": "application/json"},
			`{"action_token":"` + act + `"}`, 415},
		"text": {c, "POST", "/ui/pause", map[string]string{"Content-Type": "text/plain"},
			"action_token=" + act, 415},
		"a huge body": {c, "POST", "/ui/pause", nil, "action_token=" + act + "&x=" + strings.Repeat("x", 1<<20),
			413},
		"a huge token":             {s.browser(t), "POST", "/ui/login", nil, "token=" + strings.Repeat("x", 4000), 401},
		"a broken form":            {c, "POST", "/ui/pause", nil, "action_token=%zz", 400},
		"a verb by GET":            {c, "GET", "/ui/pause?action_token=" + act, nil, "", 405},
		"a page by POST":           {c, "POST", "/", nil, "", 405},
		"files of others":          {c, "GET", "/ui/../../etc/passwd", nil, "", 307},
		"the templates":            {c, "GET", "/ui/templates/home.html", nil, "", 404},
		"the stream, a stranger":   {s.browser(t), "GET", "/ui/stream", nil, "", 401},
		"a pause of no time":       {c, "POST", "/ui/pause", nil, "for=-1h&action_token=" + act, 409},
		"a pause of a century":     {c, "POST", "/ui/pause", nil, "for=876000h&action_token=" + act, 409},
		"a switchover without dry": {c, "POST", "/ui/switchover", nil, "to=n2&term=x&action_token=" + act, 409},
		"a removal of nobody":      {c, "POST", "/ui/remove", nil, "name=%3Cb%3E&action_token=" + act, 409},
		"a removal not typed":      {c, "POST", "/ui/remove", nil, "name=n2&typed=n3&term=7&action_token=" + act, 200},
	} {
		r, err := http.NewRequest(test.method, s.URL+test.path, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for k, v := range test.headers {
			r.Header.Set(k, v)
		}
		res, err := test.client.Do(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		status, body := answer(t, res, nil)
		if status != test.want {
			t.Errorf("%s: status %d, want %d", name, status, test.want)
		}
		if did := f.calls(); did != "" {
			t.Errorf("%s: done: %s", name, did)
		}
		if strings.Contains(body, "Remove <b>") || len(body) > 100_000 {
			t.Errorf("%s: %.300s", name, body)
		}
	}
}

// TestForgedSessions: nothing but what this key signed is a session.
func TestForgedSessions(t *testing.T) {
	s := newSessions(healthy().Holder, func() time.Time { return noon })
	good := s.issue(admin, noon.Add(sessionLife))
	if s.check(good) == nil {
		t.Fatal("it has no session of its own")
	}
	raw, _ := base64.RawURLEncoding.DecodeString(good)
	forged := []string{"", "x", good + "A", good[1:], good[:len(good)-2], strings.Repeat("A", len(good)),
		strings.Repeat("A", 1<<20), good + "=", " " + good, newSessions(s.holder, s.now).issue(admin, noon.Add(sessionLife))}
	for i := range raw {
		b := bytes.Clone(raw)
		b[i] ^= 1
		forged = append(forged, base64.RawURLEncoding.EncodeToString(b))
	}
	// What is signed for another use is no session.
	payload := raw[:payloadBytes]
	forged = append(forged,
		base64.RawURLEncoding.EncodeToString(append(bytes.Clone(payload), s.sign("action", payload)...)))
	for _, text := range forged {
		if s.check(text) != nil {
			t.Errorf("%.80q is a session", text)
		}
	}
	for range maxRevoked + 10 {
		s.revoke(s.check(s.issue(admin, noon.Add(sessionLife))))
	}
	if len(s.revoked) > maxRevoked {
		t.Errorf("%d revoked sessions are kept", len(s.revoked))
	}
}

var admin = api.Principal{ID: "00112233445566aa"}

// TestViewer: who may only look sees the page without its forms, and is refused what they would send; the session ends
// with the token.
func TestViewer(t *testing.T) {
	f := healthy()
	s := serve(t, f)
	c := s.browser(t)
	if status, _ := s.post(t, c, "/ui/login", "token", viewToken); status != http.StatusSeeOther {
		t.Fatal(status)
	}
	_, page := s.get(t, c, "/")
	if !strings.Contains(page, "has the role viewer") || strings.Contains(page, "/ui/pause") ||
		strings.Contains(page, "/ui/remove") || strings.Contains(page, "/ui/add") {
		t.Errorf("the page of a viewer:\n%s", page)
	}
	act := actionToken(t, page)
	for _, path := range []string{"/ui/switchover", "/ui/pause", "/ui/resume", "/ui/remove", "/ui/add"} {
		status, page := s.post(t, c, path, "to", "n2", "name", "n2", "typed", "n2", "term", "7", "for", "1h", "action_token",
			act)
		if did := f.calls(); status != http.StatusForbidden || did != "refused "+
			cmp.Or(map[string]string{"/ui/add": "/join-tokens"}[path], strings.TrimPrefix(path, "/ui")) ||
			!strings.Contains(page, "which may not do that") {
			t.Errorf("%s: %d, did %q", path, status, did)
		}
	}
	f.mu.Lock()
	f.taken = true
	f.mu.Unlock()
	if _, page = s.get(t, c, "/"); !strings.Contains(page, `id="login"`) {
		t.Error("the session goes on without its token")
	}
	if status, _ := s.post(t, c, "/ui/login", "token", viewToken); status != http.StatusUnauthorized {
		t.Errorf("a token that was taken back: %d", status)
	}
}

// TestHeaders: every answer carries them, errors too; and plain HTTP is only a way to HTTPS.
func TestHeaders(t *testing.T) {
	s := serve(t, healthy())
	c := s.loggedIn(t)
	for _, path := range []string{"/", "/ui/login", "/ui/style.css", "/ui/live.js", "/ui/nothing"} {
		res, err := c.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		csp := res.Header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") ||
			strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", path, csp)
		}
		for k, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
			"X-Frame-Options": "DENY", "Access-Control-Allow-Origin": ""} {
			if got := res.Header.Get(k); got != want {
				t.Errorf("%s: %s is %q", path, k, got)
			}
		}
	}
	for method, want := range map[string]int{"GET": 307, "POST": 403} {
		w := httptest.NewRecorder()
		s.pages.ServeHTTP(w, httptest.NewRequest(method, "http://db1:8008/ui/login?token=secret",
			strings.NewReader("token="+token)))
		if w.Code != want || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("%s over plain HTTP: %d", method, w.Code)
		}
		if to := w.Header().Get("Location"); method == "GET" && to != "https://db1:8008/ui/login" {
			t.Errorf("sent to %s", to)
		}
	}
}

func TestActions(t *testing.T) {
	f := healthy()
	s := serve(t, f)
	c := s.loggedIn(t)
	_, page := s.get(t, c, "/")
	act := actionToken(t, page)
	does := func(path, want, text string, form ...string) string {
		t.Helper()
		status, page := s.post(t, c, path, append(form, "action_token", act)...)
		if did := f.calls(); status != 200 || did != want || !strings.Contains(page, text) {
			t.Errorf("%s %q: status %d, did %q, want %q and %q in\n%s", path, form, status, did, want, text, page)
		}
		return page
	}
	dry := does("/ui/switchover", `switchover to="n2" dry=true term=0`, "Switch over to n2", "to", "n2")
	if !strings.Contains(dry, `name="term" value="7"`) || !strings.Contains(dry, "10.0.0.7") ||
		strings.Contains(dry, "<script>alert") {
		t.Errorf("dry run: %s", dry)
	}
	does("/ui/switchover", `switchover to="n2" dry=false term=7`,
		"n2 leads in term 7. Writes were closed for 41 ms. 2 sessions moved to n2. "+
			"1 other connection to n1 ended; clients connect again unless a router of their own moved them. Rolled back: 1 open transaction.", "to", "n2", "term", "7")
	does("/ui/pause", "pause 1h0m0s", "off until 2026-11-22 13:00:00Z", "for", "1h")
	does("/ui/pause", "pause 0s", "off until", "for", "")
	does("/ui/resume", "resume", "failover is on")
	does("/ui/remove", "", "Type <b>n3</b> to confirm", "name", "n3")
	does("/ui/remove", "remove n3 term=7", "n3 is removed", "name", "n3", "typed", "n3", "term", "7")
	does("/ui/add", "invite n4 voter", "trireme join --name n4 --host n4 -</code>", "name", "n4", "role", "voter")
	added := does("/ui/add", "invite n4 logger", "trireme join --name n4 --role logger --host n4 -</code>", "name", "n4",
		"role", "logger")
	if !strings.Contains(added, ">trj1.n1:8008.0011.s3cr3t.") || !strings.Contains(added, "Before 2026-11-22 13:00:00Z") {
		t.Errorf("an invitation: %s", added)
	}
	for _, form := range [][]string{{"name", "", "role", "voter"}, {"name", evil, "role", "voter"},
		{"name", "n4", "role", "king"}, {"name", "n4"}} {
		status, page := s.post(t, c, "/ui/add", append(form, "action_token", act)...)
		if did := f.calls(); status != http.StatusConflict || did != "" || !strings.Contains(page, "Not done") ||
			strings.Contains(page, "<script>alert") {
			t.Errorf("%q: status %d, did %q", form, status, did)
		}
	}

	if strings.Contains(page, `<form method="post" action="/ui/resume" id="resume">`) ||
		!strings.Contains(page, `id="resume" hidden`) || !strings.Contains(page, `required><option value="">choose a node`) {
		t.Errorf("a page offers what cannot be done, or a node to remove: %s", page)
	}
	f.mu.Lock()
	f.view.Pause = &api.PauseView{}
	f.mu.Unlock()
	s.advance(time.Minute)
	if _, page = s.get(t, c, "/"); strings.Contains(page, `id="resume" hidden`) || !strings.Contains(page, "data-paused") {
		t.Errorf("it cannot be resumed: %s", page)
	}
	f.err = api.Errorf(api.KindConflict, "n3 is needed %s", evil).With("add another one first")
	status, page := s.post(t, c, "/ui/remove", "name", "n3", "typed", "n3", "term", "7", "action_token", act)
	if status != http.StatusConflict || !strings.Contains(page, "add another one first") ||
		!strings.Contains(page, "Not done") || strings.Contains(page, "<script>alert") {
		t.Errorf("refused: %d %s", status, page)
	}
}

// TestNothingWhileNobodyLooks: strangers have nothing asked, one look has little, and what was begun ends.
func TestNothingWhileNobodyLooks(t *testing.T) {
	f := healthy()
	s := serve(t, f)
	c := s.loggedIn(t)
	s.get(t, s.browser(t), "/")
	s.get(t, s.browser(t), "/ui/stream")
	f.mu.Lock()
	looks := f.looks
	f.mu.Unlock()
	if looks != 0 || s.pages.watch.running {
		t.Errorf("%d looks without a viewer", looks)
	}
	for range 50 {
		s.get(t, c, "/") // by the clock all at one moment: one frame serves them
	}
	f.mu.Lock()
	looks = f.looks
	f.mu.Unlock()
	if looks > 30 {
		t.Errorf("%d looks for one moment", looks)
	}
	s.advance(linger + time.Second)
	eventually(t, func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.rests == 1 })
	w := s.pages.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running || w.frame != nil {
		t.Error("it goes on")
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal("not within 30 s")
		}
		<-time.After(5 * time.Millisecond)
	}
}

// TestStream: all parts first, then those that change; it ends with the session.
func TestStream(t *testing.T) {
	f := healthy()
	s := serve(t, f)
	c := s.loggedIn(t)
	res, err := c.Get(s.URL + "/ui/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("type %s", got)
	}
	var got lockedBuffer
	ended := make(chan struct{})
	go func() { _, _ = io.Copy(&got, res.Body); close(ended) }()
	eventually(t, func() bool {
		return strings.Contains(got.text(), `"nodes":`) && strings.Contains(got.text(), "weight 100")
	})
	before := len(got.text())
	f.mu.Lock()
	f.view.Members = append([]api.MemberView(nil), f.view.Members...)
	f.view.Members[2].State, f.view.Members[2].Reason = api.StateFenced, evil
	f.mu.Unlock()
	eventually(t, func() bool { return strings.Contains(got.text()[before:], "fenced") })
	if rest := got.text()[before:]; strings.Contains(rest, "Events") || strings.Contains(rest, "<script") ||
		strings.Contains(rest, "<img src") {
		t.Errorf("sent: %s", rest)
	}
	s.advance(sessionLife)
	eventually(t, func() bool { return strings.Contains(got.text(), "event: over") })
	<-ended

	w := s.pages.watch
	for range maxStreams {
		if !w.join() {
			t.Fatal("no place for a stream")
		}
	}
	if w.join() {
		t.Error("streams without a bound")
	}
	for range maxStreams {
		w.leave()
	}
}

// FuzzSession: no text but an issued one is a session, and none makes trouble.
func FuzzSession(f *testing.F) {
	s := newSessions(healthy().Holder, func() time.Time { return noon })
	f.Add(s.issue(admin, noon.Add(sessionLife)))
	f.Add("")
	f.Add(strings.Repeat("A", 75))
	stranger := newSessions(s.holder, s.now)
	f.Fuzz(func(t *testing.T, text string) {
		if stranger.check(text) != nil {
			t.Errorf("%q is a session of a key that made none", text)
		}
		if sess := s.check(text); sess != nil &&
			base64.RawURLEncoding.EncodeToString(append(bytes.Clone(sess.raw), s.sign("session", sess.raw)...)) != text {
			t.Errorf("%q is read as another one", text)
		}
		if _, _, ok := s.useCode(text); ok {
			t.Errorf("%q is a code", text)
		}
	})
}

// TestSwitchoverText: sessions that moved are not told as lost, and what did not happen is not told.
func TestSwitchoverText(t *testing.T) {
	for want, res := range map[string]api.SwitchoverResult{
		"n2 leads in term 7. Writes were closed for 41 ms. 2 sessions moved to n2.": {SessionsMoved: 2, ConnectionsCut: 2},
		"n2 leads in term 7. Writes were closed for 41 ms.":                         {},
		"n2 leads in term 7. Writes were closed for 41 ms. 3 connections to n1 ended; clients connect again unless a router of their own moved them.": {
			ConnectionsCut: 3},
	} {
		res.From, res.To, res.Term, res.WriteGapMS = "n1", "n2", 7, 41
		if got := switchoverText(res); got != want {
			t.Errorf("%s\nnot %s", got, want)
		}
	}
}
