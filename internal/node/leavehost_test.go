package node

import (
	"testing"
	"time"

	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/node/lifecycle"
)

// TestLeftUntilTheLeaderIsLost: a mysqld that does not have the feed any more is not promoted (S3, S5), and returns to
// it once the leader that wants to end the cluster is lost.
func TestLeftUntilTheLeaderIsLost(t *testing.T) {
	n := newTestNode(t)
	l := new(lifecycle.Life)
	n.control.SoftState(consensus.State{Seq: 1, Term: 5, Leader: 2})
	n.lives.Change(func(s *lifecycle.Status) { s.Started(l); s.Ready(); s.Leave(time.Minute) })
	n.control.SoftState(consensus.State{Seq: 2, Term: 5, Leader: 2}) // nothing has changed
	if s := n.lives.Status(); !s.HasLeft() || s.Server.View().RetryAt < now()+time.Second {
		t.Errorf("it does not wait for the end: %+v", s.Server.View())
	}
	if _, stands := n.lives.Begin(ha.Action{Kind: ha.Promote, Term: 5}, 5); stands {
		t.Error("it is promoted")
	}
	n.control.SoftState(consensus.State{Seq: 3, Term: 6, Role: consensus.Leader, Leader: 1})
	if s := n.lives.Status(); s.HasLeft() || s.Server.View().RetryAt != 0 {
		t.Errorf("it is not judged: %+v", s.Server.View())
	}
	if _, stands := n.lives.Begin(ha.Action{Kind: ha.Promote, Term: 6}, 6); stands {
		t.Error("it is promoted before it is judged")
	}
	if _, stands := n.lives.Begin(ha.Action{Kind: ha.Judge, Term: 6}, 6); !stands {
		t.Error("it cannot be judged")
	}
}
