package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/base/durable"

	"pgregory.net/rapid"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newCA(t *testing.T, cluster string) *CA {
	t.Helper()
	ca, err := NewCA(cluster, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issue(t *testing.T, ca *CA, id uint64) *Bundle {
	t.Helper()
	b, err := ca.Issue(NodeCert{Name: fmt.Sprintf("n%d", id), ID: id, Hosts: []string{"127.0.0.1:7306", "db.example.org",
		"[::1]:1", "db.example.org"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestNodeCertificateSaysWhatItShould(t *testing.T) {
	ca := newCA(t, "shop")
	b := issue(t, ca, 7)
	if got := b.Identity(); got != (Identity{Cluster: "shop", ID: 7, Name: "n7"}) {
		t.Fatalf("%+v", got)
	}
	leaf := b.own.Load().Leaf
	if fmt.Sprint(leaf.DNSNames) != "[n7 db.example.org localhost]" || fmt.Sprint(leaf.IPAddresses) != "[127.0.0.1 ::1]" {
		t.Fatalf("%v %v", leaf.DNSNames, leaf.IPAddresses)
	}
	if leaf.IsCA || leaf.URIs[0].String() != "trireme://shop/7" {
		t.Fatalf("%v", leaf.URIs)
	}
	if life := time.Until(b.NotAfter()); life < 364*24*time.Hour || life > 366*24*time.Hour {
		t.Fatalf("valid for %v", life)
	}
	// An ordinary client that trusts the CA accepts it by name.
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.CertPEM())
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "db.example.org"}); err != nil {
		t.Fatal(err)
	}
}

// A CSR cannot ask for anything: only its key is taken.
func TestSignCSR(t *testing.T) {
	ca := newCA(t, "shop")
	_, csr, err := NewKey("i-am-the-leader")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.SignCSR(csr, NodeCert{Name: "n2", ID: 2}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parseCert(cert)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := IdentityOf(parsed); err != nil || id.Name != "n2" || id.ID != 2 {
		t.Fatal(id, err)
	}
	damaged := bytes.Clone(csr)
	blk, _ := pem.Decode(damaged)
	blk.Bytes[len(blk.Bytes)-1] ^= 1
	for name, bad := range map[string][]byte{"nothing": nil, "a certificate": cert,
		"bad signature": pem.EncodeToMemory(blk)} {
		if _, err := ca.SignCSR(bad, NodeCert{Name: "n2", ID: 2}, time.Now()); err == nil {
			t.Errorf("%s was signed", name)
		}
	}
	if _, err := ca.SignCSR(csr, NodeCert{Name: "n2"}, time.Now()); err == nil {
		t.Error("raft id 0 was signed")
	}
}

func TestClusterNames(t *testing.T) {
	for name, good := range map[string]bool{"shop": true, "shop-1.eu_x": true, "": false, "a b": false, "a/b": false,
		"-a": false, strings.Repeat("a", 64): false} {
		if _, err := NewCA(name, t0); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestFilesAreSecretAndComplete(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	ca := newCA(t, "shop")
	b := issue(t, ca, 3)
	if err := errors.Join(ca.Save(dir), b.Save(dir), b.Save(dir)); err != nil {
		t.Fatal(err)
	}
	ents, err := os.ReadDir(dir)
	if err != nil || len(ents) != 4 {
		t.Fatal(ents, err)
	}
	for _, e := range ents {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", e.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info.Mode(), err)
	}
	ca2, err := LoadCA(dir)
	if err != nil || ca2.Cluster() != "shop" || ca2.Digest() != ca.Digest() {
		t.Fatal(err)
	}
	b2, err := LoadBundle(dir)
	if err != nil || b2.Identity() != b.Identity() || b2.CADigest() != ca.Digest() {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, NodeKeyFile), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadBundle(dir); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Fatalf("a key that others can read was taken: %v", err)
	}
	if _, err := LoadBundle(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestMixedUpPartsAreRefused(t *testing.T) {
	ca, ca2 := newCA(t, "shop"), newCA(t, "shop")
	b, other := issue(t, ca, 1).own.Load(), issue(t, ca, 2).own.Load()
	key, err := ca.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]func() error{
		"key of another":  func() error { _, err := NewBundle(ca.CertPEM(), b.certPEM, other.keyPEM); return err },
		"foreign CA":      func() error { _, err := NewBundle(ca2.CertPEM(), b.certPEM, b.keyPEM); return err },
		"CA as node":      func() error { _, err := NewBundle(ca.CertPEM(), ca.CertPEM(), key); return err },
		"no PEM":          func() error { _, err := NewBundle([]byte("x"), nil, nil); return err },
		"key as cert":     func() error { _, err := NewBundle(b.keyPEM, b.certPEM, b.keyPEM); return err },
		"CA with its own": func() error { _, err := ParseCA(ca.CertPEM(), b.keyPEM); return err },
		"node as CA":      func() error { _, err := ParseCA(b.certPEM, b.keyPEM); return err },
	} {
		err := try()
		if err == nil {
			t.Errorf("%s was accepted", name)
		} else if !errors.Is(err, ErrBadPEM) && !errors.Is(err, ErrForeign) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// handshake runs TLS between two configurations and returns what each side says, and the client's state.
func handshake(t *testing.T, client, server *tls.Config) (cs tls.ConnectionState, cerr, serr error) {
	t.Helper()
	c, s := net.Pipe()
	defer c.Close()
	defer s.Close()
	deadline := time.Now().Add(10 * time.Second)
	_, _ = c.SetDeadline(deadline), s.SetDeadline(deadline)
	done := make(chan error, 1)
	go func() {
		sc := tls.Server(s, server)
		err := sc.Handshake()
		if err == nil {
			_, err = sc.Write([]byte("x"))
		}
		s.Close()
		done <- err
	}()
	cc := tls.Client(c, client)
	if cerr = cc.Handshake(); cerr == nil {
		cs = cc.ConnectionState()
		_, cerr = cc.Read(make([]byte, 1))
	}
	c.Close()
	return cs, cerr, <-done
}

func TestPeerTLS(t *testing.T) {
	ca, twin, foreign := newCA(t, "shop"), newCA(t, "shop"), newCA(t, "other")
	a, b := issue(t, ca, 1), issue(t, ca, 2)
	cs, cerr, serr := handshake(t, a.PeerTLS(), b.PeerTLS())
	if cerr != nil || serr != nil {
		t.Fatal(cerr, serr)
	}
	if id, err := PeerIdentity(cs); err != nil || id.ID != 2 || cs.Version != tls.VersionTLS13 {
		t.Fatal(id, err)
	}
	for name, x := range map[string]*Bundle{"same name": issue(t, twin, 3), "other cluster": issue(t, foreign, 3)} {
		if _, cerr, _ := handshake(t, a.PeerTLS(), x.PeerTLS()); !errors.Is(cerr, ErrForeign) {
			t.Errorf("%s as server: %v", name, cerr)
		}
		loose := x.PeerTLS()
		loose.VerifyConnection = nil
		if _, _, serr := handshake(t, loose, b.PeerTLS()); !errors.Is(serr, ErrForeign) {
			t.Errorf("%s as client: %v", name, serr)
		}
	}
	expired, err := ca.Issue(NodeCert{Name: "old", ID: 9}, time.Now().Add(-2*nodeLife))
	if err != nil {
		t.Fatal(err)
	}
	if _, cerr, _ := handshake(t, a.PeerTLS(), expired.PeerTLS()); !errors.Is(cerr, ErrForeign) ||
		!strings.Contains(cerr.Error(), "expired") {
		t.Errorf("expired: %v", cerr)
	}
	old := a.PeerTLS()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if _, cerr, _ := handshake(t, old, b.PeerTLS()); cerr == nil {
		t.Error("TLS 1.2 between peers")
	}
}

func TestClientAndJoinTLS(t *testing.T) {
	ca, twin := newCA(t, "shop"), newCA(t, "shop")
	b, fake := issue(t, ca, 1), issue(t, twin, 1)
	client, err := ClientTLS(ca.CertPEM())
	if err != nil {
		t.Fatal(err)
	}
	if _, cerr, serr := handshake(t, client, b.ServerTLS()); cerr != nil || serr != nil {
		t.Fatal(cerr, serr)
	}
	if _, cerr, _ := handshake(t, client, fake.ServerTLS()); !errors.Is(cerr, ErrForeign) {
		t.Fatal(cerr)
	}
	withCert, err := b.NodeClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	if _, cerr, serr := handshake(t, withCert, b.ServerTLS()); cerr != nil || serr != nil {
		t.Fatal(cerr, serr)
	}
	foreignCert, err := fake.NodeClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	foreignCert.VerifyConnection = nil
	if _, _, serr := handshake(t, foreignCert, b.ServerTLS()); serr == nil {
		t.Fatal("a client certificate of another CA was taken")
	}
	cs, cerr, serr := handshake(t, JoinTLS(ca.Digest()), b.ServerJoinTLS())
	if cerr != nil || serr != nil {
		t.Fatal(cerr, serr)
	}
	if !slices.ContainsFunc(cs.PeerCertificates, ca.cert.Equal) {
		t.Fatal("the server did not send its CA certificate")
	}
	for name, s := range map[string]*tls.Config{"another CA": fake.ServerJoinTLS(), "no CA sent": b.ServerTLS(),
		"a CA that did not sign": func() *tls.Config {
			own := fake.own.Load().Certificate
			own.Certificate = append(own.Certificate, ca.cert.Raw)
			return &tls.Config{Certificates: []tls.Certificate{own}}
		}()} {
		if _, cerr, _ := handshake(t, JoinTLS(ca.Digest()), s); !errors.Is(cerr, ErrForeign) {
			t.Errorf("%s: %v", name, cerr)
		}
	}
}

func TestAPITokens(t *testing.T) {
	token, hash := NewAPIToken()
	other, _ := NewAPIToken()
	if token == other || len(token) < 43 || !TokenMatches(token, hash) || TokenMatches(other, hash) ||
		TokenMatches("", "") || TokenMatches(token, "") {
		t.Fatal("token comparison")
	}
	if strings.Contains(hash, token) {
		t.Fatal("the hash holds the token")
	}
}

func TestJoinTokens(t *testing.T) {
	digest := newCA(t, "shop").Digest()
	for _, addr := range []string{"10.0.0.1:8008", "db-1.example.org:8008", "[fe80::1]:8008", "localhost:1"} {
		tok, rec, err := NewJoinToken(addr, digest, t0, time.Hour)
		if err != nil {
			t.Fatal(addr, err)
		}
		back, err := ParseJoinToken(" " + tok.Encode() + "\n")
		if err != nil || back != tok {
			t.Fatal(addr, err)
		}
		if err := rec.Verify(back.Secret(), t0.Add(59*time.Minute)); err != nil {
			t.Fatal(err)
		}
		if err := rec.Verify(back.Secret(), t0.Add(time.Hour)); !errors.Is(err, ErrTokenExpired) {
			t.Fatal(err)
		}
		if err := rec.Verify("wrong", t0.Add(2*time.Hour)); !errors.Is(err, ErrBadToken) {
			t.Fatal("a wrong secret learns about expiry:", err)
		}
		rec.Used = true
		if err := rec.Verify(back.Secret(), t0); !errors.Is(err, ErrBadToken) {
			t.Fatal(err)
		}
		for _, shown := range []string{fmt.Sprint(tok), fmt.Sprintf("%+v %#v %s %q", tok, tok, tok, &tok),
			fmt.Sprintf("%+v", rec)} {
			if strings.Contains(shown, tok.Secret()) {
				t.Fatal("the secret is shown")
			}
		}
	}
	for _, addr := range []string{"", "host", "host:0", "host:99999", ":8008", "a b:1", "host:8008/x"} {
		if _, _, err := NewJoinToken(addr, digest, t0, time.Hour); err == nil {
			t.Errorf("%q was accepted", addr)
		}
	}
	if _, _, err := NewJoinToken("h:1", "abc", t0, time.Hour); err == nil {
		t.Error("a bad digest was accepted")
	}
}

// A damaged token is refused, and the error does not repeat what may be a secret.
func TestDamagedJoinTokens(t *testing.T) {
	tok, _, err := NewJoinToken("10.0.0.1:8008", strings.Repeat("ab", 32), t0, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	good := tok.Encode()
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(good)
		switch rapid.IntRange(0, 2).Draw(t, "damage") {
		case 0:
			b = b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]
		case 1:
			b = append(b, rapid.SliceOfN(rapid.Byte(), 1, 5).Draw(t, "more")...)
		case 2:
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		back, err := ParseJoinToken(string(b))
		if err == nil {
			if again := back.Encode(); again != strings.TrimSpace(string(b)) {
				t.Fatalf("%q parsed as %q", b, again)
			}
			return
		}
		if !errors.Is(err, ErrBadToken) || strings.Contains(err.Error(), tok.Secret()) {
			t.Fatal(err)
		}
	})
}

func FuzzParseJoinToken(f *testing.F) {
	tok, _, err := NewJoinToken("[::1]:8008", strings.Repeat("ab", 32), t0, time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(tok.Encode())
	f.Add("trj1....")
	f.Fuzz(func(t *testing.T, s string) {
		back, err := ParseJoinToken(s)
		if err == nil && back.Encode() != strings.TrimSpace(s) {
			t.Fatalf("%q became %q", s, back.Encode())
		}
	})
}

func TestNames(t *testing.T) {
	ca, err := NewCA("c1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b, err := ca.Issue(NodeCert{Name: "db1", ID: 1, Hosts: []string{"db1.example:7306", "10.0.0.1"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if !b.Names([]string{"db1.example:1", "10.0.0.1:2", "db1", ""}) || b.Names([]string{"db1.example", "db1.new:7306"}) ||
		b.Names([]string{"10.0.0.2"}) {
		t.Error("wrong hosts")
	}
}

// TestRenew: a new pair is shown by configurations that were made before, and a renewal that is interrupted leaves one
// pair or the other.
func TestRenew(t *testing.T) {
	ca, dir := newCA(t, "shop"), t.TempDir()
	now := time.Now()
	b, err := ca.Issue(NodeCert{Name: "n1", ID: 1, Hosts: []string{"db1"}}, now.Add(-200*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if b.Due(now) || !b.Due(now.Add(45*24*time.Hour)) || !b.Due(now.Add(400*24*time.Hour)) {
		t.Error("due at the wrong time")
	}
	// A clock that was ahead for a while leaves nothing that is valid only then, or that is made again and again.
	ahead, err := ca.Issue(NodeCert{Name: "n1", ID: 1}, now.AddDate(30, 0, 0))
	if err != nil || ahead.own.Load().Leaf.NotBefore.After(now) || ahead.NotAfter().Before(now) ||
		ahead.Due(now.AddDate(30, 0, 0)) {
		t.Error("signed by a clock that was ahead:", err, ahead.own.Load().Leaf.NotBefore, ahead.NotAfter())
	}
	if err := errors.Join(ca.Save(dir), b.Save(dir)); err != nil {
		t.Fatal(err)
	}
	// What handshakes of both sides show, with configurations that live as long as the daemon.
	server, join, router, peer := b.ServerTLS(), b.ServerJoinTLS(), b.RouterTLS(), issue(t, ca, 2)
	client, err := b.NodeClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	var asClient *x509.Certificate
	other := peer.PeerTLS()
	other.VerifyConnection = func(cs tls.ConnectionState) error { asClient = cs.PeerCertificates[0]; return nil }
	shown := func(want *x509.Certificate) {
		t.Helper()
		for i, cfg := range []*tls.Config{server, join, router, b.PeerTLS()} {
			cs, cerr, serr := handshake(t, peer.PeerTLS(), cfg)
			if cerr != nil || serr != nil || !cs.PeerCertificates[0].Equal(want) {
				t.Errorf("server %d shows another certificate: %v %v", i, cerr, serr)
			}
		}
		if _, cerr, serr := handshake(t, client, other); cerr != nil || serr != nil || !asClient.Equal(want) {
			t.Errorf("the client shows another certificate: %v %v", cerr, serr)
		}
	}
	before := b.own.Load()
	shown(before.Leaf)
	if err := b.Renew(dir, []string{"db1", "db1.new"}, now); err != nil {
		t.Fatal(err)
	}
	after := b.own.Load()
	if after.Leaf.Equal(before.Leaf) || bytes.Equal(after.keyPEM, before.keyPEM) || b.Due(now) ||
		!b.Names([]string{"db1.new"}) || b.Identity() != (Identity{"shop", 1, "n1"}) {
		t.Error("not renewed")
	}
	shown(after.Leaf)

	loads := func(want *pair) {
		t.Helper()
		back, err := LoadBundle(dir)
		if err != nil || !bytes.Equal(back.own.Load().certPEM, want.certPEM) ||
			!bytes.Equal(back.own.Load().keyPEM, want.keyPEM) {
			t.Fatal("another pair", err)
		}
	}
	loads(after)
	put := func(name string, data []byte) {
		t.Helper()
		if err := durable.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(NodeKeyFile, before.keyPEM)
	put(NodeCertFile, before.certPEM)
	put(nextKeyFile, after.keyPEM) // interrupted before the certificate's rename
	loads(before)
	put(NodeCertFile, after.certPEM) // and after it
	loads(after)
	if _, err := os.Stat(filepath.Join(dir, nextKeyFile)); !errors.Is(err, os.ErrNotExist) {
		t.Error("the next key stays")
	}
	loads(after)
	if err := os.Remove(filepath.Join(dir, CAKeyFile)); err != nil {
		t.Fatal(err)
	}
	if err := b.Renew(dir, nil, now); !errors.Is(err, os.ErrNotExist) || b.own.Load() != after {
		t.Error("without the CA's key:", err)
	}
}
