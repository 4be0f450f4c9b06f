package room

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/raftlog/memfs"
	"trireme/internal/node/gossip"
	"trireme/internal/node/membership"
)

// testHost is db1 of db1 and db2, which vote, and three learners.
type testHost struct {
	rlog     *raftlog.Log
	settings config.Cluster
	ready    bool
	woken    int
}

func (*testHost) Raft() consensus.Status             { return consensus.Status{Voters: []uint64{1, 2}} }
func (h *testHost) Log() *raftlog.Log                { return h.rlog }
func (h *testHost) Settings() *config.Cluster        { return &h.settings }
func (h *testHost) Needs() (keep uint64, ready bool) { return 0, h.ready }
func (*testHost) GaveUp(uint64, string)              {}
func (*testHost) IsNew(_ string, err error) bool     { return err != nil }
func (h *testHost) WakeLoop()                        { h.woken++ }

// newTest is a member of which nothing runs; all others are there and ready.
func newTest(t *testing.T) (*Room, *testHost) {
	t.Helper()
	cfg, id, log := config.Default(), config.Identity{Name: "db1", ID: 1}, slog.New(slog.DiscardHandler)
	cfg.Dir = t.TempDir()
	h := &testHost{}
	r := New(cfg, id, gossip.New(cfg, id, nil, run.Real{Boottime: consensus.Boottime}, nil, log), h, log)
	for i := range 5 {
		m := config.Member{ID: uint64(i + 1), Name: fmt.Sprint("db", i+1), Role: config.RoleLearner}
		if i < 2 {
			m.Role = config.RoleVoter
		}
		h.settings.Members = append(h.settings.Members, m)
		r.gossip.Peers()[m.ID] = &gossip.Peer{Up: true, At: now(), Status: gossip.Status{Ready: true,
			Member: api.MemberView{Name: m.Name}}}
	}
	delete(r.gossip.Peers(), 1)
	return r, h
}

func now() time.Duration { return time.Duration(consensus.Boottime()) }

// TestRefused: a leader takes no writes when fewer than a majority of the voters have room, and only then.
func TestRefused(t *testing.T) {
	one, five := ledger.Membership{{1, 2, 3}}, ledger.Membership{{1, 2, 3, 4, 5}}
	for _, tt := range []struct {
		voters  ledger.Membership
		full    string // ids of those at their bound
		silent  string
		refused bool
	}{
		{one, "", "", false},
		{one, "3", "", false},
		{one, "3", "2", true},
		{one, "1", "", false},
		{one, "1", "2", true},
		{one, "", "2 3", false}, // no majority at all is the lease's affair
		{one, "2 3", "", true},
		{five, "4 5", "", false},
		{five, "4", "2 3", true},
		{five, "4 5", "3", true},
		{ledger.Membership{{1, 2, 3}, {1, 4, 5}}, "4 5", "", true},
		{ledger.Membership{{1, 2, 3}, {1, 4, 5}}, "5", "", false},
		{one, "4 5", "", false}, // they have no vote
	} {
		r, _ := newTest(t)
		for _, id := range strings.Fields(tt.full) {
			if id == "1" {
				r.state.Bound = "at its bound"
			} else {
				r.gossip.Peers()[testID(t, id)].Bound = "at its bound"
			}
		}
		for _, id := range strings.Fields(tt.silent) {
			r.gossip.Peers()[testID(t, id)].Up = false
		}
		st := &consensus.Status{Voters: tt.voters[0]}
		st.Role = consensus.Leader
		if len(tt.voters) > 1 {
			st.Outgoing = tt.voters[1]
		}
		full, why := r.Disks(st)
		if full != "" || (why != "") != tt.refused {
			t.Errorf("%v, at their bounds %q, silent %q: %q", tt.voters, tt.full, tt.silent, why)
		}
		st.Role = consensus.Follower
		if _, why := r.Disks(st); why != "" {
			t.Errorf("a follower refuses writes: %q", why)
		}
	}
}

