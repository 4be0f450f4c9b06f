package node

import (
	"strconv"
	"strings"
	"testing"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ledger"
	"trireme/internal/node/gossip"
)

// TestRefused: a leader takes no writes when fewer than a majority of the voters have room, and only then.
func TestRefused(t *testing.T) {
	one, five := ledger.Membership{{1, 2, 3}}, ledger.Membership{{1, 2, 3, 4, 5}}
	for _, tt := range []struct {
		voters  ledger.Membership
		full    string // ids of those at their bound
		silent  string
		refused bool
	}{
		{one, "", "", false},
		{one, "3", "", false},
		{one, "3", "2", true},
		{one, "1", "", false},
		{one, "1", "2", true},
		{one, "", "2 3", false}, // no majority at all is the lease's affair
		{one, "2 3", "", true},
		{five, "4 5", "", false},
		{five, "4", "2 3", true},
		{five, "4 5", "3", true},
		{ledger.Membership{{1, 2, 3}, {1, 4, 5}}, "4 5", "", true},
		{ledger.Membership{{1, 2, 3}, {1, 4, 5}}, "5", "", false},
		{one, "4 5", "", false}, // they have no vote
	} {
		n := learnerNode(t)
		for _, id := range strings.Fields(tt.full) {
			if id == "1" {
				n.bound = "at its bound"
			} else {
				n.gossip.Peers()[testID(t, id)].Bound = "at its bound"
			}
		}
		for _, id := range strings.Fields(tt.silent) {
			n.gossip.Peers()[testID(t, id)].Up = false
		}
		st := &consensus.Status{Voters: tt.voters[0]}
		if len(tt.voters) > 1 {
			st.Outgoing = tt.voters[1]
		}
		delete(n.gossip.Peers(), 1)
		if why := n.refusedLocked(st); (why != "") != tt.refused {
			t.Errorf("%v, at their bounds %q, silent %q: %q", tt.voters, tt.full, tt.silent, why)
		}
	}
}

func testID(t *testing.T, s string) uint64 {
	t.Helper()
	id, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestKeeperThatJoins: a member whose record still says that it joins counts from when raft's membership has it (S8).
func TestKeeperThatJoins(t *testing.T) {
	for name, tt := range map[string]struct {
		st   consensus.Status
		want bool
	}{
		"not in raft":            {consensus.Status{Voters: []uint64{1}}, false},
		"a learner":              {consensus.Status{Voters: []uint64{1}, Learners: []uint64{2}}, true},
		"a voter":                {consensus.Status{Voters: []uint64{1, 2}}, true},
		"a voter that goes away": {consensus.Status{Voters: []uint64{1}, Outgoing: []uint64{1, 2}}, true},
	} {
		n := learnerNode(t)
		n.Settings().Members[1].Pending = true
		got := false
		for _, k := range n.retainers(&tt.st) {
			got = got || k.ID == 2
		}
		if got != tt.want {
			t.Errorf("%s: its needs count: %v, want %v", name, got, tt.want)
		}
	}
}

// TestOwnRestart: a node whose log is at its bound does not give itself up while its mysqld restarts, and does later.
func TestOwnRestart(t *testing.T) {
	n := learnerNode(t)
	st := consensus.Status{Voters: []uint64{1, 2}}
	own := func() ledger.LogRetainer { return n.retainers(&st)[0] }
	if k := own(); k.ID != 1 || k.Ready {
		t.Errorf("never ready: %+v", k)
	}
	n.purging.readyAt = now()
	if !own().Ready {
		t.Error("not ready since now: its needs do not count")
	}
	n.purging.readyAt = now() - ownGrace
	if own().Ready {
		t.Error("not ready for a minute: its needs count")
	}
}

// learnerNode is a node of two voters and three learners; all others are there and ready.
func learnerNode(t *testing.T, changes ...func(*testDir)) *Node {
	t.Helper()
	members := testVoters(5)
	for i := range members[2:] {
		members[2+i].Role = config.RoleLearner
	}
	members[0].Zone, members[4].Zone = "east", "east"
	n := newTestNode(t, append(changes, withMembers(members...))...)
	for _, m := range members {
		n.gossip.Peers()[m.ID] = &gossip.Peer{Up: true, At: now(), Status: gossip.Status{Ready: true,
			Member: api.MemberView{Name: m.Name, MySQL: &api.MySQLView{Version: n.bin.Version.String()}}}}
	}
	return n
}
