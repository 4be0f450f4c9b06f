package consensus

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// TestCommitIsOneRoundTrip counts messages: a proposal goes out in the turn that takes it, beside the leader's own fsync, once to each follower, and
// is committed by the first answer. Those behind it do not wait for it: all that are under way are committed by answers to messages that were sent
// before the first one came.
func TestCommitIsOneRoundTrip(t *testing.T) {
	for _, proposals := range []int{1, 5} {
		e := threeVoters(t)
		e.members[1].core.campaign()
		e.settle()
		lead := e.members[1]
		lead.diskHeld = true
		for range proposals {
			lead.core.props.waiting = append(lead.core.props.waiting, &proposal{entry: &raftpb.Entry{Data: []byte("x")}, done: make(chan struct{})})
			lead.turn()
		}
		last := lead.core.lastIndex
		out := e.takeNet()
		sent := map[uint64]int{}
		for _, m := range out {
			if m.GetType() != raftpb.MsgApp {
				t.Fatalf("the leader sends %v for a proposal", m)
			}
			sent[m.GetTo()]++
		}
		if len(out) != 2*proposals || sent[2] != proposals || sent[3] != proposals {
			t.Fatalf("%d proposals went out in messages %v, want one for each to each follower", proposals, out)
		}

		lead.diskHeld = false
		for lead.turn() { // its own fsync alone commits nothing
		}
		e.takeNet()
		if c := lead.pub.commit.Load(); c >= last {
			t.Fatalf("committed up to %d without an answer", c)
		}
		for _, m := range out {
			if m.GetTo() == 2 {
				e.deliver(m)
			}
		}
		for e.members[2].turn() {
		}
		back := e.takeNet()
		if len(back) > proposals {
			t.Errorf("%d proposals, %d answers", proposals, len(back))
		}
		for _, m := range back {
			e.deliver(m)
		}
		for lead.turn() {
		}
		if c := lead.pub.commit.Load(); c != last {
			t.Errorf("one round trip committed up to %d, want %d", c, last)
		}
	}
}

// takeNet takes all messages that are under way from the network.
func (e *env) takeNet() []*raftpb.Message {
	msgs := e.net
	e.net = nil
	return msgs
}
