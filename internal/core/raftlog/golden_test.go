package raftlog_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/raftlog"
	"trireme/internal/core/raftlog/memfs"
	"trireme/internal/mysql/binlog"
)

// The logs in testdata/golden are as released versions wrote them, and are read forever (docs/format/README.md). What
// this version writes is the newest of them, byte for byte: a change of the format needs a directory of its own.
const (
	goldenDir = "testdata/golden"
	newest    = "v1"
	listing   = "listing.txt" // what is in a log, as describe says it
)

var update = flag.Bool("update", false,
	"write the files of a format that is not released yet; those that are there are kept")

// goldenLog writes a log that holds every kind of record, over two segments.
func goldenLog(t testing.TB, fsys raftlog.FS) {
	t.Helper()
	l := open(t, fsys)
	setState(t, l, 3, 2, 0)
	ok(t, l.SetConfState(&raftpb.ConfState{Voters: []uint64{1, 2, 3}}, 0))
	w := newWriter()
	w.term = 3
	entries := []*raftpb.Entry{w.barrier(), w.trx(10, 0), w.trx(20, raftlog.FlagUnfinished),
		w.trx(30, raftlog.FlagContinues|raftlog.FlagSpecial)}
	w.index++
	entries = append(entries, &raftpb.Entry{Index: new(w.index), Term: new(w.term), Type: raftpb.EntryConfChangeV2.Enum(),
		Data: []byte("configuration")})
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

// TestGoldenWritten: the format on disk does not change by accident.
func TestGoldenWritten(t *testing.T) {
	fsys := memfs.New()
	goldenLog(t, fsys)
	names, err := fsys.ReadDir(dir)
	ok(t, err)
	if len(names) < 4 {
		t.Fatalf("files: %v", names)
	}
	files := map[string][]byte{}
	for _, name := range names {
		files[name], err = fsys.ReadFile(filepath.Join(dir, name))
		ok(t, err)
	}
	files[listing] = []byte(describe(t, fsys))
	for name, got := range files {
		sameAsGolden(t, filepath.Join(goldenDir, newest, name), got)
	}
}

// sameAsGolden compares what is written now with a golden file, which it returns.
func sameAsGolden(t *testing.T, path string, got []byte) []byte {
	t.Helper()
	golden, err := os.ReadFile(path)
	if *update && os.IsNotExist(err) {
		ok(t, os.MkdirAll(filepath.Dir(path), 0o755))
		ok(t, os.WriteFile(path, got, 0o644))
		golden, err = got, nil
	}
	ok(t, err)
	if !bytes.Equal(got, golden) {
		t.Errorf("%s is not what %s holds: the format has changed; see docs/format/README.md", filepath.Base(path), path)
	}
	return golden
}

// TestGoldenRead: logs of all released formats open, and hold what they held.
func TestGoldenRead(t *testing.T) {
	versions, err := os.ReadDir(goldenDir)
	ok(t, err)
	for _, v := range versions {
		t.Run(v.Name(), func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join(goldenDir, v.Name(), listing))
			ok(t, err)
			if got := describe(t, goldenDisk(t, v.Name())); got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// goldenDisk is a disk with a copy of a released log.
func goldenDisk(t testing.TB, version string) *memfs.FS {
	t.Helper()
	fsys := memfs.New()
	files, err := os.ReadDir(filepath.Join(goldenDir, version))
	ok(t, err)
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(goldenDir, version, f.Name()))
		ok(t, err)
		if f.Name() != listing {
			fsys.WriteFile(filepath.Join(dir, f.Name()), b)
		}
	}
	return fsys
}

// describe lists everything that a log says of itself, and all its entries.
func describe(t testing.TB, fsys *memfs.FS) string {
	t.Helper()
	var b strings.Builder
	rep, err := raftlog.Verify(fsys, dir, keys)
	ok(t, err)
	fmt.Fprintf(&b, "term %d vote %d commit %d durable %d voters %d entries %d\ngtids %s\n", rep.Term, rep.Vote,
		rep.Commit, rep.Durable, rep.Voters,
		rep.Entries, strings.ReplaceAll(rep.GTIDs.String(), "\n", ""))
	l := open(t, fsys)
	bar := l.Barrier()
	fmt.Fprintf(&b, "barrier index %d term %d node %d incarnation %d\n", bar.Index, bar.Term, bar.Node, bar.Incarnation)
	first, err := l.FirstIndex()
	ok(t, err)
	last, err := l.LastIndex()
	ok(t, err)
	entries, err := l.All(first, last+1)
	ok(t, err)
	for _, e := range entries {
		fmt.Fprintf(&b, "%d term %d %v, %d bytes %08x", e.GetIndex(), e.GetTerm(), e.GetType(), len(e.GetData()),
			crc32.ChecksumIEEE(e.GetData()))
		if m, events, err := raftlog.DecodeMeta(e.GetData()); err == nil {
			fmt.Fprintf(&b, ": %v flags %#x node %d incarnation %d %v to %v gtids %v, %d bytes of events", m.Kind,
				uint16(m.Flags), m.Node, m.Incarnation,
				m.Start, m.End, m.GTIDs, len(events))
		}
		b.WriteByte('\n')
	}
	ok(t, l.Close())
	return b.String()
}

// TestNewerFormatIsRefused: what a newer version wrote is not guessed at, nor taken for damage or a torn write: nothing
// is cut.
func TestNewerFormatIsRefused(t *testing.T) {
	const last = "000000000000000a.log"
	segment, err := os.ReadFile(filepath.Join(goldenDir, newest, last))
	ok(t, err)
	head, err := headLen(segment)
	ok(t, err)
	for name, change := range map[string]struct {
		file string
		edit func([]byte)
	}{
		"state": {"state", func(b []byte) {
			for _, slot := range [][]byte{b[:16<<10], b[16<<10:]} {
				slot[4]++
				n := 92 + binary.LittleEndian.Uint32(slot[88:])
				binary.LittleEndian.PutUint32(slot[n:], crc32.Checksum(slot[:n], crc32.MakeTable(crc32.Castagnoli)))
			}
		}},
		"segment": {last, func(b []byte) { newer(b, head.at) }},
		"record":  {last, func(b []byte) { newer(b, head.end) }},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := goldenDisk(t, newest)
			path := filepath.Join(dir, change.file)
			b, err := fsys.ReadFile(path)
			ok(t, err)
			change.edit(b)
			fsys.WriteFile(path, b)
			l, err := raftlog.Open(options(fsys))
			if err == nil {
				ok(t, l.Close())
			}
			if !errors.Is(err, raftlog.ErrNewer) || !strings.Contains(err.Error(), "this program knows") {
				t.Fatalf("got %v", err)
			}
			if after, err := fsys.ReadFile(path); err != nil || !bytes.Equal(after, b) {
				t.Error("the file was changed")
			}
		})
	}
}

