package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Bundle is what one node needs: the CA certificates that it trusts (one, but for the time of a change of the CA:
// ca.go), its own certificate and its key. Its TLS configurations show, and trust, what has been put in their place
// from the next handshake on.
type Bundle struct {
	id    Identity
	trust atomic.Pointer[trust]
	own   atomic.Pointer[pair]

	renewing sync.Mutex // held while files are replaced
}

// pair is a certificate and its key.
type pair struct {
	certPEM, keyPEM []byte
	signer          *x509.Certificate // the CA's
	tls.Certificate
}

// NewBundle checks that the parts belong together.
func NewBundle(caPEM, certPEM, keyPEM []byte) (*Bundle, error) {
	trusted, err := parseTrust(caPEM)
	if err != nil {
		return nil, fmt.Errorf("CA certificate: %w", err)
	}
	cert, err := parseCert(certPEM)
	if err != nil {
		return nil, fmt.Errorf("node certificate: %w", err)
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("node key: %w", err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("node key: %w: it does not belong to the node's certificate", ErrBadPEM)
	}
	signer, err := trusted.signerOf(cert)
	if err != nil {
		return nil, fmt.Errorf("node certificate: %w: %w", ErrForeign, err)
	}
	id, err := IdentityOf(cert)
	if err != nil {
		return nil, fmt.Errorf("node certificate: %w", err)
	}
	b := &Bundle{id: id}
	b.trust.Store(trusted)
	b.own.Store(&pair{certPEM, keyPEM, signer, tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key,
		Leaf: cert}})
	return b, nil
}

// shown is the certificate for the next handshake of a server.
func (b *Bundle) shown(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return &b.own.Load().Certificate, nil
}

// Identity is the node that the bundle belongs to.
func (b *Bundle) Identity() Identity { return b.id }

// Names reports whether the node's certificate names all of some hosts, with or without a port. Trireme's own links and
// clients do not look at that, they check who the node is; other TLS clients do.
func (b *Bundle) Names(hosts []string) bool { return names(b.own.Load().Leaf, hosts) }

func names(cert *x509.Certificate, hosts []string) bool {
	for _, h := range hosts {
		if host, _, err := net.SplitHostPort(h); err == nil {
			h = host
		}
		if h != "" && cert.VerifyHostname(h) != nil {
			return false
		}
	}
	return true
}

// NotAfter is when the node's certificate ends.
func (b *Bundle) NotAfter() time.Time { return b.own.Load().Leaf.NotAfter }

// Serial of the node's certificate, as SerialOf gives it.
func (b *Bundle) Serial() string { return SerialOf(b.own.Load().Leaf) }

// Due reports whether a third of the certificate's life, or less, is left, and another one would last longer.
func (b *Bundle) Due(now time.Time) bool {
	own := b.own.Load()
	return due(own.Leaf, own.signer, now)
}

func due(cert, signer *x509.Certificate, now time.Time) bool {
	return cert.NotAfter.Before(signer.NotAfter) && !now.Before(cert.NotAfter.Add(-nodeLife/3))
}

// Renew replaces key and certificate, here and in dir, by new ones that name hosts. It needs the CA's key in dir. The
// daemon that is interrupted in the middle of it has one pair or the other.
func (b *Bundle) Renew(dir string, hosts []string, now time.Time) error {
	b.renewing.Lock()
	defer b.renewing.Unlock()
	return b.renew(dir, hosts, now)
}

func (b *Bundle) renew(dir string, hosts []string, now time.Time) error {
	ca, err := LoadCA(dir)
	if err != nil {
		return err
	}
	renewed, err := ca.Issue(NodeCert{Name: b.id.Name, ID: b.id.ID, Hosts: hosts}, now)
	if err != nil {
		return err
	}
	own := renewed.own.Load()
	if _, err := b.trust.Load().signerOf(own.Leaf); err != nil {
		return fmt.Errorf("the CA in %s is not one that this node trusts", dir)
	}
	if err := replacePair(dir, own); err != nil {
		return err
	}
	b.own.Store(own)
	return nil
}

// CAPEM is the CA certificates that are trusted.
func (b *Bundle) CAPEM() []byte { return b.trust.Load().pem }

// CADigest is the SHA-256, in hexadecimal, of the certificate of the CA that has signed the node's.
func (b *Bundle) CADigest() string { return digest(b.own.Load().signer.Raw) }

// PeerTLS is for both sides of a peer link: TLS 1.3, certificates on both sides, checked against the cluster's CA and
// to name a node of this cluster. Which node it names is for the caller to check (PeerIdentity): a host name says
// nothing.
func (b *Bundle) PeerTLS() *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{b.own.Load().Certificate},
		ClientAuth:   tls.RequireAnyClientCert,
		// Verification by host name is replaced by VerifyConnection, which runs on both sides and also on resumption.
		InsecureSkipVerify:          true,
		VerifyConnection:            b.verifyPeer,
		MinVersion:                  tls.VersionTLS13,
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
	}
}

