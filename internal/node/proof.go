package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/mysqld"
)

// A router must know a member's mysqld before it tells it a password. Each node therefore says by which certificate its
// mysqld is known, in its status, which comes over a link that is verified; routers take that certificate and no other.
// So the certificate may be anybody's: of the cluster's CA, which nodes give their mysqld, or of the operator's own. Of
// a node that says nothing, an older one, nothing is checked. CLONE cannot do that: it goes by the CA.

// announceTime is how long a certificate is told of before mysqld shows it: no router goes by a view that is older.
const announceTime = statusLifetime + api.RouteLimit

// shown is what is known of the certificate that mysqld shows, or showed while it ran. Node.mu guards it.
type shown struct {
	proof  *api.MySQLProof // never changed, but replaced; nil before the first look
	signer string          // digest of the CA that has signed the certificate shown; empty: it is not one of the cluster's
	pem    []byte          // what mysqld has as Config.TLS
	stamp  string          // mysqld.Admin.TLSStamp at the last look
	next   string          // digest of a certificate that is announced as well; empty: none
	nextAt time.Duration   // since when
}

// loadServerCert gets this node's mysqld a certificate, if it has none that may stay.
func (n *Node) loadServerCert() {
	s, err := n.bundle.LoadServer(n.cfg.TLSDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.log.Warn("mysqld's certificate cannot be used: another one is signed", "err", err)
	}
	n.serverCert.Store(s)
	n.renewServerCert()
}

// renewServerCert has another certificate signed for mysqld where that is due.
func (n *Node) renewServerCert() {
	s := n.serverCert.Load()
	if s != nil && s.Good(n.bundle, n.hosts(), time.Now()) && n.Settings().WhyRevoked(0, s.Serial()) == "" {
		return
	}
	next, err := n.bundle.NewServer(n.cfg.TLSDir(), n.hosts(), time.Now())
	var warnings []string
	if err != nil {
		warnings = []string{fmt.Sprintf("mysqld cannot be given a certificate of the cluster's CA: %v", err)}
	} else {
		n.serverCert.Store(next)
		n.log.Info("mysqld gets a certificate", "serial", next.Serial(), "hosts", n.hosts(), "until", next.NotAfter())
	}
	n.mu.Lock()
	before := n.proofWarnings
	n.proofWarnings = warnings
	n.mu.Unlock()
	if err != nil && !slices.Equal(before, warnings) {
		n.log.Error(warnings[0])
	}
}

// serverTLS is mysqld.Config.TLS.
func (n *Node) serverTLS() []byte {
	if s := n.serverCert.Load(); s != nil {
		return s.PEM(n.bundle)
	}
	return nil
}

// prove looks at the certificate that a life of mysqld shows, and makes it the one that this node tells of.
func (n *Node) prove(ctx context.Context, l *life, pem []byte) error {
	stamp, err := l.admin.TLSStamp(ctx)
	if err != nil {
		return err
	}
	p, err := l.admin.Proof(ctx)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shown = shown{proof: &api.MySQLProof{Certificates: []string{}, Key: p.Key}, pem: pem, stamp: stamp}
	if p.Cert != "" {
		n.shown.proof.Certificates = []string{p.Cert}
	}
	if s := n.serverCert.Load(); s != nil && s.Digest() == p.Cert {
		n.shown.signer, n.shown.proof.Cluster = s.CADigest(), true
	}
	n.publishNow = true
	return nil
}

// tendProof has mysqld show the certificate that it should, and this node tell of the one that it does.
func (n *Node) tendProof(ctx context.Context) {
	n.renewServerCert()
	n.mu.Lock()
	l := n.srv.life
	n.mu.Unlock()
	if l == nil {
		return
	}
	cfg := n.mysqldConfig()
	var err error
	if cfg.OwnTLS() || len(cfg.TLS) == 0 {
		err = n.followOwnTLS(ctx, l, cfg)
	} else {
		err = n.followTLS(ctx, l, cfg)
	}
	if ctx.Err() == nil && n.warnings.isNew("proof", err) {
		n.log.Warn("mysqld does not show the certificate that it should", "err", err)
	}
}

