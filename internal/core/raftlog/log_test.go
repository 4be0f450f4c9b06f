package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

const (
	testCluster = 0xC1
	testNode    = 7
)

func testOptions(dir string, fsys FS) Options {
	return Options{Dir: dir, FS: fsys, SegmentBytes: 64 << 10, CacheBytes: 16 << 10, ZeroAheadBytes: 8 << 10,
		Cluster: testCluster, NodeID: testNode}
}

func mustOpen(t testing.TB, opts Options) *Log {
	t.Helper()
	l, err := Open(opts)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return l
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// event makes an event with a body of n bytes.
func event(typ binlog.EventType, n int, fill byte) []byte {
	return binlog.AppendEvent(nil, binlog.Header{Timestamp: 1700000000, Type: typ, ServerID: 1},
		bytes.Repeat([]byte{fill}, n))
}

// stream makes the entries of one incarnation, as dump.Source and node do.
type stream struct {
	node uint16
	inc  uint64
	pos  Pos
	gno  int64
}

func (s *stream) uuid() gtid.UUID { return gtid.IncarnationUUID(testCluster, s.node, s.inc) }

func newStream(node uint16, inc uint64) *stream { return &stream{node: node, inc: inc, pos: Pos{1, 4}} }

func entry(index, term uint64, data []byte) *raftpb.Entry {
	return &raftpb.Entry{Index: &index, Term: &term, Data: data}
}

func (s *stream) barrier(index, term uint64) *raftpb.Entry {
	m := Meta{Kind: Barrier, Node: s.node, Incarnation: s.inc, Start: s.pos, End: s.pos}
	fde := binlog.AppendFormatDescription(nil, binlog.Header{ServerID: uint32(s.node), Timestamp: 1700000000},
		fmt.Sprintf("9.7.%d", s.inc), 0)
	return entry(index, term, append(AppendMeta(nil, &m), fde...))
}

// trx makes an entry of n transactions of about size bytes together.
func (s *stream) trx(index, term uint64, n, size int) *raftpb.Entry {
	m := Meta{Kind: Trx}
	for range n {
		s.gno++
		m.AddGTID(gtid.GTID{SID: gtid.SID{UUID: s.uuid()}, GNO: s.gno})
	}
	return s.chunk(index, term, &m, size)
}

// chunk makes an entry of one event of about size bytes with the flags and GTIDs of m.
func (s *stream) chunk(index, term uint64, m *Meta, size int) *raftpb.Entry {
	ev := event(binlog.TypeRowsQuery, max(size-binlog.MinEventSize, 1), byte(index))
	m.Kind, m.Node, m.Incarnation, m.Start = Trx, s.node, s.inc, s.pos
	s.pos.Off += uint64(len(ev))
	m.End = s.pos
	return entry(index, term, append(AppendMeta(nil, m), ev...))
}

func setTerm(t testing.TB, l *Log, term, commit uint64) {
	t.Helper()
	vote := uint64(testNode)
	check(t, l.SetHardState(&raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}))
}

// sameEntries fails unless l's entries in [lo, lo+len(want)) are want.
func sameEntries(t testing.TB, l *Log, want []*raftpb.Entry) {
	t.Helper()
	if len(want) == 0 {
		return
	}
	lo := want[0].GetIndex()
	got, err := l.All(lo, lo+uint64(len(want)))
	check(t, err)
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d", len(got), len(want))
	}
	for i := range want {
		if !proto.Equal(normal(got[i]), normal(want[i])) {
			t.Fatalf("entry %d differs:\n got %v\nwant %v", want[i].GetIndex(), got[i], want[i])
		}
	}
}

// normal makes equal what means the same.
func normal(e *raftpb.Entry) *raftpb.Entry {
	n := &raftpb.Entry{Index: new(e.GetIndex()), Term: new(e.GetTerm()), Type: e.GetType().Enum()}
	if len(e.Data) > 0 {
		n.Data = e.Data
	}
	return n
}

