package dashboard

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"trireme/internal/api"
)

// Source is the cluster as the node knows it, and what an operator may have it do. *api.Console is one.
type Source interface {
	// Node is the name of the node that answers.
	Node() string
	// Login is whose token that is; Holder is who has the token of an id, as long as it is good.
	Login(token string) (api.Principal, bool)
	Holder(id string) (api.Principal, bool)
	// LoginAt has another node make a code for somebody. FromNode reports whether a member asks for one here, and
	// AuditCode records what became of that.
	LoginAt(ctx context.Context, who api.Principal, node string, left time.Duration) (at string, code api.LoginCode,
		err error)
	FromNode(r *http.Request) bool
	AuditCode(r *http.Request, req api.CodeRequest, err error)
	View(ctx context.Context) api.ClusterView
	History(ctx context.Context) ([]api.Event, error)
	// Loads is what members have counted, by name; those that do not answer are left out. Rest: it is not needed for a
	// while.
	Loads(ctx context.Context, v api.ClusterView) map[string]api.LoadView
	Rest()
	// Report is what all members have recorded in a period.
	Report(ctx context.Context, from, to time.Time) (api.Report, error)
	// These are refused unless ctx tells of somebody who may (api.WithPrincipal).
	Switchover(ctx context.Context, req api.SwitchoverRequest) (api.SwitchoverResult, error)
	Pause(ctx context.Context, req api.PauseRequest) (api.PauseResult, error)
	Resume(ctx context.Context) (api.PauseResult, error)
	Remove(ctx context.Context, req api.MemberRequest) (api.MemberResult, error)
	Invite(ctx context.Context, req api.JoinTokenRequest) (api.JoinTokenResult, error)
	// Refused records that who acts may not have a verb, named by its path, carried out.
	Refused(ctx context.Context, path string)
}

// Options of the pages.
type Options struct {
	Cluster  string // name of the cluster
	Source   Source
	Stopping <-chan struct{}  // closed when streams are to end; nil: never
	Logger   *slog.Logger     // default: slog.Default()
	Now      func() time.Time // default: time.Now
}

const (
	maxForm     = 8 << 10 // bytes of a request's body
	viewTimeout = 2 * time.Second
)

//go:embed templates static
var files embed.FS

var pages = template.Must(template.New("").Funcs(funcs).ParseFS(files, "templates/*.html"))

// Pages is the handler of / and everything below /ui/.
type Pages struct {
	opts     Options
	mux      *http.ServeMux
	cross    *http.CrossOriginProtection
	sessions *sessions
	attempts attempts
	watch    *watch
	cookie   string
}

// New makes the pages of a node. Nothing runs until somebody looks.
func New(opts Options) *Pages {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	p := &Pages{opts: opts, mux: http.NewServeMux(), cross: http.NewCrossOriginProtection(),
		attempts: attempts{now: opts.Now}, sessions: newSessions(opts.Source.Holder, opts.Now),
		watch: newWatch(opts.Source, opts.Now), cookie: cookieName(opts.Cluster)}
	p.mux.HandleFunc("GET /{$}", p.home)
	p.mux.HandleFunc("GET /ui/period", p.period)
	for path, text := range map[string]string{"style.css": asset("style.css"), "live.js": asset("live.js"),
		"picture.js": asset("picture.js"), "period.css": periodStyle, "period.js": periodScript} {
		p.mux.HandleFunc("GET /ui/"+path, static(path, text))
	}
	p.mux.HandleFunc("GET /ui/stream", p.stream)
	p.mux.HandleFunc("GET /ui/login", p.loginForm)
	p.mux.HandleFunc("POST /ui/login", p.login)
	p.mux.HandleFunc("POST /ui/code", p.code)
	p.mux.HandleFunc("POST /ui/elsewhere", p.action("", p.elsewhere))
	p.mux.HandleFunc("POST /ui/logout", p.action("", p.logout))
	p.mux.HandleFunc("POST /ui/switchover", p.action("/switchover", p.switchover))
	p.mux.HandleFunc("POST /ui/pause", p.action("/pause", p.pause))
	p.mux.HandleFunc("POST /ui/resume", p.action("/resume", p.resume))
	p.mux.HandleFunc("POST /ui/remove", p.action("/remove", p.remove))
	p.mux.HandleFunc("POST /ui/add", p.action("/join-tokens", p.add))
	return p
}

// Close ends the goroutine that draws the pages. All requests must have ended before.
func (p *Pages) Close() { p.watch.close() }

// ServeHTTP lets nothing through but HTTPS, and nothing that changes something from another origin.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	if r.TLS == nil {
		toHTTPS(w, r)
		return
	}
	if err := p.cross.Check(r); err != nil {
		p.fail(w, http.StatusForbidden, "This request comes from another site.",
			"Open the dashboard itself and try again there.")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	p.mux.ServeHTTP(w, r)
}

