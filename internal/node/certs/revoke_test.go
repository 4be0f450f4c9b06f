package certs

import (
	"testing"

	"trireme/internal/base/config"
	"trireme/internal/node/gossip"
)

// TestSpare: no two revocations, one right after the other, take the majority away.
func TestSpare(t *testing.T) {
	cs, h, _ := newTestCerts(t)
	c := h.settings
	c.Members = append(c.Members, config.Member{ID: 4, Name: "db4"}, config.Member{ID: 5, Name: "db5"})
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
		h.raft.Voters, h.peers = tt.voters, gossip.Peers{}
		for id := uint64(2); id <= 5; id++ {
			h.peers[id] = &gossip.Peer{Up: id != tt.down, At: now()}
		}
		m, _ := c.MemberByID(tt.id)
		if err := cs.canSpare(c, m); (err == nil) != tt.ok {
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

// TestShutOutTwice: a node whose certificate is refused signs itself another one, each time; it ends only when the
// others refuse what it has signed then.
func TestShutOutTwice(t *testing.T) {
	cs, h, _ := newTestCerts(t)
	refused := func(want bool) {
		t.Helper()
		cs.ToldRevoked(2, "it was revoked")
		cs.ToldRevoked(3, "it was revoked")
		if ended := h.shutOut != ""; ended != want {
			t.Fatalf("ended: %v", ended)
		}
	}
	later := func() { cs.shutOut.renewed -= 2 * shutOutGrace }
	for range 2 {
		serial := cs.bundle.Serial()
		refused(false)
		renewed := cs.bundle.Serial()
		if renewed == serial {
			t.Fatal("it has not signed itself another one")
		}
		cs.Taken() // takes that one
		refused(false)
		if cs.bundle.Serial() != renewed {
			t.Error("refusals that were on their way had it sign another one")
		}
		later()
	}
	refused(false)
	later()
	cs.shutOut.taken = 0
	refused(true)
}

// TestShutOutByTheLast: a node that was removed while it was down ends also if most of those whom it knew are gone,
// too; not as long as one of them takes it, or may be on its way.
func TestShutOutByTheLast(t *testing.T) {
	cs, h, _ := newTestCerts(t)
	told := func() bool {
		cs.ToldRevoked(2, "node 1 is not a member any more")
		return h.shutOut != ""
	}
	h.peers = gossip.Peers{}
	if told() {
		t.Fatal("before it has signed itself another one")
	}
	cs.shutOut.renewed -= 2 * shutOutGrace
	if told() {
		t.Fatal("at the word of one")
	}
	cs.shutOut.renewed -= shutOutPatience
	h.peers[3] = &gossip.Peer{Up: true}
	if told() {
		t.Fatal("while another one takes it")
	}
	h.peers[3] = &gossip.Peer{}
	if !told() {
		t.Error("it goes on, although no peer takes it")
	}
}