// TestBase: a log that begins after a set of GTIDs reports that set in every place, and refuses a feed for a receiver
// that lacks a part of it.
func TestBase(t *testing.T) {
	opts := testOptions(t.TempDir(), nil)
	base, err := gtid.ParseSet("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-100")
	check(t, err)
	opts.Base = base
	l := mustOpen(t, opts)
	setTerm(t, l, 1, 0)
	s := newStream(3, 1)
	check(t, l.Append([]*raftpb.Entry{s.barrier(1, 1), s.trx(2, 1, 2, 100)}))
	check(t, l.Sync())
	check(t, l.Close())
	opts.Base = gtid.Set{} // what is there counts
	l = mustOpen(t, opts)
	defer func() { check(t, l.Close()) }()
	if b := l.Boundary(); b.Index != 0 || !b.GTIDs.Equal(base) {
		t.Errorf("the log begins at %d after %q", b.Index, b.GTIDs)
	}
	if index, _, err := l.SeekGTID(base, 2); err != nil || index != 2 {
		t.Errorf("a feed for one who has the base begins at %d: %v", index, err)
	}
	_, _, err = l.SeekGTID(gtid.Set{}, 2)
	wantErr(t, err, ErrPurged)
	twice := Meta{}
	first := base.Ranges()[0]
	twice.AddGTID(gtid.GTID{SID: first.SID, GNO: first.First})
	wantErr(t, l.Append([]*raftpb.Entry{s.chunk(3, 1, &twice, 100)}), ErrInvariant)
}

func TestAppendReopenPurgeSeek(t *testing.T) {
	dir := t.TempDir()
	opts := testOptions(dir, nil)
	l := mustOpen(t, opts)
	setTerm(t, l, 2, 0)
	s := newStream(3, 1)
	var all []*raftpb.Entry
	add := func(e *raftpb.Entry) {
		t.Helper()
		all = append(all, e)
		check(t, l.Append([]*raftpb.Entry{e}))
	}
	add(&raftpb.Entry{Index: new(uint64(1)), Term: new(uint64(1)), Type: raftpb.EntryConfChangeV2.Enum(),
		Data: []byte("conf")})
	add(entry(2, 2, nil))
	add(s.barrier(3, 2))
	for i := uint64(4); i <= 300; i++ {
		if i%50 == 0 {
			check(t, l.Sync())
		}
		add(s.trx(i, 2, 3, 2000))
	}
	check(t, l.Sync())
	if d := l.DurableIndex(); d != 300 {
		t.Fatalf("durable index %d", d)
	}
	setTerm(t, l, 2, 290)
	sameEntries(t, l, all)
	check(t, l.Close())

	l = mustOpen(t, opts)
	sameEntries(t, l, all)
	if n := len(l.segs); n < 5 {
		t.Fatalf("%d segments only", n)
	}
	set := l.GTIDSet()
	if want := fmt.Sprintf("%v:1-891", s.uuid()); set.String() != want {
		t.Fatalf("GTID set %v, want %v", set, want)
	}
	if b := l.Barrier(); b.Index != 3 || b.Incarnation != 1 || b.Node != 3 || b.Term != 2 {
		t.Fatalf("barrier %+v", b)
	}
	testSeek(t, l, s)

	first, err := l.Purge(200, 0)
	check(t, err)
	if first <= 100 || first > 201 {
		t.Fatalf("first index %d after Purge(200)", first)
	}
	sameEntries(t, l, all[first-1:])
	if _, err := l.Term(first - 2); err != raft.ErrCompacted {
		t.Fatalf("Term below the boundary: %v", err)
	}
	if term, err := l.Term(first - 1); err != nil || term != 2 {
		t.Fatalf("Term of the boundary: %d %v", term, err)
	}
	if _, err := l.Entries(first-1, first+1, 1); err != raft.ErrCompacted {
		t.Fatalf("Entries below first: %v", err)
	}
	_, _, err = l.SeekGTID(gtid.Set{}, 300)
	wantErr(t, err, ErrPurged)
	b := l.Boundary()
	if b.Index != first-1 || b.GTIDs.Count() != 3*(first-4) || b.Barrier.Index != 3 {
		t.Fatalf("boundary %+v, first %d", b, first)
	}
	snap, err := l.Snapshot()
	check(t, err)
	if d, err := DecodeBoundary(snap.Data); err != nil || !d.GTIDs.Equal(b.GTIDs) || d.Index != b.Index {
		t.Fatalf("snapshot boundary %+v %v", d, err)
	}
	check(t, l.Close())
	l = mustOpen(t, opts)
	sameEntries(t, l, all[first-1:])
	check(t, l.Close())
}

