package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/config"
	"trireme/internal/consensus"
)

// TestWarningsAreTold: a problem is told once, and again when it has changed or was gone in between.
func TestWarningsAreTold(t *testing.T) {
	var w warnings
	a, b := errors.New("a"), errors.New("b")
	late, later := fmt.Errorf("entry 5: %w", context.DeadlineExceeded), api.Errorf(api.KindTimeout, "entry 6")
	for i, step := range []struct {
		what string
		err  error
		want bool
	}{
		{"disk", nil, false}, {"disk", a, true}, {"disk", a, false}, {"link", a, true}, {"disk", b, true}, {"disk", nil, false}, {"disk", b, true},
		{"disk", late, true}, {"disk", later, false}, {"disk", a, true},
	} {
		if got := w.isNew(step.what, step.err); got != step.want {
			t.Errorf("step %d: %+v: %t", i, step, got)
		}
	}
}

// TestHeldMembershipIsToldOnce: a change of the membership that has to wait or fails is looked at each second, and told of
// once.
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

	// A failure is told as well, and the verb that waits for its end names it.
	n.mu.Lock()
	n.cluster.Members[1].Removing, n.cluster.Members[1].Pending = false, true
	n.cluster.Members[0].Name = "?" // so no settings can be written
	n.mu.Unlock()
	for range 5 {
		n.reconcileOnce(t.Context())
	}
	if got := strings.Count(out.String(), `node name \"?\"`); got != 1 {
		t.Errorf("%d warnings:\n%s", got, &out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := n.awaitMembers(ctx, "db2 is added", func(*config.Cluster, *consensus.Status) bool { return false })
	if api.KindOf(err) != api.KindTimeout || !strings.Contains(err.Error(), `node name "?"`) {
		t.Error(err)
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
