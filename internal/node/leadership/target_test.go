package leadership

import (
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/ha"
)

// TestChooseTarget: an operator gets the best member, or the one that was named if it can take over, and is told why
// not otherwise.
func TestChooseTarget(t *testing.T) {
	m := newMember()
	able := func(id, applied uint64, name string) ha.Peer {
		return ha.Peer{ID: id, Name: name, Voter: true, Data: true, Live: true, Ready: true, Heard: true, Weight: 1,
			Applied: applied, Match: 100}
	}
	sick := able(3, 100, "db3")
	sick.Ready = false
	both := []ha.Peer{able(2, 90, "db2"), able(3, 100, "db3")}
	for _, c := range []struct {
		what  string
		phase ha.Phase
		peers []ha.Peer
		name  string
		to    uint64
		kind  api.Kind
	}{
		{"the best", ha.PhaseOpen, both, "", 2, ""},
		{"the one that was named", ha.PhaseOpen, both, "db3", 3, ""},
		{"the only one", ha.PhaseOpen, []ha.Peer{able(2, 90, "db2"), sick}, "", 2, ""},
		{"one that cannot", ha.PhaseOpen, []ha.Peer{able(2, 90, "db2"), sick}, "db3", 0, api.KindCannotLead},
		{"none", ha.PhaseOpen, []ha.Peer{sick}, "", 0, api.KindCannotLead},
		{"itself", ha.PhaseOpen, both, "db1", 0, api.KindAlready},
		{"somebody else", ha.PhaseOpen, both, "db9", 0, api.KindNotFound},
		{"no leader", ha.PhaseNone, both, "", 0, api.KindNoLeader},
		{"not open yet", ha.PhasePromoting, both, "", 0, api.KindNoLeader},
		{"another one is under way", ha.PhaseHandover, both, "", 0, api.KindBusy},
	} {
		v := ha.View{Now: time.Hour, Self: 1, Name: "db1", Weight: 1, Voter: true, Peers: c.peers,
			Raft:    ha.Raft{Term: 5, IsLeader: true, Leader: 1, Voters: 3, Commit: 100, LeaseUntil: 2 * time.Hour},
			Server:  ha.Server{State: ha.ServerReady, Applied: 100},
			Serving: ha.Serving{Phase: c.phase, Term: 5}}
		to, err := m.l.ChooseTarget(v, c.name)
		if to != c.to || (err == nil) != (c.kind == "") || err != nil && api.KindOf(err) != c.kind {
			t.Errorf("%s: %d, %v; want %d, %q", c.what, to, err, c.to, c.kind)
		}
	}
}
