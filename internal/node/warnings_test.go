package node

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/consensus"
)

// TestWarningsAreTold: a problem is told once, and again when it has changed or was gone in between.
func TestWarningsAreTold(t *testing.T) {
	var w warnings
	a, b := errors.New("a"), errors.New("b")
	for i, step := range []struct {
		what string
		err  error
		want bool
	}{
		{"disk", nil, false}, {"disk", a, true}, {"disk", a, false}, {"link", a, true}, {"disk", b, true}, {"disk", nil, false}, {"disk", b, true},
	} {
		if got := w.isNew(step.what, step.err); got != step.want {
			t.Errorf("step %d: %+v: %t", i, step, got)
		}
	}
}

// TestHeldMembershipIsToldOnce: a change of the membership that has to wait is looked at each second, and told of once.
func TestHeldMembershipIsToldOnce(t *testing.T) {
	members := testVoters(2)
	members[1].Removing = true
	n := newTestNode(t, withMembers(members...))
	var out bytes.Buffer
	n.log = slog.New(slog.NewTextHandler(&out, nil))
	openTestLog(t, n)
	startTestRaft(t, n, func(c *consensus.Config) { c.TickInterval = time.Second }, raft.Peer{ID: 1}) // it leads on for 20 s without the other one
	eventually(t, func() bool { return n.cons.Status().Role == consensus.Leader })
	add := &raftpb.ConfChangeSingle{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(2))}
	if err := n.cons.ProposeConfChange(t.Context(), &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{add}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return len(n.cons.Status().Voters) == 2 })
	for range 5 {
		n.reconcileOnce(t.Context())
	}
	if got := strings.Count(out.String(), "level=WARN msg=\"a change of the membership"); got != 1 {
		t.Errorf("%d warnings:\n%s", got, &out)
	}
}

// eventually waits for something that happens by itself.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen in time")
		}
	}
}
