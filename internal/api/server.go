package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"trireme/internal/core/transport"
)

// Limits of the server.
const (
	maxBody        = 256 << 10 // of a request
	maxHeader      = 16 << 10
	headerTimeout  = 5 * time.Second
	readTimeout    = 15 * time.Second
	idleTimeout    = 60 * time.Second
	reportTimeout  = time.Minute     // all nodes read their samples
	controlTimeout = 2 * time.Minute // a control verb, from request to answer
	viewTimeout    = 2 * time.Second // a view, which comes from memory
	writeTimeout   = controlTimeout + 10*time.Second
)

// forwardedBy names, in a forwarded request, the node that forwarded it.
const forwardedBy = "Trireme-Forwarded-By"

// Options of a Server.
type Options struct {
	Name      string      // of this node
	Listen    string      // host:port
	Backend   Backend     //
	Answers   []Answer    // to verbs and queries
	TLS       *tls.Config // for incoming TLS: the node's pki.Bundle.ServerJoinTLS, so that new nodes can join here
	ClientTLS *tls.Config // for requests forwarded to another node: its NodeClientTLS
	NodeToken string      // config.Secrets.APIToken
	// TrustsCA reports whether a CA that TLS took in a handshake is trusted still; nil: all are.
	TrustsCA func(ca *x509.Certificate) bool
	MaxConns int          // default 256
	Logger   *slog.Logger // default: slog.Default()
	Routers  *Routers     // nil: the server makes its own
	// Audit is called for each control verb, once it has been answered; several calls may run at once. nil: no calls.
	Audit func(Audited)
}

// Server answers for one node. Make it with NewServer, then Start; Close when done.
type Server struct {
	opts     Options
	http     *http.Server
	listener *sniffListener
	served   chan struct{}
	stopping chan struct{} // closed when streams are to end
	conns    *places
	streams  *places        // those of GET /route; fewer, since each keeps a connection
	pages    http.Handler   // for people; nil: none
	verbs    map[string]any // who carries them out, by path
}

// NewServer makes a server that does not listen yet.
func NewServer(opts Options) *Server {
	if opts.MaxConns == 0 {
		opts.MaxConns = 256
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Routers == nil {
		opts.Routers = &Routers{}
	}
	s := &Server{opts: opts, verbs: map[string]any{}, served: make(chan struct{}), stopping: make(chan struct{}),
		conns:   newPlaces(opts.MaxConns, opts.MaxConns/placesReserved),
		streams: newPlaces(opts.MaxConns-opts.MaxConns/routeShare, 0)}
	s.streams.each = max(1, s.conns.each/4) // the rest is for what else the same host asks
	s.http = &http.Server{
		Handler: s.handler(), MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, ConnContext: markReserve,
		// Failed handshakes and clients that go away are their own business.
		ErrorLog: slog.NewLogLogger(opts.Logger.Handler(), slog.LevelDebug),
	}
	s.http.RegisterOnShutdown(sync.OnceFunc(func() { close(s.stopping) }))
	return s
}

// Start listens and serves until Close.
func (s *Server) Start() error {
	l, err := transport.ListenTCP(s.opts.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("api: port %s is in use; stop what listens there or set another one in [api] listen: %w",
			s.opts.Listen, err)
	}
	if err != nil {
		return fmt.Errorf("api: %w", err)
	}
	s.listener = newSniffListener(l, s.opts.TLS, s.conns, s.opts.Logger)
	go func() {
		defer close(s.served)
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			s.opts.Logger.Error("api: server ended", "error", err)
		}
	}()
	return nil
}

// Addr is where it listens, once started.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close stops listening and waits for running requests until ctx ends, then drops them.
func (s *Server) Close(ctx context.Context) error {
	if s.listener == nil {
		return nil
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	_ = s.listener.Close()
	<-s.served
	return err
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for path, check := range healthChecks {
		mux.HandleFunc(path, s.health(check))
	}
	metrics := promhttp.HandlerFor(s.opts.Backend.Metrics(), promhttp.HandlerOpts{MaxRequestsInFlight: 4,
		Timeout: 10 * time.Second})
	mux.Handle("/metrics", s.view(metrics.ServeHTTP))
	mux.Handle("/member", s.view(s.member))
	mux.Handle("/cluster", s.view(s.cluster))
	mux.Handle("/load", s.view(s.load))
	mux.Handle("/history", s.view(s.history))
	mux.Handle("/why-not", s.view(s.whyNot))
	// this and what follows it is asked by routers without a login, and tells where to connect
	mux.Handle("/route", get(s.route))
	mux.Handle("/serves", get(s.serves))
	mux.Handle("/outcome", get(s.outcome))
	mux.Handle("/read-index", get(s.readIndex))
	mux.Handle("/applied", get(s.applied))
	mux.Handle(period.Path, s.private(s.period))
	s.answer(mux, append(s.own(), s.opts.Answers...))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if s.pages != nil && (r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/ui/")) {
			s.pages.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), fromPages{}, r.RemoteAddr)))
			return
		}
		s.fail(w, Errorf(KindNotFound, "no such path %s", r.URL.Path))
	})
	return s.trusted(mux)
}

