package certs

import (
	"testing"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/base/pki"
	"trireme/internal/node/gossip"
)

// twoCAs is a node that trusts another CA, too.
func twoCAs(t *testing.T) (cs *Certs, h *testHost, old, next *pki.CA) {
	t.Helper()
	cs, h, old = newTestCerts(t)
	next = newTestCA(t)
	key, err := next.KeyPEM()
	if err == nil {
		err = cs.bundle.Trust(cs.cfg.TLSDir(), next.CertPEM(), key, time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	return cs, h, old, next
}

// TestStaleSettingsKeepTrust: a node that starts with settings from before a change of the CA does not end its trust in
// those who have gone over, from whom it would hear of newer ones.
func TestStaleSettingsKeepTrust(t *testing.T) {
	cs, h, old, _ := twoCAs(t)
	both := func() gossip.Peers { return gossip.Peers{2: heard(0), 3: heard(0)} }
	for what, prepare := range map[string]func() (leader uint64){
		"no leader is known":              func() uint64 { return 0 },
		"the leader is not heard of":      func() uint64 { h.peers[2] = &gossip.Peer{}; return 2 },
		"the leader has newer settings":   func() uint64 { h.peers[2] = heard(4); return 2 },
		"a follower has newer settings":   func() uint64 { h.peers[3] = heard(4); return 2 },
		"it leads, and others have newer": func() uint64 { h.peers[2] = heard(4); return 1 },
	} {
		h.peers = both()
		h.raft.Leader = prepare()
		if err := cs.stepCA(t.Context()); err != nil || len(cs.bundle.Trusted()) != 2 {
			t.Errorf("%s: %v, trusts %v", what, err, cs.bundle.Trusted())
		}
	}
	h.peers, h.raft.Leader = gossip.Peers{2: heard(3)}, 2
	if err := cs.stepCA(t.Context()); err != nil || len(cs.bundle.Trusted()) != 1 ||
		cs.bundle.Trusted()[0] != old.Digest() {
		t.Errorf("by present ones: %v, trusts %v", err, cs.bundle.Trusted())
	}

	cs, h, _, next := twoCAs(t)
	h.raft.Leader = 2
	if err := cs.bundle.GoOver(cs.cfg.TLSDir(), next.Digest(), nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	// never changed, say the settings: the old one is the CA
	if err := cs.stepCA(t.Context()); err == nil || len(cs.bundle.Trusted()) != 2 {
		t.Errorf("gone over, and by settings without a change: %v, trusts %v", err, cs.bundle.Trusted())
	}
}

// TestCAKeyIsForThoseWhoLackIt: an attacker who poses as a member with the stolen key of the present CA gets the new
// one's neither when that member has it, nor once all have it.
func TestCAKeyIsForThoseWhoLackIt(t *testing.T) {
	cs, h, _, next := twoCAs(t)
	change := &config.CAChange{Cert: string(next.CertPEM())}
	for _, tt := range []struct {
		name   string
		change *config.CAChange
		from   uint64
		has    bool
		ok     bool
	}{
		{"a member that lacks it", change, 2, false, true},
		{"one that has it", change, 2, true, false},
		{"no member", change, 4, false, false},
		{"no change", nil, 2, false, false},
		{"all have it", &config.CAChange{Cert: change.Cert, Finish: true}, 2, false, false},
	} {
		h.settings.CAChange = tt.change
		h.peers[2] = heard(0)
		if tt.has {
			h.peers[2].CA.Trusts = []string{next.Digest()}
		}
		if key, err := cs.CAKeyFor(t.Context(), tt.from, next.Digest()); (err == nil) != tt.ok || tt.ok != (len(key) > 0) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
