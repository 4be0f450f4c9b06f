package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"trireme/internal/base/durable"
)

// A change of the CA, as each node makes it. Both CAs are trusted in between, so links go on:
//
//	Trust     ca.pem holds both certificates, ca-next.key the new key; certificates are the old CA's
//	GoOver    ca.key is the new key, node.pem a certificate of the new CA
//	TrustOnly ca.pem holds the new certificate alone
//
// The cluster takes a step when all nodes have taken the one before. Each can be interrupted and is then taken again.

// trust is the CAs that are trusted.
type trust struct {
	pem   []byte
	certs []*x509.Certificate
	pool  *x509.CertPool
}

// maxCAs that a file may hold.
const maxCAs = 8

// parseTrust reads one CA certificate or more.
func parseTrust(text []byte) (*trust, error) {
	t := &trust{pem: text, pool: x509.NewCertPool()}
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := parseCert(pem.EncodeToMemory(block))
		if err != nil {
			return nil, err
		}
		t.certs = append(t.certs, c)
		t.pool.AddCert(c)
	}
	if len(t.certs) == 0 || len(t.certs) > maxCAs {
		return nil, ErrBadPEM
	}
	return t, nil
}

// signerOf is the trusted CA that has signed a certificate.
func (t *trust) signerOf(cert *x509.Certificate) (ca *x509.Certificate, err error) {
	for _, ca := range t.certs {
		if err = cert.CheckSignatureFrom(ca); err == nil {
			return ca, nil
		}
	}
	return nil, err
}

// DigestOf is the SHA-256 of a certificate in PEM, in hexadecimal.
func DigestOf(certPEM []byte) (string, error) {
	c, err := parseCert(certPEM)
	if err != nil {
		return "", err
	}
	return digest(c.Raw), nil
}

// Trusted are the digests of the CAs that the node trusts.
func (b *Bundle) Trusted() []string {
	var out []string
	for _, c := range b.trust.Load().certs {
		out = append(out, digest(c.Raw))
	}
	return out
}

// Trusts reports whether a CA is trusted.
func (b *Bundle) Trusts(ca *x509.Certificate) bool {
	return slices.ContainsFunc(b.trust.Load().certs, ca.Equal)
}

// Foreign says that no CA which is trusted has signed a certificate.
func (b *Bundle) Foreign(cert *x509.Certificate) bool {
	_, err := b.trust.Load().signerOf(cert)
	return err != nil
}

// Trust has the node trust another CA as well, whose key it keeps for GoOver. One that is not valid yet, or no more, by
// this node's clock is refused: a cluster that went over to it would have no links left.
func (b *Bundle) Trust(dir string, certPEM, key []byte, now time.Time) error {
	b.renewing.Lock()
	defer b.renewing.Unlock()
	ca, err := ParseCA(certPEM, key)
	if err != nil {
		return err
	}
	if ca.Cluster() != b.id.Cluster {
		return fmt.Errorf("%w: the new CA is of cluster %q, this is %q", ErrForeign, ca.Cluster(), b.id.Cluster)
	}
	if from, until := ca.cert.NotBefore, ca.cert.NotAfter; now.Before(from) || now.After(until) {
		return fmt.Errorf("the new CA is valid from %s to %s, and here it is %s: set the clocks of the nodes right",
			from.UTC().Format(time.DateTime),
			until.UTC().Format(time.DateTime), now.UTC().Format(time.DateTime))
	}
	if err := saveAll(dir, []file{{NextCAKeyFile, key}}); err != nil {
		return err
	}
	if slices.Contains(b.Trusted(), ca.Digest()) {
		return nil
	}
	return b.setTrust(dir, slices.Concat(bytes.TrimRight(b.CAPEM(), "\n"), []byte("\n"), certPEM))
}

func (b *Bundle) setTrust(dir string, text []byte) error {
	t, err := parseTrust(text)
	if err == nil {
		err = saveAll(dir, []file{{CAFile, text}})
	}
	if err == nil {
		b.trust.Store(t)
	}
	return err
}

// CAKey is the key of a CA by its digest, if it is in dir.
func (b *Bundle) CAKey(dir, of string) ([]byte, error) {
	for _, name := range []string{NextCAKeyFile, CAKeyFile} {
		key, err := readSecret(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, c := range b.trust.Load().certs {
			if _, err := ParseCA(certPEM(c.Raw), key); err == nil && digest(c.Raw) == of {
				return key, nil
			}
		}
	}
	return nil, fmt.Errorf("the key of the CA %.12s… is not in %s", of, dir)
}

// GoOver makes a trusted CA the one that signs here, and has it sign this node another certificate.
func (b *Bundle) GoOver(dir, to string, hosts []string, now time.Time) error {
	b.renewing.Lock()
	defer b.renewing.Unlock()
	if ca, err := LoadCA(dir); err != nil || ca.Digest() != to {
		if _, err := b.CAKey(dir, to); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(dir, NextCAKeyFile), filepath.Join(dir, CAKeyFile)); err != nil {
			return err
		}
		if err := durable.SyncDir(dir); err != nil {
			return err
		}
	}
	if b.CADigest() == to {
		return nil
	}
	return b.renew(dir, hosts, now)
}

// TrustOnly ends the trust in all CAs but the one that has signed the node's certificate, whose digest it must be.
func (b *Bundle) TrustOnly(dir, only string) error {
	b.renewing.Lock()
	defer b.renewing.Unlock()
	if b.CADigest() != only {
		return fmt.Errorf("this node's certificate is of the CA %.12s…, not of %.12s…", b.CADigest(), only)
	}
	if err := os.Remove(filepath.Join(dir, NextCAKeyFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if t := b.Trusted(); len(t) == 1 && t[0] == only {
		return nil
	}
	return b.setTrust(dir, certPEM(b.own.Load().signer.Raw))
}