// followTLS brings mysqld to this node's present certificate for it, without a restart.
func (n *Node) followTLS(ctx context.Context, l *life, cfg mysqld.Config) error {
	s := n.serverCert.Load()
	n.mu.Lock()
	same := bytes.Equal(n.shown.pem, cfg.TLS) && n.shown.signer != ""
	n.mu.Unlock()
	if same || !n.announced(s.Digest()) {
		return nil
	}
	if err := l.proc.ReloadTLS(ctx, cfg.TLS); err != nil {
		return err
	}
	if err := n.prove(ctx, l, cfg.TLS); err != nil {
		return err
	}
	n.mu.Lock()
	took := n.shown.signer != ""
	n.mu.Unlock()
	if !took {
		return errors.New("it shows another one than it has been given")
	}
	n.log.Info("mysqld shows another certificate", "serial", s.Serial(), "until", s.NotAfter())
	n.poke()
	return nil
}

// followOwnTLS tells of the operator's certificate: the one that is in the file, and the one that is shown since
// somebody has reloaded it.
func (n *Node) followOwnTLS(ctx context.Context, l *life, cfg mysqld.Config) error {
	if next := cfg.OwnCert(); next != "" {
		n.announced(next)
	}
	stamp, err := l.admin.TLSStamp(ctx)
	if err != nil {
		return err
	}
	n.mu.Lock()
	same := stamp == n.shown.stamp
	n.mu.Unlock()
	if same {
		return nil
	}
	return n.prove(ctx, l, nil)
}

// announced has routers know a certificate that mysqld may show soon, and says whether all of them do by now.
func (n *Node) announced(digest string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.shown.proof
	if p == nil || len(p.Certificates) > 0 && p.Certificates[0] == digest {
		return true
	}
	if n.shown.next != digest {
		n.shown.next, n.shown.nextAt = digest, now()
		next := *p
		next.Certificates = append(slices.Clone(p.Certificates[:min(1, len(p.Certificates))]), digest)
		n.shown.proof = &next
		n.publishNow = true
	}
	return now() >= n.shown.nextAt+announceTime
}

// proofs are how routers know the members' mysqlds, as those nodes say. Those of older ones are not in it.
func (n *Node) proofs() map[string]api.MySQLProof {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proofsLocked()
}

// proofLocked is what this node tells. Before the first look nobody is to be taken for its mysqld.
func (n *Node) proofLocked() *api.MySQLProof {
	if n.shown.proof == nil {
		return &api.MySQLProof{Certificates: []string{}}
	}
	return n.shown.proof
}

func (n *Node) proofsLocked() map[string]api.MySQLProof {
	all := map[string]api.MySQLProof{}
	if n.id.Role != config.RoleLogger {
		all[n.id.Name] = *n.proofLocked()
	}
	for id, p := range n.peers {
		m, member := n.cluster.MemberByID(id)
		if my := p.status.Member.MySQL; member && my != nil && my.Proof != nil {
			all[m.Name] = *my.Proof
		}
	}
	return all
}

// proves fills in how a copy from a member is protected, and says what is not.
func (n *Node) proves(id uint64, s *mysqld.Seeding) {
	cfg := n.mysqldConfig()
	n.mu.Lock()
	p := n.peers[id]
	cluster := false
	if p != nil && p.status.Member.MySQL != nil {
		proof := p.status.Member.MySQL.Proof
		cluster = proof != nil && proof.Cluster
	}
	n.mu.Unlock()
	switch {
	case cluster:
		s.CA = n.bundle.CAPEM()
	case cfg.OwnCA() != "":
		s.CAFile = cfg.OwnCA()
	default:
		n.log.Warn("the donor's certificate is not verified: an attacker on the path could read the copy, and change it. "+
			"Upgrade the donor, or set ssl_ca in mysql.options if its certificate is your own", "donor", n.memberName(id))
	}
}
