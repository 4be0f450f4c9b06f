package raftlog_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"trireme/internal/core/raftlog"
	"trireme/internal/core/raftlog/memfs"
	"trireme/internal/mysql/gtid"
	"trireme/lab/child"
	"trireme/lab/faultfs"
)

func TestMain(m *testing.M) {
	child.Main(faultfs.Server)
	goleak.VerifyTestMain(m)
}

// TestReadersBesideWriter: while entries are appended, cut, committed and purged, readers of committed entries see each
// of them once, in order, and what was written.
func TestReadersBesideWriter(t *testing.T) {
	const count = 1500
	fsys := memfs.New()
	l, err := raftlog.Open(raftlog.Options{
		Dir: dir, FS: fsys, SegmentBytes: 32 << 10, CacheBytes: 10 << 10, ZeroAheadBytes: 8 << 10, Cluster: 5, NodeID: 1,
		Keys: keys,
	})
	ok(t, err)
	var commit, slowest atomic.Uint64
	var committed sync.Map // index -> data
	var wg sync.WaitGroup
	stop := make(chan struct{})
	reader := func(rnd *rand.Rand, keep bool) {
		defer wg.Done()
		r := l.NewReader(1)
		for r.Index() <= count {
			at := r.Index()
			es, err := r.Next(commit.Load(), rnd.IntN(20000))
			if errors.Is(err, raftlog.ErrPurged) && !keep {
				first, _ := l.FirstIndex()
				r = l.NewReader(first)
				continue
			}
			if err != nil {
				t.Errorf("reader at %d: %v", at, err)
				return
			}
			for i, e := range es {
				data, _ := committed.Load(e.GetIndex())
				if e.GetIndex() != at+uint64(i) || !bytes.Equal(data.([]byte), e.Data) {
					t.Errorf("reader at %d got entry %d, or other data", at+uint64(i), e.GetIndex())
					return
				}
			}
			if keep {
				slowest.Store(r.Index() - 1)
			}
			select {
			case <-stop:
				if len(es) == 0 {
					return
				}
			default:
			}
		}
	}
	background := func(f func(rnd *rand.Rand) error) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rnd := rand.New(rand.NewPCG(1, 2))
			for {
				select {
				case <-stop:
					return
				default:
				}
				runtime.Gosched()
				if err := f(rnd); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	wg.Add(2)
	go reader(rand.New(rand.NewPCG(1, 1)), true)
	go reader(rand.New(rand.NewPCG(1, 3)), false)
	background(func(rnd *rand.Rand) error { // raft
		first, _ := l.FirstIndex()
		last, _ := l.LastIndex()
		lo := first + rnd.Uint64N(last-first+2)
		if _, err := l.Term(lo); err != nil && !errors.Is(err, raft.ErrCompacted) && !errors.Is(err, raft.ErrUnavailable) {
			return err
		}
		_, err := l.Entries(lo, lo+5, 4000)
		if err != nil && !errors.Is(err, raft.ErrCompacted) && !errors.Is(err, raft.ErrUnavailable) {
			return err
		}
		return nil
	})
	background(func(rnd *rand.Rand) error { // a receiver that comes back
		var set gtid.Set
		if c := commit.Load(); c > 3 {
			set.AddRange(gtid.Range{SID: gtid.SID{UUID: gtid.IncarnationUUID(5, 1, 1)}, First: 1,
				Last: 1 + rnd.Int64N(int64(c))})
		}
		if _, _, err := l.SeekGTID(set, commit.Load()); err != nil && !errors.Is(err, raftlog.ErrPurged) {
			return err
		}
		_ = l.GTIDSet()
		_ = l.Boundary()
		if _, err := l.Snapshot(); err != nil && !errors.Is(err, raft.ErrSnapshotTemporarilyUnavailable) {
			return err
		}
		return nil
	})
	background(func(*rand.Rand) error { // upkeep
		_, err := l.Purge(slowest.Load()*9/10, 0)
		if c := commit.Load(); err == nil && c > l.ConfStateIndex()+100 {
			err = l.SetConfState(&raftpb.ConfState{Voters: []uint64{1, c}}, c)
		}
		return err
	})
	write(t, l, count, &commit, &committed)
	close(stop)
	wg.Wait()
	ok(t, l.Close())
	rep, err := raftlog.Verify(fsys, dir, keys)
	ok(t, err)
	tidy(t, fsys, rep)
}

// write appends count entries in batches, replaces a tail now and then, and commits what is synced.
func write(t *testing.T, l *raftlog.Log, count uint64, commit *atomic.Uint64, committed *sync.Map) {
	rnd := rand.New(rand.NewPCG(9, 9))
	w := newWriter()
	state := func() { setState(t, l, w.term, 1, commit.Load()) }
	state()
	for commit.Load() < count {
		from := *w
		var batch []*raftpb.Entry
		for range 1 + rnd.IntN(20) {
			batch = append(batch, w.trx(rnd.IntN(1500), 0))
		}
		ok(t, l.Append(batch))
		if rnd.IntN(10) == 0 { // a new leader has something else
			term := w.term + 1
			*w = from
			w.term = term
			state()
			batch = batch[:0]
			for range 1 + rnd.IntN(20) {
				batch = append(batch, w.trx(rnd.IntN(1500), 0))
			}
			ok(t, l.Append(batch))
		}
		ok(t, l.Sync())
		for _, e := range batch {
			committed.Store(e.GetIndex(), e.Data)
		}
		commit.Store(w.index)
		state()
	}
}
