package backup

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

const testCluster = 0x1234

var (
	testID = clusterID{"shop", testCluster}
	// began is when the first transaction of a script was committed; each following one is a second later.
	began = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
)

// script writes a raft log as a node does, and keeps its entries.
type script struct {
	t       testing.TB
	dir     string
	log     *raftlog.Log
	term    uint64
	inc     uint64
	pos     raftlog.Pos
	gno     int64
	seconds int
	entries []Entry
	applied atomic.Uint64
	cutOff  bool
	keys    *raftlog.Keys
	told    []Reached
}

func newScript(t testing.TB) *script {
	t.Helper()
	s := &script{t: t, dir: filepath.Join(t.TempDir(), "raft"), term: 1}
	s.open()
	s.barrier()
	return s
}

func (s *script) open() {
	s.t.Helper()
	var err error
	s.log, err = raftlog.Open(raftlog.Options{Dir: s.dir, SegmentBytes: 16 << 10, ZeroAheadBytes: 4 << 10,
		Cluster: testCluster, NodeID: 1})
	check(s.t, err)
	s.t.Cleanup(func() { _ = s.log.Close() })
	s.setTerm()
}

func (s *script) setTerm() {
	s.t.Helper()
	commit, vote := s.last(), uint64(1)
	check(s.t, s.log.SetHardState(&raftpb.HardState{Term: &s.term, Vote: &vote, Commit: &commit}))
}

func (s *script) sid() gtid.SID { return gtid.SID{UUID: gtid.IncarnationUUID(testCluster, 1, s.inc)} }

// gtid of the newest transaction.
func (s *script) gtid() gtid.GTID { return gtid.GTID{SID: s.sid(), GNO: s.gno} }

func (s *script) last() uint64 { return uint64(len(s.entries)) }

func (s *script) append(typ raftpb.EntryType, data []byte) {
	s.t.Helper()
	e := Entry{Index: s.last() + 1, Term: s.term, Type: typ, Data: data}
	s.entries = append(s.entries, e)
	raw := &raftpb.Entry{Index: &e.Index, Term: &e.Term, Data: bytes.Clone(data)}
	if typ != 0 {
		raw.Type = typ.Enum()
	}
	check(s.t, s.log.Append([]*raftpb.Entry{raw}))
	check(s.t, s.log.Sync())
	s.applied.Store(s.last())
}

func (s *script) barrier() {
	s.t.Helper()
	s.inc++
	s.gno = 0
	s.pos = raftlog.Pos{File: 1, Off: 4}
	m := raftlog.Meta{Kind: raftlog.Barrier, Node: 1, Incarnation: s.inc, Start: s.pos, End: s.pos}
	fde := binlog.AppendFormatDescription(nil, binlog.Header{ServerID: 1, Timestamp: 1700000000}, "9.7.4", 0)
	s.append(0, append(raftlog.AppendMeta(nil, &m), fde...))
}

// transaction is one of about size bytes, whole.
func (s *script) transaction(size int) []byte {
	s.gno++
	h := binlog.Header{Timestamp: uint32(began.Unix()) + uint32(s.seconds), ServerID: 1}
	body := binlog.AppendQuery(nil, h, 7, "shop", "BEGIN")
	h.Type = binlog.TypeRowsQuery
	body = binlog.AppendEvent(body, h, append([]byte{0}, bytes.Repeat([]byte("x"), size)...))
	h.Type = binlog.TypeXID
	body = binlog.AppendEvent(body, h, binary.LittleEndian.AppendUint64(nil, uint64(s.gno)))
	// flags, uuid, number, code, last committed, sequence, commit time, length, version
	le := binary.LittleEndian
	uuid := s.sid().UUID
	g := append([]byte{0}, uuid[:]...)
	g = le.AppendUint64(g, uint64(s.gno))
	g = append(g, 2)
	g = le.AppendUint64(g, uint64(s.gno-1))
	g = le.AppendUint64(g, uint64(s.gno))
	at := began.Add(time.Duration(s.seconds) * time.Second).UnixMicro()
	s.seconds++
	g = append(g, le.AppendUint64(nil, uint64(at))[:7]...)
	const headOf = binlog.HeaderLen + 1 + 16 + 8 + 1 + 8 + 8 + 7 + 9 + 4 + binlog.ChecksumLen
	g = append(g, 0xfe) // a packed integer of 8 bytes
	g = le.AppendUint64(g, uint64(headOf+len(body)))
	g = le.AppendUint32(g, 90704)
	h.Type = binlog.TypeGTID
	return append(binlog.AppendEvent(nil, h, g), body...)
}