// secure sets what every answer carries.
func secure(h http.Header) {
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; "+
			"base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // no-referrer would make the Origin of our own forms "null"
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// toHTTPS sends a browser to the same port, which takes both.
func toHTTPS(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "not over plain HTTP: use https:// with the same port", http.StatusForbidden)
		return
	}
	to := url.URL{Scheme: "https", Host: r.Host, Path: r.URL.Path}
	http.Redirect(w, r, to.String(), http.StatusTemporaryRedirect)
}

func static(path, text string) http.HandlerFunc {
	contentType := map[string]string{".js": "text/javascript; charset=utf-8",
		".css": "text/css; charset=utf-8"}[filepath.Ext(path)]
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, text)
	}
}

// session of a request, nil if it has none.
func (p *Pages) session(r *http.Request) *session {
	c, err := r.Cookie(p.cookie)
	if err != nil {
		return nil
	}
	return p.sessions.check(c.Value)
}

// loginPage is what the form shows.
type loginPage struct {
	Cluster, Node string
	Problem       string
}

func (p *Pages) showLogin(w http.ResponseWriter, status int, problem string) {
	p.render(w, status, "login.html", loginPage{Cluster: p.opts.Cluster, Node: p.opts.Source.Node(), Problem: problem})
}

func (p *Pages) loginForm(w http.ResponseWriter, _ *http.Request) { p.showLogin(w, http.StatusOK, "") }

// login takes a token, or a code that `trireme dashboard` or another node got for one.
func (p *Pages) login(w http.ResponseWriter, r *http.Request) {
	source := sourceOf(r)
	if ok, wait := p.attempts.begin(source); !ok {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())+1))
		p.showLogin(w, http.StatusTooManyRequests, fmt.Sprintf("Too many failed logins. Try again in %d seconds.",
			int(wait.Seconds())+1))
		return
	}
	if !p.parse(w, r) {
		return
	}
	token := strings.TrimSpace(r.PostForm.Get("token"))
	end := p.opts.Now().Add(sessionLife)
	who, ok := p.opts.Source.Login(token)
	if !ok {
		who, end, ok = p.sessions.useCode(token)
	}
	if len(token) > maxTokenText || !ok {
		p.opts.Logger.Warn("dashboard: a login failed", "from", r.RemoteAddr)
		p.showLogin(w, http.StatusUnauthorized, "That is neither a token of this cluster nor a code that is still good.")
		return
	}
	p.attempts.succeeded(source)
	p.opts.Logger.Info("dashboard: a login", "by", who.By, "from", r.RemoteAddr)
	http.SetCookie(w, cookie(p.cookie, p.sessions.issue(who, end), end.Sub(p.opts.Now())))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// elsewhere answers with a link that logs in at another node, for live.js: a redirect of a form to another host is not
// allowed by the content security policy, and shall not be.
func (p *Pages) elsewhere(w http.ResponseWriter, r *http.Request, sess *session) {
	at, code, err := p.opts.Source.LoginAt(r.Context(), sess.who, r.PostForm.Get("node"),
		sess.end.Sub(p.opts.Now()))
	if err != nil {
		p.opts.Logger.Info("dashboard: no login at another node", "by", sess.who.By, "err", err)
		http.Error(w, "that node has made no code; the daemon's log says why", http.StatusBadGateway)
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"link": LoginLink(at, code)})
}

// codeForNode answers another node, at which somebody is logged in: the token's holder, as this node knows it, may log
// in here for as long as that login lasts.
func (p *Pages) codeForNode(w http.ResponseWriter, r *http.Request) {
	var req api.CodeRequest
	err := json.NewDecoder(r.Body).Decode(&req)
	who, known := p.opts.Source.Holder(req.Holder)
	left := min(time.Duration(req.Seconds)*time.Second, sessionLife)
	status, answer := http.StatusOK, any(nil)
	if err != nil || !known || left <= 0 {
		err = api.Errorf(api.KindUnauthorized, "there is no such login")
		status, answer = http.StatusUnauthorized, err
	} else {
		answer = api.LoginCode{Code: p.sessions.newCode(who, linkLife, left), Seconds: int(linkLife.Seconds())}
	}
	p.opts.Source.AuditCode(r, req, err)
	writeJSON(w, status, answer)
}

