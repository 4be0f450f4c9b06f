package router

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"

	"trireme/internal/api"
	"trireme/internal/mysql/mysqlwire"
)

// errImpostor: a server is not whom the target's daemon tells of.
var errImpostor = errors.New("it is not the node's mysqld")

// SetProofs sets how the targets' servers prove their identity, by name, as the targets' daemons report it over
// verified connections. Call it before SetView. A target without a proof has an older version, which does not report
// it: the server at its address is then accepted without a proof.
func (r *Router) SetProofs(proofs map[string]api.MySQLProof) { r.proofs.Store(&proofs) }

// backend is how a password may get to a target's server.
type backend struct {
	r      *Router
	target Target
	proof  api.MySQLProof
	known  bool
}

func (r *Router) backend(t Target) *backend {
	b := &backend{r: r, target: t}
	proofs := r.proofs.Load()
	if proofs == nil {
		return b
	}
	if b.proof, b.known = (*proofs)[t.Name]; !b.known {
		r.tellOnce(t.Name, "this router does not verify the mysqld of "+t.Name+
			": its daemon is of an older version, which does not announce a certificate; upgrade it")
	}
	return b
}

// tls is for a connection to the server. sni is the name that the client has for it, which mysqld shows as
// Tls_sni_server_name.
func (b *backend) tls(sni string) *tls.Config {
	// The name in a certificate says nothing: VerifyConnection compares the whole.
	verify := func(cs tls.ConnectionState) error {
		if shown := mysqlwire.Digest(cs.PeerCertificates[0].Raw); b.known && !slices.Contains(b.proof.Certificates, shown) {
			return b.refuse("shows a certificate, SHA-256 " + shown + ", that is not the one which the node tells of")
		}
		return nil
	}
	return &tls.Config{ServerName: sni, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, VerifyConnection: verify}
}

// greets refuses a server that offers no TLS where the node's does.
func (b *backend) greets(g mysqlwire.Greeting) error {
	if b.known && len(b.proof.Certificates) > 0 && g.Capabilities&mysqlwire.CapSSL == 0 {
		return b.refuse("offers no TLS, which the node's does")
	}
	return nil
}

// key refuses a key for passwords that is not the server's.
func (b *backend) key(digest string) error {
	if b.known && digest != b.proof.Key {
		return b.refuse("gives another key to seal passwords with than the node tells of")
	}
	return nil
}

// secrecy is for another login of a session, over TLS or in clear as the first was.
func (b *backend) secrecy(l *login) mysqlwire.Secrecy {
	how := mysqlwire.Secrecy{Key: b.key}
	if l.secure {
		how.TLS = b.tls(l.sni)
	}
	return how
}

func (b *backend) refuse(why string) error {
	text := fmt.Sprintf("who listens at %s %s", b.target.Addr, why)
	b.r.tellOnce(b.target.Name, "this router sends no password to "+b.target.Name+": "+text)
	return fmt.Errorf("%w: %s", errImpostor, text)
}

// tellOnce logs a warning about a node unless it was the last one.
func (r *Router) tellOnce(node, text string) {
	r.mu.Lock()
	again := r.warned[node] == text
	r.warned[node] = text
	r.mu.Unlock()
	if !again {
		r.cfg.Logger.Warn("router: "+text, "node", node)
	}
}