// answer routes the answers by path and method. A path that only verbs have says itself that it takes nothing else.
func (s *Server) answer(mux *http.ServeMux, answers []Answer) {
	posts, gets := map[string]http.HandlerFunc{}, map[string]http.HandlerFunc{}
	for _, a := range answers {
		if a.Method == http.MethodPost {
			posts[a.Path] = a.handler(s)
			s.verbs[a.Path] = a.do
		} else {
			gets[a.Path] = a.handler(s)
		}
	}
	for path, show := range gets {
		change, both := posts[path]
		delete(posts, path)
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if both && r.Method == http.MethodPost {
				change(w, r)
				return
			}
			show(w, r)
		})
	}
	for path, change := range posts {
		mux.Handle(path, change)
	}
}

// get refuses methods that would change something.
func get(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			h(w, r)
		case http.MethodOptions:
			w.Header().Set("Allow", "GET, HEAD, OPTIONS")
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("Allow", "GET, HEAD, OPTIONS")
			writeJSON(w, http.StatusMethodNotAllowed, Errorf(KindInvalid, "%s only answers GET, HEAD and OPTIONS", r.URL.Path))
		}
	}
}

func (s *Server) member(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), viewTimeout)
	defer cancel()
	m := s.opts.Backend.Self(ctx)
	s.redacted(w, r, m, []MemberView{m})
}

func (s *Server) history(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	events, err := s.opts.Backend.History(ctx)
	if err != nil {
		s.fail(w, err)
		return
	}
	if events == nil {
		events = []Event{}
	}
	if !s.knows(r) {
		events = redactedHistory(events)
	}
	s.redacted(w, r, events, s.opts.Backend.View(ctx).Members)
}

func (s *Server) cluster(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), viewTimeout)
	defer cancel()
	v := s.opts.Backend.View(ctx)
	if !s.knows(r) {
		v.Backup = v.Backup.withoutPlaces()
	}
	s.redacted(w, r, v, v.Members)
}

// whyNot asks the leader, who knows most, and else says what this node knows.
func (s *Server) whyNot(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	node := r.URL.Query().Get("node")
	leader := s.opts.Backend.Leader()
	if !leader.Self && leader.Name != "" && leader.Name != node && forwarder(r) == "" {
		actx, done := context.WithTimeout(ctx, viewTimeout)
		var v WhyNotView
		err := s.forward(actx, leader, http.MethodGet, "/why-not?node="+url.QueryEscape(node), nil, &v)
		done()
		if err == nil {
			s.redacted(w, r, v, s.opts.Backend.View(ctx).Members)
			return
		}
	}
	v, err := s.opts.Backend.WhyNot(ctx, node)
	if err != nil {
		s.fail(w, err)
		return
	}
	s.redacted(w, r, v, s.opts.Backend.View(ctx).Members)
}

// control guards a verb: POST only, TLS or loopback only, and for whom it is. One without a role has what lets it in in
// the request itself, and checks that.
func (s *Server) control(v *Request, verb http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", "POST")
			writeJSON(w, http.StatusMethodNotAllowed, Errorf(KindInvalid, "%s only answers POST", r.URL.Path))
			return
		}
		if !encrypted(r) {
			s.fail(w, Errorf(KindForbidden, "control verbs are not taken over plain HTTP from another host").
				With("use https:// with the same port"))
			return
		}
		by := byJoinToken
		if v.Role != "" {
			p, err := s.admit(w, r, "POST "+r.URL.Path)
			if err != nil && p.By != "" { // somebody who is known
				s.auditAction(askerOf(r, p.By), r.URL.Path, nil, err)
			}
			if err != nil {
				return
			}
			by = p.By
		}
		if err := fromProgram(r); err != nil {
			s.fail(w, err)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		s.audit(w, withAsker(r, by), v, by, verb)
	}
}

