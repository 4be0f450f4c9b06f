package node

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/core/consensus"
	"trireme/internal/core/ha"
	"trireme/internal/core/ledger"
	"trireme/internal/core/raftlog"
	"trireme/internal/node/delay"
	"trireme/internal/node/gossip"
	"trireme/internal/node/history"
	"trireme/internal/node/lifecycle"
	"trireme/internal/node/recovery"
	"trireme/internal/node/seeding"
)

// The files in testdata/golden are as released versions wrote them, and are read for ever (docs/format/README.md).
const newest = "testdata/golden/v1"

var update = flag.Bool("update", false,
	"write the files of a format that is not released yet; those that are there are kept")

// golden gives one of them.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(newest, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var goldenTime = time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)

func goldenGeneration() *config.Generation {
	return &config.Generation{Number: 2, ID: 77, Source: 1, Base: 100, BaseTerm: 7, Commit: 90, Members: []uint64{1, 2},
		At: goldenTime, By: "root@db1"}
}

// goldenState is what node.json holds.
func goldenState() localState {
	return localState{State: lifecycle.State{Incarnation: 12,
		Lives: ledger.Lives{Led: []uint64{3, 11}, Retired: map[uint64]int64{3: 400},
			Prelude: map[uint64]int64{11: 2}}, Durable: 4711, Inherited: "00000000-0000-8005-8001-000000000001:1-3"},
		LogMade: true}
}

// goldenSource is generation.json of the survivor whose log counts, goldenLeft that of a node that was given up.
func goldenSource() *recovery.State {
	return &recovery.State{Generation: goldenGeneration(), Event: &api.Event{Time: goldenTime, Kind: "force-quorum",
		Node: "db1", Term: 9, Index: 101, Message: "by hand"},
		Takeover: &consensus.Takeover{Term: 9, Base: 100, BTerm: 7, Conf: consensus.ForcedConf{Voters: []uint64{1, 2},
			Learners: []uint64{5}},
			Entries: []consensus.ForcedEntry{{Data: []byte("settings")}, {Change: true, Data: []byte{1, 2}}}}}
}

func goldenLeft() *recovery.State {
	return &recovery.State{Generation: &config.Generation{Number: 2, ID: 5, Members: []uint64{3}, At: goldenTime},
		Left: &recovery.Left{By: *goldenGeneration(), Why: "it was given up", At: goldenTime, From: 101, Last: 120,
			Have: "00000000-0000-8005-8001-000000000001:4-9"}}
}

func goldenEvents() []api.Event {
	return []api.Event{
		{Time: goldenTime, Kind: "failover", Node: "db2", To: "db2", From: "db1", FromTerm: 3, FromIncarnation: 4, Term: 5,
			Index: 10, Message: "db2 leads", GapMS: 812.5,
			Cause: "its daemon is gone", Incarnation: 6, Phases: &api.Phases{DetectMS: 1, CloseMS: 2, VoteMS: 3, ApplyMS: 4,
				OpenMS: 5, RouteMS: 6},
			RolledBack: &api.RolledBack{Known: true, Count: 2, GTIDs: "00000000-0000-8005-8001-000000000004:7-8", More: true}},
		{Time: goldenTime.Add(time.Second), Kind: "fence", Node: "db1", Term: 5, Message: "lease lost", Drained: true},
	}
}

func goldenHistory(dir string) *history.History {
	return history.New(dir, config.Identity{}, nil, nil, slog.New(slog.DiscardHandler))
}

func goldenStatus() gossip.Status {
	lag, bytes := 0.5, uint64(7)
	return gossip.Status{Leader: 2, OpenTerm: 5, Ready: true, Rate: 10, Epoch: "6/5", Routed: 5, History: 99, Settings: 3,
		Timeout: time.Second, KeepFrom: 4,
		Known:   gossip.Known{Left: gossip.Leave{Term: 3, Planned: true, Cause: "switchover", Ago: time.Minute}},
		Unready: ha.Reason{}, Rules: &api.CommitRulesView{},
		Member: api.MemberView{Name: "db2", Role: api.RoleLeader, State: api.StateHealthy,
			Raft:  api.RaftView{ID: 2, State: "leader", Term: 5, Voter: true, Weight: 100},
			MySQL: &api.MySQLView{Host: "db2", Port: 3306, Version: "9.7.4", LagSeconds: &lag, LagBytes: &bytes}}}
}

