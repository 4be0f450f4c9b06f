package raftlog_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/raftlog"
	"trireme/internal/core/raftlog/memfs"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

const dir = "/raft"

// keys of the log under test: TestEncrypted runs tests again with some.
var keys *raftlog.Keys

// later is when a log under test does the work that no writer waits for: at once, so that every run is the same.
var later = func(job func()) { job() }

func options(fsys raftlog.FS) raftlog.Options {
	return raftlog.Options{Dir: dir, FS: fsys, SegmentBytes: 4000, CacheBytes: 1, ZeroAheadBytes: 1024, Cluster: 5,
		NodeID: 1, Keys: keys, Later: later}
}

func open(t testing.TB, fsys raftlog.FS) *raftlog.Log {
	t.Helper()
	l, err := raftlog.Open(options(fsys))
	ok(t, err)
	return l
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error %v, want %v", err, target)
	}
}

func setState(t testing.TB, l *raftlog.Log, term, vote, commit uint64) {
	t.Helper()
	ok(t, l.SetHardState(&raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}))
}

// writer makes entries: a barrier first, then one transaction each.
type writer struct {
	inc   uint64
	pos   raftlog.Pos
	index uint64
	term  uint64
	gno   int64
}

func newWriter() *writer { return &writer{inc: 1, term: 1} }

func (w *writer) barrier() *raftpb.Entry {
	w.pos = raftlog.Pos{File: 1, Off: 4}
	w.index++
	m := raftlog.Meta{Kind: raftlog.Barrier, Node: 1, Incarnation: w.inc, Start: w.pos, End: w.pos}
	fde := binlog.AppendFormatDescription(nil, binlog.Header{Timestamp: 1700000000, ServerID: 9}, "9.7.4", 0)
	return w.entry(&m, fde)
}

func (w *writer) trx(size int, flags raftlog.Flags) *raftpb.Entry {
	if w.pos.Off == 0 {
		return w.barrier()
	}
	w.index++
	ev := binlog.AppendEvent(nil, binlog.Header{Timestamp: 1700000001, Type: binlog.TypeRowsQuery, ServerID: 9},
		bytes.Repeat([]byte{byte(w.index)}, size))
	m := raftlog.Meta{Kind: raftlog.Trx, Node: 1, Incarnation: w.inc, Flags: flags, Start: w.pos}
	w.pos.Off += uint64(len(ev))
	m.End = w.pos
	if flags&raftlog.FlagUnfinished == 0 {
		w.gno++
		m.AddGTID(gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(5, 1, w.inc)}, GNO: w.gno})
	}
	return w.entry(&m, ev)
}

func (w *writer) entry(m *raftlog.Meta, events []byte) *raftpb.Entry {
	return &raftpb.Entry{Index: new(w.index), Term: new(w.term), Data: append(raftlog.AppendMeta(nil, m), events...)}
}

// fill appends n entries one by one and syncs after those that sync says.
func fill(t testing.TB, l *raftlog.Log, w *writer, n int, sync bool) (all []*raftpb.Entry) {
	t.Helper()
	for range n {
		e := w.trx(300, 0)
		all = append(all, e)
		ok(t, l.Append([]*raftpb.Entry{e}))
		if sync {
			ok(t, l.Sync())
		}
	}
	return all
}

func same(t testing.TB, l *raftlog.Log, entries []*raftpb.Entry) error {
	t.Helper()
	last, _ := l.LastIndex()
	if last != uint64(len(entries)) {
		t.Fatalf("last index %d, want %d", last, len(entries))
	}
	got, err := l.All(1, last+1)
	if err != nil {
		return err
	}
	for i, e := range got {
		if e.GetTerm() != entries[i].GetTerm() || !bytes.Equal(e.Data, entries[i].Data) {
			t.Fatalf("entry %d differs", i+1)
		}
	}
	return nil
}

func files(t testing.TB, fsys raftlog.FS, suffix string) (paths []string) {
	t.Helper()
	names, err := fsys.ReadDir(dir)
	ok(t, err)
	slices.Sort(names)
	for _, n := range names {
		if strings.HasSuffix(n, suffix) {
			paths = append(paths, filepath.Join(dir, n))
		}
	}
	return paths
}

// TestBitRot turns over bits of a closed log one at a time: damage is reported or does no harm, and never changes an
// entry.
func TestBitRot(t *testing.T) {
	fsys := memfs.New()
	l := open(t, fsys)
	setState(t, l, 1, 2, 0)
	all := fill(t, l, newWriter(), 30, false)
	ok(t, l.Close())
	var reported, harmless int
	for _, suffix := range []string{".log", ".idx", "state"} {
		for _, path := range files(t, fsys, suffix) {
			b, err := fsys.ReadFile(path)
			ok(t, err)
			for bit := int64(0); bit < int64(len(b))*8; bit += 101 {
				if suffix == "state" && bit/8%(16<<10) > 150 {
					continue // not used
				}
				ok(t, fsys.Flip(path, bit))
				if rotten(t, fsys, all, suffix, path, bit) {
					reported++
				} else {
					harmless++
				}
				for _, p := range files(t, fsys, ".idx") { // an index written again
					if p != path {
						continue
					}
					fsys.WriteFile(path, b)
				}
				if suffix != ".idx" {
					fsys.WriteFile(path, b)
				}
			}
		}
	}
	t.Logf("%d flips reported, %d harmless", reported, harmless)
}

