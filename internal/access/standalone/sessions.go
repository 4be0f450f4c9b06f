package standalone

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/api"
	"trireme/internal/base/poll"
)

const (
	outcomesAtOnce = 4               // questions about outcomes that are under way
	outcomeWait    = 2 * time.Second // for which a node is asked
)

// certificate is what clients that ask for TLS are shown: the one in a file, or one that this process makes for itself,
// which no client can check, like the one that mysqld makes for itself.
func certificate(cert, key string) (*tls.Config, error) {
	var pair tls.Certificate
	var err error
	if cert == "" {
		if pair, err = selfMade(time.Now()); err != nil {
			return nil, fmt.Errorf("making a certificate: %w", err)
		}
	} else if pair, err = tls.LoadX509KeyPair(cert, key); err != nil {
		return nil, fmt.Errorf("router.tls_cert: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// selfMadeLife is longer than a process lives.
const selfMadeLife = 10 * 365 * 24 * time.Hour

func selfMade(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, err
	}
	cert := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "trireme router, made by itself"},
		NotBefore: now.Add(-time.Hour),
		NotAfter:  now.Add(selfMadeLife), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// Reached implements router.Outcomes.
func (f *follower) Reached(ctx context.Context, t router.Target) (uint64, error) {
	return f.serves(ctx, t)
}

// Outcome implements router.Outcomes: it asks one node after the other until one knows.
func (f *follower) Outcome(ctx context.Context, sent api.OutcomeQuery) api.OutcomeResult {
	select {
	case f.outcomes <- struct{}{}:
		defer func() { <-f.outcomes }()
	case <-ctx.Done():
		return api.OutcomeUnknown
	}
	for ctx.Err() == nil {
		for _, client := range f.clients() {
			o, err := client.Outcome(ctx, sent, outcomeWait)
			if err != nil {
				f.log.Debug("outcome of a statement", "error", err)
			} else if o.Result == api.Committed || o.Result == api.NotCommitted {
				return o.Result
			}
		}
		_ = poll.Pause(ctx, leastPause)
	}
	return api.OutcomeUnknown
}
