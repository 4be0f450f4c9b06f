package api

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/base/pki"
)

// asks a server's handler over loopback, with a token.
func asks(s *Server, method, path, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = "127.0.0.1:5"
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, r)
	return w
}

// roles are those that verbs and private queries need, by "METHOD /path".
func roles() map[string]pki.Role {
	out := map[string]pki.Role{}
	for verb, v := range declared {
		if v.Role != "" && !v.Open {
			out[verb] = v.Role
		}
	}
	return out
}

// TestRoles: each verb is done for the roles that may and for no others, and the refusal says which role it takes.
func TestRoles(t *testing.T) {
	b := &backend{leader: Leader{Name: "n1", Self: true}, source: Leader{Self: true}}
	s := NewServer(Options{Name: "n1", Backend: b, Answers: b.answers(), Audit: b.audit})
	for verb, least := range roles() {
		method, path, _ := strings.Cut(verb, " ")
		if path == "/promote" || path == "/period" { // want more than {}
			continue
		}
		for _, has := range pki.Roles {
			b.calls()
			w := asks(s, method, path, "the-"+string(has)+"s")
			if !has.May(least) {
				want := fmt.Sprintf("%s needs the role %s; this token has %s", path[1:], least, has)
				if w.Code != http.StatusForbidden || len(b.calls()) != 0 || !strings.Contains(w.Body.String(), want) {
					t.Errorf("%s by %s: %d %s, want %q", verb, has, w.Code, w.Body, want)
				}
			} else if w.Code != http.StatusOK {
				t.Errorf("%s by %s: %d %s", verb, has, w.Code, w.Body)
			}
		}
		b.calls()
		for _, token := range []string{"", "guessed", "the-old"} {
			if w := asks(s, method, path, token); w.Code != http.StatusUnauthorized || len(b.calls()) != 0 && method == "POST" {
				t.Errorf("%s with %q: %d", verb, token, w.Code)
			}
		}
	}
	if w := asks(s, "POST", "/promote", "the-operators"); w.Code != http.StatusForbidden {
		t.Errorf("promote by an operator: %d", w.Code)
	}
	refused, done := false, false
	for _, a := range b.audits() {
		refused = refused || a.Verb == "pause" && a.By == "token a-viewer (viewer)" &&
			strings.Contains(a.Error, "needs the role operator")
		done = done || a.Verb == "pause" && a.By == "token a-operator (operator)" && a.Error == ""
	}
	if !refused || !done {
		t.Errorf("audit: refused %v, done %v: %+v", refused, done, b.audits())
	}
}

// TestVerbsAreListed: docs/ops/access.md has the same roles.
func TestVerbsAreListed(t *testing.T) {
	page, err := os.ReadFile("../../docs/ops/access.md")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]pki.Role{}
	for _, m := range regexp.MustCompile(`(?m)^\| (viewer|operator|admin) \| (.*) \|`).FindAllStringSubmatch(string(page),
		-1) {
		for _, v := range regexp.MustCompile("`((?:GET|POST) [^`]+)`").FindAllStringSubmatch(m[2], -1) {
			said[v[1]] = pki.Role(m[1])
		}
	}
	if !maps.Equal(said, roles()) {
		t.Errorf("docs/ops/access.md says %v\nwant %v", said, roles())
	}
	for verb, v := range declared {
		if v.Role == "" && verb != "POST /join" {
			t.Errorf("%s is for everybody", verb)
		}
	}
	if w := (Principal{Role: pki.Operator}).need("POST /new-verb"); w == nil {
		t.Error("what is not listed is not the admin's")
	}
}

