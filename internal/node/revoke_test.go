package node

import (
	"testing"
	"time"

	"trireme/internal/config"
	"trireme/internal/pki"
)

// TestSpare: no two revocations, one right behind the other, take the majority away.
func TestSpare(t *testing.T) {
	c := &config.Cluster{NextID: 6}
	for id := uint64(1); id <= 5; id++ {
		c.Members = append(c.Members, config.Member{ID: id, Name: "n" + string(rune('0'+id))})
	}
	for _, tt := range []struct {
		name    string
		voters  []uint64
		down    uint64
		revoked []uint64 // heard of a moment ago
		id      uint64
		ok      bool
	}{
		{"three", []uint64{1, 2, 3}, 0, nil, 3, true},
		{"one is down", []uint64{1, 2, 3}, 2, nil, 3, false},
		{"one was revoked", []uint64{1, 2, 3}, 0, []uint64{2}, 3, false},
		{"the one that is down", []uint64{1, 2, 3}, 2, nil, 2, true},
		{"two", []uint64{1, 2}, 0, nil, 2, false},
		{"two of five", []uint64{1, 2, 3, 4, 5}, 0, []uint64{2}, 3, true},
		{"three of five", []uint64{1, 2, 3, 4, 5}, 0, []uint64{2, 3}, 4, false},
		{"a learner", []uint64{1, 2, 3}, 2, nil, 5, true},
	} {
		c.RevokedCerts = nil
		for _, id := range tt.revoked {
			c.RevokedCerts = append(c.RevokedCerts, config.Revocation{ID: id})
		}
		m, _ := c.MemberByID(tt.id)
		if err := spare(c, tt.voters, m, func(id uint64) bool { return id != tt.down }); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestSerialAsShown: a serial number as openssl writes it, with a zero in front, is the one that is compared.
func TestSerialAsShown(t *testing.T) {
	for in, want := range map[string]string{"0A:1B:00:FF:23": "a1b00ff23", "a1b00ff23": "a1b00ff23", "000a1b": "a1b"} {
		if got := serialAsShown(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// TestShutOutTwice: a node whose certificate is refused signs itself another one, each time anew; it ends only when the others refuse what it
// has signed then.
func TestShutOutTwice(t *testing.T) {
	n := newTestNode(t)
	ca, err := pki.NewCA("shop", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Save(n.cfg.TLSDir()); err != nil {
		t.Fatal(err)
	}
	if n.bundle, err = ca.Issue(pki.NodeCert{Name: "db1", ID: 1}, time.Now()); err != nil {
		t.Fatal(err)
	}
	refused := func(want bool) {
		t.Helper()
		n.toldRevoked(2, "it was revoked")
		n.toldRevoked(3, "it was revoked")
		n.tasks.Wait()
		if ended := len(n.fatal) > 0; ended != want {
			t.Fatalf("ended: %v", ended)
		}
	}
	later := func() { n.shutOut.renewed -= 2 * shutOutGrace }
	for range 2 {
		serial := n.bundle.Serial()
		refused(false)
		renewed := n.bundle.Serial()
		if renewed == serial {
			t.Fatal("it has not signed itself another one")
		}
		n.PeerUp(2) // takes that one
		refused(false)
		if n.bundle.Serial() != renewed {
			t.Error("refusals that were on their way had it sign another one")
		}
		later()
	}
	refused(false)
	later()
	n.shutOut.taken = 0
	refused(true)
}

// TestShutOutByTheLast: a node that was removed while it was down ends also if most of those whom it knew are gone, too; not as long as one of them
// takes it, or may be on its way.
func TestShutOutByTheLast(t *testing.T) {
	n, _, _ := caNode(t)
	told := func() bool {
		n.toldRevoked(2, "node 1 is not a member any more")
		n.tasks.Wait()
		return len(n.fatal) > 0
	}
	n.peers = map[uint64]*peer{}
	if told() {
		t.Fatal("before it has signed itself another one")
	}
	n.shutOut.renewed -= 2 * shutOutGrace
	if told() {
		t.Fatal("at the word of one")
	}
	n.shutOut.renewed -= shutOutPatience
	n.peers[3] = &peer{up: true}
	if told() {
		t.Fatal("while another one takes it")
	}
	n.peers[3].up = false
	if !told() {
		t.Error("it goes on, though nobody takes it")
	}
}