func testSeek(t *testing.T, l *Log, s *stream) {
	t.Helper()
	for _, last := range []int64{0, 1, 2, 3, 4, 450, 890} {
		var set gtid.Set
		if last > 0 {
			set.AddRange(gtid.Range{SID: gtid.SID{UUID: s.uuid()}, First: 1, Last: last})
		}
		index, fde, err := l.SeekGTID(set, 300)
		check(t, err)
		if want := 4 + uint64(last)/3; index != want {
			t.Fatalf("SeekGTID with 1-%d: %d, want %d", last, index, want)
		}
		if d, err := binlog.ParseFormatDescription(fde); err != nil || string(d.ServerVersion) != "9.7.1" {
			t.Fatalf("SeekGTID's format description: %+v %v", d, err)
		}
	}
	if index, _, err := l.SeekGTID(l.GTIDSet(), 300); err != nil || index != 301 {
		t.Fatalf("SeekGTID with all: %d %v", index, err)
	}
}

func TestOverwriteTail(t *testing.T) {
	for _, at := range []uint64{5, 40, 41, 120, 199, 200} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			opts := testOptions(t.TempDir(), nil)
			l := mustOpen(t, opts)
			setTerm(t, l, 1, 0)
			s := newStream(1, 1)
			all := []*raftpb.Entry{s.barrier(1, 1)}
			for i := uint64(2); i <= 200; i++ {
				all = append(all, s.trx(i, 1, 1, 1500))
			}
			check(t, l.Append(all))
			check(t, l.Sync())
			setTerm(t, l, 2, at-1)
			s2 := newStream(2, 9)
			tail := []*raftpb.Entry{s2.barrier(at, 2)}
			for i := at + 1; i < at+20; i++ {
				tail = append(tail, s2.trx(i, 2, 2, 700))
			}
			check(t, l.Append(tail))
			want := append(all[:at-1:at-1], tail...)
			sameEntries(t, l, want)
			check(t, l.Sync())
			set := l.GTIDSet()
			if n := set.Count(); n != at-2+2*19 {
				t.Fatalf("%d GTIDs", n)
			}
			wantErr(t, l.Append([]*raftpb.Entry{entry(at-1, 3, nil)}), ErrInvariant)
			check(t, l.Close())
			l = mustOpen(t, opts)
			sameEntries(t, l, want)
			if !set.Equal(l.GTIDSet()) {
				t.Fatal("GTID set differs after reopening")
			}
			check(t, l.Close())
		})
	}
}

// TestTransactionOverSegments: a transaction too large for a segment is found from its first chunk on, and is not
// purged in halves.
func TestTransactionOverSegments(t *testing.T) {
	opts := testOptions(t.TempDir(), nil)
	opts.hardSegmentBytes = 100 << 10
	l := mustOpen(t, opts)
	setTerm(t, l, 1, 0)
	s := newStream(1, 1)
	all := []*raftpb.Entry{s.barrier(1, 1), s.trx(2, 1, 1, 70<<10), s.trx(3, 1, 1, 500)}
	g := gtid.GTID{SID: gtid.SID{UUID: s.uuid()}, GNO: 3}
	for i := uint64(4); i < 40; i++ { // entry 4 begins a transaction that entry 40 ends
		m := Meta{Flags: FlagUnfinished}
		if i > 4 {
			m.Flags |= FlagContinues
		}
		all = append(all, s.chunk(i, 1, &m, 10<<10))
	}
	all = append(all, s.chunk(40, 1, &Meta{Flags: FlagContinues, GTIDs: []gtid.Range{{SID: g.SID, First: 3, Last: 3}}},
		100))
	s.gno = 3
	for i := uint64(41); i < 60; i++ {
		all = append(all, s.trx(i, 1, 1, 20<<10))
	}
	for _, e := range all {
		check(t, l.Append([]*raftpb.Entry{e}))
	}
	check(t, l.Sync())
	setTerm(t, l, 1, 59)
	check(t, l.SetConfState(&raftpb.ConfState{Voters: []uint64{1}}, 20)) // in the middle of the transaction
	snap, err := l.Snapshot()
	check(t, err)
	if i := snap.GetMetadata().GetIndex(); i != 40 {
		t.Fatalf("snapshot of index %d, want 40", i)
	}
	seek := func(last int64, want uint64) {
		t.Helper()
		var set gtid.Set
		set.AddRange(gtid.Range{SID: g.SID, First: 1, Last: last})
		if index, fde, err := l.SeekGTID(set, 59); err != nil || index != want || fde == nil {
			t.Fatalf("SeekGTID with 1-%d: %d, want %d, %d bytes of format description: %v", last, index, want, len(fde), err)
		}
	}
	seek(1, 3)
	seek(2, 4)
	seek(3, 41)
	// Its end may not be committed yet: a receiver that lacks nothing else still begins with its first piece, not in
	// its middle.
	for upTo, want := range map[uint64]uint64{3: 4, 4: 4, 10: 4, 39: 4, 40: 41} {
		set := l.GTIDSet()
		if index, _, err := l.SeekGTID(set, upTo); err != nil || index != want {
			t.Fatalf("SeekGTID up to %d: %d %v, want %d", upTo, index, err, want)
		}
	}
	for _, upTo := range []uint64{20, 30, 39} {
		if first, err := l.Purge(upTo, 0); err != nil || first > 4 {
			t.Fatalf("Purge(%d) in the middle of a transaction: first index %d, %v", upTo, first, err)
		}
	}
	seek(2, 4)
	first, err := l.Purge(59, 0)
	check(t, err)
	if first <= 40 {
		t.Fatalf("first index %d after Purge(59)", first)
	}
	sameEntries(t, l, all[first-1:])
	check(t, l.Close())
}