// TestReadLogin: with the setting, looking takes a viewer; balancers and routers ask as before.
func TestReadLogin(t *testing.T) {
	b := &backend{leader: Leader{Name: "n1", Self: true}}
	b.health = Health{Name: "n1", State: StateHealthy, Leader: "n1", Writable: true, MySQLAlive: true, Role: RoleLeader}
	s := NewServer(Options{Name: "n1", Backend: b, Answers: b.answers()})
	views := []string{"/cluster", "/config", "/history", "/load", "/member", "/metrics", "/why-not"}
	open := []string{"/health", "/primary", "/liveness", "/readiness", "/read-index", "/outcome?uuid=x"}
	for _, login := range []bool{false, true} {
		b.readLogin = login
		for _, path := range views {
			for token, want := range map[string]int{"": 401, "guessed": 401, "the-old": 401, "the-viewers": 200,
				operatorToken: 200} {
				if !login {
					want = 200
				}
				if w := asks(s, "GET", path+"?node=n1", token); w.Code != want {
					t.Errorf("read_login %v: %s with %q: %d", login, path, token, w.Code)
				}
			}
		}
		for _, path := range open {
			if w := asks(s, "GET", path, ""); w.Code == 401 || w.Code == 403 {
				t.Errorf("read_login %v: %s: %d", login, path, w.Code)
			}
		}
	}
	r := httptest.NewRequest("GET", "/cluster", nil)
	r.RemoteAddr = "192.0.2.1:5"
	r.Header.Set("Authorization", "Bearer the-viewers")
	w := httptest.NewRecorder()
	if s.handler().ServeHTTP(w, r); w.Code != http.StatusForbidden {
		t.Errorf("a token over plain HTTP from afar: %d", w.Code)
	}
}

// clientCert is a client that shows a certificate.
func (c *cluster) clientCert(base string, cert tls.Certificate) *Client {
	cfg := c.trust()
	cfg.Certificates = []tls.Certificate{cert}
	cl := NewClient(base, "", cfg)
	c.t.Cleanup(cl.Close)
	return cl
}

