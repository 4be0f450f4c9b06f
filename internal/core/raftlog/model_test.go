package raftlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"trireme/internal/core/raftlog"
	"trireme/internal/core/raftlog/memfs"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/lab/needs"
)

// model is what the log must hold: entries first..last, of which those up to synced must survive a crash.
type model struct {
	t       *rapid.T
	fs      *memfs.FS
	opts    raftlog.Options
	l       *raftlog.Log
	first   uint64
	base    gtid.Set // of what lies below first
	baseAt  uint64   // term below first
	entries []*raftpb.Entry
	synced  uint64
	term    uint64
	vote    uint64
	commit  uint64
	maxConf uint64

	incs uint64 // incarnations so far
	inc  uint64 // of the open incarnation, 0: none
	pos  raftlog.Pos
	gno  int64
	open bool

	jobs []func() // jobs that no writer waits for, done at some later time
}

func newModel(t *rapid.T) *model {
	m := &model{t: t, fs: memfs.New(), first: 1}
	m.opts = raftlog.Options{
		Dir: "/raft", FS: m.fs, SegmentBytes: rapid.Int64Range(1000, 20000).Draw(t, "segment"),
		CacheBytes: rapid.Int64Range(1, 8000).Draw(t, "cache"), ZeroAheadBytes: rapid.SampledFrom([]int64{1, 600, 4096}).
				Draw(t, "zeros"), Cluster: 5, NodeID: 1, Keys: keys,
		Later: later,
	}
	if rapid.Bool().Draw(t, "later") {
		m.opts.Later = func(job func()) { m.jobs = append(m.jobs, job) }
	}
	m.reopen()
	return m
}

func (m *model) last() uint64 { return m.first - 1 + uint64(len(m.entries)) }

func (m *model) at(i uint64) *raftpb.Entry { return m.entries[i-m.first] }

func (m *model) fatalf(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf(format, args...)
}

func (m *model) ok(err error) {
	m.t.Helper()
	if err != nil {
		m.fatalf("%v", err)
	}
}

func (m *model) reopen() {
	l, err := raftlog.Open(m.opts)
	m.ok(err)
	m.l = l
}

func (m *model) sid() gtid.SID { return gtid.SID{UUID: gtid.IncarnationUUID(5, 1, m.inc)} }

// follow sets what the next entry of the stream must continue, from the entries that are there.
func (m *model) follow() {
	m.inc, m.open = 0, false
	for _, e := range m.entries {
		meta, _, err := raftlog.DecodeMeta(e.Data)
		if err != nil || meta.Kind == raftlog.Settings {
			continue
		}
		m.inc, m.pos, m.open = meta.Incarnation, meta.End, meta.Flags&raftlog.FlagUnfinished != 0
	}
}

func (m *model) makeEntry(index uint64) *raftpb.Entry {
	e := &raftpb.Entry{Index: &index, Term: new(m.term)}
	kind := rapid.IntRange(0, 9).Draw(m.t, "kind")
	size := rapid.SampledFrom([]int{0, 1, 50, 700, 5000}).Draw(m.t, "size")
	body := bytes.Repeat([]byte{byte(index)}, size)
	event := binlog.AppendEvent(nil, binlog.Header{Type: binlog.TypeRowsQuery}, body)
	meta := raftlog.Meta{Node: 1, Incarnation: m.inc, Start: m.pos, End: m.pos}
	switch {
	case kind == 0:
	case kind == 1:
		e.Type, e.Data = raftpb.EntryConfChangeV2.Enum(), body
	case kind == 2:
		meta.Kind = raftlog.Settings
		e.Data = append(raftlog.AppendMeta(nil, &meta), body...)
	case kind == 3 || m.inc == 0:
		m.incs++
		m.inc, m.pos, m.gno, m.open = m.incs, raftlog.Pos{File: 1, Off: 4}, 0, false
		meta = raftlog.Meta{Kind: raftlog.Barrier, Node: 1, Incarnation: m.inc, Start: m.pos, End: m.pos}
		e.Data = binlog.AppendFormatDescription(raftlog.AppendMeta(nil, &meta), binlog.Header{}, fmt.Sprint("9.7.", m.inc), 0)
	default:
		meta.Kind = raftlog.Trx
		if m.open {
			meta.Flags |= raftlog.FlagContinues
		}
		if m.open = kind == 4; m.open {
			meta.Flags |= raftlog.FlagUnfinished
		} else {
			for range rapid.IntRange(1, 3).Draw(m.t, "trx") {
				m.gno++
				meta.AddGTID(gtid.GTID{SID: m.sid(), GNO: m.gno})
			}
		}
		m.pos.Off += uint64(len(event))
		meta.End = m.pos
		e.Data = append(raftlog.AppendMeta(nil, &meta), event...)
	}
	return e
}

