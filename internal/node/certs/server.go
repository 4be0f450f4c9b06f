package certs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"trireme/internal/api"
	"trireme/internal/mysql/mysqld"
)

// A router must know a member's mysqld before it tells it a password. Each node therefore says by which certificate its
// mysqld is known, in its status, which comes over a link that is verified; routers take that certificate and no other.
// So the certificate may be anybody's: of the cluster's CA, which nodes give their mysqld, or of the operator's own. Of
// a node that says nothing, an older one, nothing is checked. CLONE cannot do that: it goes by the CA.

// shown is what is known of the certificate that mysqld shows, or showed while it ran. Certs.mu guards it.
type shown struct {
	proof  *api.MySQLProof // never changed, but replaced; nil before the first look
	signer string          // digest of the CA that has signed the certificate shown; empty: it is not one of the cluster's
	pem    []byte          // what mysqld has as Config.TLS
	stamp  string          // mysqld.Admin.TLSStamp at the last look
	next   string          // digest of a certificate that is announced as well; empty: none
	nextAt time.Duration   // since when
}

// loadServer gets this node's mysqld a certificate, if it has none that may stay.
func (cs *Certs) loadServer() {
	s, err := cs.bundle.LoadServer(cs.cfg.TLSDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		cs.log.Warn("mysqld's certificate cannot be used: another one is signed", "err", err)
	}
	cs.server.Store(s)
	cs.renewServer()
}

// renewServer has another certificate signed for mysqld where that is due.
func (cs *Certs) renewServer() {
	s := cs.server.Load()
	if s != nil && s.Good(cs.bundle, cs.hosts(), time.Now()) && cs.host.Settings().WhyRevoked(0, s.Serial()) == "" {
		return
	}
	next, err := cs.bundle.NewServer(cs.cfg.TLSDir(), cs.hosts(), time.Now())
	warning := ""
	if err != nil {
		warning = fmt.Sprintf("mysqld cannot be given a certificate of the cluster's CA: %v", err)
	} else {
		cs.server.Store(next)
		cs.log.Info("mysqld gets a certificate", "serial", next.Serial(), "hosts", cs.hosts(), "until", next.NotAfter())
	}
	cs.mu.Lock()
	before := cs.serverWarning
	cs.serverWarning = warning
	cs.mu.Unlock()
	if err != nil && before != warning {
		cs.log.Error(warning)
	}
}

// ServerTLS is mysqld.Config.TLS.
func (cs *Certs) ServerTLS() []byte {
	if s := cs.server.Load(); s != nil {
		return s.PEM(cs.bundle)
	}
	return nil
}

// Prove looks at the certificate that a mysqld shows, which has pem as its Config.TLS, and makes it the one that this
// node tells of.
func (cs *Certs) Prove(ctx context.Context, my MySQL, pem []byte) error {
	stamp, err := my.TLSStamp(ctx)
	if err != nil {
		return err
	}
	p, err := my.Proof(ctx)
	if err != nil {
		return err
	}
	cs.mu.Lock()
	cs.shown = shown{proof: &api.MySQLProof{Certificates: []string{}, Key: p.Key}, pem: pem, stamp: stamp}
	if p.Cert != "" {
		cs.shown.proof.Certificates = []string{p.Cert}
	}
	if s := cs.server.Load(); s != nil && s.Digest() == p.Cert {
		cs.shown.signer, cs.shown.proof.Cluster = s.CADigest(), true
	}
	cs.mu.Unlock()
	cs.host.Publish()
	return nil
}

// RenewServer has mysqld show the certificate that it should, and this node tell of the one that it does.
func (cs *Certs) RenewServer(ctx context.Context) {
	cs.renewServer()
	my, cfg := cs.host.MySQL()
	if my == nil {
		return
	}
	var err error
	if cfg.OwnTLS() || len(cfg.TLS) == 0 {
		err = cs.followOwnTLS(ctx, my, cfg)
	} else {
		err = cs.followTLS(ctx, my, cfg)
	}
	if ctx.Err() == nil && cs.serverProblem.isNew(err) {
		cs.log.Warn("mysqld does not show the certificate that it should", "err", err)
	}
}

// followTLS brings mysqld to this node's present certificate for it, without a restart.
func (cs *Certs) followTLS(ctx context.Context, my MySQL, cfg mysqld.Config) error {
	s := cs.server.Load()
	cs.mu.Lock()
	same := bytes.Equal(cs.shown.pem, cfg.TLS) && cs.shown.signer != ""
	cs.mu.Unlock()
	if same || !cs.announced(s.Digest()) {
		return nil
	}
	if err := my.ReloadTLS(ctx, cfg.TLS); err != nil {
		return err
	}
	if err := cs.Prove(ctx, my, cfg.TLS); err != nil {
		return err
	}
	cs.mu.Lock()
	took := cs.shown.signer != ""
	cs.mu.Unlock()
	if !took {
		return errors.New("it shows another one than it has been given")
	}
	cs.log.Info("mysqld shows another certificate", "serial", s.Serial(), "until", s.NotAfter())
	return nil
}

// followOwnTLS tells of the operator's certificate: the one that is in the file, and the one that is shown since
// somebody has reloaded it.
func (cs *Certs) followOwnTLS(ctx context.Context, my MySQL, cfg mysqld.Config) error {
	if next := cfg.OwnCert(); next != "" {
		cs.announced(next)
	}
	stamp, err := my.TLSStamp(ctx)
	if err != nil {
		return err
	}
	cs.mu.Lock()
	same := stamp == cs.shown.stamp
	cs.mu.Unlock()
	if same {
		return nil
	}
	return cs.Prove(ctx, my, nil)
}

// announced has routers know a certificate that mysqld may show soon, and says whether all of them do by now.
func (cs *Certs) announced(digest string) bool {
	cs.mu.Lock()
	p := cs.shown.proof
	if p == nil || len(p.Certificates) > 0 && p.Certificates[0] == digest {
		cs.mu.Unlock()
		return true
	}
	changed := cs.shown.next != digest
	if changed {
		cs.shown.next, cs.shown.nextAt = digest, now()
		next := *p
		next.Certificates = append(slices.Clone(p.Certificates[:min(1, len(p.Certificates))]), digest)
		cs.shown.proof = &next
	}
	known := now() >= cs.shown.nextAt+cs.announce
	cs.mu.Unlock()
	if changed {
		cs.host.Publish()
	}
	return known
}

// Proof is by what this node's mysqld is known. Before the first look no server is accepted as it.
func (cs *Certs) Proof() *api.MySQLProof {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.shown.proof == nil {
		return &api.MySQLProof{Certificates: []string{}}
	}
	return cs.shown.proof
}

// Protect fills in how a copy from a member is protected, and says what is not.
func (cs *Certs) Protect(donor uint64, s *mysqld.Seeding) {
	_, cfg := cs.host.MySQL()
	proof := cs.host.Peers()[donor].Proof()
	switch {
	case proof != nil && proof.Cluster:
		s.CA = cs.bundle.CAPEM()
	case cfg.OwnCA() != "":
		s.CAFile = cfg.OwnCA()
	default:
		m, _ := cs.host.Settings().MemberByID(donor)
		cs.log.Warn("the donor's certificate is not verified: an attacker on the path could read the copy, and change it. "+
			"Upgrade the donor, or set ssl_ca in mysql.options if its certificate is your own", "donor", m.Name)
	}
}
