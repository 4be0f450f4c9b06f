package recovery

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/base/run"
	"trireme/internal/core/consensus"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/raftlog/memfs"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// testHost is a node without any running part.
type testHost struct {
	log        *raftlog.Log
	settings   config.Cluster
	remembered int
}

func (h *testHost) Raft() Raft                                       { return nil }
func (h *testHost) Log() *raftlog.Log                                { return h.log }
func (h *testHost) Settings() *config.Cluster                        { return &h.settings }
func (h *testHost) Heard() time.Duration                             { return 0 }
func (h *testHost) Record(string, string, string)                    {}
func (h *testHost) Remember(api.Event)                               { h.remembered++ }
func (h *testHost) AuditForce(_, _ string, _ *api.ForceReport) error { return nil }
func (h *testHost) Quiesce()                                         {}
func (h *testHost) Go(func(context.Context))                         {}
func (h *testHost) Fail(error)                                       {}
func (h *testHost) RandomID() uint64                                 { return 1 }

func (h *testHost) Request(context.Context, uint64, uint8, []byte) ([]byte, error) {
	return nil, errors.New("no node answers")
}

// atRest is a node whose log has entries of certain terms: a barrier, then a transaction each.
func atRest(t *testing.T, id uint64, terms ...uint64) (*Recovery, *testHost) {
	t.Helper()
	cfg, h := config.Default(), &testHost{}
	cfg.Dir = t.TempDir()
	var err error
	if h.log, err = raftlog.Open(raftlog.Options{Dir: "/raft", FS: memfs.New(), Cluster: 5, NodeID: id}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.log.Close() })
	var ents []*raftpb.Entry
	var before uint64
	pos := raftlog.Pos{File: 1, Off: 4}
	for i, term := range terms {
		m := raftlog.Meta{Kind: raftlog.Trx, Node: 1, Incarnation: term, Start: pos}
		if term != before {
			pos = raftlog.Pos{File: 1, Off: 4}
			m = raftlog.Meta{Kind: raftlog.Barrier, Node: 1, Incarnation: term, Start: pos}
		} else {
			pos.Off += 100
			m.AddGTID(gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(5, 1, term)}, GNO: int64(i + 1)})
		}
		m.End, before = pos, term
		ents = append(ents, &raftpb.Entry{Index: new(uint64(i + 1)), Term: new(term),
			Data: append(raftlog.AppendMeta(nil, &m), make([]byte, 100)...)})
	}
	if err := errors.Join(h.log.SetHardState(&raftpb.HardState{Term: new(before), Vote: new(id)}), h.log.Append(ents),
		h.log.Sync()); err != nil {
		t.Fatal(err)
	}
	return New(cfg, config.Identity{Cluster: "prod", ClusterID: 5, Name: "db1", ID: id},
		run.Real{Boottime: consensus.Boottime}, raftlog.OSFS{}, h, slog.New(slog.DiscardHandler)), h
}

// A node goes over to a generation that names it, if its log ends where that begins or before. Any other one is left
// given up for good.
func TestBarsFollowing(t *testing.T) {
	gen := func(change func(*config.Generation)) *config.Generation {
		g := &config.Generation{Number: 2, ID: 77, Source: 2, Base: 4, BaseTerm: 2, Commit: 2, Members: []uint64{1, 2},
			At: time.Unix(1e9, 0), By: "root@h"}
		change(g)
		return g
	}
	for name, c := range map[string]struct {
		terms []uint64
		gen   *config.Generation
		why   string
	}{
		"the same log":             {[]uint64{1, 1, 2, 2}, gen(func(*config.Generation) {}), ""},
		"a shorter one":            {[]uint64{1, 1, 2}, gen(func(*config.Generation) {}), ""},
		"longer, of an older term": {[]uint64{1, 1, 1, 1, 1, 1}, gen(func(*config.Generation) {}), ""},
		"longer":                   {[]uint64{1, 1, 2, 2, 2}, gen(func(*config.Generation) {}), "goes beyond"},
		"of a later term":          {[]uint64{1, 3}, gen(func(*config.Generation) {}), "goes beyond"},
		"given up": {[]uint64{1}, gen(func(g *config.Generation) { g.Members = []uint64{2, 3} }),
			"it was given up"},
		"two generations later": {[]uint64{1}, gen(func(g *config.Generation) { g.Number, g.Parent = 3, 76 }),
			"belongs to generation 1"},
	} {
		r, _ := atRest(t, 1, c.terms...)
		why, err := r.barsFollowing(c.gen)
		if err != nil || (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: %q, %v", name, why, err)
		}
	}
}

// A node that was given up names what it holds beyond the cluster, and never starts again.
func TestLeave(t *testing.T) {
	base := config.Generation{Number: 2, ID: 77, Source: 2, Base: 4, BaseTerm: 2, Commit: 2, Members: []uint64{2},
		At: time.Unix(1e9, 0), By: "root@h"}
	for name, c := range map[string]struct {
		terms []uint64
		says  string
	}{
		"nothing more": {[]uint64{1, 1, 2, 2}, "holds nothing beyond"},
		"longer":       {[]uint64{1, 1, 2, 2, 2, 2}, "000000000002:5-6 (entries 5 to 6;"},
		"of two lives": {[]uint64{1, 1, 2, 2, 2, 4, 4},
			"000000000002:5,00000000-0000-8005-8001-000000000004:7 (entries 5 to 7;"},
		"another branch": {[]uint64{1, 1, 3, 3}, "000000000003:4 (entries 3 to 4;"},
	} {
		r, _ := atRest(t, 1, c.terms...)
		err := r.giveUp(&base, "it was given up")
		if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "given up by force-quorum") ||
			!errors.Is(err, ErrLeftBehind) {
			t.Errorf("%s: %v", name, err)
		}
		again := r.Open(&config.Cluster{})
		if again == nil || again.Error() != err.Error() {
			t.Errorf("%s: at the next start: %v", name, again)
		}
	}
}

