package consensus

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// TestOrderThatWaitedIsIgnored: a message that hands leadership over may have waited at a process that was stopped,
// until the leader has its lease again. It counts neither in the turn in which the process continues nor soon after it,
// when the system's buffers are read.
func TestOrderThatWaitedIsIgnored(t *testing.T) {
	const timeout = time.Second // of env's members
	for _, c := range []struct {
		name  string
		turns []time.Duration // between the turns up to the one that finds the message
		acts  bool
	}{
		{"in time", []time.Duration{timeout / 10}, true},
		{"held up", []time.Duration{timeout}, true},
		{"stopped", []time.Duration{timeout + 1}, false},
		{"stopped, and read later", []time.Duration{3 * timeout, timeout / 2}, false},
		{"stopped long ago", []time.Duration{3 * timeout, timeout / 2, timeout / 2}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := afterTurns(t, c.turns)
			term := to.stateNow().Term
			to.receive(&raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), From: new(uint64(1)), To: new(uint64(2)),
				Term: new(term)})
			if campaigns := to.stateNow().Role == Candidate; campaigns != c.acts {
				t.Errorf("takes over: %t, want %t", campaigns, c.acts)
			}
			to = afterTurns(t, c.turns)
			to.receive(&raftpb.Message{Type: raftpb.MsgVote.Enum(), From: new(uint64(3)), To: new(uint64(2)),
				Term:    new(term + 1),
				LogTerm: new(to.lastTerm), Index: new(to.lastIndex), Context: []byte(handedOver)})
			if voted := to.stateNow().Term > term; voted != c.acts {
				t.Errorf("votes for whom the leader hands over to: %t, want %t", voted, c.acts)
			}
		})
	}
}

// afterTurns is member 2, a follower of 1, in a turn so long after those before it.
func afterTurns(t *testing.T, turns []time.Duration) *core {
	t.Helper()
	e := threeVoters(t)
	e.members[1].core.campaign()
	e.settle()
	c := e.members[2].core
	c.beginTurn()
	for _, d := range turns {
		e.now += int64(d)
		c.beginTurn()
	}
	return c
}
