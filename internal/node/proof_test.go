package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/mysqld"
	"trireme/internal/pki"
)

// proofNode is node 1, which can sign certificates.
func proofNode(t *testing.T) *Node {
	t.Helper()
	n := newTestNode(t)
	ca, err := pki.NewCA("shop", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if n.bundle, err = ca.Issue(pki.NodeCert{Name: "n1", ID: 1}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ca.Save(n.cfg.TLSDir()), n.bundle.Save(n.cfg.TLSDir())); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestServerCertIsRenewed: mysqld gets a certificate at the start, the same at the next, another one when it is
// revoked; where none can be had that is warned of.
func TestServerCertIsRenewed(t *testing.T) {
	n := proofNode(t)
	n.loadServerCert()
	first := n.serverCert.Load()
	if first == nil || len(n.warningsLocked()) != 0 {
		t.Fatal("none", n.warningsLocked())
	}
	n.renewServerCert()
	n.loadServerCert()
	if n.serverCert.Load().Serial() != first.Serial() {
		t.Error("another one without need")
	}
	n.cluster.RevokedCerts = []config.Revocation{{Serial: first.Serial()}}
	n.renewServerCert()
	if n.serverCert.Load().Serial() == first.Serial() {
		t.Error("it was revoked and stays")
	}
	key := filepath.Join(n.cfg.TLSDir(), pki.CAKeyFile)
	if err := errors.Join(os.Rename(key, key+".away"), pki.DropServer(n.cfg.TLSDir())); err != nil {
		t.Fatal(err)
	}
	n.serverCert.Store(nil)
	n.renewServerCert()
	if w := n.warningsLocked(); len(w) != 1 || !strings.Contains(w[0], "mysqld cannot be given a certificate") || len(n.serverTLS()) != 0 {
		t.Errorf("warnings %v", w)
	}
}

// TestAnnounced: a certificate is told of for as long as the view of a router may be old before mysqld shows it, beside
// the one that it shows.
func TestAnnounced(t *testing.T) {
	n := proofNode(t)
	n.shown.proof = &api.MySQLProof{Certificates: []string{"old"}, Key: "k", Cluster: true}
	for range 2 {
		if n.announced("new") {
			t.Error("at once")
		}
	}
	if p := n.proofs()[n.id.Name]; len(p.Certificates) != 2 || p.Certificates[0] != "old" || p.Certificates[1] != "new" || p.Key != "k" {
		t.Errorf("%+v", p)
	}
	n.shown.nextAt -= announceTime
	if !n.announced("new") || !n.announced("old") {
		t.Error("never")
	}
	if n.announced("newer") {
		t.Error("another one at once")
	}
	if p := n.proofs()[n.id.Name]; len(p.Certificates) != 2 || p.Certificates[1] != "newer" {
		t.Errorf("%+v", p)
	}
}

// TestProofs: routers hear of each member what it says itself. Before a node has looked at its mysqld nobody is that
// one, and of an older node nothing is known.
func TestProofs(t *testing.T) {
	n := proofNode(t)
	said := &api.MySQLProof{Certificates: []string{"c2"}}
	n.cluster.Members = []config.Member{{ID: 1, Name: n.id.Name}, {ID: 2, Name: "n2"}, {ID: 3, Name: "n3"}}
	n.peers = map[uint64]*peer{2: {}, 3: {}, 4: {}}
	n.peers[2].status.Member.MySQL = &api.MySQLView{Proof: said} // not fresh: what was said stays true for it
	n.peers[3].status.Member.MySQL = &api.MySQLView{}
	n.peers[4].status.Member.MySQL = &api.MySQLView{Proof: said}
	all := n.proofs()
	if own, ok := all[n.id.Name]; !ok || len(own.Certificates) != 0 || own.Key != "" {
		t.Errorf("own: %+v", own)
	}
	if p, ok := all["n2"]; !ok || p.Certificates[0] != "c2" || len(all) != 2 {
		t.Errorf("%+v", all)
	}
}

// TestDonorIsVerified: by the cluster's CA where the donor says that its certificate is of it, by the operator's where
// it is not, and not at all where it is older.
func TestDonorIsVerified(t *testing.T) {
	n := proofNode(t)
	older, cluster, own := &api.MySQLView{}, &api.MySQLView{Proof: &api.MySQLProof{Cluster: true}}, &api.MySQLView{Proof: &api.MySQLProof{}}
	for name, c := range map[string]struct {
		donor *api.MySQLView
		opts  map[string]string
		ca    bool
		file  string
	}{
		"the cluster's":              {cluster, nil, true, ""},
		"the cluster's, own here":    {cluster, map[string]string{"ssl_ca": "/etc/ca.pem"}, true, ""},
		"the operator's":             {own, map[string]string{"ssl-ca": "/etc/ca.pem"}, false, "/etc/ca.pem"},
		"the operator's, without CA": {own, map[string]string{"ssl-cert": "/etc/cert.pem"}, false, ""},
		"an older donor":             {older, nil, false, ""},
	} {
		n.cfg.MySQL.Options = c.opts
		p := &peer{}
		p.status.Member.MySQL = c.donor
		n.peers = map[uint64]*peer{2: p}
		var s mysqld.Seeding
		n.proves(2, &s)
		if len(s.CA) > 0 != c.ca || s.CAFile != c.file {
			t.Errorf("%s: CA %t, file %q", name, len(s.CA) > 0, s.CAFile)
		}
	}
}
