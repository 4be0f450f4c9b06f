package pki

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The certificate of a node's mysqld names it and its hosts, and is taken by TLS clients that know the CA. Neither a
// node's link nor the API's clients take it: mysqld's user has its key.
func TestServerIsNoNode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	ca := newCA(t, "shop")
	a, b := issue(t, ca, 1), issue(t, ca, 2)
	if err := errors.Join(ca.Save(dir), b.Save(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.LoadServer(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	s, err := b.NewServer(dir, []string{"db2.example:3306", "10.0.0.2"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.LoadServer(dir)
	if err != nil || again.Serial() != s.Serial() || again.Digest() != s.Digest() || s.CADigest() != ca.Digest() {
		t.Fatalf("%+v, %v", again, err)
	}
	if _, err := a.LoadServer(dir); !errors.Is(err, ErrForeign) {
		t.Errorf("another node takes it for its own: %v", err)
	}
	pair, err := tls.X509KeyPair(s.PEM(b), s.PEM(b))
	if err != nil {
		t.Fatal(err)
	}
	server := &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	for _, host := range []string{"db2.example", "10.0.0.2", "localhost"} {
		if _, cerr, _ := handshake(t, &tls.Config{RootCAs: b.trust.Load().pool, ServerName: host}, server); cerr != nil {
			t.Errorf("%s: %v", host, cerr)
		}
	}
	api, err := ClientTLS(ca.CertPEM())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*tls.Config{"a peer": a.PeerTLS(), "a client of the API": api,
		"a node that joins": JoinTLS(ca.Digest())} {
		if _, cerr, _ := handshake(t, c, server); !errors.Is(cerr, ErrForeign) {
			t.Errorf("%s takes mysqld for a node: %v", name, cerr)
		}
	}
	asPeer := b.PeerTLS()
	asPeer.Certificates = []tls.Certificate{pair}
	if _, _, serr := handshake(t, asPeer, a.PeerTLS()); !errors.Is(serr, ErrForeign) {
		t.Errorf("a node takes mysqld for a peer: %v", serr)
	}
}

// Another one is due in the last third, for other hosts, and after a change of the CA.
func TestServerIsGood(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	ca, next := newCA(t, "shop"), newCA(t, "shop")
	b := issue(t, ca, 1)
	if err := errors.Join(ca.Save(dir), b.Save(dir)); err != nil {
		t.Fatal(err)
	}
	hosts, now := []string{"db1.example"}, time.Now()
	s, err := b.NewServer(dir, hosts, now)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Good(b, hosts, now) || s.Good(b, []string{"db9.example"}, now) ||
		s.Good(b, hosts, s.NotAfter().Add(-nodeLife/4)) {
		t.Error("good, other hosts, or due")
	}
	key, err := next.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Trust(dir, next.CertPEM(), key, now), b.GoOver(dir, next.Digest(), nil, now)); err != nil {
		t.Fatal(err)
	}
	if s.Good(b, hosts, now) {
		t.Error("it is of the old CA")
	}
	if s, err = b.NewServer(dir, hosts, now); err != nil || !s.Good(b, hosts, now) || s.CADigest() != next.Digest() {
		t.Error(err)
	}
	if err := errors.Join(DropServer(dir), DropServer(dir)); err != nil {
		t.Error(err)
	}
	if _, err := b.LoadServer(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
