package api

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"net/http"
	"strings"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/base/pki"
)

// Principal is somebody who may ask.
type Principal struct {
	By   string   // what was shown, as the audit log tells it
	Role pki.Role // what it may
	ID   string   // of a token: what sessions of the pages are bound to, which end with it
}

// May reports whether p has the role that a control verb needs, by its path.
func (p Principal) May(path string) bool { return p.need("POST "+path) == nil }

// need is nil if p may ask for a verb ("METHOD /path").
func (p Principal) need(verb string) error {
	least := pki.Role("")
	v := declared[verb]
	switch {
	case v != nil && v.Role != "":
		least = v.Role
	case strings.HasPrefix(verb, "GET "): // what is not declared is open, or a view
		least = pki.Viewer
	default:
		least = pki.Admin
	}
	if p.Role.May(least) {
		return nil
	}
	_, path, _ := strings.Cut(verb, " /")
	return Errorf(KindForbidden, "%s needs the role %s; this token has %s", path, least, p.Role).
		With("an admin makes a token that may: trireme token add NAME --role %s", least)
}

// operatorOf is the holder of the token that init made.
func operatorOf(c *config.Cluster) Principal {
	return Principal{By: byOperator, Role: pki.Admin, ID: tokenID(c.APITokenHash)}
}

// holderOf is the holder of one of the others.
func holderOf(t config.APIToken) Principal {
	return Principal{By: byToken + t.Name + " (" + t.Role + ")", Role: pki.Role(t.Role), ID: tokenID(t.Hash)}
}

// tokenIDLen is how much of a token's hash names it.
const tokenIDLen = 16

func tokenID(hash string) string { return hash[:min(len(hash), tokenIDLen)] }

// holder finds whose token has a certain hash or id, among those that are good now.
func holder(c *config.Cluster, now time.Time, is func(hash string) bool) (Principal, bool) {
	if is(c.APITokenHash) {
		return operatorOf(c), true
	}
	for _, t := range c.APITokens {
		if is(t.Hash) && t.GoodAt(now) {
			return holderOf(t), true
		}
	}
	return Principal{}, false
}

// authorize says who asks, by the token that was shown. A node that shows its certificate and no token may look.
func (s *Server) authorize(r *http.Request) (Principal, error) {
	c := s.opts.Backend.Settings()
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found || token == "" {
		if isNode(r) && r.Header.Get("Authorization") == "" {
			return Principal{By: byNode, Role: pki.Viewer}, nil
		}
		return Principal{}, Errorf(KindUnauthorized, "this needs a token").
			With("the first one is in ~/.config/trireme/ of the account that ran `trireme init`; give it with --token-file or TRIREME_TOKEN")
	}
	if p, ok := holder(c, time.Now(), func(hash string) bool { return pki.TokenMatches(token, hash) }); ok {
		return p, nil
	}
	if s.opts.NodeToken != "" && subtle.ConstantTimeCompare([]byte(token), []byte(s.opts.NodeToken)) == 1 {
		if isNode(r) { // former nodes know the token too
			return Principal{By: byNode, Role: pki.Admin}, nil
		}
		return Principal{}, Errorf(KindUnauthorized, "the nodes' token counts only with a node's certificate")
	}
	return Principal{}, Errorf(KindUnauthorized, "the token is not this cluster's, or has expired").
		With("check --token-file, TRIREME_TOKEN and ~/.config/trireme/")
}

// isNode reports whether the client has shown a node's certificate, which the handshake has verified.
func isNode(r *http.Request) bool {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	_, err := pki.IdentityOf(r.TLS.PeerCertificates[0])
	return err == nil
}

// whyNotTrusted says why a certificate that the handshake has verified is good no more; empty: it is.
func (s *Server) whyNotTrusted(cs *tls.ConnectionState) string {
	if s.opts.TrustsCA != nil {
		for _, chain := range cs.VerifiedChains {
			if !s.opts.TrustsCA(chain[len(chain)-1]) { // of a connection that was up when the CA was changed
				return "the certificate is of a CA that is not trusted any more"
			}
		}
	}
	cert := cs.PeerCertificates[0]
	id, err := pki.IdentityOf(cert)
	if err != nil {
		return "the certificate is not a node's"
	}
	return s.opts.Backend.Settings().WhyRevoked(id.ID, pki.SerialOf(cert))
}

// trusted refuses clients that show a certificate which is revoked or no node's, whatever they ask for. No browser is
// to take an answer for anything but what it says to be.
func (s *Server) trusted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			if why := s.whyNotTrusted(r.TLS); why != "" {
				s.fail(w, Errorf(KindForbidden, "%s", why).
					With("only nodes have certificates; everybody else shows a token: trireme token add"))
				return
			}
		}
		if mustLeave(r) {
			w.Header().Set("Connection", "close")
			s.fail(w, Errorf(KindBusy, "%s has too many connections; the last ones are for nodes", s.opts.Name).
				With("try again"))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// admit says who asks for a verb and may, or answers why not.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, verb string) (Principal, error) {
	p, err := s.authorize(r)
	if err != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
	} else {
		err = p.need(verb)
	}
	if err != nil {
		s.fail(w, err)
	}
	return p, err
}

// private is get for what not everybody may see: the rules of control verbs hold, but for the method.
func (s *Server) private(h http.HandlerFunc) http.HandlerFunc {
	return get(func(w http.ResponseWriter, r *http.Request) {
		if !encrypted(r) {
			s.fail(w, Errorf(KindForbidden, "this is not shown over plain HTTP to another host").
				With("use https:// with the same port"))
			return
		}
		if _, err := s.admit(w, r, "GET "+r.URL.Path); err == nil {
			h(w, r)
		}
	})
}

// view is get, and private where the setting read_login says so.
func (s *Server) view(h http.HandlerFunc) http.HandlerFunc {
	open, closed := get(h), s.private(h)
	return func(w http.ResponseWriter, r *http.Request) {
		if s.opts.Backend.Settings().ReadLogin {
			closed(w, r)
			return
		}
		open(w, r)
	}
}

// principal is the key of who asks on a page.
type principal struct{}

// WithPrincipal notes who asks for what a Console is to do.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principal{}, p)
}
