package certs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/base/pki"
	"trireme/internal/core/consensus"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/node/gossip"
)

// testHost is node 1 of db1, db2 and db3, whose mysqld does not run.
type testHost struct {
	settings  *config.Cluster
	raft      consensus.Status
	peers     gossip.Peers
	mysql     mysqld.Config
	leads     *testMySQL        // nil: it does not
	answers   map[uint64][]byte // of the others
	recorded  []string
	published int
	shutOut   string
}

// newTestCerts has a certificate of a new CA.
func newTestCerts(t *testing.T) (*Certs, *testHost, *pki.CA) {
	t.Helper()
	h := &testHost{settings: &config.Cluster{Version: 3, NextID: 4}, peers: gossip.Peers{2: heard(0), 3: heard(0)}}
	for id := uint64(1); id <= 3; id++ {
		h.settings.Members = append(h.settings.Members, config.Member{ID: id, Name: fmt.Sprint("db", id),
			Role: config.RoleVoter})
	}
	h.raft.Voters = []uint64{1, 2, 3}
	cfg := config.Default()
	cfg.Dir = t.TempDir()
	cs := New(cfg, config.Identity{Cluster: "shop", Name: "db1", ID: 1, Role: config.RoleVoter}, h,
		slog.New(slog.DiscardHandler))
	ca := newTestCA(t)
	issue(t, cs, ca, time.Now())
	return cs, h, ca
}

func newTestCA(t *testing.T) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA("shop", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// issue gives the node a certificate that begins at a time.
func issue(t *testing.T, cs *Certs, ca *pki.CA, from time.Time) {
	t.Helper()
	b, err := ca.Issue(pki.NodeCert{Name: "db1", ID: 1}, from)
	if err == nil {
		err = errors.Join(ca.Save(cs.cfg.TLSDir()), b.Save(cs.cfg.TLSDir()))
	}
	if err != nil {
		t.Fatal(err)
	}
	cs.bundle = b
}

func (h *testHost) Settings() *config.Cluster { return h.settings }

func (h *testHost) Change(_ context.Context, _ uint64, change func(*config.Cluster) error) error {
	next := h.settings.Clone()
	err := change(next)
	if err == nil {
		h.settings = next
	}
	return err
}

func (h *testHost) Raft() consensus.Status { return h.raft }
func (h *testHost) Peers() gossip.Peers    { return h.peers }

// heard is a peer that told just now which settings it has.
func heard(settings uint64) *gossip.Peer {
	return &gossip.Peer{Up: true, At: now(), Status: gossip.Status{Settings: settings}}
}
func (h *testHost) Request(_ context.Context, member uint64, _ uint8, _ []byte) ([]byte, error) {
	if answer := h.answers[member]; answer != nil {
		return answer, nil
	}
	return nil, errors.New("no node has it")
}
func (h *testHost) Leads() (MySQL, uint64) {
	if h.leads == nil {
		return nil, 0
	}
	return h.leads, 7
}

// testMySQL takes another password.
type testMySQL struct {
	MySQL
	login mysqld.Account
	fails error
}

func (m *testMySQL) SetPassword(_ context.Context, of mysqld.Account) error {
	if m.fails == nil {
		m.login = of
	}
	return m.fails
}
func (h *testHost) RecordAt(kind string, _ uint64, text string) { h.Record(kind, "", text) }
func (h *testHost) CheckLinks()                                 {}
func (h *testHost) MySQL() (MySQL, mysqld.Config)               { return nil, h.mysql }
func (h *testHost) Record(kind, by, text string) {
	h.recorded = append(h.recorded, kind+" "+text+" by "+by)
}
func (h *testHost) Publish()                       { h.published++ }
func (h *testHost) Go(f func(ctx context.Context)) { f(context.Background()) }
func (h *testHost) ShutOut(why string)             { h.shutOut = why }

// TestCertificateIsRenewed: a certificate in the last third of its life is replaced; one that cannot be is warned of.
func TestCertificateIsRenewed(t *testing.T) {
	cs, _, ca := newTestCerts(t)
	dir, old := cs.cfg.TLSDir(), time.Now().Add(-300*24*time.Hour)
	issue(t, cs, ca, old)
	cs.RenewDue(t.Context())
	if left := time.Until(cs.bundle.NotAfter()); left < 360*24*time.Hour || len(cs.Warnings()) != 0 {
		t.Errorf("it ends in %v; %v", left, cs.Warnings())
	}
	if b, err := pki.LoadBundle(dir); err != nil || !b.NotAfter().Equal(cs.bundle.NotAfter()) {
		t.Error("the renewed one is not on disk", err)
	}
	issue(t, cs, ca, old)
	key := filepath.Join(dir, pki.CAKeyFile)
	if err := os.Rename(key, key+".away"); err != nil {
		t.Fatal(err)
	}
	cs.RenewDue(t.Context())
	if w := cs.Warnings(); len(w) != 1 || !strings.Contains(w[0], "cannot be renewed") {
		t.Errorf("warnings %v", w)
	}
	if err := os.Rename(key+".away", key); err != nil {
		t.Fatal(err)
	}
	cs.RenewDue(t.Context())
	if w := cs.Warnings(); len(w) != 0 || cs.bundle.Due(time.Now()) {
		t.Errorf("warnings %v", w)
	}
}
