package raftlog_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/raftlog"
	"trireme/internal/raftlog/memfs"
)

var update = flag.Bool("update", false, "write the golden files anew")

// goldenLog writes a log that holds every kind of record, over two segments.
func goldenLog(t *testing.T, fsys raftlog.FS) {
	t.Helper()
	l := open(t, fsys)
	setState(t, l, 3, 2, 0)
	ok(t, l.SetConfState(&raftpb.ConfState{Voters: []uint64{1, 2, 3}}, 0))
	w := newWriter()
	w.term = 3
	entries := []*raftpb.Entry{w.barrier(), w.trx(10, 0), w.trx(20, raftlog.FlagUnfinished), w.trx(30, raftlog.FlagContinues|raftlog.FlagSpecial)}
	w.index++
	entries = append(entries, &raftpb.Entry{Index: new(w.index), Term: new(w.term), Type: raftpb.EntryConfChangeV2.Enum(), Data: []byte("configuration")})
	w.index++
	entries = append(entries, &raftpb.Entry{Index: new(w.index), Term: new(w.term)})
	w.index++
	entries = append(entries, w.entry(&raftlog.Meta{Kind: raftlog.Settings, Node: 1}, []byte("settings")))
	entries = append(entries, w.trx(3500, raftlog.FlagUnfinished))
	w.inc = 2
	entries = append(entries, w.barrier(), w.trx(40, 0))
	for _, e := range entries {
		ok(t, l.Append([]*raftpb.Entry{e}))
		ok(t, l.Sync())
	}
	setState(t, l, 3, 2, 9)
	ok(t, l.Close())
}

// TestGolden: the format on disk does not change by accident, and files written by earlier versions stay readable.
func TestGolden(t *testing.T) {
	fsys := memfs.New()
	goldenLog(t, fsys)
	names, err := fsys.ReadDir(dir)
	ok(t, err)
	old := memfs.New()
	for _, name := range names {
		got, err := fsys.ReadFile(filepath.Join(dir, name))
		ok(t, err)
		path := filepath.Join("testdata", "golden", name)
		if *update {
			ok(t, os.MkdirAll(filepath.Dir(path), 0o755))
			ok(t, os.WriteFile(path, got, 0o644))
		}
		golden, err := os.ReadFile(path)
		ok(t, err)
		if !bytes.Equal(got, golden) {
			t.Errorf("%s is not what testdata/golden holds", name)
		}
		old.WriteFile(filepath.Join(dir, name), golden)
	}
	if len(names) < 4 {
		t.Fatalf("files: %v", names)
	}
	rep, err := raftlog.Verify(old, dir)
	ok(t, err)
	if rep.Entries != 10 || rep.Term != 3 || rep.Vote != 2 || rep.Commit != 9 || rep.Durable != 10 || len(rep.Segments) != 2 || len(rep.Voters) != 3 || rep.GTIDs.Count() != 3 {
		t.Errorf("%+v", rep)
	}
	l := open(t, old)
	if b := l.Barrier(); b.Index != 9 || b.Incarnation != 2 {
		t.Errorf("barrier %+v", b)
	}
	ok(t, l.Close())
}

// FuzzOpen opens a log whose segment is arbitrary bytes: it is refused, or what it holds can be read.
func FuzzOpen(f *testing.F) {
	fsys := memfs.New()
	l, err := raftlog.Open(options(fsys))
	if err != nil {
		f.Fatal(err)
	}
	w := newWriter()
	if err := errors.Join(l.SetHardState(&raftpb.HardState{Term: new(uint64(1))}), l.Append([]*raftpb.Entry{w.trx(0, 0), w.trx(9, 0), w.trx(50, raftlog.FlagUnfinished), w.trx(5, raftlog.FlagContinues)})); err != nil {
		f.Fatal(err)
	}
	const segment = dir + "/0000000000000001.log"
	state, _ := fsys.ReadFile(dir + "/state")
	image, _ := fsys.ReadFile(segment)
	_ = l.Close()
	closed, _ := fsys.ReadFile(segment)
	f.Add(image)
	f.Add(closed)
	f.Add(closed[:len(closed)-3])
	f.Add(closed[:300])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		disk := memfs.New()
		disk.WriteFile(dir+"/state", state)
		disk.WriteFile(segment, data)
		_, verr := raftlog.Verify(disk, dir)
		l, err := raftlog.Open(options(disk))
		if err != nil {
			if !errors.Is(err, raftlog.ErrCorrupt) && !errors.Is(err, raftlog.ErrNewer) && !errors.Is(err, raftlog.ErrForeign) {
				t.Fatal(err)
			}
			return
		}
		if verr != nil {
			t.Fatalf("Open took what Verify refuses: %v", verr)
		}
		last, _ := l.LastIndex()
		if es, err := l.Entries(1, last+1, 1<<30); err != nil || uint64(len(es)) != last {
			t.Fatalf("%d entries of %d: %v", len(es), last, err)
		}
		ok(t, l.Close())
	})
}
