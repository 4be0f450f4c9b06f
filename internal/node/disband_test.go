package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/consensus"
	"trireme/internal/node/lifecycle"
	"trireme/internal/raftlog"
)

// TestConfirmPlain: the end is committed only behind a mysqld that is as it was made ready, not one that was started or
// fed anew meanwhile.
func TestConfirmPlain(t *testing.T) {
	ready, other := &lifecycle.Life{}, &lifecycle.Life{}
	for _, c := range []struct {
		name  string
		life  *lifecycle.Life
		until time.Duration
		ok    bool
	}{
		{"ready", ready, now() + time.Minute, true},
		{"never made ready", nil, 0, false},
		{"under way", nil, now() + time.Minute, false},
		{"another mysqld", other, now() + time.Minute, false},
		{"too long ago", ready, now() - time.Nanosecond, false},
	} {
		n := newTestNode(t)
		n.lives.Change(func(s *lifecycle.Status) { s.Started(ready) })
		n.lives.Change((*lifecycle.Status).Ready)
		n.plainLife, n.plainUntil = c.life, c.until
		before := n.plainUntil
		err := n.plainHere(t.Context(), plainOrder{Confirm: true})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if !c.ok && n.plainUntil != before {
			t.Errorf("%s: it has more time", c.name)
		}
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
	if err := n.awaitLease(ctx, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	term := n.cons.Status().Term
	if err := n.commitEnd(ctx, term-1); api.KindOf(err) != api.KindNoLeader {
		t.Errorf("the end of a term before: %v", err)
	}
	if n.Settings().Disbanded != nil {
		t.Error("the cluster has ended")
	}
	if err := n.commitEnd(ctx, term); err != nil || n.Settings().Disbanded == nil {
		t.Errorf("the end was not committed: %v", err)
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
