package node

import (
	"errors"
	"testing"
	"time"

	"trireme/internal/config"
	"trireme/internal/pki"
	"trireme/internal/transport"
)

// caNode is node 1 of three, which trusts another CA, too.
func caNode(t *testing.T) (n *Node, old, next *pki.CA) {
	t.Helper()
	n = newTestNode(t)
	n.cluster.Version = 3
	n.peers = map[uint64]*peer{2: {up: true, at: now()}, 3: {up: true, at: now()}}
	ca := func() *pki.CA {
		ca, err := pki.NewCA("shop", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	old, next = ca(), ca()
	b, err := old.Issue(pki.NodeCert{Name: "db1", ID: 1}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := next.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(old.Save(n.cfg.TLSDir()), b.Save(n.cfg.TLSDir()), b.Trust(n.cfg.TLSDir(), next.CertPEM(), key, time.Now())); err != nil {
		t.Fatal(err)
	}
	n.bundle = b
	if n.tr, err = transport.New(transport.Config{ID: 1, Cluster: "shop", Listen: "127.0.0.1:0", TLS: b.PeerTLS, Handler: n}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.tr.Close() })
	return n, old, next
}

// TestStaleSettingsKeepTrust: a node that starts with settings from before a change of the CA does not end its trust in those who have gone over,
// from whom it would hear of newer ones.
func TestStaleSettingsKeepTrust(t *testing.T) {
	n, old, _ := caNode(t)
	step := func(leader uint64) error { return n.stepCA(t.Context(), leader) }
	for what, prepare := range map[string]func() (leader uint64){
		"no leader is known":              func() uint64 { return 0 },
		"the leader is not heard of":      func() uint64 { n.peers[2].up = false; return 2 },
		"the leader has newer settings":   func() uint64 { n.peers[2].status.Settings = 4; return 2 },
		"a follower has newer settings":   func() uint64 { n.peers[3].status.Settings = 4; return 2 },
		"it leads, and others have newer": func() uint64 { n.peers[2].status.Settings = 4; return 1 },
	} {
		n.peers = map[uint64]*peer{2: {up: true, at: now()}, 3: {up: true, at: now()}}
		if err := step(prepare()); err != nil || len(n.bundle.Trusted()) != 2 {
			t.Errorf("%s: %v, trusts %v", what, err, n.bundle.Trusted())
		}
	}
	n.peers = map[uint64]*peer{2: {up: true, at: now(), status: status{Settings: 3}}}
	if err := step(2); err != nil || len(n.bundle.Trusted()) != 1 || n.bundle.Trusted()[0] != old.Digest() {
		t.Errorf("by present ones: %v, trusts %v", err, n.bundle.Trusted())
	}

	n, _, next := caNode(t)
	if err := n.bundle.GoOver(n.cfg.TLSDir(), next.Digest(), nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := n.stepCA(t.Context(), 2); err == nil || len(n.bundle.Trusted()) != 2 { // never changed, say the settings: the old one is the CA
		t.Errorf("gone over, and by settings without a change: %v, trusts %v", err, n.bundle.Trusted())
	}
}

// TestCAKeyIsForThoseWhoLackIt: whoever poses as a member with the stolen key of the present CA gets the new one's neither when that member has it,
// nor once all have it.
func TestCAKeyIsForThoseWhoLackIt(t *testing.T) {
	n, _, next := caNode(t)
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
		n.cluster.CAChange = tt.change
		n.peers[2].status.CA.Trusts = nil
		if tt.has {
			n.peers[2].status.CA.Trusts = []string{next.Digest()}
		}
		if key, err := n.caKeyFor(tt.from, next.Digest()); (err == nil) != tt.ok || tt.ok != (len(key) > 0) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
