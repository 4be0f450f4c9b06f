package ledger

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trireme/internal/base/rule"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
)

// at makes a position in file 1, or in the file given.
func at(off uint64, file ...uint32) raftlog.Pos {
	p := raftlog.Pos{File: 1, Off: off}
	if len(file) > 0 {
		p.File = file[0]
	}
	return p
}

// step is one committed entry and what the ledger must say to it.
type step struct {
	term uint64
	meta raftlog.Meta
	raw  string // instead of meta
	want string // part of the error; "" means that it is taken
}

func barrierStep(term uint64, node uint16, incarnation uint64, start raftlog.Pos) step {
	return step{term: term, meta: raftlog.Meta{Kind: raftlog.Barrier, Node: node, Incarnation: incarnation, Start: start,
		End: start}}
}

// trxStep is an entry of incarnation 1 of node 1 in term 1 with GTIDs first..last of it (none if first is 0).
func trxStep(start, end raftlog.Pos, flags raftlog.Flags, first, last int64) step {
	m := raftlog.Meta{Kind: raftlog.Trx, Flags: flags, Node: 1, Incarnation: 1, Start: start, End: end}
	if first > 0 {
		m.GTIDs = []gtid.Range{{SID: testSID(1, 1), First: first, Last: last}}
	}
	return step{term: 1, meta: m}
}

func (s step) fails(want string) step          { s.want = want; return s }
func (s step) in(term uint64) step             { s.term = term; return s }
func (s step) of(node uint16, inc uint64) step { s.meta.Node, s.meta.Incarnation = node, inc; return s }
func (s step) also(r gtid.Range) step          { s.meta.GTIDs = append(s.meta.GTIDs, r); return s }
func (s step) add(l *Ledger) error {
	data := []byte(s.raw)
	if s.raw == "" && s.meta.Kind != 0 {
		data = append(raftlog.AppendMeta(nil, &s.meta), "events"...)
	}
	_, _, err := l.Add(l.index+1, s.term, data, time.Time{})
	return err
}

