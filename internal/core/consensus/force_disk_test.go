package consensus_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/consensus"
	"trireme/internal/core/raftlog"
	"trireme/internal/core/raftlog/memfs"
)

// The machine loses power at every disk operation of a takeover in turn. The log that is found opens, holds everything
// that it held before, and comes to the same end when the takeover is carried out again.
func TestTakeoverPowerLoss(t *testing.T) {
	var before int
	open := func(fs *memfs.FS) *raftlog.Log {
		l, err := raftlog.Open(raftlog.Options{Dir: "/raft", FS: fs, SegmentBytes: 64 << 10, Cluster: 1, NodeID: 1})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	make20 := func() (*memfs.FS, *raftlog.Log) {
		fs := memfs.New()
		l := open(fs)
		var ents []*raftpb.Entry
		for i := range uint64(20) {
			ents = append(ents, &raftpb.Entry{Index: new(i + 1), Term: new(uint64(3)), Data: payload(100)})
		}
		err := errors.Join(l.SetHardState(&raftpb.HardState{Term: new(uint64(4)), Vote: new(uint64(2)),
			Commit: new(uint64(0))}),
			l.SetConfState(&raftpb.ConfState{Voters: []uint64{1, 2, 3}}, 1), l.Append(ents), l.Sync())
		if err != nil {
			t.Fatal(err)
		}
		before = len(ents)
		return fs, l
	}
	done := false
	for op := 0; !done; op++ {
		fs, l := make20()
		plan, err := consensus.PlanTakeover(l, 0, 5, [][]byte{payload(50)}, consensus.ForcedConf{Voters: []uint64{1}})
		if err != nil {
			t.Fatal(err)
		}
		left := op
		cut := errors.New("power is lost")
		fs.Hook = func(o memfs.Op, _ string) error {
			if o == memfs.OpRead {
				return nil
			}
			if left--; left < 0 {
				return cut
			}
			return nil
		}
		if err = plan.CarryOut(l, 1); err == nil {
			done = true
		}
		_ = l.Close()
		fs.Hook = nil
		fs.Crash(rand.New(rand.NewPCG(uint64(op), 1)))
		l = open(fs)
		if last, _ := l.LastIndex(); last < uint64(before) {
			t.Fatalf("operation %d: the log ends at %d", op, last)
		}
		if err := plan.CarryOut(l, 1); err != nil {
			t.Fatalf("operation %d, again: %v", op, err)
		}
		last, _ := l.LastIndex()
		term, _ := l.Term(last)
		hs, cs, _ := l.InitialState()
		if last != plan.End() || term != 5 || hs.GetTerm() != 5 || hs.GetVote() != 1 || l.ConfStateIndex() != last ||
			!slices.Equal(cs.GetVoters(), []uint64{1}) {
			t.Fatalf("operation %d: last %d of term %d, %v, %v at %d", op, last, term, hs, cs, l.ConfStateIndex())
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if op > 200 {
			t.Fatal("no end")
		}
	}
}
