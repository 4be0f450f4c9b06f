package leave

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/poll"
	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/gossip"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/membership"
	"trireme/lab/testkit/testraft"
)

// testHost is the rest of db1, as far as the tests need it.
type testHost struct {
	Host
	raft *consensus.Node
}

func (h *testHost) Term() uint64 { return h.raft.Status().Term }

func (h *testHost) AwaitLease(ctx context.Context, patience time.Duration) error {
	return poll.Within(ctx, patience, "the lease", func(context.Context) error {
		if !h.raft.HoldsLease() {
			return errors.New("leadership is not proven")
		}
		return nil
	})
}

// testMembers is the rest of db1 to its membership.
type testMembers struct {
	membership.Host
	*testHost
	log *raftlog.Log
}

func (h testMembers) Raft() membership.Raft   { return h.raft }
func (h testMembers) Log() *raftlog.Log       { return h.log }
func (h testMembers) Links() membership.Links { return noLinks{} }
func (testMembers) Adopted(*config.Cluster)   {}
func (testMembers) IsNew(string, error) bool  { return false }

func (h testMembers) AwaitLease(ctx context.Context, patience time.Duration) error {
	return h.testHost.AwaitLease(ctx, patience)
}

// noLinks lead nowhere.
type noLinks struct{ membership.Links }

func (noLinks) SetPeers(map[uint64]string) {}

// newTest makes the part of db1, which is alone and has an empty log. Nothing runs.
func newTest(t *testing.T) (*End, testMembers) {
	t.Helper()
	cfg, id, log := config.Default(), config.Identity{ClusterID: 5, Name: "db1", ID: 1, Role: config.RoleVoter},
		slog.New(slog.DiscardHandler)
	cfg.Dir = t.TempDir()
	rlog, err := raftlog.Open(raftlog.Options{Dir: t.TempDir(), SegmentBytes: 1 << 20, Cluster: 5, NodeID: 1, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rlog.Close() })
	clock := run.Real{Boottime: consensus.Boottime}
	h := testMembers{testHost: &testHost{}, log: rlog}
	g := gossip.New(cfg, id, ledger.New(raftlog.Boundary{}), clock, nil, log)
	ms := membership.New(cfg, id, &config.Cluster{Version: 1, Name: "prod", ClusterID: 5, NextID: 2,
		Members: []config.Member{{ID: 1, Name: "db1", Role: config.RoleVoter, Peer: "db1:7306", API: "db1:8008",
			MySQLHost: "db1", MySQLPort: 3306}}}, g, h, log)
	return &End{ID: id, Mu: &sync.Mutex{}, Lives: lifecycle.New(clock), Members: ms, Gossip: g, Host: h.testHost,
		Log: log}, h
}

// start runs raft.
func start(t *testing.T, e *End, h testMembers, boot ...raft.Peer) {
	t.Helper()
	committed := func(entries []*raftpb.Entry) error {
		for _, entry := range entries {
			if entry.GetType() != raftpb.EntryNormal || len(entry.GetData()) == 0 {
				continue
			}
			_, body, err := raftlog.DecodeMeta(entry.GetData())
			if err != nil {
				t.Error(err)
				continue
			}
			if err := e.Members.Apply(entry.GetIndex(), body); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	h.raft = testraft.Start(t, consensus.Config{Storage: h.log, OnCommitted: committed}, boot...)
}

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
		e, _ := newTest(t)
		e.Lives.Change(func(s *lifecycle.Status) { s.Started(&lifecycle.Life{}); s.Ready(); c.then(s) })
		before := e.Lives.Status()
		err := e.PlainHere(t.Context(), 1, Order{Confirm: true})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if after := e.Lives.Status(); !c.ok && after.Server.View() != before.Server.View() {
			t.Errorf("%s: it is %+v now", c.name, after.Server.View())
		}
	}
}

// TestEndInTerm: an end that was prepared in one term is not committed in a later one, even if the same node leads
// again: another one may have taken writes between.
func TestEndInTerm(t *testing.T) {
	e, h := newTest(t)
	start(t, e, h, raft.Peer{ID: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	h.raft.Campaign()
	if err := h.AwaitLease(ctx, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	term := h.Term()
	if unsure, err := e.commit(ctx, term-1); api.KindOf(err) != api.KindNoLeader || unsure {
		t.Errorf("the end of a term before: %v, unsure %v", err, unsure)
	}
	turn, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = e.Members.Change(ctx, term, func(*config.Cluster) error {
			close(turn)
			<-end
			return errors.New("nothing is changed")
		})
	}()
	<-turn
	short, stop := context.WithTimeout(ctx, 5*time.Millisecond)
	defer stop()
	if unsure, err := e.commit(short, term); api.KindOf(err) != api.KindTimeout || unsure {
		t.Errorf("the end that was not proposed: %v, unsure %v", err, unsure)
	}
	close(end)
	<-ended
	if e.Members.Current().Disbanded != nil {
		t.Error("the cluster has ended")
	}
	if unsure, err := e.commit(ctx, term); err != nil || e.Members.Current().Disbanded == nil || unsure {
		t.Errorf("the end was not committed: %v, unsure %v", err, unsure)
	}
}

// What was begun in an older term is refused.
func TestStillTerm(t *testing.T) {
	e, h := newTest(t)
	if err := h.log.SetHardState(&raftpb.HardState{Term: new(uint64(2))}); err != nil {
		t.Fatal(err)
	}
	start(t, e, h)
	if err := e.stillTerm(2); err != nil {
		t.Error(err)
	}
	if err := e.stillTerm(1); err == nil || !strings.Contains(err.Error(), "it is term 2, not 1") {
		t.Error(err)
	}
}
