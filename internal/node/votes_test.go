package node

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/consensus"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
)

// TestRaftWithoutMySQL: a node whose mysqld does not run, and never may again, has its log and its vote: the node that
// leads gets its answers (S9).
func TestRaftWithoutMySQL(t *testing.T) {
	n := withEntries(t, 2)
	if err := n.rlog.SetConfState(&raftpb.ConfState{Voters: []uint64{1, 2, 3}}, 1); err != nil {
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

// withEntries is a node whose log has a barrier, and transactions after it.
func withEntries(t *testing.T, count uint64) *Node {
	t.Helper()
	n := newTestNode(t)
	openTestLog(t, n)
	var ents []*raftpb.Entry
	for i := range count {
		m := raftlog.Meta{Kind: raftlog.Barrier, Node: 1, Incarnation: 1, Start: raftlog.Pos{File: 1, Off: 4},
			End: raftlog.Pos{File: 1, Off: 4}}
		if i > 0 {
			m.Kind, m.Start.Off, m.End.Off = raftlog.Trx, 100*i-96, 100*i+4
			m.AddGTID(gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(5, 1, 1)}, GNO: int64(i + 1)})
		}
		ents = append(ents, &raftpb.Entry{Index: new(i + 1), Term: new(uint64(1)),
			Data: append(raftlog.AppendMeta(nil, &m), make([]byte, 100)...)})
	}
	if err := errors.Join(n.rlog.SetHardState(&raftpb.HardState{Term: new(uint64(1))}), n.rlog.Append(ents),
		n.rlog.Sync()); err != nil {
		t.Fatal(err)
	}
	return n
}