func rotten(t *testing.T, fsys *memfs.FS, all []*raftpb.Entry, suffix, path string, bit int64) (reported bool) {
	t.Helper()
	_, verr := raftlog.Verify(fsys, dir, keys)
	l, err := raftlog.Open(options(fsys))
	if err == nil {
		hs, _, _ := l.InitialState()
		if hs.GetTerm() != 1 || hs.GetVote() != 2 {
			t.Fatalf("%s bit %d: term %d vote %d", path, bit, hs.GetTerm(), hs.GetVote())
		}
		err = same(t, l, all)
		if cerr := l.Close(); cerr != nil {
			t.Fatal(cerr)
		}
	}
	if err != nil && !errors.Is(err, raftlog.ErrCorrupt) && !errors.Is(err, raftlog.ErrNewer) {
		t.Fatalf("%s bit %d: %v", path, bit, err)
	}
	if suffix == ".log" && (err == nil || verr == nil) {
		t.Fatalf("%s bit %d (byte %d): not noticed: open and read: %v; verify: %v", path, bit, bit/8, err, verr)
	}
	if suffix != ".log" && err != nil {
		t.Fatalf("%s bit %d: %v", path, bit, err)
	}
	return err != nil
}

// TestTornTail cuts the file anywhere within what was written after the last sync.
func TestTornTail(t *testing.T) {
	fsys := memfs.New()
	l := open(t, fsys)
	setState(t, l, 1, 1, 0)
	w := newWriter()
	all := fill(t, l, w, 5, true)
	path := files(t, fsys, ".log")[0]
	before := recordsEnd(t, fsys)
	all = append(all, fill(t, l, w, 2, false)...)
	after := recordsEnd(t, fsys)
	image, err := fsys.ReadFile(path)
	ok(t, err)
	state, err := fsys.ReadFile(dir + "/state")
	ok(t, err)
	sizes := map[int]int{}
	for cut := after; cut >= before; cut -= 7 {
		for _, kind := range []string{"short", "zeros", "garbage"} {
			b := append([]byte(nil), image[:cut]...)
			switch kind {
			case "zeros":
				b = append(b, make([]byte, after-cut)...)
			case "garbage":
				b = append(b, bytes.Repeat([]byte{0xa5}, int(after-cut))...)
			}
			disk := memfs.New()
			disk.WriteFile(path, b)
			disk.WriteFile(dir+"/state", state)
			if rep, err := raftlog.Verify(disk, dir, keys); err != nil || rep.Last < 5 {
				t.Fatalf("Verify, cut at %d, %s: %+v %v", cut, kind, rep, err)
			}
			l := open(t, disk)
			last, _ := l.LastIndex()
			ok(t, same(t, l, all[:last]))
			sizes[int(last)]++
			if last < 5 || last > 7 || l.DurableIndex() != last {
				t.Fatalf("cut at %d, %s: last index %d, durable %d", cut, kind, last, l.DurableIndex())
			}
			ok(t, l.Close())
			l = open(t, disk)
			ok(t, same(t, l, all[:last]))
			ok(t, l.Close())
		}
	}
	if sizes[5] == 0 || sizes[6] == 0 || sizes[7] == 0 {
		t.Fatalf("lengths found: %v", sizes)
	}
}

func recordsEnd(t *testing.T, fsys raftlog.FS) (end int64) {
	t.Helper()
	ok(t, raftlog.Walk(fsys, dir, keys, func(e *raftlog.EntryInfo) error {
		end = e.Offset + int64(e.Bytes)
		return nil
	}))
	return end
}

