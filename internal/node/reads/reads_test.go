package reads

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/node/gossip"
)

// testHost is node 2 of db1, db2 and the logger db3.
type testHost struct {
	settings *config.Cluster
	status   consensus.Status
	lease    bool
	settled  uint64
	peers    gossip.Peers
	log      *raftlog.Log
	applied  uint64
	tasks    sync.WaitGroup
}

func newTestReads() (*Reads, *testHost) {
	h := &testHost{settings: &config.Cluster{}}
	for id, role := range []string{config.RoleVoter, config.RoleVoter, config.RoleLogger} {
		h.settings.Members = append(h.settings.Members, config.Member{ID: uint64(id + 1), Name: fmt.Sprint("db", id+1),
			Role: role})
	}
	return New(config.Identity{Name: "db2", ID: 2}, ledger.New(raftlog.Boundary{}), h, slog.New(slog.DiscardHandler)), h
}

func (h *testHost) Raft() Raft                                { return h }
func (h *testHost) Status() consensus.Status                  { return h.status }
func (h *testHost) HoldsLease() bool                          { return h.lease }
func (h *testHost) ReadIndex(context.Context) (uint64, error) { return h.status.Commit, nil }
func (h *testHost) Log() *raftlog.Log                         { return h.log }
func (h *testHost) Settings() *config.Cluster                 { return h.settings }
func (h *testHost) Peers() gossip.Peers                       { return h.peers }
func (h *testHost) Settled() uint64                           { return h.settled }
func (h *testHost) AppliedIndex() (uint64, error)             { return h.applied, nil }
func (h *testHost) DeclaredVoid(gtid.GTID) bool               { return false }

func (h *testHost) Follow(context.Context, uint64, time.Duration) error {
	return errors.New("no mysqld")
}

func (h *testHost) Request(context.Context, uint64, uint8, []byte) ([]byte, error) {
	return nil, errors.New("no node answers")
}

func (h *testHost) Go(f func(context.Context)) { h.tasks.Go(func() { f(context.Background()) }) }