func (b *Bundle) verifyPeer(cs tls.ConnectionState) error {
	id, err := PeerIdentity(cs)
	if err != nil {
		return err
	}
	if id.Cluster != b.id.Cluster {
		return fmt.Errorf("%w: it is of cluster %q, this is %q", ErrForeign, id.Cluster, b.id.Cluster)
	}
	inter := x509.NewCertPool()
	for _, c := range cs.PeerCertificates[1:] {
		inter.AddCert(c)
	}
	_, err = cs.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots:         b.trust.Load().pool,
		Intermediates: inter,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return fmt.Errorf("%w: node %d (%s): %w", ErrForeign, id.ID, id.Name, err)
	}
	return nil
}

// PeerIdentity reads who is at the other end; the TLS configuration has verified the certificate.
func PeerIdentity(cs tls.ConnectionState) (Identity, error) {
	if len(cs.PeerCertificates) == 0 {
		return Identity{}, fmt.Errorf("%w: none was shown", ErrForeign)
	}
	return IdentityOf(cs.PeerCertificates[0])
}

// ServerTLS is for the HTTP API. A client that is a node may show its certificate (PeerCertificates is then verified).
func (b *Bundle) ServerTLS() *tls.Config {
	return b.serverTLS(b.shown)
}

func (b *Bundle) serverTLS(show func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	now := func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{
			GetCertificate: show,
			ClientCAs:      b.trust.Load().pool,
			ClientAuth:     tls.VerifyClientCertIfGiven,
			MinVersion:     tls.VersionTLS12,
			// A session that is resumed would not be asked for its certificate again, nor would it be checked.
			SessionTicketsDisabled: true,
		}, nil
	}
	return &tls.Config{GetConfigForClient: now, GetCertificate: show, MinVersion: tls.VersionTLS12}
}

// RouterTLS is for the router's clients, who log in by their password.
func (b *Bundle) RouterTLS() *tls.Config {
	return &tls.Config{GetCertificate: b.shown, MinVersion: tls.VersionTLS12}
}

// ClientTLS is for a client of the HTTP API that has only the CA certificate. Any node of the cluster is accepted,
// whatever name or address it was reached by.
func ClientTLS(caPEM []byte) (*tls.Config, error) {
	trusted, err := parseTrust(caPEM)
	if err != nil {
		return nil, fmt.Errorf("CA certificate: %w", err)
	}
	return clientTLS(func() *trust { return trusted }), nil
}

func clientTLS(trusted func() *trust) *tls.Config {
	return &tls.Config{
		InsecureSkipVerify: true, // by host name; VerifyConnection checks the chain and that it is a node
		MinVersion:         tls.VersionTLS12,
		VerifyConnection: func(cs tls.ConnectionState) error {
			if _, err := PeerIdentity(cs); err != nil {
				return err
			}
			_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: trusted().pool,
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
			if err != nil {
				return fmt.Errorf("%w: %w", ErrForeign, err)
			}
			return nil
		},
	}
}

// NodeClientTLS is ClientTLS for a node, which shows its own certificate.
func (b *Bundle) NodeClientTLS() (*tls.Config, error) {
	cfg := clientTLS(b.trust.Load)
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return b.shown(nil) }
	return cfg, nil
}

// JoinTLS is for a node that has nothing but a join token: the server must be a node whose certificate is signed by the
// CA with the token's digest. The API server sends its CA along for this purpose (ServerJoinTLS).
func JoinTLS(caDigest string) *tls.Config {
	return &tls.Config{
		InsecureSkipVerify: true, // the CA is not known yet; VerifyConnection pins it
		MinVersion:         tls.VersionTLS12,
		VerifyConnection: func(cs tls.ConnectionState) error {
			if _, err := PeerIdentity(cs); err != nil {
				return err
			}
			for _, c := range cs.PeerCertificates[1:] {
				if digest(c.Raw) != caDigest {
					continue
				}
				pool := x509.NewCertPool()
				pool.AddCert(c)
				_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool,
					KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
				if err != nil {
					return fmt.Errorf("%w: %w", ErrForeign, err)
				}
				return nil
			}
			return fmt.Errorf("%w: the server does not have the CA that the join token names", ErrForeign)
		},
	}
}

// ServerJoinTLS is ServerTLS that sends the CA certificate along, so that a joining node can compare its digest.
func (b *Bundle) ServerJoinTLS() *tls.Config {
	return b.serverTLS(func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		own := b.own.Load()
		c := own.Certificate
		c.Certificate = [][]byte{c.Leaf.Raw, own.signer.Raw}
		return &c, nil
	})
}