// TestGoldenWritten: what a node keeps, and tells others, does not change by accident.
func TestGoldenWritten(t *testing.T) {
	dir := t.TempDir()
	local, err := openLocalFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	written := func(name string, err error) []byte {
		t.Helper()
		b, err2 := os.ReadFile(filepath.Join(dir, name))
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		return b
	}
	h := goldenHistory(dir)
	for _, e := range goldenEvents() {
		h.Add(e)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	h.Keep(stopped)
	st, err := json.Marshal(goldenStatus())
	if err != nil {
		t.Fatal(err)
	}
	answer, err := json.Marshal(recovery.Survey{ID: 1, Term: 9, First: 1, Last: 100, LastTerm: 7, Commit: 90,
		GTIDs: "00000000-0000-8005-8001-000000000001:1-3", LastWrite: goldenTime,
		Conf: &raftpb.ConfState{Voters: []uint64{1, 2}}, Final: &raftpb.ConfState{Voters: []uint64{1, 2, 3, 4},
			Learners: []uint64{5}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]byte{
		"node.json":            written("node.json", local.update(func(s *localState) { *s = goldenState() })),
		"generation.json":      written("generation.json", goldenSource().Save(raftlog.OSFS{}, dir)),
		"generation-left.json": written("generation.json", goldenLeft().Save(raftlog.OSFS{}, dir)),
		"history.jsonl":        written("history.jsonl", nil),
		"status.json":          st,
		"survey.json":          answer,
	} {
		path := filepath.Join(newest, name)
		want, err := os.ReadFile(path)
		if *update && os.IsNotExist(err) {
			want, err = got, os.WriteFile(path, got, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what %s holds: the format has changed; see docs/format/README.md\n%s", name, path, got)
		}
	}
}

// TestNotesInNodeJSON: what seeding notes stands in node.json as it did before it was a package of its own.
func TestNotesInNodeJSON(t *testing.T) {
	const want = `{
  "incarnation": 12,
  "durable_index": 4711,
  "log_made": true,
  "diverged": {
    "errno": 1397,
    "error": "e",
    "resources": false,
    "diverged": true,
    "index": 9,
    "since": "2026-01-02T03:04:05.0000006Z",
    "next": ""
  },
  "voids": [
    "a",
    "b"
  ],
  "heals": [
    "2026-01-02T03:04:05.0000006Z"
  ],
  "hold": {
    "kind": ""
  }
}
`
	notes := seeding.Notes{Diverged: &api.ApplyErrorView{Number: 1397, Error: "e", Diverged: true, Index: 9,
		Since: goldenTime}, Voids: []string{"a", "b"}, Heals: []time.Time{goldenTime}}
	f, err := openLocalFile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.update(func(s *localState) {
		s.Incarnation, s.Durable, s.LogMade, s.Notes, s.Hold = 12, 4711, true, notes, new(delay.Order)
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(f.path); err != nil || string(got) != want {
		t.Errorf("%v: %s", err, got)
	}
	if f, err = openLocalFile(filepath.Dir(f.path)); err != nil || !reflect.DeepEqual(f.get().Notes, notes) {
		t.Errorf("read again: %+v, %v", f, err)
	}
}

// TestGoldenRead: files of all released formats say what they said.
func TestGoldenRead(t *testing.T) {
	versions, err := filepath.Glob("testdata/golden/v*")
	if err != nil || len(versions) == 0 {
		t.Fatal(versions, err)
	}
	for _, version := range versions {
		t.Run(filepath.Base(version), func(t *testing.T) {
			dir := t.TempDir()
			place := func(from, to string) {
				t.Helper()
				b, err := os.ReadFile(filepath.Join(version, from))
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, to), b, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			place("node.json", "node.json")
			local, err := openLocalFile(dir)
			if want := goldenState(); err != nil || !reflect.DeepEqual(*local.get(), want) {
				t.Errorf("node.json: %+v, %v", local, err)
			}
			for name, want := range map[string]*recovery.State{"generation.json": goldenSource(),
				"generation-left.json": goldenLeft()} {
				place(name, "generation.json")
				if s, err := recovery.Load(raftlog.OSFS{}, dir); err != nil || !reflect.DeepEqual(s, want) {
					t.Errorf("%s: %+v, %v", name, s, err)
				}
			}
			place("history.jsonl", "history.jsonl")
			if got := goldenHistory(dir).All(); !reflect.DeepEqual(got, goldenEvents()) {
				t.Errorf("history.jsonl: %+v", got)
			}
			b, err := os.ReadFile(filepath.Join(version, "status.json"))
			if err != nil {
				t.Fatal(err)
			}
			var s gossip.Status
			if err := json.Unmarshal(b, &s); err != nil || !reflect.DeepEqual(s, goldenStatus()) {
				t.Errorf("status.json: %+v, %v", s, err)
			}
		})
	}
}
