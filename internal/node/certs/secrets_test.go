package certs

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"trireme/internal/base/config"
	"trireme/internal/base/pki"
	"trireme/internal/core/transport"
)

// TestCloneLoginIsForMembers: a node that is to leave, or whose certificates are revoked, does not get the password
// that replaces the one which it knows; nor does anybody get an old one.
func TestCloneLoginIsForMembers(t *testing.T) {
	for what, tc := range map[string]struct {
		change func(*config.Cluster)
		from   uint64
		ok     bool
	}{
		"a member":            {func(*config.Cluster) {}, 2, true},
		"no member":           {func(*config.Cluster) {}, 9, false},
		"one that is removed": {func(c *config.Cluster) { c.Members[1].Removing = true }, 2, false},
		"one that is revoked": {func(c *config.Cluster) { c.RevokedCerts = []config.Revocation{{ID: 2, Name: "db2"}} }, 2,
			false},
		"this node has not it":  {func(c *config.Cluster) { c.CloneHash = pki.HashToken("another") }, 2, false},
		"it was never replaced": {func(c *config.Cluster) { c.CloneHash = "" }, 2, true},
		"another one is revoked": {func(c *config.Cluster) { c.RevokedCerts = []config.Revocation{{ID: 3, Name: "db3"}} }, 2,
			true},
	} {
		cs, h, _ := newTestCerts(t)
		secrets := newSecrets(cs)
		h.settings.CloneHash = pki.HashToken(secrets.Clone.Password)
		tc.change(h.settings)
		got, err := cs.CloneFor(t.Context(), tc.from, transport.None{})
		if (err == nil) != tc.ok || tc.ok && got != secrets.Clone {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

// newSecrets gives a node secrets that are not on disk yet.
func newSecrets(cs *Certs) config.Secrets {
	s := config.NewSecrets()
	cs.secrets.Store(&s)
	return s
}

// TestLoginsAreOfOneDaemon: each daemon has passwords of its own for the accounts of its host, which its directory
// holds and which no other node gets; what all nodes share stays.
func TestLoginsAreOfOneDaemon(t *testing.T) {
	cs, _, _ := newTestCerts(t)
	before := newSecrets(cs)
	cs.RenewLogins()
	got, err := config.LoadSecrets(cs.cfg.Dir)
	if err != nil || got != cs.Secrets() {
		t.Fatalf("%v, the directory holds the same: %t", err, got == cs.Secrets())
	}
	if got.Admin.Password == before.Admin.Password || got.Repl.Password == before.Repl.Password ||
		got.Admin.User != before.Admin.User {
		t.Error("they were not replaced")
	}
	if got.Clone != before.Clone || got.APIToken != before.APIToken {
		t.Error("what nodes share was replaced")
	}
	told := cs.Newcomer()
	if told.Admin.Password == got.Admin.Password || told.Repl.Password == got.Repl.Password {
		t.Error("a new node gets this node's passwords")
	}
	if told.Clone != got.Clone || told.APIToken != got.APIToken || told.Validate() != nil {
		t.Error("a new node lacks what nodes share")
	}
	cs.cfg.Dir += "/gone" // as a full disk
	cs.RenewLogins()
	if cs.Secrets() != got {
		t.Error("it goes on with passwords that its directory does not have")
	}
}

// TestCloneLogin: the leader replaces the password when a node is shut out, and nothing else does; a member that has
// not the one that settings tell of gets it from one that has.
func TestCloneLogin(t *testing.T) {
	cs, h, _ := newTestCerts(t)
	first := newSecrets(cs)
	h.settings.CloneHash = pki.HashToken(first.Clone.Password)
	h.raft.Commit = 70
	h.leads = &testMySQL{}
	cs.RenewClone(t.Context())
	h.leads, h.settings.Rotate = nil, true
	cs.RenewClone(t.Context())
	if cs.Secrets().Clone != first.Clone {
		t.Fatal("it was replaced without need, or by a node that does not lead")
	}
	h.leads = &testMySQL{fails: errors.New("no quorum")}
	cs.RenewClone(t.Context())
	if cs.Secrets().Clone != first.Clone || !h.settings.Rotate {
		t.Error("a login that mysqld has not taken")
	}
	h.leads.fails = nil
	cs.RenewClone(t.Context())
	got := cs.Secrets().Clone
	if got == first.Clone || got != config.Account(h.leads.login) || h.settings.Rotate || h.settings.CloneAt != 70 ||
		!knowsClone(h.settings, got) || len(h.recorded) != 1 {
		t.Errorf("%+v, mysqld has %+v, settings %+v, told %q", got, h.leads.login, h.settings, h.recorded)
	}
	if s, err := config.LoadSecrets(cs.cfg.Dir); err != nil || s.Clone != got {
		t.Errorf("the directory has another one: %v", err)
	}

	other, at, _ := newTestCerts(t)
	newSecrets(other)
	at.settings = h.settings
	old, _ := json.Marshal(first.Clone)
	at.answers = map[uint64][]byte{2: old} // and 3 does not answer
	other.RenewClone(t.Context())
	if p := string(other.cloneProblem); !strings.Contains(p, "db2: it sent another") || !strings.Contains(p, "db3: ") {
		t.Error(p)
	}
	login, err := cs.CloneFor(t.Context(), 2, transport.None{})
	if err != nil {
		t.Fatal(err)
	}
	at.answers[3], _ = json.Marshal(login)
	other.RenewClone(t.Context())
	if other.Secrets().Clone != got || other.cloneProblem != "" {
		t.Errorf("%+v, %s", other.Secrets().Clone, other.cloneProblem)
	}
}
