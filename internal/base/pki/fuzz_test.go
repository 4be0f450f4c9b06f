package pki

import (
	"errors"
	"testing"
	"time"

	"trireme/lab/heap"
)

// FuzzCertificates reads any PEM as a CA, as a node's certificate and as the request of a node that joins: what is not
// ours is refused with an error that does not repeat it.
func FuzzCertificates(f *testing.F) {
	ca, err := NewCA("c1", time.Now())
	if err != nil {
		f.Fatal(err)
	}
	key, err := ca.KeyPEM()
	if err != nil {
		f.Fatal(err)
	}
	nodeKey, csr, err := NewKey("db1")
	if err != nil {
		f.Fatal(err)
	}
	cert, err := ca.SignCSR(csr, NodeCert{Name: "db1", ID: 1, Hosts: []string{"127.0.0.1"}}, time.Now())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ca.CertPEM(), key)
	f.Add(cert, nodeKey)
	f.Add(csr, csr)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), []byte{})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		heap.Within(t, 1<<20+64*(len(a)+len(b)), func() {
			if back, err := ParseCA(a, b); err == nil {
				if _, err := ParseCA(back.CertPEM(), b); err != nil {
					t.Fatal(err)
				}
			} else if !errors.Is(err, ErrBadPEM) {
				t.Fatalf("unclassified: %v", err)
			}
			if n, err := NewBundle(ca.CertPEM(), a, b); err == nil && n.Identity().Cluster != "c1" {
				t.Fatalf("a bundle of %+v", n.Identity())
			}
			if signed, err := ca.SignCSR(a, NodeCert{Name: "db2", ID: 2}, time.Now()); err == nil {
				c, err := parseCert(signed)
				if err != nil || c.Subject.CommonName != "db2" || c.IsCA {
					t.Fatalf("a request made a certificate of %v, %v", c, err)
				}
			}
		})
	})
}