// crossOrigin knows what browsers send on behalf of other sites' pages.
var crossOrigin = http.NewCrossOriginProtection()

// fromProgram refuses what a page of another site may have a browser send: it cannot say application/json without
// asking this server first.
func fromProgram(r *http.Request) error {
	if err := crossOrigin.Check(r); err != nil {
		return Errorf(KindForbidden, "%s is not for pages of other sites: %v", r.URL.Path, err)
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return Errorf(KindInvalid, "%s takes JSON only", r.URL.Path).With("send the header Content-Type: application/json")
	}
	return nil
}

// encrypted: or it does not leave this host.
func encrypted(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}

func carryOut[Req, Res any](s *Server, do func(*Server, context.Context, *http.Request, Req) (Res,
	error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req Req
		dec := json.NewDecoder(r.Body)
		dec.DisallowUnknownFields()
		err := dec.Decode(&req)
		if err == nil { // the audit log tells all of it, so nothing may follow
			if _, more := dec.Token(); more == nil {
				err = errors.New("something follows its end")
			} else {
				err = more
			}
		}
		if !errors.Is(err, io.EOF) {
			s.fail(w, Errorf(KindInvalid, "the request is not what %s expects: %v", r.URL.Path, err))
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), controlTimeout)
		defer cancel()
		res, err := do(s, ctx, r, req)
		if err != nil {
			s.fail(w, err)
			return
		}
		writeJSON(w, http.StatusOK, res)
	}
}

// leaderDoes carries the verb of a path out here, if this node leads, or has the leader do it; not when it was
// forwarded already.
func leaderDoes[Req, Res any](ctx context.Context, s *Server, path string, forwarded bool, req Req,
	do func(context.Context, Req) (Res, error)) (res Res, err error) {
	leader := s.opts.Backend.Leader()
	switch {
	case leader.Self:
		return do(ctx, req)
	case leader.Name == "":
		return res, Errorf(KindNoLeader, "there is no leader now").
			With("it needs a majority of the voters; see `trireme status`")
	case forwarded:
		return res, Errorf(KindNoLeader, "the leader changed meanwhile").With("try again")
	}
	err = s.forward(ctx, leader, http.MethodPost, path, req, &res)
	return res, err
}

// Forward asks the present leader for what this node was asked for, and has begun.
func (s *Server) Forward(ctx context.Context, path string, body, answer any) error {
	leader := s.opts.Backend.Leader()
	if leader.Self || leader.Name == "" {
		return Errorf(KindNoLeader, "there is no other leader now").With("try again")
	}
	return s.forward(ctx, leader, http.MethodPost, path, body, answer)
}

// forward asks the leader on behalf of a client whose right to ask has been checked.
func (s *Server) forward(ctx context.Context, leader Leader, method, path string, body, answer any) error {
	err := s.pass(ctx, leader, method, path, body, answer)
	if KindOf(err) == KindUnreachable {
		return Errorf(KindNoLeader, "the leader %s at %s cannot be reached from %s: %v", leader.Name, leader.API, s.opts.Name,
			err).
			With("if it is down another one takes over by itself; try again")
	}
	return err
}

// pass asks another node on behalf of a client whose right to ask has been checked.
func (s *Server) pass(ctx context.Context, to Leader, method, path string, body, answer any) error {
	c := NewClient("https://"+to.API, s.opts.NodeToken, s.opts.ClientTLS)
	defer c.Close()
	c.header.Set(forwardedBy, s.opts.Name)
	if name := AskedBy(ctx); name != "" {
		c.header.Set(askedByHeader, name)
	}
	return c.do(ctx, method, path, body, answer)
}

// fail writes an error; what is not an *Error becomes an internal one, and is logged.
func (s *Server) fail(w http.ResponseWriter, err error) {
	e, typed := errors.AsType[*Error](err)
	switch {
	case typed:
	case errors.Is(err, context.DeadlineExceeded):
		e = Errorf(KindTimeout, "not done in time: %v", err).With("see `trireme status` for what became of it")
	default:
		s.opts.Logger.Error("api: request failed", "error", err)
		e = Errorf(KindInternal, "%v", err)
	}
	if a, ok := w.(*audited); ok {
		a.problem = e.Error()
	}
	writeJSON(w, e.Kind.info().Status, e)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil { // only a type that cannot be marshalled at all
		status, data = http.StatusInternalServerError,
			[]byte(`{"error":"the answer cannot be written as JSON","kind":"internal"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}