func (m *model) setTerm(up uint64) {
	m.term += up
	if up > 0 {
		m.vote = 0
	}
	m.ok(m.l.SetHardState(&raftpb.HardState{Term: new(m.term), Vote: new(m.vote), Commit: new(m.commit)}))
}

// append appends up to 8 entries, over the tail from at on when that is not last+1.
func (m *model) append(at uint64) {
	if at <= m.last() || m.term == 0 {
		m.setTerm(1) // a conflicting tail comes from a newer leader
	}
	m.entries = m.entries[:at-m.first]
	m.synced = min(m.synced, at-1)
	m.follow()
	m.gno = 1000 * int64(m.last()+1) // above all that the incarnation has used
	var es []*raftpb.Entry
	for range rapid.IntRange(1, 8).Draw(m.t, "n") {
		e := m.makeEntry(m.last() + 1)
		es = append(es, e)
		m.entries = append(m.entries, e)
	}
	m.ok(m.l.Append(es))
	m.synced = max(m.synced, m.l.DurableIndex()) // rotation syncs
}

func (m *model) sync() {
	m.ok(m.l.Sync())
	m.synced = m.last()
}

// crash loses what was not synced, reopens the log and takes over what it still holds.
func (m *model) crash(rnd *rand.Rand) {
	m.fs.Crash(rnd)
	_ = m.l.Close()
	m.reopen()
	last, _ := m.l.LastIndex()
	if last < m.synced || last > m.last() {
		m.fatalf("after a crash the log ends at %d, synced was %d, written %d", last, m.synced, m.last())
	}
	m.entries = m.entries[:last+1-m.first]
	m.synced = last
	hs, _, err := m.l.InitialState()
	m.ok(err)
	if hs.GetTerm() != m.term || hs.GetVote() != m.vote {
		m.fatalf("after a crash term %d vote %d, want %d %d", hs.GetTerm(), hs.GetVote(), m.term, m.vote)
	}
	if hs.GetCommit() > last || hs.GetCommit() > m.commit {
		m.fatalf("commit index %d, was %d, last %d", hs.GetCommit(), m.commit, last)
	}
	m.commit = hs.GetCommit()
	m.follow()
}

func (m *model) purge() {
	upTo := rapid.Uint64Range(0, m.commit).Draw(m.t, "upTo")
	first, err := m.l.Purge(upTo, 0)
	m.ok(err)
	if first > upTo+1 && first > m.first {
		m.fatalf("Purge(%d) left first index %d", upTo, first)
	}
	for m.first < first {
		e := m.entries[0]
		if meta, _, err := raftlog.DecodeMeta(e.Data); err == nil {
			for _, r := range meta.GTIDs {
				m.base.AddRange(r)
			}
		}
		m.baseAt = e.GetTerm()
		m.entries = m.entries[1:]
		m.first++
	}
}

