package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/gossip"
	"trireme/lab/testkit/testraft"
)

// testHost is db1. What a test does not need is not there.
type testHost struct {
	Host
	log   bytes.Buffer
	raft  *consensus.Node
	rlog  *raftlog.Log
	told  map[string]string // of IsNew
	peers map[uint64]string // told to the transport
}

// newTest makes the membership of db1, of which nothing else runs.
func newTest(t *testing.T, c *config.Cluster) (*Members, *testHost) {
	t.Helper()
	h := &testHost{told: map[string]string{}}
	cfg, id := config.Default(), config.Identity{ClusterID: 5, ID: 1, Name: "db1", Role: config.RoleVoter}
	cfg.Dir = t.TempDir()
	log := slog.New(slog.NewTextHandler(&h.log, nil))
	clock := run.Real{Boottime: consensus.Boottime}
	return New(cfg, id, c, gossip.New(cfg, id, ledger.New(raftlog.Boundary{}), clock, nil, log), h, log), h
}

// start runs raft, of which db1 is the only voter. It leads on for 20 s without any other.
func (h *testHost) start(t *testing.T) {
	t.Helper()
	var err error
	h.rlog, err = raftlog.Open(raftlog.Options{Dir: t.TempDir(), SegmentBytes: 1 << 20, Cluster: 5, NodeID: 1,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.rlog.Close() })
	h.raft = testraft.Start(t, consensus.Config{Storage: h.rlog, TickInterval: time.Second}, raft.Peer{ID: 1})
	h.raft.Campaign()
}

func (h *testHost) Raft() Raft                  { return h.raft }
func (h *testHost) Log() *raftlog.Log           { return h.rlog }
func (h *testHost) Links() Links                { return noLinks{h: h} }
func (*testHost) Ready() bool                   { return true }
func (*testHost) MayBeRead(uint64, uint64) bool { return false }
func (*testHost) Adopted(*config.Cluster)       {}
func (*testHost) Record(string, string, string) {}
func (h *testHost) Fail(err error)              { fmt.Fprintln(&h.log, err) }

func (*testHost) AwaitLease(context.Context, time.Duration) error { return nil }

func (h *testHost) IsNew(what string, err error) bool {
	before := h.told[what]
	h.told[what] = fmt.Sprint(err)
	return err != nil && h.told[what] != before
}

// noLinks lead nowhere.
type noLinks struct {
	Links
	h *testHost
}

func (l noLinks) SetPeers(addrs map[uint64]string) { l.h.peers = addrs }

// testMembers are voters with the ids from 1 on.
func testMembers(count int) (members []config.Member) {
	for i := range count {
		name := fmt.Sprint("db", i+1)
		members = append(members, config.Member{ID: uint64(i + 1), Name: name, Role: config.RoleVoter, Peer: name + ":7306",
			API:       name + ":8008",
			MySQLHost: name, MySQLPort: 3306})
	}
	return members
}

func testCluster(count int) *config.Cluster {
	return &config.Cluster{Version: 1, Name: "prod", ClusterID: 5, Members: testMembers(count), NextID: uint64(count) + 1}
}

