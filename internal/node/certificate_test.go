package node

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trireme/internal/config"
	"trireme/internal/pki"
)

// TestCertificateIsRenewed: a certificate in the last third of its life is replaced; one that cannot be is warned of.
func TestCertificateIsRenewed(t *testing.T) {
	n := newTestNode(t)
	cfg := n.cfg
	ca, err := pki.NewCA("shop", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Save(cfg.TLSDir()); err != nil {
		t.Fatal(err)
	}
	old := func() *pki.Bundle {
		t.Helper()
		b, err := ca.Issue(pki.NodeCert{Name: "n1", ID: 1}, time.Now().Add(-300*24*time.Hour))
		if err == nil {
			err = b.Save(cfg.TLSDir())
		}
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	n.bundle = old()
	n.tendCertificate(t.Context())
	if left := time.Until(n.bundle.NotAfter()); left < 360*24*time.Hour || len(n.warningsLocked()) != 0 {
		t.Errorf("it ends in %v; %v", left, n.certWarnings)
	}
	if b, err := pki.LoadBundle(cfg.TLSDir()); err != nil || !b.NotAfter().Equal(n.bundle.NotAfter()) {
		t.Error("the renewed one is not on disk", err)
	}
	n.bundle = old()
	key := filepath.Join(cfg.TLSDir(), pki.CAKeyFile)
	if err := os.Rename(key, key+".away"); err != nil {
		t.Fatal(err)
	}
	n.tendCertificate(t.Context())
	if w := n.warningsLocked(); len(w) != 1 || !strings.Contains(w[0], "cannot be renewed") {
		t.Errorf("warnings %v", w)
	}
	if err := os.Rename(key+".away", key); err != nil {
		t.Fatal(err)
	}
	n.tendCertificate(t.Context())
	if w := n.warningsLocked(); len(w) != 0 || n.bundle.Due(time.Now()) {
		t.Errorf("warnings %v", w)
	}
}

// TestRouterShowsItsOwnCertificate: the one that an operator gives, to clients that name a host too.
func TestRouterShowsItsOwnCertificate(t *testing.T) {
	ca, err := pki.NewCA("shop", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	node, err := ca.Issue(pki.NodeCert{Name: "n1", ID: 1}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	given, err := ca.Issue(pki.NodeCert{Name: "db.example", ID: 2}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := given.Save(dir); err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(dir, pki.NodeCertFile), filepath.Join(dir, pki.NodeKeyFile)
	for what, c := range map[string]struct {
		set  func(*config.Node)
		want string
	}{
		"none":                      {func(*config.Node) {}, "n1"},
		"the router's":              {func(c *config.Node) { c.Router.TLSCert, c.Router.TLSKey = cert, key }, "db.example"},
		"mysqld's":                  {func(c *config.Node) { c.MySQL.Options = map[string]string{"ssl_cert": cert, "ssl_key": key} }, "db.example"},
		"mysqld's, not to be read":  {func(c *config.Node) { c.MySQL.Options = map[string]string{"ssl_cert": cert, "ssl_key": "/nowhere"} }, "n1"},
		"mysqld's, without its key": {func(c *config.Node) { c.MySQL.Options = map[string]string{"ssl_cert": cert} }, "n1"},
	} {
		t.Run(what, func(t *testing.T) {
			n := newTestNode(t, func(d *testDir) { c.set(&d.cfg) })
			n.bundle = node
			rc, err := n.routerConfig()
			if err != nil {
				t.Fatal(err)
			}
			client, server := net.Pipe()
			defer func() { _, _ = client.Close(), server.Close() }()
			go func() { _ = tls.Server(server, rc.TLS).HandshakeContext(t.Context()) }()
			secure := tls.Client(client, &tls.Config{ServerName: "db.example", InsecureSkipVerify: true})
			if err := secure.HandshakeContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			if name := secure.ConnectionState().PeerCertificates[0].Subject.CommonName; name != c.want {
				t.Errorf("the router shows the certificate of %s", name)
			}
		})
	}
}
