package node

import (
	"crypto/tls"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/base/pki"
)

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
		"none":         {func(*config.Node) {}, "n1"},
		"the router's": {func(c *config.Node) { c.Router.TLSCert, c.Router.TLSKey = cert, key }, "db.example"},
		"mysqld's": {func(c *config.Node) {
			c.MySQL.Options = map[string]string{"ssl_cert": cert, "ssl_key": key}
		}, "db.example"},
		"mysqld's, not to be read": {func(c *config.Node) {
			c.MySQL.Options = map[string]string{"ssl_cert": cert, "ssl_key": "/nowhere"}
		}, "n1"},
		"mysqld's, without its key": {func(c *config.Node) { c.MySQL.Options = map[string]string{"ssl_cert": cert} }, "n1"},
	} {
		t.Run(what, func(t *testing.T) {
			n := newTestNode(t, func(d *testDir) { c.set(&d.cfg) })
			if err := errors.Join(node.Save(n.cfg.TLSDir()), n.certs.Open()); err != nil {
				t.Fatal(err)
			}
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