// TestShutsOut: each way to lose trust marks the settings.
func TestShutsOut(t *testing.T) {
	base := &config.Cluster{Members: testMembers(3)}
	for what, tc := range map[string]struct {
		change func(*config.Cluster)
		want   bool
	}{
		"nothing":      {func(*config.Cluster) {}, false},
		"a setting":    {func(c *config.Cluster) { c.ReadLogin = true }, false},
		"a newcomer":   {func(c *config.Cluster) { c.Members = testMembers(4) }, false},
		"on its way":   {func(c *config.Cluster) { c.Members[2].Removing = true }, false},
		"removed":      {func(c *config.Cluster) { c.Members = c.Members[:2] }, true},
		"replaced":     {func(c *config.Cluster) { c.Members[2].ID = 4 }, true},
		"revoked":      {func(c *config.Cluster) { c.RevokedCerts = []config.Revocation{{Serial: "aa"}} }, true},
		"a new CA":     {func(c *config.Cluster) { c.CA = "bb" }, true},
		"a CA to come": {func(c *config.Cluster) { c.CAChange = &config.CAChange{Cert: "x"} }, false},
	} {
		next := base.Clone()
		tc.change(next)
		if got := shutsOut(base, next); got != tc.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// TestChangeHeedsItsDeadline: a change of the settings does not wait for another one longer than who asked for it.
func TestChangeHeedsItsDeadline(t *testing.T) {
	ms, _ := newTest(t, testCluster(3))
	release, inside := make(chan struct{}), make(chan struct{})
	var first sync.WaitGroup
	defer first.Wait()
	defer close(release)
	first.Go(func() {
		_, _ = ms.Change(t.Context(), 0, func(*config.Cluster) error {
			close(inside)
			<-release
			return errors.New("no change")
		})
	})
	<-inside
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := ms.Change(ctx, 0, func(*config.Cluster) error { return errors.New("it had its turn") })
		done <- err
	}()
	select {
	case err := <-done:
		if api.KindOf(err) != api.KindTimeout || !strings.Contains(err.Error(), "another change") {
			t.Error(err)
		}
	case <-time.After(Timeout):
		t.Error("a change waits for another one for ever")
	}
}

// TestLeavingIsLogged: each node's log says who is being removed, and who is not a member any more.
func TestLeavingIsLogged(t *testing.T) {
	ms, h := newTest(t, testCluster(3))
	for i, change := range []func(*config.Cluster){
		func(c *config.Cluster) { c.Members[2].Removing = true },
		func(c *config.Cluster) { c.Members[1].Weight = 7 },
		func(c *config.Cluster) { c.Members = c.Members[:2] },
	} {
		next := ms.Current().Clone()
		next.Version++
		change(next)
		ms.adopt(uint64(9+i), next)
	}
	for _, line := range []string{
		`msg="a node is being removed" node=db3 id=3 settings=2`,
		`msg="a node is not a member any more" node=db3 id=3 settings=4`,
	} {
		if strings.Count(h.log.String(), line) != 1 {
			t.Errorf("not once: %s", line)
		}
	}
	if t.Failed() {
		t.Log(h.log.String())
	}
}

// TestHeldMembershipIsToldOnce: a change of the membership that has to wait or fails is looked at each second, and
// told of once.
func TestHeldMembershipIsToldOnce(t *testing.T) {
	c := testCluster(2)
	c.Members[1].Removing = true
	ms, h := newTest(t, c)
	h.start(t)
	eventually(t, func() bool { return h.raft.Status().Role == consensus.Leader })
	add := &raftpb.ConfChangeSingle{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(2))}
	if err := h.raft.ProposeConfChange(t.Context(), &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{add}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return len(h.raft.Status().Voters) == 2 })
	for range 5 {
		ms.reconcileOnce(t.Context())
	}
	if got := strings.Count(h.log.String(), "level=WARN msg=\"a change of the membership"); got != 1 {
		t.Errorf("%d warnings:\n%s", got, &h.log)
	}

	// A failure is told as well, and the verb that waits for its end names it.
	ms.Current().Members[1].Removing, ms.Current().Members[1].Pending = false, true
	ms.Current().Members[0].Name = "?" // so no settings can be written
	for range 5 {
		ms.reconcileOnce(t.Context())
	}
	if got := strings.Count(h.log.String(), `node name \"?\"`); got != 1 {
		t.Errorf("%d warnings:\n%s", got, &h.log)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := ms.awaitMembers(ctx, "db2 is added", func(*config.Cluster, *consensus.Status) bool { return false })
	if api.KindOf(err) != api.KindTimeout || !strings.Contains(err.Error(), `node name "?"`) {
		t.Error(err)
	}
}

// TestSettingsAreSavedLater: the copy of the settings that a full disk did not take is written once it does.
func TestSettingsAreSavedLater(t *testing.T) {
	ms, _ := newTest(t, testCluster(3))
	dir := ms.cfg.Dir
	ms.cfg.Dir = filepath.Join(dir, "gone")
	next := ms.Current().Clone()
	next.Version++
	ms.adopt(9, next)
	ms.cfg.Dir = dir
	ms.FetchSettings(t.Context())
	if got, err := config.LoadCluster(dir); err != nil || got.Version != next.Version {
		t.Errorf("%+v, %v", got, err)
	}
}

// onWrite calls a function, once, when something is logged.
type onWrite struct{ do func() }

func (w *onWrite) Write(p []byte) (int, error) {
	if do := w.do; do != nil {
		w.do = nil
		do()
	}
	return len(p), nil
}

// TestNewestPeersStay: where the transport leads to is what the newest settings say, also when newer ones come while
// others are being adopted.
func TestNewestPeersStay(t *testing.T) {
	ms, h := newTest(t, testCluster(3))
	removing := ms.Current().Clone()
	removing.Version, removing.Members[2].Removing = 2, true
	moved := removing.Clone()
	moved.Version, moved.Members[1].Peer = 3, "elsewhere:7306"
	ms.log = slog.New(slog.NewTextHandler(&onWrite{func() { ms.adopt(10, moved) }}, nil))
	ms.adopt(9, removing)
	if ms.Current() != moved || h.peers[2] != "elsewhere:7306" {
		t.Errorf("the transport leads to %v", h.peers)
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