func TestPurgeToASize(t *testing.T) {
	l := mustOpen(t, testOptions(t.TempDir(), nil))
	setTerm(t, l, 1, 0)
	s := newStream(1, 1)
	all := []*raftpb.Entry{s.barrier(1, 1)}
	for i := uint64(2); i <= 400; i++ {
		all = append(all, s.trx(i, 1, 1, 2000))
	}
	check(t, l.Append(all))
	check(t, l.Sync())
	if first, err := l.Purge(400, 1); err != nil || first != 1 {
		t.Fatalf("purge of what is not known to be committed: first index %d, %v", first, err)
	}
	setTerm(t, l, 1, 400)
	if first, err := l.Purge(50, 300<<10); err != nil || first > 51 || first == 1 {
		t.Fatalf("purge with a safe point of 50: first index %d, %v", first, err)
	}
	first, err := l.Purge(400, 300<<10)
	check(t, err)
	if size := l.Size(); size > 300<<10 || size < 200<<10 {
		t.Fatalf("%d bytes left, first index %d", size, first)
	}
	if _, err := l.Purge(400, 0); err != nil {
		t.Fatal(err)
	}
	if last, _ := l.LastIndex(); last != 400 || len(l.segs) != 1 {
		t.Fatalf("last index %d, %d segments", last, len(l.segs))
	}
	check(t, l.Close())
}

// TestDurable: a sync makes all durable that was appended before it.
func TestDurable(t *testing.T) {
	opts := testOptions(t.TempDir(), nil)
	l := mustOpen(t, opts)
	setTerm(t, l, 1, 0)
	s := newStream(1, 1)
	all := []*raftpb.Entry{s.barrier(1, 1)}
	check(t, errors.Join(l.Append(all), l.Sync()))
	for index := uint64(2); index <= 300; index++ {
		e := []*raftpb.Entry{s.trx(index, 1, 1, 1500)}
		all = append(all, e...)
		if index%5 == 0 {
			check(t, l.Append(e)) // the next one syncs it as well
			continue
		}
		check(t, errors.Join(l.Append(e), l.Sync()))
		if l.DurableIndex() != index {
			t.Fatalf("entry %d is durable after the sync of entry %d", l.DurableIndex(), index)
		}
	}
	check(t, errors.Join(l.Append(all[200:]), l.Sync())) // known: nothing is written, all is synced
	if l.DurableIndex() != 300 {
		t.Fatalf("entry %d is durable, 300 were synced", l.DurableIndex())
	}
	sameEntries(t, l, all)
	check(t, l.Close())
	wantErr(t, l.Append(all), ErrClosed)
	l = mustOpen(t, opts)
	sameEntries(t, l, all)
	check(t, l.Close())
}