func testID(t *testing.T, s string) uint64 {
	t.Helper()
	id, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestKeeperThatJoins: a member whose record still says that it joins counts from when raft's membership has it (S8).
func TestKeeperThatJoins(t *testing.T) {
	for name, tt := range map[string]struct {
		st   consensus.Status
		want bool
	}{
		"not in raft":            {consensus.Status{Voters: []uint64{1}}, false},
		"a learner":              {consensus.Status{Voters: []uint64{1}, Learners: []uint64{2}}, true},
		"a voter":                {consensus.Status{Voters: []uint64{1, 2}}, true},
		"a voter that goes away": {consensus.Status{Voters: []uint64{1}, Outgoing: []uint64{1, 2}}, true},
	} {
		r, h := newTest(t)
		h.settings.Members[1].Pending = true
		got := false
		for _, k := range membership.Retainers(r.self(), &tt.st, h.Settings(), r.gossip.Peers()) {
			got = got || k.ID == 2
		}
		if got != tt.want {
			t.Errorf("%s: its needs count: %v, want %v", name, got, tt.want)
		}
	}
}

// TestOwnRestart: a node whose log is at its bound does not give itself up while its mysqld restarts, and does later.
func TestOwnRestart(t *testing.T) {
	r, h := newTest(t)
	st := consensus.Status{Voters: []uint64{1, 2}}
	own := func() ledger.LogRetainer {
		return membership.Retainers(r.self(), &st, h.Settings(), r.gossip.Peers())[0]
	}
	if k := own(); k.ID != 1 || k.Ready {
		t.Errorf("never ready: %+v", k)
	}
	h.ready = true
	if !own().Ready {
		t.Error("ready: its needs do not count")
	}
	h.ready = false
	if !own().Ready {
		t.Error("not ready since now: its needs do not count")
	}
	r.readyAt -= ownGrace
	if own().Ready {
		t.Error("not ready for a minute: its needs count")
	}
}

// TestNoteBound: a log at its bound says so, and who keeps it there, until it is a segment below.
func TestNoteBound(t *testing.T) {
	r, h := newTest(t)
	var err error
	if h.rlog, err = raftlog.Open(raftlog.Options{Dir: "/raft", FS: memfs.New(), Cluster: 5, NodeID: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.rlog.Close() })
	size := config.Bytes(h.rlog.Size())
	r.cfg.Raft.LogSegment = 10
	for _, tt := range []struct {
		limit, most   config.Bytes
		bound, pinned bool
		woken         int
	}{
		{size, size, false, false, 0},
		{size, size - 11, false, true, 0},
		{size - 1, size, true, true, 1},
		{size + 9, size, true, true, 1},
		{size + 10, size, false, false, 2},
	} {
		r.cfg.Raft.LogLimit, r.cfg.Raft.LogMax = tt.limit, tt.most
		r.PurgeLog(t.Context())
		s := r.State()
		if (s.Bound != "") != tt.bound || (s.Pinned != "") != tt.pinned || h.woken != tt.woken ||
			tt.bound && !strings.Contains(s.Bound, s.Pinned) {
			t.Errorf("limit %d, log_max %d of %d: %+v, woken %d times", tt.limit, tt.most, size, s, h.woken)
		}
	}
}

// TestPurge: no member is given up while the log is below its bound.
func TestPurge(t *testing.T) {
	r, h := newTest(t)
	st := consensus.Status{State: consensus.State{Term: 1}, Voters: []uint64{1, 2, 3}}
	st.Commit = 100
	for i := range h.settings.Members {
		h.settings.Members[i].Role = config.RoleVoter
		if p := r.gossip.Peers()[uint64(i+1)]; p != nil {
			p.KeepFrom, p.Up = 40, i != 2
		}
	}
	for _, beyond := range []bool{false, true} {
		var said []string
		pin := Purge(ledger.LogRetainer{ID: 1, Keep: 50, Ready: true}, &st, h.Settings(), r.gossip.Peers(),
			func(safe uint64) bool {
				said = append(said, fmt.Sprint(safe))
				return beyond
			}, func(safe uint64, given []string) { said = append(said, fmt.Sprint(safe, given)) })
		want, who := "0", "db3"
		if beyond {
			want, who = "0 40 [db3]", "db2"
		}
		if got := strings.Join(said, " "); got != want || !strings.Contains(pin, who) {
			t.Errorf("beyond its bound %v: %q, %q", beyond, got, pin)
		}
	}
}

// TestDiskMetrics: each disk has its free bytes and its size.
func TestDiskMetrics(t *testing.T) {
	r, _ := newTest(t)
	r.state.Disks = []api.DiskView{{Holds: "log, data", FreeBytes: 5, TotalBytes: 9}}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(r)
	families, err := reg.Gather()
	if err != nil || len(families) != 2 {
		t.Fatal(len(families), err)
	}
	for i, want := range []float64{5, 9} { // by name: free, size
		if m := families[i].GetMetric()[0]; m.GetGauge().GetValue() != want || m.GetLabel()[0].GetValue() != "log, data" {
			t.Error(families[i])
		}
	}
}
