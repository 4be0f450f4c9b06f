package mysqld

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"trireme/internal/mysql/mysqlwire"
)

// Proof is what a server shows of itself before it is told a password.
type Proof struct {
	Cert string // SHA-256 of its certificate, in hexadecimal; empty: it speaks no TLS
	Key  string // mysqlwire.KeyDigest of the key by which passwords are sealed without TLS; empty: it has none
}

// tlsFile holds what Config.TLS is. One file, so that no start or reload finds a key and a certificate that do not
// belong together.
func (c Config) tlsFile() string { return filepath.Join(c.RunDir(), "tls.pem") }

// cloneCAFile holds what Seeding.CA is.
func (c Config) cloneCAFile() string { return filepath.Join(c.RunDir(), "clone-ca.pem") }

// OwnTLS reports whether the operator's options are about the server's certificate: then Config.TLS is not used.
func (c Config) OwnTLS() bool {
	for name := range c.Extra {
		switch canonical(name) {
		case "ssl_cert", "ssl_key", "ssl_ca", "ssl_capath":
			return true
		}
	}
	return false
}

// OwnCA is the operator's ssl_ca, as a path; empty: not set.
func (c Config) OwnCA() string { return c.ownFile("ssl_ca") }

// OwnCert is the SHA-256 of the operator's certificate as it is in its file now; empty: not set, or not readable from
// here.
func (c Config) OwnCert() string {
	path := c.ownFile("ssl_cert")
	if path == "" {
		return ""
	}
	f, err := OpenOwned(filepath.Dir(path), filepath.Base(path), os.O_RDONLY, -1)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	der, err := firstCert(f)
	if err != nil {
		return ""
	}
	return mysqlwire.Digest(der)
}

// maxCertFile bounds what is read of a file that somebody else writes.
const maxCertFile = 1 << 20

// firstCert finds the first certificate in PEM text.
func firstCert(r io.Reader) (der []byte, err error) {
	text, err := io.ReadAll(io.LimitReader(r, maxCertFile))
	for err == nil {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil, errors.New("no certificate")
		}
		if block.Type == "CERTIFICATE" {
			return block.Bytes, nil
		}
	}
	return nil, err
}

func (c Config) ownFile(option string) string {
	for name, path := range c.Extra {
		if canonical(name) == option && path != "" {
			if !filepath.IsAbs(path) {
				path = filepath.Join(c.DataDir(), path)
			}
			return path
		}
	}
	return ""
}

// tlsSettings lead mysqld to its certificate.
func (c Config) tlsSettings() []setting {
	if len(c.TLS) == 0 || c.OwnTLS() {
		return nil
	}
	// A reload refuses a certificate that ssl_ca does not vouch for.
	file := c.tlsFile()
	return []setting{{name: "ssl_cert", value: file}, {name: "ssl_key", value: file}, {name: "ssl_ca", value: file}}
}

// writeTLS puts Config.TLS where mysqld reads it.
func (c Config) writeTLS(pem []byte) error {
	if len(c.tlsSettings()) == 0 {
		return nil
	}
	if err := c.replaceOwned(c.tlsFile(), pem, 0o600); err != nil {
		return fmt.Errorf("write mysqld's certificate: %w", err)
	}
	return nil
}

// ReloadTLS has the running server show another certificate from now on. Connections that are up stay. Where the server
// does not take it it goes on with the one that it has.
func (s *Server) ReloadTLS(ctx context.Context, pem []byte) error {
	l := s.current()
	if l == nil {
		return fmt.Errorf("%w: it cannot reload a certificate", ErrExited)
	}
	if err := s.cfg.writeTLS(pem); err != nil {
		return err
	}
	return limit(ctx, slowLimit, "reload mysqld's certificate", func(ctx context.Context) error {
		return l.admin.control.exec(ctx, "ALTER INSTANCE RELOAD TLS")
	})
}

// TLSStamp changes when the server shows another certificate, also after somebody else's ALTER INSTANCE RELOAD TLS,
// unless that is of the same dates.
func (a *Admin) TLSStamp(ctx context.Context) (stamp string, err error) {
	err = limit(ctx, quickLimit, "read the certificate's dates", func(ctx context.Context) error {
		t, err := a.status.query(ctx, "SHOW GLOBAL STATUS LIKE 'Ssl\\_server\\_not\\_%'")
		for _, r := range t {
			stamp += r["variable_name"] + "=" + r["value"] + " "
		}
		return err
	})
	return stamp, err
}

// Proof looks at what the server shows, through its socket, without a login: one can hang.
func (a *Admin) Proof(ctx context.Context) (p Proof, err error) {
	err = limit(ctx, loginLimit, "look at mysqld's certificate", func(ctx context.Context) error {
		t, err := a.status.query(ctx, "SHOW GLOBAL STATUS LIKE 'Caching_sha2_password_rsa_public_key'")
		if err != nil {
			return err
		}
		for _, r := range t {
			if key := r["value"]; key != "" {
				if p.Key, err = mysqlwire.KeyDigest([]byte(key)); err != nil {
					return err
				}
			}
		}
		p.Cert, err = shownCert(ctx, a.cfg.Socket())
		return err
	})
	return p, err
}

func shownCert(ctx context.Context, socket string) (digest string, err error) {
	nc, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	defer func() { _ = nc.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		_ = nc.SetDeadline(deadline)
	}
	conn := mysqlwire.NewConn(nc, 0)
	p, err := conn.ReadPacket()
	if err != nil {
		return "", err
	}
	if mysqlwire.IsERR(p) {
		return "", errors.Join(mysqlwire.ErrMalformed, fmt.Errorf("no greeting: %.80q", p))
	}
	g, err := mysqlwire.ParseGreeting(p)
	if err != nil {
		return "", err
	}
	if g.Capabilities&mysqlwire.CapSSL == 0 {
		return "", nil
	}
	look := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} // there is nothing to compare it with
	look.VerifyConnection = func(cs tls.ConnectionState) error {
		digest = mysqlwire.Digest(cs.PeerCertificates[0].Raw)
		return nil
	}
	err = conn.BeginTLS(ctx, mysqlwire.Response{Capabilities: g.Capabilities}, look)
	return digest, err
}
