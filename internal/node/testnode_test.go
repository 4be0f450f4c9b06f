package node

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"go.etcd.io/raft/v3"

	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/memory"
	"trireme/lab/testkit/testraft"
)

// testDir is what the directory of a node of a test says.
type testDir struct {
	cfg     config.Node
	id      config.Identity
	cluster *config.Cluster
}

// newTestNode makes a node as open does, db1 of db1, db2 and db3 unless the changes say something else. Nothing of it
// runs; openTestLog, startTestRaft and the test add the parts that it needs.
func newTestNode(t testing.TB, changes ...func(*testDir)) *Node {
	t.Helper()
	d := &testDir{cfg: config.Default(), id: config.Identity{Cluster: "prod", ClusterID: 5, Name: "db1", ID: 1,
		Role: config.RoleVoter},
		cluster: &config.Cluster{Version: 1, Name: "prod", ClusterID: 5}}
	withMembers(testVoters(3)...)(d)
	for _, change := range changes {
		change(d)
	}
	if d.cfg.Dir == "" {
		d.cfg.Dir = t.TempDir()
	}
	d.cfg.Cluster, d.cfg.Name = d.id.Cluster, d.id.Name
	n := newNode(d.cfg, d.id, d.cluster, "test", slog.New(slog.DiscardHandler))
	var err error
	if n.memory, err = memory.Open(raftlog.OSFS{}, d.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	n.openLives()
	var cancel context.CancelFunc
	n.ctx, cancel = context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		n.tasks.Wait()
	})
	return n
}

// testVoters are members with the ids from 1 on.
func testVoters(count int) (members []config.Member) {
	for i := range count {
		name := fmt.Sprint("db", i+1)
		members = append(members, config.Member{ID: uint64(i + 1), Name: name, Role: config.RoleVoter, Peer: name + ":7306",
			API:       name + ":8008",
			MySQLHost: name, MySQLPort: 3306})
	}
	return members
}

func withMembers(members ...config.Member) func(*testDir) {
	return func(d *testDir) {
		d.cluster.Members, d.cluster.NextID = members, 1
		for _, m := range members {
			d.cluster.NextID = max(d.cluster.NextID, m.ID+1)
		}
	}
}

// as makes it another node than the first.
func as(id uint64) func(*testDir) {
	return func(d *testDir) { d.id.ID, d.id.Name = id, fmt.Sprint("db", id) }
}

// openTestLog gives a node its raft log and ledger.
func openTestLog(t testing.TB, n *Node) {
	t.Helper()
	keys, err := n.loadKeys(t.Context())
	if err == nil {
		err = n.openLog(keys)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.rlog.Close() })
}

// startTestRaft runs raft on a node's log. It hears and reaches no other node; change is of what it would do otherwise.
func startTestRaft(t testing.TB, n *Node, change func(*consensus.Config), boot ...raft.Peer) {
	t.Helper()
	c := consensus.Config{ID: n.id.ID, Storage: n.rlog, Logger: n.log}
	if change != nil {
		change(&c)
	}
	n.cons = testraft.Start(t, c, boot...)
}
