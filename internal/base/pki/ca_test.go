package pki

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// shake lets two nodes shake hands by their present files' bundles, as peers.
func shake(t *testing.T, a, b *Bundle) error {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	end := make(chan error, 1)
	go func() { end <- tls.Server(server, a.PeerTLS()).HandshakeContext(t.Context()) }()
	c := tls.Client(client, b.PeerTLS())
	if err := c.HandshakeContext(t.Context()); err != nil {
		return err
	}
	go func() { _, _ = c.Read(make([]byte, 1)) }()
	return <-end
}

// TestChangeOfCA: three nodes go over to another CA, one after the other in each step and each of them interrupted
// after every file, and all speak with all at all times; in the end what the old CA signs is taken by none.
func TestChangeOfCA(t *testing.T) {
	now := time.Now()
	old, err := NewCA("shop", now)
	if err != nil {
		t.Fatal(err)
	}
	next, err := NewCA("shop", now)
	if err != nil {
		t.Fatal(err)
	}
	nextKey, err := next.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	type node struct {
		dir string
		b   *Bundle
	}
	var nodes []*node
	for id, name := range []string{"n1", "n2", "n3"} {
		b, err := old.Issue(NodeCert{Name: name, ID: uint64(id + 1)}, now)
		n := &node{dir: filepath.Join(t.TempDir(), "tls"), b: b}
		if err == nil {
			err = old.Save(n.dir)
		}
		if err == nil {
			err = b.Save(n.dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	meet := func(when string) {
		t.Helper()
		for _, a := range nodes {
			for _, b := range nodes {
				if a != b {
					if err := shake(t, a.b, b.b); err != nil {
						t.Fatalf("%s: %s refuses %s: %v", when, a.b.Identity().Name, b.b.Identity().Name, err)
					}
				}
			}
		}
	}
	restart := func(n *node) {
		t.Helper()
		b, err := LoadBundle(n.dir)
		if err != nil {
			t.Fatalf("%s does not start: %v", n.b.Identity().Name, err)
		}
		n.b = b
	}
	steps := []struct {
		name string
		do   func(n *node) error
	}{
		{"trust", func(n *node) error { return n.b.Trust(n.dir, next.CertPEM(), nextKey, now) }},
		{"go over", func(n *node) error { return n.b.GoOver(n.dir, next.Digest(), nil, now) }},
		{"only", func(n *node) error { return n.b.TrustOnly(n.dir, next.Digest()) }},
	}
	for _, step := range steps {
		for _, n := range nodes {
			for try := range 3 { // repeating it does no harm, nor does it after a restart
				if err := step.do(n); err != nil {
					t.Fatalf("%s of %s: %v", step.name, n.b.Identity().Name, err)
				}
				meet(step.name)
				if try > 0 {
					restart(n)
				}
				meet(step.name + ", restarted")
			}
			if step.name == "trust" { // died when the key was in its place and the certificate was not renewed
				other := &node{dir: filepath.Join(t.TempDir(), "tls")}
				if err := os.CopyFS(other.dir, os.DirFS(n.dir)); err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{CAKeyFile, NextCAKeyFile, NodeKeyFile} {
					_ = os.Chmod(filepath.Join(other.dir, name), 0o600)
				}
				if err := os.Rename(filepath.Join(other.dir, NextCAKeyFile), filepath.Join(other.dir, CAKeyFile)); err != nil {
					t.Fatal(err)
				}
				other.b = n.b
				restart(other)
				if err := other.b.GoOver(other.dir, next.Digest(), nil, now); err != nil || other.b.CADigest() != next.Digest() {
					t.Errorf("after a crash: %v", err)
				}
			}
		}
	}
	stolen, err := old.Issue(NodeCert{Name: "n2", ID: 2}, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if !slices.Equal(n.b.Trusted(), []string{next.Digest()}) || n.b.CADigest() != next.Digest() {
			t.Errorf("%s trusts %v", n.b.Identity().Name, n.b.Trusted())
		}
		loose := stolen.PeerTLS()
		loose.VerifyConnection = nil
		client, server := net.Pipe()
		end := make(chan error, 1)
		go func() { end <- tls.Server(server, n.b.PeerTLS()).HandshakeContext(t.Context()); server.Close() }()
		c := tls.Client(client, loose)
		_ = c.HandshakeContext(t.Context())
		_, _ = c.Read(make([]byte, 1))
		if err := <-end; err == nil {
			t.Errorf("%s takes what the old CA has signed", n.b.Identity().Name)
		}
		client.Close()
		ca, err := LoadCA(n.dir)
		if err != nil || ca.Digest() != next.Digest() {
			t.Errorf("signs with %v, %v", ca, err)
		}
		if _, err := os.Stat(filepath.Join(n.dir, NextCAKeyFile)); err == nil {
			t.Error("the key of the new CA is there twice")
		}
	}
	if err := nodes[0].b.TrustOnly(nodes[0].dir, old.Digest()); err == nil {
		t.Error("trusts only a CA that has not signed its certificate")
	}
	foreign, _ := NewCA("other", now)
	key, _ := foreign.KeyPEM()
	if err := nodes[0].b.Trust(nodes[0].dir, foreign.CertPEM(), key, now); err == nil {
		t.Error("trusts another cluster's CA")
	}
	if err := nodes[0].b.Trust(nodes[0].dir, old.CertPEM(), nextKey, now); err == nil {
		t.Error("trusts a CA whose key it does not have")
	}
}

// TestClockOfNewCA: a node refuses a CA that is not valid by its own clock, since a leader whose clock is wrong has
// made it.
func TestClockOfNewCA(t *testing.T) {
	now, dir := time.Now(), filepath.Join(t.TempDir(), "tls")
	old, err := NewCA("shop", now)
	if err != nil {
		t.Fatal(err)
	}
	b, err := old.Issue(NodeCert{Name: "n1", ID: 1}, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, made := range []time.Time{now.Add(2 * clockSlack), now.Add(-2 * caLife)} {
		next, err := NewCA("shop", made)
		if err != nil {
			t.Fatal(err)
		}
		key, err := next.KeyPEM()
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Trust(dir, next.CertPEM(), key, now); err == nil || !strings.Contains(err.Error(), "clocks") ||
			len(b.Trusted()) != 1 {
			t.Errorf("made at %s: %v, trusts %v", made, err, b.Trusted())
		}
	}
}

// TestMissedChangeOfCA: a node that missed a change, since its disk was put back to an earlier state, comes back by
// what docs/ops/certificates.md says.
func TestMissedChangeOfCA(t *testing.T) {
	now, dir, other := time.Now(), filepath.Join(t.TempDir(), "tls"), filepath.Join(t.TempDir(), "tls")
	old, err := NewCA("shop", now)
	if err != nil {
		t.Fatal(err)
	}
	next, err := NewCA("shop", now)
	if err != nil {
		t.Fatal(err)
	}
	b, err := old.Issue(NodeCert{Name: "n1", ID: 1}, now)
	if err != nil {
		t.Fatal(err)
	}
	peer, err := next.Issue(NodeCert{Name: "n2", ID: 2}, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(old.Save(dir), b.Save(dir), next.Save(other)); err != nil {
		t.Fatal(err)
	}
	if shake(t, peer, b) == nil {
		t.Fatal("it has missed nothing")
	}
	add, err := os.ReadFile(filepath.Join(other, CAFile))
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(other, CAKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := saveAll(dir, []file{{CAFile, append(b.CAPEM(), add...)}, {CAKeyFile, key}}); err != nil {
		t.Fatal(err)
	}
	if b, err = LoadBundle(dir); err == nil { // trireme cert renew
		err = b.Renew(dir, nil, now)
	}
	if err != nil {
		t.Fatal(err)
	}
	if b, err = LoadBundle(dir); err != nil || shake(t, peer, b) != nil || shake(t, b, peer) != nil {
		t.Error("it is shut out", err)
	}
	if err := b.TrustOnly(dir, next.Digest()); err != nil {
		t.Error(err)
	}
}
