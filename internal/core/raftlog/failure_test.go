package raftlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"trireme/internal/core/raftlog"
	"trireme/internal/core/raftlog/memfs"
	"trireme/lab/needs"
)

// TestFailureIsFinal: after a failed write or fsync nothing more is accepted, and nothing is called durable (S2).
func TestFailureIsFinal(t *testing.T) {
	for _, op := range []memfs.Op{memfs.OpWrite, memfs.OpFdatasync} {
		t.Run(string(op), func(t *testing.T) {
			fsys := memfs.New()
			l := open(t, fsys)
			setState(t, l, 1, 1, 0)
			w := newWriter()
			fill(t, l, w, 3, true)
			failing := true
			fsys.Hook = func(o memfs.Op, _ string) error {
				if failing && o == op {
					return memfs.ErrInjected
				}
				return nil
			}
			err := errors.Join(l.Append([]*raftpb.Entry{w.trx(10, 0)}), l.Sync())
			want(t, err, raftlog.ErrFailed)
			want(t, err, memfs.ErrInjected)
			failing = false
			want(t, l.Sync(), raftlog.ErrFailed)
			want(t, l.Append([]*raftpb.Entry{w.trx(10, 0)}), raftlog.ErrFailed)
			want(t, l.SetHardState(&raftpb.HardState{Term: new(uint64(9))}), raftlog.ErrFailed)
			want(t, l.SetConfState(&raftpb.ConfState{}, 1), raftlog.ErrFailed)
			_, err = l.Purge(1, 0)
			want(t, err, raftlog.ErrFailed)
			want(t, l.Err(), raftlog.ErrFailed)
			if d := l.DurableIndex(); d != 3 {
				t.Fatalf("durable index %d", d)
			}
			if _, err := l.Entries(1, 4, 1<<20); err != nil {
				t.Fatalf("reading after a failure: %v", err)
			}
			want(t, l.Close(), raftlog.ErrFailed)
			l = open(t, fsys)
			if last, _ := l.LastIndex(); last < 3 {
				t.Fatalf("last index %d", last)
			}
			ok(t, l.Close())
		})
	}
}

func TestNoSpace(t *testing.T) {
	fsys := memfs.New()
	l := open(t, fsys)
	setState(t, l, 1, 1, 0)
	fsys.SetLimit(60000)
	w := newWriter()
	var err error
	var n uint64
	for err == nil && n < 1000 {
		if err = l.Append([]*raftpb.Entry{w.trx(300, 0)}); err == nil {
			err = l.Sync()
			n = l.DurableIndex()
		}
	}
	want(t, err, raftlog.ErrNoSpace)
	want(t, err, raftlog.ErrFailed)
	for _, s := range []string{dir, "bytes are free", "make room"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error text lacks %q: %v", s, err)
		}
	}
	_ = l.Close()
	// On a full disk the log still opens, and keeps votes: its state file has its blocks.
	l = open(t, fsys)
	if last, _ := l.LastIndex(); last < n {
		t.Fatalf("last index %d, durable was %d", last, n)
	}
	setState(t, l, 5, 3, 0)
	ok(t, l.Close())
}