// trx appends an entry of n whole transactions.
func (s *script) trx(n, size int) {
	s.t.Helper()
	m := raftlog.Meta{}
	var events []byte
	for range n {
		events = append(events, s.transaction(size)...)
		m.AddGTID(s.gtid())
	}
	s.piece(&m, events)
}

// pieces appends a transaction in two entries: after n whole ones in the first entry, and before n whole ones in the
// second.
func (s *script) pieces(n, size int) {
	s.t.Helper()
	first, second := raftlog.Meta{Flags: raftlog.FlagUnfinished}, raftlog.Meta{Flags: raftlog.FlagContinues}
	var events []byte
	for range n {
		events = append(events, s.transaction(size)...)
		first.AddGTID(s.gtid())
	}
	long := s.transaction(size)
	second.AddGTID(s.gtid())
	_, _, rest, err := binlog.Cut(long)
	check(s.t, err)
	s.piece(&first, append(events, long[:len(long)-len(rest)]...))
	for range n {
		rest = append(rest[:len(rest):len(rest)], s.transaction(size)...)
		second.AddGTID(s.gtid())
	}
	s.piece(&second, rest)
}

func (s *script) piece(m *raftlog.Meta, events []byte) {
	s.t.Helper()
	m.Kind, m.Node, m.Incarnation, m.Start = raftlog.Trx, 1, s.inc, s.pos
	s.pos.Off += uint64(len(events))
	m.End = s.pos
	s.append(0, append(raftlog.AppendMeta(nil, m), events...))
}

// settings appends an entry without events.
func (s *script) settings() {
	s.t.Helper()
	s.append(0, append(raftlog.AppendMeta(nil, &raftlog.Meta{Kind: raftlog.Settings}), `{"version":2}`...))
}

// some appends a bit of everything.
func (s *script) some(n int) {
	s.t.Helper()
	for i := range n {
		switch i % 5 {
		case 0:
			s.trx(3, 700)
		case 1:
			s.pieces(1, 900)
		case 2:
			s.settings()
		case 3:
			s.append(raftpb.EntryConfChangeV2, []byte("a change"))
		case 4:
			s.append(0, nil)
		}
	}
}

// Applied implements Node.
func (s *script) Applied(context.Context) (uint64, error) { return s.applied.Load(), nil }

// Told implements Node.
func (s *script) Told(at Reached) { s.told = append(s.told, at) }

// Committed implements Node.
func (s *script) Committed(context.Context) (uint64, error) {
	if s.cutOff {
		return 0, errors.New("no majority answers")
	}
	return s.last(), nil
}

// archiver of the script's log, as far as it has come; every step stores.
func (s *script) archiver(to Store) *archiver {
	keys := func() (*raftlog.Keys, error) { return s.keys, nil }
	a := &archiver{store: to, id: testID, dir: s.dir, keys: keys, node: s, log: slog.New(slog.DiscardHandler)}
	s.t.Cleanup(a.close)
	return a
}

// archive brings a backup to where the node is.
func (s *script) archive(to Store) {
	s.t.Helper()
	a := s.archiver(to)
	defer a.close()
	check(s.t, claim(to, testID))
	check(s.t, a.resume(s.t.Context(), 1))
	check(s.t, a.step(s.t.Context(), true))
}

// same fails unless the archive holds exactly the script's entries up to last, from the first one on.
func (s *script) same(from Store, last uint64) {
	s.t.Helper()
	names, err := segmentNames(from)
	check(s.t, err)
	next := uint64(1)
	for _, name := range names {
		_, err := readSegment(from, name, func(e Entry) error {
			want := s.entries[e.Index-1]
			if e.Index != next || e.Term != want.Term || e.Type != want.Type || !bytes.Equal(e.Data, want.Data) {
				s.t.Fatalf("entry %d term %d of %d bytes, want %d term %d of %d bytes", e.Index, e.Term, len(e.Data), next,
					want.Term, len(want.Data))
			}
			next++
			return nil
		})
		check(s.t, err)
	}
	if next != last+1 {
		s.t.Fatalf("the archive ends at entry %d, want %d", next-1, last)
	}
}

func newDir(t testing.TB) *Dir {
	t.Helper()
	d, err := NewDir(filepath.Join(t.TempDir(), "backup"))
	check(t, err)
	return d
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
