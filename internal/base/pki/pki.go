// Package pki makes and checks what the nodes of a cluster trust each other by.
//
//   - The cluster's CA: an ECDSA P-256 key that init makes and that stays on the nodes allowed to sign.
//   - Node certificates: one per node, used for peer links (both sides) and the HTTP API (server side). The identity is
//     a URI, trireme://<cluster>/<raft id>; the node's name, host names and addresses are there for ordinary TLS
//     clients.
//   - Certificates of mysqld: one per node, with a key of its own, for mysqld's port alone. The identity is another
//     URI, trireme-mysqld://<cluster>/<raft id>, so no program takes one for a node's.
//   - API tokens: random, kept as SHA-256 only.
//   - Join tokens: what a new node needs to reach the cluster, to be sure that it is the right one (the CA's digest),
//     and to be let in once (a secret that the cluster keeps as SHA-256, with an expiry).
//
// Nothing here logs, and no error or String method contains a key, a token or a secret. All times are given by the
// caller.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Errors of this package. Callers compare with errors.Is.
var (
	// ErrForeign: a certificate of another cluster, or one that no node may have.
	ErrForeign = errors.New("certificate is not of this cluster")
	// ErrBadPEM: a file or message does not hold what it should.
	ErrBadPEM = errors.New("malformed PEM")
	// ErrBadToken: a token that cannot be parsed, is unknown, or has been used.
	ErrBadToken = errors.New("token is not valid")
	// ErrTokenExpired: a join token that came too late.
	ErrTokenExpired = errors.New("token has expired")
)

const (
	caLife   = 10 * 365 * 24 * time.Hour
	nodeLife = 365 * 24 * time.Hour
	// clockSlack allows a certificate on a host whose clock is slow.
	clockSlack = time.Hour
	uriScheme  = "trireme"
)

// Identity is who a certificate speaks for.
type Identity struct {
	Cluster string
	ID      uint64 // raft id
	Name    string // node name
}

func (i Identity) uri() *url.URL {
	return &url.URL{Scheme: uriScheme, Host: i.Cluster, Path: "/" + strconv.FormatUint(i.ID, 10)}
}

// CA signs the certificates of one cluster.
type CA struct {
	cluster string
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
}

// NewCA makes a CA for a cluster. The name must be usable as a URI host: letters, digits, '-', '.' and '_'.
func NewCA(cluster string, now time.Time) (*CA, error) {
	if err := checkCluster(cluster); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the CA key: %w", err)
	}
	tmpl := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "Trireme CA " + cluster, Organization: []string{cluster}},
		NotBefore:             now.Add(-clockSlack),
		NotAfter:              now.Add(caLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the CA certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back the CA certificate: %w", err)
	}
	return &CA{cluster: cluster, cert: cert, key: key}, nil
}

// ParseCA takes what CertPEM and KeyPEM gave.
func ParseCA(certPEM, keyPEM []byte) (*CA, error) {
	cert, err := parseCert(certPEM)
	if err != nil {
		return nil, fmt.Errorf("CA certificate: %w", err)
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("CA key: %w", err)
	}
	if !cert.IsCA || len(cert.Subject.Organization) != 1 {
		return nil, fmt.Errorf("CA certificate: %w: not made by init", ErrBadPEM)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("CA key: %w: it does not belong to the CA certificate", ErrBadPEM)
	}
	return &CA{cluster: cert.Subject.Organization[0], cert: cert, key: key}, nil
}

// Cluster is the name of the cluster that this CA is for.
func (ca *CA) Cluster() string { return ca.cluster }

// CertPEM is public.
func (ca *CA) CertPEM() []byte { return certPEM(ca.cert.Raw) }

// KeyPEM is secret: keep it 0600.
func (ca *CA) KeyPEM() ([]byte, error) { return keyPEM(ca.key) }

// Digest is the SHA-256 of the CA certificate, in hexadecimal, as join tokens carry it.
func (ca *CA) Digest() string { return digest(ca.cert.Raw) }

// NodeCert says what a node certificate is to hold. The CA decides it; of a CSR only the public key is taken.
type NodeCert struct {
	Name string // node name
	ID   uint64 // raft id
	// host names and IP addresses that clients use, with or without a port; those of the host itself are always there
	Hosts []string
}

// SignCSR makes a certificate for the public key in csrPEM, after checking that its sender has the private key.
func (ca *CA) SignCSR(csrPEM []byte, n NodeCert, now time.Time) ([]byte, error) {
	if n.ID == 0 || n.Name == "" {
		return nil, errors.New("certificate request: node name and raft id are required")
	}
	tmpl := &x509.Certificate{
		Subject:     pkix.Name{CommonName: n.Name, Organization: []string{ca.cluster}},
		NotAfter:    now.Add(nodeLife),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{Identity{Cluster: ca.cluster, ID: n.ID}.uri()},
	}
	addHosts(tmpl, hostNames(n.Name, n.Hosts))
	return ca.sign(csrPEM, tmpl)
}