// code gives `trireme dashboard`, and other nodes, what logs in a browser once.
func (p *Pages) code(w http.ResponseWriter, r *http.Request) {
	if p.opts.Source.FromNode(r) {
		p.codeForNode(w, r)
		return
	}
	source := sourceOf(r)
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	status, answer := http.StatusOK, any(nil)
	who, known := p.opts.Source.Login(token)
	switch ok, _ := p.attempts.begin(source); {
	case !ok:
		status, answer = http.StatusTooManyRequests, api.Errorf(api.KindUnauthorized, "too many failed logins").
			With("try again in a minute")
	case len(token) > maxTokenText || !known:
		status, answer = http.StatusUnauthorized, api.Errorf(api.KindUnauthorized, "the token is not this cluster's")
	default:
		p.attempts.succeeded(source)
		answer = api.LoginCode{Code: p.sessions.newCode(who, codeLife, sessionLife), Seconds: int(codeLife.Seconds())}
	}
	writeJSON(w, status, answer)
}

func writeJSON(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

func (p *Pages) logout(w http.ResponseWriter, r *http.Request, sess *session) {
	p.sessions.revoke(sess)
	http.SetCookie(w, cookie(p.cookie, "", 0))
	http.Redirect(w, r, "/ui/login", http.StatusSeeOther)
}

// sourceOf is the address that logins are counted by: of IPv6 the network, which one host has to itself.
func sourceOf(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if a = a.Unmap(); a.Is6() {
		n, _ := a.Prefix(64)
		return n.String()
	}
	return a.String()
}

// homePage is the page with everything that is live in it.
type homePage struct {
	*state
	Token   string
	May     map[string]bool // verbs, and add
	Role    string
	Targets []string // of a switchover
	Members []string
	Roles   []string
	Others  []nodeRow // nodes but this one
}

func (p *Pages) home(w http.ResponseWriter, r *http.Request) {
	sess := p.session(r)
	if sess == nil {
		p.showLogin(w, http.StatusOK, "")
		return
	}
	f := p.watch.look(r.Context())
	h := homePage{state: f.state, Roles: roles, Token: p.sessions.actionToken(sess), Role: string(sess.who.Role),
		May: map[string]bool{}}
	for _, verb := range []string{"switchover", "pause", "resume", "remove", "join-tokens"} {
		h.May[verb] = sess.who.May("/" + verb)
	}
	h.May["add"] = h.May["join-tokens"]
	for _, n := range f.state.Nodes {
		h.Members = append(h.Members, n.Name)
		if !n.Here {
			h.Others = append(h.Others, n)
		}
		if n.MySQL && n.Voter && n.Name != f.state.Leader {
			h.Targets = append(h.Targets, n.Name)
		}
	}
	p.render(w, http.StatusOK, "home.html", h)
}

// action guards what changes something: a session, its action token, and the role that the verb of a path needs ("":
// none).
func (p *Pages) action(verb string, do func(http.ResponseWriter, *http.Request, *session)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sess := p.session(r)
		if sess == nil {
			p.showLogin(w, http.StatusUnauthorized, "You are not logged in, or not any more. Nothing was done.")
			return
		}
		if !p.parse(w, r) {
			return
		}
		if !p.sessions.allows(sess, r.PostForm.Get("action_token")) {
			p.fail(w, http.StatusForbidden, "This request does not come from the dashboard.",
				"Nothing was done. Open the dashboard again and retry there.")
			return
		}
		r = r.WithContext(api.WithPrincipal(r.Context(), sess.who))
		if verb != "" && !sess.who.May(verb) {
			p.opts.Source.Refused(r.Context(), verb)
			p.fail(w, http.StatusForbidden, "This login has the role "+string(sess.who.Role)+", which may not do that.",
				"Nothing was done. Log in with a token that may.")
			return
		}
		do(w, r, sess)
	}
}

// parse reads a small form.
func (p *Pages) parse(w http.ResponseWriter, r *http.Request) bool {
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind != "application/x-www-form-urlencoded" {
		p.fail(w, http.StatusUnsupportedMediaType, "This request is not a form.", "")
		return false
	}
	err := r.ParseForm()
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		p.fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("This request is larger than %d bytes.", tooLarge.Limit), "")
		return false
	}
	if err != nil {
		p.fail(w, http.StatusBadRequest, "This request cannot be read.", "")
		return false
	}
	return true
}

// render writes a page whole, or an error: never half of one.
func (p *Pages) render(w http.ResponseWriter, status int, name string, data any) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		p.opts.Logger.Error("dashboard: a page cannot be drawn", "page", name, "err", err)
		http.Error(w, "the page cannot be drawn; the daemon's log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.Copy(w, &b)
}

func (p *Pages) fail(w http.ResponseWriter, status int, problem, advice string) {
	p.render(w, status, "result.html", resultPage{Cluster: p.opts.Cluster, Node: p.opts.Source.Node(), Title: "Refused",
		Problem: problem, Advice: advice})
}
