package node

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/consensus"
)

// TestRaftWithoutMySQL: a node whose mysqld does not run, and never may again, has its log and its vote: the node that
// leads gets its answers (S9).
func TestRaftWithoutMySQL(t *testing.T) {
	n := newTestNode(t)
	openTestLog(t, n)
	if err := errors.Join(n.rlog.SetHardState(&raftpb.HardState{Term: new(uint64(1))}),
		n.rlog.Append([]*raftpb.Entry{{Index: new(uint64(1)), Term: new(uint64(1))}}), n.rlog.Sync(),
		n.rlog.SetConfState(&raftpb.ConfState{Voters: []uint64{1, 2, 3}}, 1)); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var sent []raftpb.MessageType
	startTestRaft(t, n, func(c *consensus.Config) {
		c.Send = func(list []*raftpb.Message) {
			mu.Lock()
			defer mu.Unlock()
			for _, m := range list {
				sent = append(sent, m.GetType())
			}
		}
	})
	if n.lives.Life() != nil {
		t.Fatal("there is a mysqld")
	}
	n.stepRaft(&raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1)),
		Term: new(uint64(9))})
	eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(sent, raftpb.MsgHeartbeatResp)
	})
}