func TestLedgerAssertions(t *testing.T) {
	const cont, unfinished = raftlog.FlagContinues, raftlog.FlagUnfinished
	begin := barrierStep(1, 1, 1, at(4))
	empty := step{term: 1} // raft's own
	run := func(n int64) gtid.Range { return gtid.Range{SID: testSID(1, 1), First: n, Last: n} }
	tests := []struct {
		name  string
		steps []step
	}{
		{"a stream", []step{empty, begin, trxStep(at(4), at(100), 0, 1, 3), trxStep(at(100), at(200), 0, 4, 4), empty,
			trxStep(at(200), at(300), 0, 5, 5)}},
		{"settings are no part of it", []step{begin, trxStep(at(4), at(100), 0, 1, 1),
			{term: 1, meta: raftlog.Meta{Kind: raftlog.Settings}}, trxStep(at(100), at(200), 0, 2, 2)}},
		{"garbage", []step{begin, step{term: 1, raw: "garbage"}.fails("bad entry meta")}},

		{"S6: no barrier", []step{trxStep(at(4), at(100), 0, 1, 1).fails("S6")}},
		{"S6: another node's", []step{begin, barrierStep(2, 2, 1, at(4)), trxStep(at(4), at(100), 0, 1, 1).in(2).
			fails("S6")}},
		{"S6: a dead incarnation's", []step{begin, barrierStep(1, 1, 2, at(4)), trxStep(at(4), at(100), 0, 1, 1).
			fails("S6")}},
		{"S6: the new one's", []step{begin, trxStep(at(4), at(100), 0, 1, 1), barrierStep(1, 1, 2, at(4)),
			trxStep(at(4), at(100), 0, 2, 2).of(1, 2)}},
		{"S7: another term than its barrier's", []step{begin, trxStep(at(4), at(100), 0, 1, 1).in(2).fails("S7")}},
		{"S7: of an older term", []step{begin.in(3), trxStep(at(4), at(100), 0, 1, 1).in(2).fails("S7")}},

		{"S12: gap", []step{begin, trxStep(at(4), at(100), 0, 1, 1), trxStep(at(101), at(200), 0, 2, 2).fails("S12")}},
		{"S12: gap after the barrier", []step{begin, trxStep(at(5), at(100), 0, 1, 1).fails("S12")}},
		{"S12: overlap", []step{begin, trxStep(at(4), at(100), 0, 1, 1), trxStep(at(99), at(200), 0, 2, 2).fails("S12")}},
		{"S12: the same again", []step{begin, trxStep(at(4), at(100), 0, 1, 1), trxStep(at(4), at(100), 0, 1, 1).
			fails("S12")}},
		{"S12: next file", []step{begin, trxStep(at(4), at(100), 0, 1, 1), trxStep(at(4, 2), at(99, 2), 0, 2, 2),
			trxStep(at(99, 2), at(199, 2), 0, 3, 3)}},
		{"S12: next file, not from its start", []step{begin, trxStep(at(4), at(100), 0, 1, 1),
			trxStep(at(100, 2), at(199, 2), 0, 2, 2).fails("S12")}},
		{"S12: a file left out", []step{begin, trxStep(at(4), at(100), 0, 1, 1), trxStep(at(4, 3), at(99, 3), 0, 2, 2).
			fails("S12")}},
		{"S12: the file before", []step{begin, trxStep(at(4), at(100), 0, 1, 1), trxStep(at(4, 2), at(99, 2), 0, 2, 2),
			trxStep(at(100), at(199), 0, 3, 3).fails("S12")}},

		{"chunks", []step{begin, trxStep(at(4), at(100), unfinished, 0, 0), trxStep(at(100), at(200), cont|unfinished, 0, 0),
			trxStep(at(200), at(300), cont, 1, 1), trxStep(at(300), at(400), 0, 2, 2)}},
		{"S12: a piece of nothing", []step{begin, trxStep(at(4), at(100), cont, 1, 1).fails("S12")}},
		{"S12: not finished", []step{begin, trxStep(at(4), at(100), unfinished, 0, 0), trxStep(at(100), at(200), 0, 1, 1).
			fails("S12")}},
		{"S12: finished already", []step{begin, trxStep(at(4), at(100), unfinished, 0, 0),
			trxStep(at(100), at(200), cont, 1, 1),
			trxStep(at(200), at(300), cont, 2, 2).fails("S12")}},
		{"a barrier of another incarnation ends it", []step{begin, trxStep(at(4), at(100), unfinished, 0, 0),
			barrierStep(2, 2, 1, at(4)),
			trxStep(at(4), at(100), 0, 1, 1).of(2, 1).in(2)}},
		{"S12: it does not continue there", []step{begin, trxStep(at(4), at(100), unfinished, 0, 0),
			barrierStep(2, 2, 1, at(4)),
			trxStep(at(4), at(100), cont, 1, 1).of(2, 1).in(2).fails("S12")}},

		{"S12: GTID twice", []step{begin, trxStep(at(4), at(100), 0, 1, 5), trxStep(at(100), at(200), 0, 5, 6).fails("S12")}},
		{"S12: GTID twice in one entry", []step{begin, trxStep(at(4), at(100), 0, 1, 5).also(run(3)).fails("S12")}},
		{"S12: GTID of the boundary", []step{begin, trxStep(at(4), at(100), 0, 1000, 1000).fails("S12")}},

		{"led again without a restart", []step{begin, trxStep(at(4), at(100), 0, 1, 1), barrierStep(2, 1, 1, at(100)),
			trxStep(at(100), at(200), 0, 2, 2).in(2)}},
		{"led again, after what it logged for itself", []step{begin, trxStep(at(4), at(100), 0, 1, 1),
			barrierStep(2, 1, 1, at(150)), trxStep(at(150), at(200), 0, 3, 3).in(2)}},
		{"S12: led again, from the start", []step{begin, trxStep(at(4), at(100), 0, 1, 1), barrierStep(2, 1, 1, at(4)).
			fails("S12")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := New(raftlog.Boundary{Index: 10, GTIDs: testSet(t, "1000-1100")})
			for i, s := range tt.steps {
				before, _ := l.At()
				err := s.add(l)
				if (err != nil) != (s.want != "") || err != nil && !strings.Contains(err.Error(), s.want) {
					t.Fatalf("entry %d of %d: error %v, want %q", i+1, len(tt.steps), err, s.want)
				}
				if strings.HasPrefix(s.want, "S") && rule.Of(err) != s.want {
					t.Errorf("the error names the rule %q, want %q: %v", rule.Of(err), s.want, err)
				}
				after, _ := l.At()
				if want := before + 1; err == nil && after != want {
					t.Fatalf("entry %d of %d: index %d, want %d", i+1, len(tt.steps), after, want)
				}
				if err != nil && after != before {
					t.Fatalf("a broken entry moved the index")
				}
			}
		})
	}
}