// verify compares all that the log says with the model.
func (m *model) verify() {
	first, _ := m.l.FirstIndex()
	last, _ := m.l.LastIndex()
	if first != m.first || last != m.last() {
		m.fatalf("log holds [%d, %d], want [%d, %d]", first, last, m.first, m.last())
	}
	if d := m.l.DurableIndex(); d < m.synced || d > last {
		m.fatalf("durable index %d, synced %d, last %d", d, m.synced, last)
	}
	if term, err := m.l.Term(first - 1); err != nil || term != m.baseAt {
		m.fatalf("term of the boundary %d, want %d: %v", term, m.baseAt, err)
	}
	set := m.base.Clone()
	for _, e := range m.entries {
		if term, err := m.l.Term(e.GetIndex()); err != nil || term != e.GetTerm() {
			m.fatalf("term of %d: %d, want %d: %v", e.GetIndex(), term, e.GetTerm(), err)
		}
		if meta, _, err := raftlog.DecodeMeta(e.Data); err == nil && e.GetType() == raftpb.EntryNormal {
			for _, r := range meta.GTIDs {
				set.AddRange(r)
			}
		}
	}
	if got := m.l.GTIDSet(); !got.Equal(set) {
		m.fatalf("GTIDs %v, want %v", got, set)
	}
	if b := m.l.Boundary(); !b.GTIDs.Equal(m.base) || b.Index != first-1 {
		m.fatalf("boundary %d %v, want %d %v", b.Index, b.GTIDs, first-1, m.base)
	}
	if first <= last {
		lo := rapid.Uint64Range(first, last).Draw(m.t, "lo")
		m.same(lo, rapid.SampledFrom([]uint64{0, 100, 3000, 1 << 40}).Draw(m.t, "max"))
	}
	m.readAll()
}

func (m *model) same(lo, maxSize uint64) {
	es, err := m.l.Entries(lo, m.last()+1, maxSize)
	if maxSize == 1<<40 {
		es, err = m.l.All(lo, m.last()+1)
	}
	m.ok(err)
	if len(es) == 0 || (maxSize == 1<<40 && lo+uint64(len(es)) != m.last()+1) {
		m.fatalf("%d entries from %d, last %d", len(es), lo, m.last())
	}
	for i, e := range es {
		m.equal(e, m.at(lo+uint64(i)))
	}
}

func (m *model) equal(got, want *raftpb.Entry) {
	m.t.Helper()
	if got.GetIndex() != want.GetIndex() || got.GetTerm() != want.GetTerm() || got.GetType() != want.GetType() ||
		!bytes.Equal(got.Data, want.Data) {
		m.fatalf("entry differs:\n got %v\nwant %v", got, want)
	}
}

func (m *model) readAll() {
	r := m.l.NewReader(m.first)
	next := m.first
	for {
		es, err := r.Next(m.last(), 2000)
		m.ok(err)
		if len(es) == 0 {
			break
		}
		for _, e := range es {
			m.equal(e, m.at(next))
			next++
		}
	}
	if next != m.last()+1 {
		m.fatalf("reader ended at %d, last %d", next, m.last())
	}
}

// seek compares SeekGTID with a search through all entries.
func (m *model) seek() {
	var set gtid.Set
	set.AddSet(m.l.GTIDSet())
	if len(m.entries) > 0 && rapid.Bool().Draw(m.t, "less") {
		i := rapid.IntRange(0, len(m.entries)-1).Draw(m.t, "from")
		var not gtid.Set
		for _, e := range m.entries[i:] {
			if meta, _, err := raftlog.DecodeMeta(e.Data); err == nil {
				for _, r := range meta.GTIDs {
					not.AddRange(r)
				}
			}
		}
		set = set.Subtract(not)
	}
	want, clean, open := m.last()+1, uint64(0), false
	for _, e := range m.entries {
		meta, _, err := raftlog.DecodeMeta(e.Data)
		if err == nil && meta.Kind == raftlog.Barrier {
			open = false
		}
		if err != nil || meta.Kind != raftlog.Trx {
			continue
		}
		open = meta.Flags&raftlog.FlagUnfinished != 0
		if meta.Flags&raftlog.FlagContinues == 0 {
			clean = e.GetIndex()
		}
		if len(meta.GTIDs) > 0 && !set.Contains(gtid.GTID{SID: meta.GTIDs[0].SID, GNO: meta.GTIDs[0].First}) {
			want = clean
			break
		}
	}
	if want > m.last() && open {
		want = clean
	}
	got, _, err := m.l.SeekGTID(set, m.last())
	if err != nil || got != want {
		m.fatalf("SeekGTID: %d, want %d: %v", got, want, err)
	}
	if m.base.Count() > 0 {
		if _, _, err := m.l.SeekGTID(gtid.Set{}, m.last()); !errors.Is(err, raftlog.ErrPurged) {
			m.fatalf("SeekGTID below the first index: %v", err)
		}
	}
}

