package mysqld

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/base/pki"
	"trireme/internal/mysql/mysqlwire"
)

// testCA signs certificates for mysqlds.
type testCA struct {
	ca  *pki.CA
	pem []byte
	dir string
}

func newTestCA(t *testing.T) testCA {
	t.Helper()
	ca, err := pki.NewCA("shop", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c := testCA{ca, ca.CertPEM(), t.TempDir()}
	if err := ca.Save(c.dir); err != nil {
		t.Fatal(err)
	}
	return c
}

// server is a Config.TLS of now.
func (c testCA) server(t *testing.T) []byte {
	t.Helper()
	return c.serverOf(t, time.Now())
}

// serverOf is a Config.TLS of some time.
func (c testCA) serverOf(t *testing.T, at time.Time) []byte {
	t.Helper()
	b, err := c.ca.Issue(pki.NodeCert{Name: "n1", ID: 1}, at)
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.NewServer(c.dir, []string{"db1.example"}, at)
	if err != nil {
		t.Fatal(err)
	}
	return s.PEM(b)
}

// digestOf is what Proof should say of a Config.TLS.
func digestOf(t *testing.T, text []byte) string {
	t.Helper()
	der, err := firstCert(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return mysqlwire.Digest(der)
}

// TestCertificate: a server shows the certificate that it is given, and another one after a reload, by which no session
// ends. One that it cannot take changes nothing.
func TestCertificate(t *testing.T) {
	cfg := initialized(t)
	ca := newTestCA(t)
	cfg.TLS = ca.serverOf(t, time.Now().Add(-time.Minute)) // its dates are others than those of the next one
	s := started(t, cfg)
	shown := func() Proof {
		t.Helper()
		p, err := s.Admin().Proof(testContext(t))
		if err != nil || p.Key == "" {
			t.Fatal(p, err)
		}
		return p
	}
	if p := shown(); p.Cert != digestOf(t, cfg.TLS) {
		t.Errorf("it shows %s", p.Cert)
	}
	l := session(t, s, cfg.Admin)
	id := l.id.Load()
	before, err := s.Admin().TLSStamp(testContext(t))
	if err != nil {
		t.Fatal(err)
	}

	next := newTestCA(t).server(t) // of another CA, as in a change of it
	if err := s.ReloadTLS(testContext(t), next); err != nil {
		t.Fatal(err)
	}
	if p := shown(); p.Cert != digestOf(t, next) {
		t.Errorf("after a reload it shows %s", p.Cert)
	}
	if after, err := s.Admin().TLSStamp(testContext(t)); err != nil || after == before ||
		!strings.Contains(after, "not_after") {
		t.Errorf("%q, then %q, %v", before, after, err)
	}
	mustExec(t, l, "DO 1")
	if l.id.Load() != id {
		t.Error("the session did not outlive the reload")
	}
	if err := s.ReloadTLS(testContext(t), []byte("no certificate")); err == nil {
		t.Error("it takes what is no certificate")
	}
	if p := shown(); p.Cert != digestOf(t, next) {
		t.Errorf("after a reload that failed it shows %s", p.Cert)
	}
	st, err := os.Stat(cfg.tlsFile())
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Error(st, err)
	}
}

// TestOwnCertificate: where the operator's options name a certificate that one is shown, and what is in its file is
// known before it is.
func TestOwnCertificate(t *testing.T) {
	cfg := initialized(t)
	own := newTestCA(t)
	file := filepath.Join(own.dir, "mine.pem")
	text := own.serverOf(t, time.Now().Add(-time.Minute)) // as above
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Extra = map[string]string{"ssl-cert": file, "ssl_key": file, "ssl-ca": file}
	cfg.TLS = newTestCA(t).server(t)
	s := started(t, cfg)
	if p, err := s.Admin().Proof(testContext(t)); err != nil || p.Cert != digestOf(t, text) || p.Cert != cfg.OwnCert() {
		t.Errorf("it shows %s, in the file is %s, %v", p.Cert, cfg.OwnCert(), err)
	}
	if !cfg.OwnTLS() || cfg.OwnCA() != file {
		t.Errorf("own %t, CA %s", cfg.OwnTLS(), cfg.OwnCA())
	}
	before, err := s.Admin().TLSStamp(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	next := newTestCA(t).server(t)
	if err := os.WriteFile(file, next, 0o600); err != nil {
		t.Fatal(err)
	}
	if cfg.OwnCert() != digestOf(t, next) {
		t.Errorf("the file holds %s", cfg.OwnCert())
	}
	mustExec(t, session(t, s, cfg.Admin), "ALTER INSTANCE RELOAD TLS")
	if after, err := s.Admin().TLSStamp(testContext(t)); err != nil || after == before {
		t.Errorf("it is not noticed that another one is shown: %q, %v", after, err)
	}
}

func TestTLSSettings(t *testing.T) {
	has := func(c Config) bool {
		return slices.ContainsFunc(c.defaults(), func(s setting) bool { return s.name == "ssl_cert" })
	}
	for name, c := range map[string]struct {
		cfg  Config
		want bool
	}{
		"none":           {Config{}, false},
		"given":          {Config{TLS: []byte("x")}, true},
		"the operator's": {Config{TLS: []byte("x"), Extra: map[string]string{"SSL-Cert": "server-cert.pem"}}, false},
		"their CA":       {Config{TLS: []byte("x"), Extra: map[string]string{"loose_ssl_ca": "ca.pem"}}, false},
		"something else": {Config{TLS: []byte("x"), Extra: map[string]string{"tls_version": "TLSv1.3"}}, true},
	} {
		if has(c.cfg) != c.want {
			t.Errorf("%s: %t", name, !c.want)
		}
	}
	c := Config{Dir: "/d", Extra: map[string]string{"ssl_cert": "server-cert.pem"}, TLS: []byte("x")}
	if got := c.ownFile("ssl_cert"); got != "/d/data/server-cert.pem" {
		t.Error(got)
	}
	c.Extra = nil
	if strings.Contains(c.plainOptions(true), "ssl_cert") {
		t.Error("a plain server would show a certificate that nothing renews")
	}
}