func TestLedgerOrder(t *testing.T) {
	l := New(raftlog.Boundary{Index: 10})
	for _, index := range []uint64{10, 12, 9, 0} {
		if _, _, err := l.Add(index, 1, nil, time.Time{}); err == nil {
			t.Errorf("entry %d was taken after entry 10", index)
		}
	}
	_, changed := l.At()
	if _, _, err := l.Add(11, 1, nil, time.Time{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("no waiter was told of entry 11")
	}
}

// TestLedgerBoundary: after a purged log the barrier is known, but not the end of its stream.
func TestLedgerBoundary(t *testing.T) {
	b := raftlog.Boundary{Index: 10, GTIDs: testSet(t, "1-9")}
	b.Barrier.Index, b.Barrier.Term, b.Barrier.Node, b.Barrier.Incarnation = 5, 1, 1, 1
	for _, s := range []step{
		trxStep(at(500), at(600), 0, 10, 10),
		trxStep(at(500), at(600), raftlog.FlagContinues, 10, 10),
		trxStep(at(500), at(600), 0, 9, 9).fails("S12"),
		trxStep(at(500), at(600), 0, 10, 10).of(2, 1).fails("S6"),
		trxStep(at(500), at(600), 0, 10, 10).in(2).fails("S7"),
		barrierStep(2, 1, 1, at(600)),
	} {
		l := New(b)
		if got := l.NewestBarrier(); got != (Barrier{Index: 5, Term: 1, Node: 1, Incarnation: 1}) {
			t.Fatalf("barrier %+v", got)
		}
		err := s.add(l)
		if (err != nil) != (s.want != "") || err != nil && !strings.Contains(err.Error(), s.want) {
			t.Errorf("%+v: error %v, want %q", s.meta, err, s.want)
		}
		if err != nil {
			continue
		}
		// From the first entry on the chain is checked again.
		if err := trxStep(at(700), at(800), 0, 11, 11).in(s.term).add(l); err == nil ||
			!strings.Contains(err.Error(), "S12") {
			t.Errorf("after %+v: a gap was not noticed: %v", s.meta, err)
		}
	}
}

func TestLedgerApplied(t *testing.T) {
	l := New(raftlog.Boundary{Index: 10})
	for _, s := range []step{
		barrierStep(1, 1, 1, at(4)),                             // 11
		trxStep(at(4), at(100), 0, 1, 3),                        // 12
		trxStep(at(100), at(200), raftlog.FlagUnfinished, 0, 0), // 13
		trxStep(at(200), at(300), raftlog.FlagContinues, 4, 4),  // 14
		{term: 1}, // 15
		trxStep(at(300), at(400), 0, 5, 6).also(testSet(t, "8").Ranges()[0]), // 16
		{term: 1}, // 17
	} {
		if err := s.add(l); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		executed string
		want     uint64
	}{
		{"", 11}, {"1-2", 11}, {"2-6 8", 11}, {"1-3", 13}, {"1-4", 15}, {"1-6", 15}, {"1-4 6 8", 15}, {"1-6 8", 17},
		{"1-6 8", 17},
	} {
		if got := l.Applied(testSet(t, tt.executed)); got.Applied != tt.want || (got.Bytes == 0) != (tt.want == 17) {
			t.Errorf("executed %q: applied %d and %d bytes to go, want %d", tt.executed, got.Applied, got.Bytes, tt.want)
		}
	}
	// A new life holds less than the one before it had.
	l.Restart([]Mark{{Index: 14, First: 14, GTIDs: testSet(t, "4").Ranges()},
		{Index: 16, First: 16, GTIDs: testSet(t, "8").Ranges()}}, 17)
	if err := trxStep(at(400), at(500), 0, 9, 9).add(l); err != nil { // 18
		t.Fatal(err)
	}
	for _, tt := range []struct {
		executed string
		want     uint64
	}{{"1-3 5-6", 13}, {"1-6", 15}, {"1-6 8", 17}, {"1-6 8 9", 18}} {
		if got := l.Applied(testSet(t, tt.executed)); got.Applied != tt.want {
			t.Errorf("after a restart, executed %q: applied %d, want %d", tt.executed, got.Applied, tt.want)
		}
	}
}

// TestLeftOut: what is not executed although a later entry is. Those that were executed before the looks began, and a
// part of an entry, tell nothing.
func TestLeftOut(t *testing.T) {
	l := New(raftlog.Boundary{Index: 10})
	for _, s := range []step{
		barrierStep(1, 1, 1, at(4)),        // 11
		trxStep(at(4), at(100), 0, 1, 3),   // 12
		trxStep(at(100), at(200), 0, 4, 4), // 13
		trxStep(at(200), at(300), 0, 5, 6), // 14
		trxStep(at(300), at(400), 0, 7, 7), // 15
	} {
		if err := s.add(l); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		executed, before string
		gno              int64
		index            uint64
	}{
		{"", "", 0, 0}, {"1-2", "", 0, 0}, {"1-3", "", 0, 0}, {"1-2 5", "", 0, 0}, // nothing after it, or a part
		{"1-2 4", "", 3, 12}, {"4", "", 1, 12}, {"1-2 7", "1", 3, 12},
		{"4 7", "4 7", 0, 0}, {"4 5-6 7", "4 7", 1, 12},
	} {
		g, index := l.LeftOut(testSet(t, tt.executed), testSet(t, tt.before))
		if g.GNO != tt.gno || index != tt.index {
			t.Errorf("executed %q, before %q: %v at entry %d, want %d at %d", tt.executed, tt.before, g, index, tt.gno, tt.index)
		}
	}
	l.Applied(testSet(t, "1-3"))
	if g, index := l.LeftOut(testSet(t, "1-3 5-7"), testSet(t, "")); g.GNO != 4 || index != 13 {
		t.Errorf("%v at entry %d", g, index)
	}
	l.Applied(testSet(t, "1-7"))
	if g, index := l.LeftOut(testSet(t, "1-7"), testSet(t, "")); index != 0 {
		t.Errorf("%v at entry %d, and all is executed", g, index)
	}
}

// TestLedgerAppliedModel compares with a ledger that remembers every GTID by itself, however often marks are merged and
// lives end: Applied is never too high (it becomes the durable index: S8), and at most as much too low as a merged mark
// is wide.
func TestLedgerAppliedModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := New(raftlog.Boundary{Index: 10})
		if err := barrierStep(1, 1, 1, at(4)).add(l); err != nil {
			t.Fatal(err)
		}
		var (
			log      []Txn // one for each GTID
			executed gtid.Set
			gno      int64
			pos      = uint64(4)
			merged   bool
		)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1, 2, 3, 4:
				n := rapid.Int64Range(0, 3).Draw(t, "transactions")
				s := trxStep(at(pos), at(pos+10), 0, 0, 0)
				if n > 0 {
					gno += rapid.Int64Range(1, 2).Draw(t, "first") // a hole in the numbers is nothing to the ledger
					s = trxStep(at(pos), at(pos+10), 0, gno, gno+n-1)
				}
				pos += 10
				if err := s.add(l); err != nil {
					t.Fatal(err)
				}
				for range n {
					log = append(log, Txn{Index: l.index, GTIDs: gtid.Range{SID: testSID(1, 1), First: gno, Last: gno}})
					gno++
				}
			case 5, 6, 7:
				// The applier goes on: in order, with a few out of it.
				for i := range log {
					if rapid.IntRange(0, 3).Draw(t, "applied") > 0 {
						executed.AddRange(log[i].GTIDs)
					}
				}
			case 8:
				l.pending = mergeMarks(l.pending)
				merged = true
			case 9:
				// A new life with a shorter prefix.
				keep := rapid.IntRange(0, len(log)).Draw(t, "kept")
				var prefix gtid.Set
				for _, x := range log[:keep] {
					prefix.AddRange(x.GTIDs)
				}
				executed = executed.Intersect(prefix)
				m := Marker{Executed: executed}
				for _, x := range log {
					m.Add(x)
				}
				l.Restart(m.List, l.index)
				merged = false
			}
			checkApplied(t, l, log, executed, merged)
		}
		for _, x := range log {
			executed.AddRange(x.GTIDs)
		}
		if got := l.Applied(executed); got.Applied != l.index || got.Bytes != 0 {
			t.Fatalf("everything is executed: %+v, index %d", got, l.index)
		}
	})
}

