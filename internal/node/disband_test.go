package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/lifecycle"
)

// TestConfirmPlain: the end is committed only after a mysqld was seen that is as it was made ready, not one that was
// started or fed again meanwhile.
func TestConfirmPlain(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(s *lifecycle.Status)
		ok   bool
	}{
		{"ready", func(s *lifecycle.Status) { s.Leave(time.Minute) }, true},
		{"never made ready", func(*lifecycle.Status) {}, false},
		{"another mysqld", func(s *lifecycle.Status) { s.Leave(time.Minute); s.Started(&lifecycle.Life{}) }, false},
		{"taken back", func(s *lifecycle.Status) { s.Leave(time.Minute); s.Stay() }, false},
		{"it is judged", func(s *lifecycle.Status) { s.Leave(time.Minute); s.Judging() }, false},
		{"its judgement failed", func(s *lifecycle.Status) { s.Leave(time.Minute); s.Unjudged("no leader") }, false},
	} {
		n := newTestNode(t)
		n.lives.Change(func(s *lifecycle.Status) { s.Started(&lifecycle.Life{}); s.Ready(); c.then(s) })
		before := n.lives.Status()
		err := n.plainHere(t.Context(), 1, plainOrder{Confirm: true})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if after := n.lives.Status(); !c.ok && after.Server.View() != before.Server.View() {
			t.Errorf("%s: it is %+v now", c.name, after.Server.View())
		}
	}
}

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

// TestEndInTerm: an end that was prepared in one term is not committed in a later one, even if the same node leads
// again: another one may have taken writes between.
func TestEndInTerm(t *testing.T) {
	n := newTestNode(t, withMembers(testVoters(1)...))
	openTestLog(t, n)
	connectTestPeer(t, n, &slowPeer{})
	committed := func(entries []*raftpb.Entry) error {
		for _, e := range entries {
			if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 {
				continue
			}
			_, body, err := raftlog.DecodeMeta(e.GetData())
			if err != nil {
				t.Error(err)
				continue
			}
			if err := n.members.Apply(e.GetIndex(), body); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	startTestRaft(t, n, func(c *consensus.Config) { c.OnCommitted = committed }, raft.Peer{ID: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	n.cons.Campaign()
	if err := n.leadership.AwaitLease(ctx, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	term := n.cons.Status().Term
	if unsure, err := n.commitEnd(ctx, term-1); api.KindOf(err) != api.KindNoLeader || unsure {
		t.Errorf("the end of a term before: %v, unsure %v", err, unsure)
	}
	turn, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = n.members.Change(ctx, term, func(*config.Cluster) error {
			close(turn)
			<-end
			return errors.New("nothing is changed")
		})
	}()
	<-turn
	short, stop := context.WithTimeout(ctx, 5*time.Millisecond)
	defer stop()
	if unsure, err := n.commitEnd(short, term); api.KindOf(err) != api.KindTimeout || unsure {
		t.Errorf("the end that was not proposed: %v, unsure %v", err, unsure)
	}
	close(end)
	<-ended
	if n.Settings().Disbanded != nil {
		t.Error("the cluster has ended")
	}
	if unsure, err := n.commitEnd(ctx, term); err != nil || n.Settings().Disbanded == nil || unsure {
		t.Errorf("the end was not committed: %v, unsure %v", err, unsure)
	}
}

// What was begun in an older term is refused.
func TestStillTerm(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	if err := n.rlog.SetHardState(&raftpb.HardState{Term: new(uint64(2))}); err != nil {
		t.Fatal(err)
	}
	startTestRaft(t, n, nil)
	if err := n.stillTerm(2); err != nil {
		t.Error(err)
	}
	if err := n.stillTerm(1); err == nil || !strings.Contains(err.Error(), "it is term 2, not 1") {
		t.Error(err)
	}
}