func (m *model) snapshot() {
	index := rapid.Uint64Range(m.maxConf, max(m.maxConf, m.commit)).Draw(m.t, "conf")
	m.maxConf = index
	m.ok(m.l.SetConfState(&raftpb.ConfState{Voters: []uint64{1, 2, index + 3}}, index))
	snap, err := m.l.Snapshot()
	if errors.Is(err, raft.ErrSnapshotTemporarilyUnavailable) {
		return
	}
	m.ok(err)
	at := snap.GetMetadata().GetIndex()
	if at < m.first-1 || at < index || at > m.commit {
		m.fatalf("snapshot of index %d, first %d, configuration %d, commit %d", at, m.first, index, m.commit)
	}
	b, err := raftlog.DecodeBoundary(snap.Data)
	m.ok(err)
	set := m.base.Clone()
	for _, e := range m.entries[:at+1-m.first] {
		if meta, _, err := raftlog.DecodeMeta(e.Data); err == nil && e.GetType() == raftpb.EntryNormal {
			for _, r := range meta.GTIDs {
				set.AddRange(r)
			}
		}
	}
	if !b.GTIDs.Equal(set) || b.Index != at {
		m.fatalf("snapshot boundary %d %v, want %d %v", b.Index, b.GTIDs, at, set)
	}
	if rapid.IntRange(0, 3).Draw(m.t, "reset") == 0 {
		m.reset(snap, set)
	}
}

func (m *model) reset(snap *raftpb.Snapshot, set gtid.Set) {
	m.commit = max(m.commit, snap.GetMetadata().GetIndex())
	if snap.GetMetadata().GetIndex() < m.commit {
		if err := m.l.ResetTo(snap); !errors.Is(err, raftlog.ErrInvariant) {
			m.fatalf("reset below the commit index: %v", err)
		}
		return
	}
	m.ok(m.l.ResetTo(snap))
	m.maxConf = snap.GetMetadata().GetIndex()
	m.first, m.entries, m.base, m.baseAt = snap.GetMetadata().GetIndex()+1, nil, set, snap.GetMetadata().GetTerm()
	m.synced = m.first - 1
	m.inc = 0
}

// TestModel does random things to a log on a disk that loses what was not synced, and compares it with a list.
func TestModel(t *testing.T) {
	needs.NoRace(t)
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		seed := rapid.Uint64().Draw(t, "seed")
		rnd := rand.New(rand.NewPCG(seed, 1))
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) { m.t = t; m.append(m.last() + 1) },
			"more":   func(t *rapid.T) { m.t = t; m.append(m.last() + 1) },
			"overwrite": func(t *rapid.T) {
				m.t = t
				if lo := max(m.commit+1, m.first); lo <= m.last() {
					m.append(rapid.Uint64Range(lo, m.last()).Draw(t, "at"))
				}
			},
			"sync": func(t *rapid.T) { m.t = t; m.sync() },
			"vote": func(t *rapid.T) {
				m.t = t
				m.term++
				m.vote = rapid.Uint64Range(0, 3).Draw(t, "vote")
				m.setTerm(0)
			},
			"commit": func(t *rapid.T) {
				m.t = t
				if m.term > 0 && m.synced > m.commit {
					m.commit = rapid.Uint64Range(m.commit, m.synced).Draw(t, "commit")
					m.setTerm(0)
				}
			},
			"crash":    func(t *rapid.T) { m.t = t; m.crash(rnd) },
			"powercut": func(t *rapid.T) { m.t = t; m.crash(nil) },
			"close": func(t *rapid.T) {
				m.t = t
				m.ok(m.l.Close())
				m.synced = m.last()
				m.reopen()
			},
			"purge": func(t *rapid.T) { m.t = t; m.purge() },
			"upkeep": func(t *rapid.T) {
				jobs := m.jobs
				m.jobs = nil
				for _, job := range jobs {
					job()
				}
			},
			"seek":     func(t *rapid.T) { m.t = t; m.seek() },
			"snapshot": func(t *rapid.T) { m.t = t; m.snapshot() },
			"":         func(t *rapid.T) { m.t = t; m.verify() },
		})
		_ = m.l.Close()
	})
}