// headEnds says where a segment's header event begins and ends.
type headEnds struct{ at, end int }

func headLen(segment []byte) (h headEnds, err error) {
	h.end = len(binlog.Magic)
	for range 3 {
		_, ev, _, err := binlog.Cut(segment[h.end:])
		if err != nil {
			return h, err
		}
		h.at, h.end = h.end, h.end+len(ev)
	}
	return h, nil
}

// newer raises the version in the event of ours at an offset.
func newer(b []byte, at int) {
	_, ev, _, _ := binlog.Cut(b[at:])
	ev[binlog.HeaderLen+4]++
	binlog.PutChecksum(ev)
}

// FuzzOpen opens a log whose segment is arbitrary bytes: it is refused, or what it holds can be read.
func FuzzOpen(f *testing.F) {
	fsys := memfs.New()
	l, err := raftlog.Open(options(fsys))
	if err != nil {
		f.Fatal(err)
	}
	w := newWriter()
	if err := errors.Join(l.SetHardState(&raftpb.HardState{Term: new(uint64(1))}),
		l.Append([]*raftpb.Entry{w.trx(0, 0), w.trx(9, 0), w.trx(50, raftlog.FlagUnfinished),
			w.trx(5, raftlog.FlagContinues)})); err != nil {
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
		openAny(t, disk)
	})
}

// openAny opens a log that may hold anything: it is refused with one of the errors that say what to do, as Verify
// refuses it, or all that it holds can be read.
func openAny(t *testing.T, disk *memfs.FS) (entries []*raftpb.Entry) {
	t.Helper()
	_, verr := raftlog.Verify(disk, dir, keys)
	l, err := raftlog.Open(options(disk))
	if err != nil {
		if !errors.Is(err, raftlog.ErrCorrupt) && !errors.Is(err, raftlog.ErrNewer) && !errors.Is(err, raftlog.ErrForeign) {
			t.Fatal(err)
		}
		return nil
	}
	defer func() { ok(t, l.Close()) }()
	if verr != nil {
		t.Fatalf("Open took what Verify refuses: %v", verr)
	}
	first, err := l.FirstIndex()
	ok(t, err)
	last, err := l.LastIndex()
	ok(t, err)
	if last < first { // nothing but what was purged
		return nil
	}
	es, err := l.All(first, last+1)
	if err != nil || uint64(len(es)) != last+1-first {
		t.Fatalf("%d entries from %d to %d: %v", len(es), first, last, err)
	}
	return es
}

// FuzzOpenState opens a log whose state file is arbitrary bytes.
func FuzzOpenState(f *testing.F) {
	disk := goldenDisk(f, newest)
	state, err := disk.ReadFile(dir + "/state")
	ok(f, err)
	f.Add(state)
	f.Add(state[:16<<10])
	f.Add(state[:200])
	f.Fuzz(func(t *testing.T, b []byte) {
		disk := goldenDisk(t, newest)
		disk.WriteFile(dir+"/state", b)
		openAny(t, disk)
	})
}

// FuzzOpenIndex opens a log whose index file is arbitrary bytes: it holds the same, since an index only saves time.
func FuzzOpenIndex(f *testing.F) {
	const index = dir + "/0000000000000001.idx"
	b, err := goldenDisk(f, newest).ReadFile(index)
	ok(f, err)
	f.Add(b)
	f.Add(b[:40])
	f.Add(bytes.Repeat([]byte{0xFF}, 60))
	f.Fuzz(func(t *testing.T, b []byte) {
		disk := goldenDisk(t, newest)
		disk.WriteFile(index, b)
		if es := openAny(t, disk); len(es) != 10 {
			t.Fatalf("%d entries", len(es))
		}
	})
}