func checkApplied(t *rapid.T, l *Ledger, log []Txn, executed gtid.Set, merged bool) {
	want := l.index
	for _, x := range log {
		if !executed.Contains(first(x.GTIDs)) {
			want = x.Index - 1
			break
		}
	}
	got := l.Applied(executed).Applied
	if got > want || got < want && !merged {
		t.Fatalf("applied %d, want %d; pending %+v", got, want, l.pending)
	}
	if merged && got < want {
		// Only because a mark that is not applied begins there.
		if m := l.pending[0]; m.First != got+1 || m.Index <= want {
			t.Fatalf("applied %d, want %d; pending %+v", got, want, l.pending)
		}
	}
}

func TestMarksAreBounded(t *testing.T) {
	l := New(raftlog.Boundary{})
	if err := barrierStep(1, 1, 1, at(4)).add(l); err != nil {
		t.Fatal(err)
	}
	const entries = 3*maxMarks + 1
	var all gtid.Set
	for i := range uint64(entries) {
		if err := trxStep(at(4+i), at(5+i), 0, int64(i+1), int64(i+1)).add(l); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.pending) > maxMarks {
		t.Errorf("%d marks", len(l.pending))
	}
	all.AddRange(gtid.Range{SID: testSID(1, 1), First: 1, Last: entries / 2})
	if got := l.Applied(all).Applied; got > entries/2+1 || got < entries/2-16 {
		t.Errorf("applied %d of %d", got, entries)
	}
}

// TestWhole: a reader begins in front of a large transaction, not in its middle.
func TestWhole(t *testing.T) {
	l := New(raftlog.Boundary{})
	for i, c := range []struct {
		s    step
		want uint64
	}{
		{barrierStep(1, 1, 1, at(4)), 1},
		{trxStep(at(4), at(500), 0, 1, 2), 2},
		{trxStep(at(500), at(600), raftlog.FlagUnfinished, 0, 0), 2},
		{step{term: 1}, 2},
		{trxStep(at(600), at(700), raftlog.FlagContinues|raftlog.FlagUnfinished, 0, 0), 2},
		{trxStep(at(700), at(800), raftlog.FlagContinues, 3, 4), 6},
		{trxStep(at(800), at(900), raftlog.FlagUnfinished, 0, 0), 6},
		{barrierStep(2, 1, 2, at(4)), 8},
	} {
		if err := c.s.add(l); err != nil {
			t.Fatal(err)
		}
		if got := l.Whole(); got != c.want {
			t.Errorf("after entry %d: %d, want %d", i+1, got, c.want)
		}
	}
}