// hostNames are all by which a node is reached, from its own host too.
func hostNames(node string, hosts []string) []string {
	return slices.Concat([]string{node}, hosts, []string{"localhost", "127.0.0.1", "::1"})
}

// sign completes a template for the key of a request. Its life ends with the CA's at the latest.
func (ca *CA) sign(csrPEM []byte, tmpl *x509.Certificate) ([]byte, error) {
	b, _ := pem.Decode(csrPEM)
	if b == nil || b.Type != "CERTIFICATE REQUEST" {
		return nil, fmt.Errorf("certificate request: %w", ErrBadPEM)
	}
	csr, err := x509.ParseCertificateRequest(b.Bytes)
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	pub, ok := csr.PublicKey.(*ecdsa.PublicKey)
	if !ok || pub.Curve != elliptic.P256() {
		return nil, fmt.Errorf("certificate request: %w: the key must be ECDSA P-256", ErrBadPEM)
	}
	tmpl.SerialNumber = serial()
	// a host whose clock was set to the future must not sign itself something that the others will take then
	tmpl.NotBefore = ca.cert.NotBefore
	tmpl.NotAfter = minTime(tmpl.NotAfter, ca.cert.NotAfter)
	tmpl.KeyUsage, tmpl.BasicConstraintsValid = x509.KeyUsageDigitalSignature, true
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.cert, pub, ca.key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", tmpl.Subject.CommonName, err)
	}
	return certPEM(der), nil
}

// addHosts sorts names from addresses; what can be neither is left out (a node name with spaces, say).
func addHosts(tmpl *x509.Certificate, hosts []string) {
	seen := map[string]bool{}
	for _, h := range hosts {
		if host, _, err := net.SplitHostPort(h); err == nil {
			h = host
		}
		h = strings.Trim(h, "[]")
		if h == "" || seen[h] {
			continue
		}
		seen[h] = true
		if ip := net.ParseIP(h); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else if isHostName(h) {
			tmpl.DNSNames = append(tmpl.DNSNames, h)
		}
	}
}

// NewKey makes a node's private key and the request that a CA signs. Only the request leaves the node.
func NewKey(name string) (keyPEMBytes, csrPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a node key: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}},
		key)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate request: %w", err)
	}
	if keyPEMBytes, err = keyPEM(key); err != nil {
		return nil, nil, err
	}
	return keyPEMBytes, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// Issue makes key and certificate of a node in one step, where the CA is at hand.
func (ca *CA) Issue(n NodeCert, now time.Time) (*Bundle, error) {
	key, csr, err := NewKey(n.Name)
	if err != nil {
		return nil, err
	}
	cert, err := ca.SignCSR(csr, n, now)
	if err != nil {
		return nil, err
	}
	return NewBundle(ca.CertPEM(), cert, key)
}

// IdentityOf reads the identity from a verified certificate. ErrForeign if it is not a node's.
func IdentityOf(cert *x509.Certificate) (Identity, error) {
	if len(cert.URIs) != 1 || cert.URIs[0].Scheme != uriScheme {
		return Identity{}, fmt.Errorf("%w: %q names no node", ErrForeign, cert.Subject.CommonName)
	}
	u := cert.URIs[0]
	id, err := strconv.ParseUint(strings.TrimPrefix(u.Path, "/"), 10, 64)
	if err != nil || id == 0 || u.Host == "" {
		return Identity{}, fmt.Errorf("%w: %q names no node", ErrForeign, u.String())
	}
	return Identity{Cluster: u.Host, ID: id, Name: cert.Subject.CommonName}, nil
}

func checkCluster(name string) error {
	if name == "" || len(name) > 63 || !isHostName(name) {
		return fmt.Errorf("cluster name %q: use 1 to 63 letters, digits, '-', '_' or '.'", name)
	}
	return nil
}

func isHostName(s string) bool {
	for _, c := range s {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return s != "" && len(s) <= 253 && s[0] != '.' && s[0] != '-'
}

func serial() *big.Int {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}

func digest(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func parseCert(b []byte) (*x509.Certificate, error) {
	blk, _ := pem.Decode(b)
	if blk == nil || blk.Type != "CERTIFICATE" {
		return nil, ErrBadPEM
	}
	cert, err := x509.ParseCertificate(blk.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadPEM, err)
	}
	return cert, nil
}

// parseKey never wraps the parser's error, which may quote its input.
func parseKey(b []byte) (*ecdsa.PrivateKey, error) {
	blk, _ := pem.Decode(b)
	if blk == nil || blk.Type != "PRIVATE KEY" {
		return nil, ErrBadPEM
	}
	k, err := x509.ParsePKCS8PrivateKey(blk.Bytes)
	key, ok := k.(*ecdsa.PrivateKey)
	if err != nil || !ok {
		return nil, fmt.Errorf("%w: not an ECDSA key", ErrBadPEM)
	}
	return key, nil
}
