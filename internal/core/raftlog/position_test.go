package raftlog

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// ended is a transaction of placed, in the log's order.
type ended struct {
	s  *stream
	at Pos
	id gtid.GTID
}

// placed makes an entry of n transactions whose events have their true positions, with a hole in front of the entry as
// local statements leave it.
func (s *stream) placed(index, term uint64, n int, hole uint64) (*raftpb.Entry, []ended) {
	m := Meta{Kind: Trx, Node: s.node, Incarnation: s.inc, Start: s.pos}
	s.pos.Off += hole
	var events []byte
	var all []ended
	for range n {
		s.gno++
		id := gtid.GTID{SID: gtid.SID{UUID: s.uuid()}, GNO: s.gno}
		for _, typ := range []binlog.EventType{binlog.TypeGTID, binlog.TypeRowsQuery, binlog.TypeXID} {
			ev := event(typ, 2000, byte(index))
			s.pos.Off += uint64(len(ev))
			binlog.SetLogPos(ev, uint32(s.pos.Off))
			events = append(events, ev...)
		}
		m.AddGTID(id)
		all = append(all, ended{s, s.pos, id})
	}
	m.End = s.pos
	return entry(index, term, append(AppendMeta(nil, &m), events...)), all
}

// TestGTIDsBefore: a position is what lay in front of it in the log, whichever incarnations wrote that; and never more,
// also when an incarnation leads twice and what it did first is gone.
func TestGTIDsBefore(t *testing.T) {
	l := mustOpen(t, testOptions(t.TempDir(), nil))
	setTerm(t, l, 1, 0)
	one, two := newStream(1, 1), newStream(2, 1)
	var all []ended
	index := uint64(0)
	add := func(e *raftpb.Entry) {
		t.Helper()
		check(t, l.Append([]*raftpb.Entry{e}))
	}
	reign := func(s *stream, term uint64, entries int) {
		t.Helper()
		setTerm(t, l, term, 0)
		index++
		add(s.barrier(index, term))
		for i := range entries {
			index++
			e, es := s.placed(index, term, 1+i%3, uint64(i%2)*77)
			add(e)
			all = append(all, es...)
		}
	}
	reign(one, 1, 30)
	reign(two, 2, 30)
	reign(one, 3, 30) // the same life again, where it had stopped
	reign(two, 4, 1)
	check(t, l.Sync())
	setTerm(t, l, 4, index)

	judge := func(purged uint64) {
		t.Helper()
		var has gtid.Set
		known := 0
		for i, e := range all {
			has.Add(e.id)
			for _, at := range []Pos{e.at, {File: e.at.File, Off: e.at.Off + 9}} { // after it, and within the next one
				if next := i + 1; at != e.at && (next == len(all) || all[next].s != e.s) {
					continue // beyond, or where the same life goes on later
				}
				got, end, err := l.GTIDsBefore(e.s.node, e.s.inc, at, index)
				switch {
				case errors.Is(err, ErrPurged) && purged > 1, errors.Is(err, ErrNoPosition) && purged > 1:
				case err != nil:
					t.Fatalf("%v at %v: %v", e.id, at, err)
				case !got.Equal(has) || end != e.at:
					t.Fatalf("%v at %v: %v up to %v, want %v up to %v", e.id, at, got, end, has, e.at)
				default:
					known++
				}
			}
		}
		if known == 0 || purged <= 1 && known < len(all) {
			t.Fatalf("%d of %d known", known, len(all))
		}
	}
	judge(0)
	if got, _, err := l.GTIDsBefore(1, 1, Pos{1, 4}, index); err != nil || !got.Empty() {
		t.Fatalf("the beginning: %v %v", got, err)
	}
	_, _, err := l.GTIDsBefore(3, 1, Pos{1, 4}, index)
	wantErr(t, err, ErrNoPosition)
	_, _, err = l.GTIDsBefore(1, 1, Pos{1, 1 << 30}, index)
	wantErr(t, err, ErrBeyond)
	for _, upTo := range []uint64{10, 25, 40, 70} {
		first, err := l.Purge(upTo, 0)
		check(t, err)
		if _, _, err := l.GTIDsBefore(1, 1, Pos{1, 4}, index); first > 1 && !errors.Is(err, ErrPurged) {
			t.Fatalf("the beginning, after a purge up to %d: %v", first-1, err)
		}
		judge(first)
	}
}
