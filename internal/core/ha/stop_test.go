package ha

import (
	"testing"
	"time"
)

// TestMayStop: a daemon that stops waits for what is under way, and for leadership to go where it can.
func TestMayStop(t *testing.T) {
	able := []Peer{{ID: 2, Name: "n2", Voter: true, Data: true, Live: true, Ready: true, Weight: 1, Applied: 100}}
	for _, c := range []struct {
		name   string
		phase  Phase
		server ServerState
		leads  bool
		paused bool
		peers  []Peer
		may    bool
	}{
		{"a follower", PhaseNone, ServerReady, false, false, able, true},
		{"a leader", PhaseOpen, ServerReady, true, false, able, false},
		{"a leader that is alone", PhaseOpen, ServerReady, true, false, nil, true},
		{"a leader in a pause", PhaseOpen, ServerReady, true, true, able, true},
		{"it hands over", PhaseHandover, ServerReady, true, false, able, false},
		{"it hands over to one that has just died", PhaseHandover, ServerReady, true, false, nil, false},
		{"it is fenced", PhaseFencing, ServerReady, false, false, able, false},
		{"it is promoted", PhasePromoting, ServerReady, true, false, nil, false},
		{"elected, and not promoted yet", PhaseNone, ServerReady, true, false, able, false},
		{"its mysqld starts", PhaseNone, ServerStarting, false, false, able, false},
		{"its mysqld is judged", PhaseNone, ServerJudging, false, false, able, false},
	} {
		v := View{Now: time.Hour, Self: 1, Voter: true, Weight: 1, Paused: c.paused, Peers: c.peers,
			Raft: Raft{Term: 5, IsLeader: c.leads, Voters: 2, Commit: 100}, Serving: Serving{Phase: c.phase},
			Server: Server{State: c.server}}
		if got := MayStop(v); got != c.may {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