// What was decided and not carried out is when the daemon starts; a torn write of the decision does not count.
func TestDecisionSurvivesTheDaemon(t *testing.T) {
	r, h := atRest(t, 2, 1, 1, 2, 2)
	if err := r.Open(&config.Cluster{}); err != nil || r.generation != nil {
		t.Fatal(err, r.generation)
	}
	if err := r.CarryOut(); err != nil {
		t.Fatal(err)
	}
	if err := h.log.SetConfState(&raftpb.ConfState{Voters: []uint64{1, 2, 3}}, 1); err != nil {
		t.Fatal(err)
	}
	s := decided(t, h.log)
	if err := s.Save(r.fs, r.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := errors.Join(r.Open(&config.Cluster{}), r.CarryOut()); err != nil {
			t.Fatal(err)
		}
		_, cs, _ := h.log.InitialState()
		if last, _ := h.log.LastIndex(); last != s.Takeover.End() || len(cs.GetVoters()) != 1 ||
			r.generation.NumberOf() != 2 {
			t.Fatalf("last %d, %v, generation %d", last, cs, r.generation.NumberOf())
		}
	}
	if h.remembered != 2 { // the history takes it once
		t.Errorf("%d events", h.remembered)
	}
}

// The settings in a takeover reach the node that has made it, although all of it is committed at once.
func TestDelivered(t *testing.T) {
	r, h := atRest(t, 2, 1, 1, 2, 2)
	if err := h.log.SetConfState(&raftpb.ConfState{Voters: []uint64{1, 2, 3}}, 1); err != nil {
		t.Fatal(err)
	}
	s := decided(t, h.log)
	if err := errors.Join(s.Save(r.fs, r.cfg.Dir), r.Open(&h.settings), r.CarryOut()); err != nil {
		t.Fatal(err)
	}
	if at := r.Delivered(3); at != 3 {
		t.Errorf("up to %d of 3", at)
	}
	if at := r.Delivered(s.Takeover.End()); at != 4 {
		t.Errorf("up to %d, and the settings are above entry 4", at)
	}
	h.settings.Generation = s.Generation
	if at := r.Delivered(s.Takeover.End()); at != s.Takeover.End() {
		t.Errorf("up to %d, and the node has the settings", at)
	}
}

// What follows from generation.json is not left without it by a loss of power, also if the process that wrote the file
// died before it had synced the directory.
func TestWhatIsFoundIsDurable(t *testing.T) {
	r, h := atRest(t, 2, 1, 1, 2, 2)
	if err := h.log.SetConfState(&raftpb.ConfState{Voters: []uint64{1, 2, 3}}, 1); err != nil {
		t.Fatal(err)
	}
	disk := memfs.New()
	r.fs = disk
	if err := disk.MkdirAll(r.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	disk.Hook = func(op memfs.Op, _ string) error {
		if op == memfs.OpSyncDir {
			return memfs.ErrInjected
		}
		return nil
	}
	if err := decided(t, h.log).Save(disk, r.cfg.Dir); !errors.Is(err, memfs.ErrInjected) {
		t.Fatal(err)
	}
	if err := r.Open(&config.Cluster{}); !errors.Is(err, memfs.ErrInjected) {
		t.Fatal(err)
	}
	disk.Hook = nil
	if err := errors.Join(r.Open(&config.Cluster{}), r.CarryOut()); err != nil {
		t.Fatal(err)
	}
	disk.Crash(nil)
	if s, err := Load(disk, r.cfg.Dir); err != nil || s.Generation.NumberOf() != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

func decided(t *testing.T, log *raftlog.Log) *State {
	t.Helper()
	takeover, err := consensus.PlanTakeover(log, 0, 3, nil, consensus.ForcedConf{Voters: []uint64{2}})
	if err != nil {
		t.Fatal(err)
	}
	return &State{Generation: &config.Generation{Number: 2, ID: 77, Source: 2, Base: 4, BaseTerm: 2, Members: []uint64{2}},
		Takeover: takeover,
		Event:    &api.Event{Time: time.Unix(1e9, 1), Kind: "force-quorum", Term: 3, Message: "root@h made generation 2"}}
}

// The time of the last write is that of the last transaction, whatever else follows it in the log.
func TestLastWrite(t *testing.T) {
	r, h := atRest(t, 1, 1, 1, 1)
	if at := r.lastWrite(1, 3); !at.IsZero() {
		t.Errorf("%v, of bytes that are no events", at)
	}
	m := raftlog.Meta{Kind: raftlog.Trx, Node: 1, Incarnation: 1, Start: raftlog.Pos{File: 1, Off: 204}}
	ev := binlog.AppendEvent(nil, binlog.Header{Timestamp: 1700000001, Type: binlog.TypeRowsQuery}, make([]byte, 20))
	m.End = raftlog.Pos{File: 1, Off: 204 + uint64(len(ev))}
	ents := []*raftpb.Entry{{Index: new(uint64(4)), Term: new(uint64(1)),
		Data: append(raftlog.AppendMeta(nil, &m), ev...)}, {Index: new(uint64(5)), Term: new(uint64(1))}}
	if err := errors.Join(h.log.Append(ents), h.log.Sync()); err != nil {
		t.Fatal(err)
	}
	if at := r.lastWrite(1, 5); at.Unix() != 1700000001 {
		t.Errorf("%v", at)
	}
	if at := r.lastWrite(5, 5); !at.IsZero() {
		t.Errorf("%v, though that entry is gone", at)
	}
}