// person makes a certificate as earlier versions made them for people: of the cluster's CA, with a role and no node in
// it.
func (c *cluster) person(role pki.Role) tls.Certificate {
	c.t.Helper()
	text, err := c.ca.KeyPEM()
	if err != nil {
		c.t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	caKey, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		c.t.Fatal(err)
	}
	block, _ = pem.Decode(c.ca.CertPEM())
	caCert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		c.t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(7), NotBefore: caCert.NotBefore, NotAfter: time.Now().Add(time.Hour),
		Subject:     pkix.Name{CommonName: "anna", Organization: []string{"c1"}, OrganizationalUnit: []string{string(role)}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}, caCert, key.Public(), caKey)
	if err != nil {
		c.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// node is the certificate of a node.
func (c *cluster) node(id uint64) tls.Certificate {
	c.t.Helper()
	cfg, err := c.bundle(id, fmt.Sprint("n", id)).NodeClientTLS()
	if err != nil {
		c.t.Fatal(err)
	}
	cert, _ := cfg.GetClientCertificate(nil)
	return *cert
}

// TestRevoked: a hostile client with a revoked certificate gets nothing, by whatever token; one of a node that was
// removed neither; and the nodes' token alone is worth nothing.
func TestRevoked(t *testing.T) {
	c := newCluster(t)
	b := &backend{leader: Leader{Name: "n1", Self: true}}
	s := c.start(1, "n1", b)
	base := "https://" + s.Addr()
	stolen := c.node(2)
	client := func(cert tls.Certificate, token string) *Client {
		cl := c.clientCert(base, cert)
		if token != "" {
			cl.header.Set("Authorization", "Bearer "+token)
		}
		return cl
	}
	kept := client(stolen, "node-to-node") // its connection is up when the certificate is revoked
	for name, cl := range map[string]*Client{"a node": kept, "another node": client(c.node(3), "node-to-node")} {
		if _, err := Resume.Ask(t.Context(), cl, ResumeRequest{}); err != nil {
			t.Fatalf("%s, before: %v", name, err)
		}
	}
	serial := pki.SerialOf(stolen.Leaf)
	b.mu.Lock()
	b.revoked = []config.Revocation{{Serial: serial}, {ID: 4}}
	b.mu.Unlock()
	b.calls()
	for name, cl := range map[string]*Client{"a node, over what was up": kept, "a node": client(stolen, "node-to-node"),
		"with the operator's token": client(stolen, operatorToken),
		"all of a node":             client(c.node(4), "node-to-node"),
		"a removed node":            client(c.node(0x7), "node-to-node")} {
		if name == "a removed node" {
			b.mu.Lock()
			b.gone = 7
			b.mu.Unlock()
		}
		if _, err := Resume.Ask(t.Context(), cl, ResumeRequest{}); KindOf(err) != KindForbidden {
			t.Errorf("%s acts: %v", name, err)
		}
		if _, err := cl.Cluster(t.Context()); KindOf(err) != KindForbidden {
			t.Errorf("%s looks: %v", name, err)
		}
		if err := cl.WatchRoute(t.Context(), func(RouteView) {}); KindOf(err) != KindForbidden {
			t.Errorf("%s follows the routes: %v", name, err)
		}
	}
	if _, err := Resume.Ask(t.Context(), c.client(base, "node-to-node"), ResumeRequest{}); KindOf(err) != KindUnauthorized {
		t.Errorf("the nodes' token without a certificate: %v", err)
	}
	if asked := b.calls(); len(asked) != 0 {
		t.Errorf("done: %q", asked)
	}
	if _, err := Resume.Ask(t.Context(), client(c.node(2), "node-to-node"), ResumeRequest{}); err != nil { // renewed
		t.Error(err)
	}
}

// TestClientCertificates: only nodes have them. A person's certificate, which earlier versions made, gives no access; a
// node's own gives read access.
func TestClientCertificates(t *testing.T) {
	c := newCluster(t)
	b := &backend{leader: Leader{Name: "n1", Self: true}, readLogin: true}
	s := c.start(1, "n1", b)
	base := "https://" + s.Addr()
	for _, token := range []string{"", operatorToken, "node-to-node"} {
		anna := c.clientCert(base, c.person(pki.Admin))
		if token != "" {
			anna.header.Set("Authorization", "Bearer "+token)
		}
		_, look := anna.Cluster(t.Context())
		_, act := Pause.Ask(t.Context(), anna, PauseRequest{})
		if KindOf(look) != KindForbidden || KindOf(act) != KindForbidden {
			t.Errorf("a person's certificate, token %q: %v, %v", token, look, act)
		}
	}
	node, err := c.bundle(2, "n2").NodeClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	cl := NewClient(base, "", node)
	defer cl.Close()
	dir := t.TempDir()
	if err := c.bundle(2, "n2").Save(dir); err != nil {
		t.Fatal(err)
	}
	fromFiles := NewClient(base, "", pki.FilesTLS(dir))
	defer fromFiles.Close()
	for _, cl := range []*Client{cl, fromFiles} {
		if _, err := cl.Cluster(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := Pause.Ask(t.Context(), cl, PauseRequest{}); KindOf(err) != KindForbidden {
		t.Errorf("a node's certificate alone acts: %v", err)
	}
}

// TestFormerCA: a certificate of the old CA gets nothing over a connection that was up when the CA was changed.
func TestFormerCA(t *testing.T) {
	c := newCluster(t)
	dir, now := t.TempDir(), time.Now()
	bundle := c.bundle(1, "n1")
	next, err := pki.NewCA("c1", now)
	if err != nil {
		t.Fatal(err)
	}
	key, err := next.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.ca.Save(dir), bundle.Save(dir)); err != nil {
		t.Fatal(err)
	}
	b := &backend{leader: Leader{Name: "n1", Self: true}}
	s := NewServer(Options{Name: "n1", Listen: "127.0.0.1:0", Backend: b, Answers: b.answers(),
		TLS: bundle.ServerJoinTLS(), TrustsCA: bundle.Trusts,
		NodeToken: "node-to-node"})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(t.Context()) }()
	cl := c.clientCert("https://"+s.Addr(), c.node(2))
	cl.header.Set("Authorization", "Bearer node-to-node")
	step := func(what string, err error, want Kind) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Resume.Ask(t.Context(), cl, ResumeRequest{}); KindOf(err) != want {
			t.Fatalf("%s: %v", what, err)
		}
	}
	step("before", nil, KindOf(nil))
	step("both are trusted", bundle.Trust(dir, next.CertPEM(), key, now), KindOf(nil))
	step("gone over", bundle.GoOver(dir, next.Digest(), nil, now), KindOf(nil))
	b.calls()
	step("the new one alone", bundle.TrustOnly(dir, next.Digest()), KindForbidden) // a new connection would be unreachable
	if asked := b.calls(); len(asked) != 0 {
		t.Errorf("done: %q", asked)
	}
}
