package pki

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"

	"trireme/internal/base/durable"
)

// File names inside a node's certificate directory (0700; every file 0600).
const (
	CAFile       = "ca.pem"
	CAKeyFile    = "ca.key"
	NodeCertFile = "node.pem"
	NodeKeyFile  = "node.key"

	// NextCAKeyFile holds the key of the CA that is to come, for the time of a change.
	NextCAKeyFile = "ca-next.key"

	nextKeyFile = "node.key.next" // of a certificate that may be in its place already
)

// Save writes the CA's certificate and key into dir.
func (ca *CA) Save(dir string) error {
	key, err := ca.KeyPEM()
	if err != nil {
		return err
	}
	return saveAll(dir, []file{{CAKeyFile, key}, {CAFile, ca.CertPEM()}})
}

// LoadCA reads what Save wrote.
func LoadCA(dir string) (*CA, error) {
	cert, err := os.ReadFile(filepath.Join(dir, CAFile))
	if err != nil {
		return nil, fmt.Errorf("read the CA certificate: %w", err)
	}
	key, err := readSecret(filepath.Join(dir, CAKeyFile))
	if err != nil {
		return nil, fmt.Errorf("read the CA key: %w", err)
	}
	trusted, err := parseTrust(cert)
	if err != nil {
		return nil, fmt.Errorf("CA certificate: %w", err)
	}
	for _, c := range trusted.certs { // during a change there are two
		if ca, err := ParseCA(certPEM(c.Raw), key); err == nil || len(trusted.certs) == 1 {
			return ca, err
		}
	}
	return nil, fmt.Errorf("CA key: %w: it belongs to none of the CA certificates", ErrBadPEM)
}

// Save writes the bundle into dir. The key goes first: a certificate without its key is of no use.
func (b *Bundle) Save(dir string) error {
	own := b.own.Load()
	return saveAll(dir, []file{{NodeKeyFile, own.keyPEM}, {NodeCertFile, own.certPEM}, {CAFile, b.CAPEM()}})
}

// replacePair puts a node's next pair into the place of its files. The certificate's rename is where the next one
// begins; until the key has followed, LoadBundle finds it where it was first.
func replacePair(dir string, p *pair) error {
	if err := saveAll(dir, []file{{nextKeyFile, p.keyPEM}, {NodeCertFile, p.certPEM}}); err != nil {
		return err
	}
	return finishPair(dir)
}

func finishPair(dir string) error {
	if err := os.Rename(filepath.Join(dir, nextKeyFile), filepath.Join(dir, NodeKeyFile)); err != nil {
		return fmt.Errorf("put the node's new key in place: %w", err)
	}
	return durable.SyncDir(dir)
}

// LoadBundle reads what Save wrote.
func LoadBundle(dir string) (*Bundle, error) {
	ca, err := os.ReadFile(filepath.Join(dir, CAFile))
	if err != nil {
		return nil, fmt.Errorf("read the CA certificate: %w", err)
	}
	cert, err := os.ReadFile(filepath.Join(dir, NodeCertFile))
	if err != nil {
		return nil, fmt.Errorf("read the node's certificate: %w", err)
	}
	key, err := readSecret(filepath.Join(dir, NodeKeyFile))
	if err != nil {
		return nil, fmt.Errorf("read the node's key: %w", err)
	}
	b, err := NewBundle(ca, cert, key)
	if err == nil {
		return b, nil
	}
	next, missing := readSecret(filepath.Join(dir, nextKeyFile))
	if missing != nil {
		return nil, err
	}
	if b, e := NewBundle(ca, cert, next); e == nil { // a renewal was interrupted
		return b, finishPair(dir)
	}
	return nil, err
}

type file struct {
	name string
	data []byte
}

func saveAll(dir string, files []file) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the certificate directory: %w", err)
	}
	for _, f := range files {
		if err := durable.WriteFile(filepath.Join(dir, f.name), f.data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// readSecret refuses a file that others may read.
func readSecret(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s can be read by others (mode %04o): chmod 600 it, and think about replacing it", path,
			st.Mode().Perm())
	}
	return os.ReadFile(path)
}

// CAFileTLS is ClientTLS with the CA of a node's directory, which is read for each handshake: another process may
// replace it.
func CAFileTLS(dir string) *tls.Config {
	return &tls.Config{
		InsecureSkipVerify: true, // by host name; VerifyConnection checks the chain and that it is a node
		MinVersion:         tls.VersionTLS12,
		VerifyConnection: func(cs tls.ConnectionState) error {
			text, err := os.ReadFile(filepath.Join(dir, CAFile))
			if err != nil {
				return err
			}
			cfg, err := ClientTLS(text)
			if err != nil {
				return err
			}
			return cfg.VerifyConnection(cs)
		},
	}
}

// FilesTLS is a Bundle's NodeClientTLS for another process than the daemon, which replaces the files in dir as it
// likes: they are read for each handshake. Between two of them no certificate is shown.
func FilesTLS(dir string) *tls.Config {
	cfg := CAFileTLS(dir)
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, NodeCertFile), filepath.Join(dir, NodeKeyFile))
		if err != nil {
			return &tls.Certificate{}, nil
		}
		return &pair, nil
	}
	return cfg
}
