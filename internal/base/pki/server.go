package pki

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"trireme/internal/base/durable"
)

// ServerFile holds key and certificate of the node's mysqld, in this order.
const ServerFile = "mysqld.pem"

// serverScheme is another than a node's: mysqld's user has this key and must not pass for the node.
const serverScheme = "trireme-mysqld"

// Server is the certificate of a node's mysqld and its key. It names the node, trireme-mysqld://<cluster>/<raft id>,
// and its hosts, and serves for TLS servers only: links between nodes and the API do not take it.
type Server struct {
	pem    []byte // key, certificate
	leaf   *x509.Certificate
	signer *x509.Certificate
}

// PEM is key and certificate, then the CAs that the node trusts: what mysqld reads as ssl_key, ssl_cert and ssl_ca.
func (s *Server) PEM(b *Bundle) []byte { return bytes.Join([][]byte{s.pem, b.CAPEM()}, nil) }

// Digest is the SHA-256 of the certificate, in hexadecimal.
func (s *Server) Digest() string { return digest(s.leaf.Raw) }

// Serial of the certificate, as SerialOf gives it.
func (s *Server) Serial() string { return SerialOf(s.leaf) }

// NotAfter is when the certificate ends.
func (s *Server) NotAfter() time.Time { return s.leaf.NotAfter }

// CADigest is the SHA-256 of the certificate of the CA that has signed it.
func (s *Server) CADigest() string { return digest(s.signer.Raw) }

// Good reports whether the certificate may stay: it is of the same CA as the node's, names all of some hosts, and is
// not in the last third of its life.
func (s *Server) Good(b *Bundle, hosts []string, now time.Time) bool {
	return s.signer.Equal(b.own.Load().signer) && names(s.leaf, hosts) && !due(s.leaf, s.signer, now)
}

// LoadServer reads what NewServer has left in dir. os.ErrNotExist: nothing.
func (b *Bundle) LoadServer(dir string) (*Server, error) {
	text, err := readSecret(filepath.Join(dir, ServerFile))
	if err != nil {
		return nil, fmt.Errorf("read mysqld's certificate: %w", err)
	}
	return b.parseServer(text)
}

func (b *Bundle) parseServer(text []byte) (*Server, error) {
	_, rest := pem.Decode(text)
	key, err := parseKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ServerFile, err)
	}
	cert, err := parseCert(rest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ServerFile, err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) || len(cert.URIs) != 1 || cert.URIs[0].String() != b.id.serverURI().String() {
		return nil, fmt.Errorf("%s: %w: it is not that of this node's mysqld", ServerFile, ErrForeign)
	}
	signer, err := b.trust.Load().signerOf(cert)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", ServerFile, ErrForeign, err)
	}
	return &Server{pem: text, leaf: cert, signer: signer}, nil
}

// NewServer signs this node's mysqld a new key and certificate, and keeps them in dir, which has the CA's key.
func (b *Bundle) NewServer(dir string, hosts []string, now time.Time) (*Server, error) {
	b.renewing.Lock()
	defer b.renewing.Unlock()
	ca, err := LoadCA(dir)
	if err != nil {
		return nil, err
	}
	key, csr, err := NewKey(b.id.Name)
	if err != nil {
		return nil, err
	}
	cert, err := ca.signServer(csr, b.id, hosts, now)
	if err != nil {
		return nil, err
	}
	s, err := b.parseServer(append(key, cert...))
	if err != nil {
		return nil, err
	}
	return s, saveAll(dir, []file{{ServerFile, s.pem}})
}

// DropServer removes key and certificate of mysqld, so that the daemon's next start has others signed.
func DropServer(dir string) error {
	if err := os.Remove(filepath.Join(dir, ServerFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return durable.SyncDir(dir)
}

func (i Identity) serverURI() *url.URL {
	return &url.URL{Scheme: serverScheme, Host: i.Cluster, Path: "/" + strconv.FormatUint(i.ID, 10)}
}

func (ca *CA) signServer(csrPEM []byte, id Identity, hosts []string, now time.Time) ([]byte, error) {
	tmpl := &x509.Certificate{
		Subject:     pkix.Name{CommonName: id.Name, Organization: []string{ca.cluster}},
		NotAfter:    now.Add(nodeLife),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		URIs:        []*url.URL{id.serverURI()},
	}
	addHosts(tmpl, hostNames(id.Name, hosts))
	return ca.sign(csrPEM, tmpl)
}