func TestInvariants(t *testing.T) {
	fsys := memfs.New()
	l := open(t, fsys)
	setState(t, l, 1, 1, 0)
	w := newWriter()
	all := fill(t, l, w, 10, true)
	setState(t, l, 1, 1, 8)
	bad := func(name string, change func(w *writer) *raftpb.Entry) {
		t.Helper()
		c := *w
		e := change(&c)
		if err := l.Append([]*raftpb.Entry{e}); !errors.Is(err, raftlog.ErrInvariant) {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad("gap in the index", func(w *writer) *raftpb.Entry { w.index++; return w.trx(1, 0) })
	bad("term not persisted", func(w *writer) *raftpb.Entry { w.term = 7; return w.trx(1, 0) })
	bad("term goes back", func(w *writer) *raftpb.Entry { w.term = 0; return w.trx(1, 0) })
	bad("position gap (S12)", func(w *writer) *raftpb.Entry { w.pos.Off++; return w.trx(1, 0) })
	bad("position double (S12)", func(w *writer) *raftpb.Entry { w.pos.Off--; return w.trx(1, 0) })
	bad("file skipped", func(w *writer) *raftpb.Entry { w.pos = raftlog.Pos{File: 3, Off: 4}; return w.trx(1, 0) })
	bad("GTID twice (S12)", func(w *writer) *raftpb.Entry { w.gno -= 2; return w.trx(1, 0) })
	bad("dead incarnation (S6)", func(w *writer) *raftpb.Entry { w.inc = 9; return w.trx(1, 0) })
	bad("continues nothing", func(w *writer) *raftpb.Entry { return w.trx(1, raftlog.FlagContinues) })
	bad("committed entry replaced",
		func(w *writer) *raftpb.Entry { setState(t, l, 2, 1, 8); w.term = 2; w.index = 7; return w.barrier() })
	if err := l.SetHardState(&raftpb.HardState{Term: new(uint64(1))}); !errors.Is(err, raftlog.ErrInvariant) {
		t.Errorf("term goes back: %v", err)
	}
	if err := l.SetHardState(&raftpb.HardState{Term: new(uint64(2)), Vote: new(uint64(2)), Commit: new(uint64(8))}); !errors.Is(err, raftlog.ErrInvariant) {
		t.Errorf("second vote: %v", err)
	}
	ok(t, same(t, l, all))
	// The one step that is allowed: the next file.
	w.pos = raftlog.Pos{File: 2, Off: 4}
	ok(t, l.Append([]*raftpb.Entry{w.trx(1, raftlog.FlagUnfinished)}))
	ok(t, l.Append([]*raftpb.Entry{w.trx(1, raftlog.FlagContinues)}))
	ok(t, l.Close())
	want(t, l.Sync(), raftlog.ErrClosed)
}

// crashRun is a run with rotation, a cut over segments, a purge and a reset, up to the first failure. It says what
// was synced when, and what the log may hold.
type crashRun struct {
	synced uint64
	first  uint64            // nothing from it on may be missing
	all    [][]*raftpb.Entry // histories, from index 1 on
	jobs   []func()          // jobs that no writer waits for and that are not done yet
}

func (r *crashRun) do(o raftlog.Options) error {
	r.first = 1
	l, err := raftlog.Open(o)
	if err != nil {
		return err
	}
	defer l.Close()
	w := newWriter()
	var all, tail []*raftpb.Entry
	for range 40 {
		all = append(all, w.trx(300, 0))
	}
	w = &writer{inc: 2, term: 2, index: 9}
	for range 15 {
		tail = append(tail, w.trx(200, 0))
	}
	last := &raftpb.Entry{Index: new(uint64(25)), Term: new(uint64(2))}
	r.all = [][]*raftpb.Entry{all, slices.Concat(all[:9], tail, []*raftpb.Entry{last})}
	state := func(term, commit uint64) error {
		return l.SetHardState(&raftpb.HardState{Term: &term, Vote: new(uint64(1)), Commit: &commit})
	}
	sync := func(index uint64) func() error {
		return func() error {
			err := l.Sync()
			if err == nil {
				r.synced = index
			}
			return err
		}
	}
	steps := []func() error{
		func() error { return state(1, 0) },
		func() error { return l.Append(all[:13]) },
		func() error { return l.Append(all[13:20]) },
		sync(20),
		func() error { return l.Append(all[20:21]) },
		sync(21),
		func() error { return l.Append(all[21:]) },
		sync(40),
		func() error { r.synced = 9; return state(2, 9) },
		func() error { return l.Append(tail) },
		sync(24),
		func() error { return state(2, 24) },
		func() error { return l.SetConfState(&raftpb.ConfState{Voters: []uint64{1}}, 9) },
		func() error { r.first = 21; _, err := l.Purge(20, 0); return err },
		func() error { return l.SetConfState(&raftpb.ConfState{Voters: []uint64{1, 2}}, 24) },
		func() error {
			snap, err := l.Snapshot()
			if err != nil {
				return err
			}
			r.first = 25
			return l.ResetTo(snap)
		},
		func() error { return l.Append([]*raftpb.Entry{last}) },
		sync(25),
	}
	for _, s := range steps {
		if err := s(); err != nil {
			return err
		}
		for len(r.jobs) > 0 {
			job := r.jobs[0]
			r.jobs = r.jobs[1:]
			job()
		}
	}
	return nil
}

// TestEveryCrash crashes after each operation of a run: the log always opens, and holds what was synced. Jobs that no
// writer waits for are done at once, a step later, or never.
func TestEveryCrash(t *testing.T) {
	needs.NoRace(t)
	for _, when := range []string{"at once", "later", "never"} {
		points := 0
		for n := 1; crashAt(t, when, n, 0); n++ {
			for kind := 1; kind < 4; kind++ {
				crashAt(t, when, n, kind)
			}
			points++
		}
		t.Logf("%s: %d crash points", when, points)
	}
}

// crashAt crashes at the n-th operation of a run; false: the run ended before it. Kinds: 0 all is lost that was not
// synced, 1 the process dies and nothing is lost, others by chance.
func crashAt(t *testing.T, when string, n, kind int) bool {
	t.Helper()
	fsys := memfs.New()
	count, reached := 0, false
	fsys.Hook = func(op memfs.Op, _ string) error {
		if op == memfs.OpRead || op == memfs.OpOpen {
			return nil
		}
		if count++; count >= n {
			reached = true
			return memfs.ErrInjected
		}
		return nil
	}
	o, r := options(fsys), crashRun{}
	o.Later = map[string]func(func()){
		"at once": later, "later": func(job func()) { r.jobs = append(r.jobs, job) }, "never": func(func()) {},
	}[when]
	err := r.do(o)
	if !reached {
		ok(t, err)
		return false
	}
	fsys.Hook = nil
	switch kind {
	case 0:
		fsys.Crash(nil)
	case 1:
		fsys.Kill()
	default:
		fsys.Crash(rand.New(rand.NewPCG(uint64(n), uint64(kind))))
	}
	at := fmt.Sprintf("%s, crash point %d, kind %d", when, n, kind)
	if err := olderCanRead(fsys); err != nil {
		t.Fatalf("%s: an older version does not open this: %v", at, err)
	}
	l, err := raftlog.Open(options(fsys))
	if err != nil {
		t.Fatalf("%s, synced %d: %v", at, r.synced, err)
	}
	first, _ := l.FirstIndex()
	last, _ := l.LastIndex()
	if last < r.synced || first > r.first {
		t.Fatalf("%s: entries %d to %d, synced %d, from %d on", at, first, last, r.synced, r.first)
	}
	got, err := l.All(first, last+1)
	if last >= first && (err != nil || !slices.ContainsFunc(r.all, func(all []*raftpb.Entry) bool {
		return last <= uint64(len(all)) && slices.EqualFunc(got, all[first-1:last], sameEntry)
	})) {
		t.Fatalf("%s: entries %d to %d are others: %v", at, first, last, err)
	}
	ok(t, l.Close())
	rep, err := raftlog.Verify(fsys, dir, keys)
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	tidy(t, fsys, rep)
	return true
}

func sameEntry(a, b *raftpb.Entry) bool {
	return a.GetTerm() == b.GetTerm() && a.GetType() == b.GetType() && bytes.Equal(a.Data, b.Data)
}

// olderCanRead reports whether versions that made no spare file can read what a crash left: after the records of a
// segment that another one follows, they accept only a filler or zeros.
func olderCanRead(fsys *memfs.FS) error {
	rep, err := raftlog.Verify(fsys, dir, keys)
	if err != nil && rep.First > 0 && !strings.Contains(err.Error(), "in the middle of a reset") {
		return err
	}
	for i, s := range rep.Segments {
		b, err := fsys.ReadFile(filepath.Join(dir, s.File))
		if err != nil {
			return err
		}
		if b = b[s.Bytes:]; i == len(rep.Segments)-1 || len(b) == 0 {
			continue
		}
		const filler = 25 // bytes of one that are written
		if len(b) < filler || bytes.Count(b[filler:], []byte{0}) != len(b)-filler {
			return fmt.Errorf("%d bytes after the records of %s", len(b), s.File)
		}
		if b = b[:filler]; !bytes.Equal(b[19:], []byte("TRIL\x01\x03")) && bytes.Count(b, []byte{0}) != filler {
			return fmt.Errorf("%q after the records of %s", b, s.File)
		}
	}
	return nil
}

// tidy fails unless there are the files of a log that was closed in order, and no others.
func tidy(t testing.TB, fsys *memfs.FS, rep *raftlog.Report) {
	t.Helper()
	want := []string{"state"}
	for i, s := range rep.Segments {
		want = append(want, s.File)
		if i < len(rep.Segments)-1 {
			want = append(want, strings.Replace(s.File, ".log", ".idx", 1))
		}
		if b, err := fsys.ReadFile(filepath.Join(dir, s.File)); err != nil || int64(len(b)) != s.Bytes {
			t.Fatalf("%s has %d bytes, its records end at %d: %v", s.File, len(b), s.Bytes, err)
		}
	}
	names, err := fsys.ReadDir(dir)
	ok(t, err)
	names = slices.DeleteFunc(names, func(n string) bool { return n == "lock" })
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Fatalf("files of a closed log: %v, want %v", names, want)
	}
}

func TestVerify(t *testing.T) {
	fsys := memfs.New()
	l := open(t, fsys)
	setState(t, l, 1, 1, 0)
	w := newWriter()
	fill(t, l, w, 3, true)
	ok(t, l.Append([]*raftpb.Entry{w.trx(5, raftlog.FlagUnfinished)}))
	w.inc = 2
	ok(t,
		l.Append([]*raftpb.Entry{w.barrier(), {Index: new(uint64(6)), Term: new(uint64(1)),
			Type: raftpb.EntryConfChangeV2.Enum(), Data: []byte("x")}, {Index: new(uint64(7)), Term: new(uint64(1))}}))
	aborts := uint64(0)
	ok(t, raftlog.Walk(fsys, dir, keys, func(e *raftlog.EntryInfo) error {
		if e.Aborts {
			aborts = e.Index
		}
		return nil
	}))
	if aborts != 5 {
		t.Errorf("entry %d aborts a transaction, not entry 5", aborts)
	}
	rep, err := raftlog.Verify(fsys, dir, keys)
	ok(t, err)
	if rep.Entries != 7 || rep.Last != 7 || rep.GTIDs.Count() != 2 || rep.OpenTransactionAt != 0 ||
		len(rep.Segments) != 1 {
		t.Fatalf("%+v", rep)
	}
	ok(t, l.Close())
	if rep.Segments[0].File != "0000000000000001.log" {
		t.Fatal(rep.Segments[0].File)
	}
}

// TestFailedSyncIsNotBelievedLater: when an fsync fails the page cache goes on showing what the disk has not got. A log
// that opens on it makes sure that what it finds is on the disk before it counts (S2).
func TestFailedSyncIsNotBelievedLater(t *testing.T) {
	for _, what := range []string{".log", "/state"} {
		fsys := memfs.New()
		l := open(t, fsys)
		setState(t, l, 1, 1, 0)
		w := newWriter()
		fill(t, l, w, 3, true)
		fsys.Hook = func(op memfs.Op, name string) error {
			if op == memfs.OpFdatasync && strings.Contains(name, what) {
				return memfs.ErrLostWrites
			}
			return nil
		}
		if what == "/state" {
			want(t, l.SetHardState(&raftpb.HardState{Term: new(uint64(2)), Vote: new(uint64(3))}), raftlog.ErrFailed)
		} else {
			want(t, errors.Join(l.Append([]*raftpb.Entry{w.trx(10, 0)}), l.Sync()), raftlog.ErrFailed)
		}
		fsys.Hook = nil
		fsys.Kill()

		l = open(t, fsys)
		last, _ := l.LastIndex()
		hs, _, _ := l.InitialState()
		if last != l.DurableIndex() {
			t.Fatalf("%s: last index %d, durable %d", what, last, l.DurableIndex())
		}
		fsys.Crash(nil)

		l = open(t, fsys)
		if again, _ := l.LastIndex(); again != last {
			t.Errorf("%s: entry %d was called durable, after a power loss the log ends at %d", what, last, again)
		}
		if again, _, _ := l.InitialState(); again.GetTerm() != hs.GetTerm() || again.GetVote() != hs.GetVote() {
			t.Errorf("%s: term %d and vote %d became term %d and vote %d by a power loss", what, hs.GetTerm(), hs.GetVote(),
				again.GetTerm(), again.GetVote())
		}
		ok(t, l.Close())
	}
}

// TestNamesAreDurableBeforeTheyAreUsed: a daemon that died after the rename of a new segment, and before the fsync of
// its directory, leaves a name that only this life of the machine sees. What the next one writes there must not be lost
// with it.
func TestNamesAreDurableBeforeTheyAreUsed(t *testing.T) {
	fsys := memfs.New()
	l := open(t, fsys)
	setState(t, l, 1, 1, 0)
	w := newWriter()
	ok(t, l.Append([]*raftpb.Entry{w.barrier()}))
	renamed := false
	fsys.Hook = func(op memfs.Op, name string) error {
		renamed = renamed || op == memfs.OpRename && !strings.Contains(name, "state")
		if renamed && op == memfs.OpSyncDir {
			return memfs.ErrInjected
		}
		return nil
	}
	var err error
	at := map[uint64]writer{} // after each entry
	for err == nil {
		at[w.index] = *w
		err = errors.Join(l.Append([]*raftpb.Entry{w.trx(300, 0)}), l.Sync())
	}
	want(t, err, raftlog.ErrFailed)
	if !renamed {
		t.Fatalf("no segment was begun: %v", err)
	}
	fsys.Hook = nil
	fsys.Kill()

	l = open(t, fsys)
	last, _ := l.LastIndex()
	again := at[last]
	ok(t, l.Append([]*raftpb.Entry{again.trx(300, 0), again.trx(300, 0)}))
	ok(t, l.Sync())
	fsys.Crash(nil)

	l = open(t, fsys)
	if got, _ := l.LastIndex(); got != last+2 {
		t.Errorf("entry %d was synced, after a power loss the log ends at %d", last+2, got)
	}
	ok(t, l.Close())
}

// unreadable is a file system whose disk does not give some parts of the state file.
type unreadable struct {
	raftlog.FS
	at []int64 // offsets at which reads of the state file fail
}

func (u unreadable) Open(name string) (raftlog.File, error) {
	f, err := u.FS.Open(name)
	if err != nil || filepath.Base(name) != "state" {
		return f, err
	}
	return unreadableFile{f, u.at}, nil
}

type unreadableFile struct {
	raftlog.File
	at []int64
}

func (f unreadableFile) ReadAt(b []byte, off int64) (int, error) {
	if slices.Contains(f.at, off) {
		return 0, syscall.EIO
	}
	return f.File.ReadAt(b, off)
}

// TestUnreadableStateSlot: the state file has two copies, so that a bad sector in one of them does not keep the node
// from starting. With both unreadable the error is the disk's: a vote is not called lost that may still be there.
func TestUnreadableStateSlot(t *testing.T) {
	const slot = 16 << 10
	for _, at := range [][]int64{{0}, {slot}, {0, slot}} {
		fsys := memfs.New()
		l := open(t, fsys)
		setState(t, l, 7, 2, 0)
		ok(t, l.Close())
		l, err := raftlog.Open(options(unreadable{fsys, at}))
		if len(at) == 2 {
			want(t, err, syscall.EIO)
			if errors.Is(err, raftlog.ErrCorrupt) {
				t.Errorf("an unreadable state file is called damaged: %v", err)
			}
			continue
		}
		ok(t, err)
		hard, _, err := l.InitialState()
		ok(t, err)
		if hard.GetTerm() != 7 || hard.GetVote() != 2 {
			t.Errorf("slot at %d unreadable: term %d, vote %d", at[0], hard.GetTerm(), hard.GetVote())
		}
		ok(t, l.Close())
	}
}

// TestNoSnapshotWhileTheLogIsReplaced: the new configuration does not belong to the segments that go.
func TestNoSnapshotWhileTheLogIsReplaced(t *testing.T) {
	fsys, _ := smallLog(t)
	l := open(t, fsys)
	setState(t, l, 1, 2, 3)
	ok(t, l.SetConfState(&raftpb.ConfState{Voters: []uint64{1, 2}}, 3))
	snap, err := l.Snapshot()
	ok(t, err)
	asked := 0
	fsys.Hook = func(op memfs.Op, _ string) error {
		if op == memfs.OpRename {
			asked++
			_, err := l.Snapshot()
			want(t, err, raft.ErrSnapshotTemporarilyUnavailable)
		}
		return nil
	}
	ok(t, l.ResetTo(snap))
	fsys.Hook = nil
	again, err := l.Snapshot()
	ok(t, err)
	if asked == 0 || !proto.Equal(again, snap) {
		t.Errorf("asked %d times; reset to %v, the snapshot is %v", asked, snap, again)
	}
	ok(t, l.Close())
}
