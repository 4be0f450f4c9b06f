package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
	"trireme/internal/core/consensus"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/gossip"
)

// MySQL is the mysqld that runs here.
type MySQL interface {
	// TLSStamp changes when mysqld has loaded its certificate again.
	TLSStamp(ctx context.Context) (string, error)
	Proof(ctx context.Context) (mysqld.Proof, error)
	ReloadTLS(ctx context.Context, pem []byte) error
	// SetPassword returns once that is committed.
	SetPassword(ctx context.Context, of mysqld.Account) error
}

// Host is the rest of the member.
type Host interface {
	Settings() *config.Cluster
	// Change changes the settings, in a term unless that is 0, and returns once that is committed.
	Change(ctx context.Context, term uint64, change func(*config.Cluster) error) error
	// Raft is zero as long as the node starts.
	Raft() consensus.Status
	Peers() gossip.Peers
	Request(ctx context.Context, member uint64, kind uint8, body []byte) ([]byte, error)
	// CheckLinks ends links to nodes that are not trusted any more.
	CheckLinks()
	// MySQL is nil when none runs.
	MySQL() (MySQL, mysqld.Config)
	// Leads is the MySQL that takes writes here, and in which term; nil: none does, or a switchover is under way or due.
	Leads() (MySQL, uint64)
	// Record adds to the history; by is who asked for it, empty: the node itself.
	Record(kind, by, text string)
	// RecordAt is for what came into force with an entry.
	RecordAt(kind string, index uint64, text string)
	// Publish tells others the status at once, and wakes the loop.
	Publish()
	// Go runs f on a goroutine that the node waits for when it stops.
	Go(f func(ctx context.Context))
	// ShutOut ends the node: the members that it reaches do not trust it.
	ShutOut(why string)
}

// Certs is of one member. Its methods may be called from any goroutine.
type Certs struct {
	cfg  config.Node
	id   config.Identity
	host Host
	log  *slog.Logger

	announce time.Duration // a certificate is told of for so long before mysqld shows it: no router's view is older

	bundle   *pki.Bundle // nil before Open
	auditing sync.Mutex  // held while audit.log is written

	changing  sync.Mutex // held while a step in a change of the CA is taken
	caProblem problem    // why the last one was not; changing guards it

	secrets      atomic.Pointer[config.Secrets] // never changed, but replaced; nil before LoadSecrets
	saving       sync.Mutex                     // held while secrets are replaced, on disk first
	cloneProblem problem                        // why the login of trireme_clone is not here; of RenewClone alone

	server        atomic.Pointer[pki.Server] // what mysqld should show; nil: none can be had
	serverProblem problem                    // why it does not; of FollowServer alone

	mu            sync.Mutex // never held over I/O, nor over a call of the host
	shutOut       shutOut
	shown         shown  // what mysqld does show
	warning       string // of this node's certificate; empty: none
	serverWarning string // of mysqld's
}

// New makes the part of a member that has no certificate yet.
func New(cfg config.Node, id config.Identity, host Host, log *slog.Logger) *Certs {
	return &Certs{cfg: cfg, id: id, host: host, log: log, announce: gossip.Lifetime + api.RouteLimit}
}

// Open reads the certificates of this node and of its mysqld, and renews what is due.
func (cs *Certs) Open() (err error) {
	if cs.bundle, err = pki.LoadBundle(cs.cfg.TLSDir()); err != nil {
		return err
	}
	if cs.bundle.Due(time.Now()) || !cs.bundle.Names(cs.hosts()) {
		cs.renew()
	}
	if cs.id.Role != config.RoleLogger {
		cs.loadServer()
	}
	return nil
}

// Bundle is this node's certificate, and whom it trusts.
func (cs *Certs) Bundle() *pki.Bundle { return cs.bundle }

// ClientTLS is for requests to the API of other nodes.
func (cs *Certs) ClientTLS() (*tls.Config, error) {
	c, err := cs.bundle.NodeClientTLS()
	if err != nil {
		return nil, err
	}
	verify := c.VerifyConnection
	c.VerifyConnection = func(state tls.ConnectionState) error {
		if err := verify(state); err != nil {
			return err
		}
		if why := cs.WhyRevoked(state.PeerCertificates[0]); why != "" {
			return errors.New(why)
		}
		return nil
	}
	return c, nil
}

// problem is logged once, and again only when it has changed or was gone in between.
type problem string

func (p *problem) isNew(err error) bool {
	before := *p
	if *p = ""; err != nil {
		*p = problem(err.Error())
	}
	return err != nil && *p != before
}

// now is CLOCK_BOOTTIME.
func now() time.Duration { return time.Duration(consensus.Boottime()) }

// Status is this node's. runs says whether its mysqld does.
func (cs *Certs) Status(runs bool) gossip.CAStatus {
	if cs.bundle == nil {
		return gossip.CAStatus{}
	}
	s := gossip.CAStatus{Signer: cs.bundle.CADigest(), Trusts: cs.bundle.Trusted(),
		Clone: pki.HashToken(cs.Secrets().Clone.Password)}
	if runs {
		cs.mu.Lock()
		s.MySQL = cs.shown.signer
		cs.mu.Unlock()
	}
	return s
}

func (cs *Certs) ownStatus() gossip.CAStatus {
	my, _ := cs.host.MySQL()
	return cs.Status(my != nil)
}

// Warnings are what an operator should know.
func (cs *Certs) Warnings() []string {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return slices.DeleteFunc([]string{cs.warning, cs.serverWarning}, func(text string) bool { return text == "" })
}

// hosts are those by which this node is reached.
func (cs *Certs) hosts() []string {
	return []string{cs.cfg.Peer.Advertise, cs.cfg.API.Advertise, cs.cfg.MySQLHost()}
}

// RenewDue renews this node's certificate in the last third of its life.
func (cs *Certs) RenewDue(context.Context) {
	if cs.bundle.Due(time.Now()) {
		cs.renew()
	}
}

// renew signs this node a new certificate, which connections show from now on.
func (cs *Certs) renew() {
	err := cs.bundle.Renew(cs.cfg.TLSDir(), cs.hosts(), time.Now())
	warning := ""
	switch {
	case err == nil:
		cs.log.Info("this node has a new certificate", "hosts", cs.hosts(), "until", cs.bundle.NotAfter())
	case cs.bundle.Due(time.Now()):
		warning = fmt.Sprintf("this node's certificate ends on %s and cannot be renewed: %v", cs.bundle.NotAfter().UTC().
			Format(time.DateOnly), err)
		cs.log.Error(warning)
	case cs.bundle.Names(cs.hosts()): // revoked, or a peer does not take it
		cs.log.Error("this node could not renew its certificate; nodes that do not trust the present one refuse it",
			"err", err)
	default:
		cs.log.Warn("this node's certificate does not name the hosts by which it is reached; Trireme's own links do not mind",
			"err", err)
	}
	cs.mu.Lock()
	cs.warning = warning
	cs.mu.Unlock()
}