// TestDamageBelowWatermark: a record that a later one, or the state file, says was fsynced is never cut.
func TestDamageBelowWatermark(t *testing.T) {
	for _, name := range []string{"later record", "state file", "state file, by a start", "end missing"} {
		t.Run(name, func(t *testing.T) {
			fsys := memfs.New()
			l := open(t, fsys)
			setState(t, l, 1, 1, 0)
			fill(t, l, newWriter(), 8, true)
			switch name {
			case "later record":
				fsys.Crash(nil)
				var off int64
				ok(t, raftlog.Walk(fsys, dir, keys, func(e *raftlog.EntryInfo) error {
					if e.Index == 7 { // entry 8 says that 7 was fsynced
						off = e.Offset + int64(e.Bytes) - 10
					}
					return nil
				}))
				ok(t, fsys.Flip(files(t, fsys, ".log")[0], off*8))
			case "state file":
				ok(t, l.Close())
				ok(t, fsys.Flip(files(t, fsys, ".log")[0], (recordsEnd(t, fsys)-1)*8))
			case "state file, by a start":
				fsys.Crash(nil)
				open(t, fsys)
				fsys.Crash(nil)
				ok(t, fsys.Flip(files(t, fsys, ".log")[0], (recordsEnd(t, fsys)-1)*8))
			case "end missing":
				ok(t, l.Close())
				path := files(t, fsys, ".log")[0]
				b, err := fsys.ReadFile(path)
				ok(t, err)
				var last raftlog.EntryInfo
				ok(t, raftlog.Walk(fsys, dir, keys, func(e *raftlog.EntryInfo) error { last = *e; return nil }))
				fsys.WriteFile(path, b[:last.Offset])
			}
			_, err := raftlog.Verify(fsys, dir, keys)
			want(t, err, raftlog.ErrCorrupt)
			_, err = raftlog.Open(options(fsys))
			want(t, err, raftlog.ErrCorrupt)
			if !strings.Contains(err.Error(), "rejoin under a new id") || !strings.Contains(err.Error(), "index") {
				t.Fatalf("error text: %v", err)
			}
		})
	}
}

// TestTornState tears writes of the state file: term and vote that were synced are always there.
func TestTornState(t *testing.T) {
	big := &raftpb.ConfState{}
	for i := range uint64(1500) {
		big.Voters = append(big.Voters, i+1)
	}
	for seed := range uint64(200) {
		fsys := memfs.New()
		l := open(t, fsys)
		setState(t, l, 1, 1, 0)
		ok(t, l.SetConfState(big, 0))
		w := newWriter()
		fill(t, l, w, 20+int(seed%3)*15, true) // rotations write the state without syncing it
		fsys.Hook = func(op memfs.Op, name string) error {
			if op == memfs.OpFdatasync && strings.Contains(name, "/state") {
				return memfs.ErrInjected
			}
			return nil
		}
		want(t, l.SetHardState(&raftpb.HardState{Term: new(uint64(2)), Vote: new(uint64(3))}), raftlog.ErrFailed)
		fsys.Hook = nil
		fsys.Crash(rand.New(rand.NewPCG(seed, 7)))
		l = open(t, fsys)
		hs, cs, err := l.InitialState()
		ok(t, err)
		if term := hs.GetTerm(); (term != 1 || hs.GetVote() != 1) && (term != 2 || hs.GetVote() != 3) ||
			len(cs.Voters) != 1500 {
			t.Fatalf("seed %d: %v, %d voters", seed, hs, len(cs.Voters))
		}
		ok(t, l.Close())
	}
}

func TestMissingFiles(t *testing.T) {
	for name, remove := range map[string]func(segments []string) string{
		"first segment":  func(s []string) string { return s[0] },
		"middle segment": func(s []string) string { return s[1] },
		"last segment":   func(s []string) string { return s[len(s)-1] },
		"state":          func([]string) string { return dir + "/state" },
	} {
		t.Run(name, func(t *testing.T) {
			fsys := memfs.New()
			l := open(t, fsys)
			setState(t, l, 1, 1, 0)
			fill(t, l, newWriter(), 60, false)
			ok(t, l.Close())
			segs := files(t, fsys, ".log")
			if len(segs) < 4 {
				t.Fatalf("%d segments", len(segs))
			}
			ok(t, fsys.Remove(remove(segs)))
			_, err := raftlog.Open(options(fsys))
			want(t, err, raftlog.ErrCorrupt)
			if _, err := raftlog.Verify(fsys, dir, keys); err == nil {
				t.Fatal("Verify noticed nothing")
			}
		})
	}
}

func TestForeignNewerLocked(t *testing.T) {
	fsys := memfs.New()
	l := open(t, fsys)
	_, err := raftlog.Open(options(fsys))
	want(t, err, raftlog.ErrLocked)
	ok(t, l.Close())
	for _, change := range []func(*raftlog.Options){
		func(o *raftlog.Options) { o.Cluster++ }, func(o *raftlog.Options) { o.NodeID++ }} {
		o := options(fsys)
		change(&o)
		_, err := raftlog.Open(o)
		want(t, err, raftlog.ErrForeign)
	}
	open := open(t, fsys) // a failed open leaves the lock free
	ok(t, open.Close())

	b, err := fsys.ReadFile(dir + "/state")
	ok(t, err)
	for _, slot := range []int{0, 16 << 10} {
		binary.LittleEndian.PutUint32(b[slot+4:], 99)
		n := 92 + int(binary.LittleEndian.Uint32(b[slot+88:]))
		binary.LittleEndian.PutUint32(b[slot+n:], crc(b[slot:slot+n]))
	}
	fsys.WriteFile(dir+"/state", b)
	_, err = raftlog.Open(options(fsys))
	want(t, err, raftlog.ErrNewer)
}

func crc(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
