package certs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/pki"
	"trireme/internal/mysql/mysqld"
)

// TestServerCertIsRenewed: mysqld gets a certificate at the start, the same at the next, another one when it is
// revoked; where none can be had that is warned of.
func TestServerCertIsRenewed(t *testing.T) {
	cs, h, _ := newTestCerts(t)
	cs.loadServer()
	first := cs.server.Load()
	if first == nil || len(cs.Warnings()) != 0 {
		t.Fatal("none", cs.Warnings())
	}
	cs.renewServer()
	cs.loadServer()
	if cs.server.Load().Serial() != first.Serial() {
		t.Error("another one without need")
	}
	h.settings.RevokedCerts = []config.Revocation{{Serial: first.Serial()}}
	cs.renewServer()
	if cs.server.Load().Serial() == first.Serial() {
		t.Error("it was revoked and stays")
	}
	key := filepath.Join(cs.cfg.TLSDir(), pki.CAKeyFile)
	if err := errors.Join(os.Rename(key, key+".away"), pki.DropServer(cs.cfg.TLSDir())); err != nil {
		t.Fatal(err)
	}
	cs.server.Store(nil)
	cs.renewServer()
	if w := cs.Warnings(); len(w) != 1 || !strings.Contains(w[0], "mysqld cannot be given a certificate") ||
		len(cs.ServerTLS()) != 0 {
		t.Errorf("warnings %v", w)
	}
}

// TestAnnounced: a certificate is told of for as long as the view of a router may be old before mysqld shows it, next
// to the one that it shows.
func TestAnnounced(t *testing.T) {
	cs, _, _ := newTestCerts(t)
	cs.shown.proof = &api.MySQLProof{Certificates: []string{"old"}, Key: "k", Cluster: true}
	for range 2 {
		if cs.announced("new") {
			t.Error("at once")
		}
	}
	if p := cs.Proof(); len(p.Certificates) != 2 || p.Certificates[0] != "old" || p.Certificates[1] != "new" ||
		p.Key != "k" {
		t.Errorf("%+v", p)
	}
	cs.shown.nextAt -= cs.announce
	if !cs.announced("new") || !cs.announced("old") {
		t.Error("never")
	}
	if cs.announced("newer") {
		t.Error("another one at once")
	}
	if p := cs.Proof(); len(p.Certificates) != 2 || p.Certificates[1] != "newer" {
		t.Errorf("%+v", p)
	}
}

// TestDonorIsVerified: by the cluster's CA where the donor says that its certificate is of it, by the operator's where
// it is not, and not at all where it is older.
func TestDonorIsVerified(t *testing.T) {
	cs, h, _ := newTestCerts(t)
	cluster, own := &api.MySQLProof{Cluster: true}, &api.MySQLProof{}
	for name, c := range map[string]struct {
		donor *api.MySQLProof
		opts  map[string]string
		ca    bool
		file  string
	}{
		"the cluster's":              {cluster, nil, true, ""},
		"the cluster's, own here":    {cluster, map[string]string{"ssl_ca": "/etc/ca.pem"}, true, ""},
		"the operator's":             {own, map[string]string{"ssl-ca": "/etc/ca.pem"}, false, "/etc/ca.pem"},
		"the operator's, without CA": {own, map[string]string{"ssl-cert": "/etc/cert.pem"}, false, ""},
		"an older donor":             {nil, nil, false, ""},
	} {
		h.mysql.Extra, h.peers[2].Member.MySQL = c.opts, &api.MySQLView{Proof: c.donor}
		var s mysqld.Seeding
		cs.Protect(2, &s)
		if len(s.CA) > 0 != c.ca || s.CAFile != c.file {
			t.Errorf("%s: CA %t, file %q", name, len(s.CA) > 0, s.CAFile)
		}
	}
}
