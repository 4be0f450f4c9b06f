package ledger

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

// statementEvents are a transaction of node 1's first life: a statement that ran for so many seconds.
func statementEvents(gno int64, seconds uint32, sql string) []byte {
	h := binlog.Header{Timestamp: 1, Type: binlog.TypeGTID, ServerID: 1, LogPos: 1}
	sid := testSID(1, 1)
	body := append([]byte{0}, sid.UUID[:]...)
	body = append(binary.LittleEndian.AppendUint64(body, uint64(gno)), 2)
	ev := binlog.AppendEvent(nil, h, append(body, make([]byte, 16+7+1+4)...))
	h.Type = binlog.TypeQuery
	query := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 7), seconds)
	query = append(query, 0, 0, 0, 0, 0, 0) // schema's length, error, status variables, the schema's end
	return binlog.AppendEvent(ev, h, append(query, sql...))
}

// TestLedgerHeavy: all pieces of a large transaction count as long as it is not applied, and a statement as long as it
// took.
func TestLedgerHeavy(t *testing.T) {
	l := New(raftlog.Boundary{Index: 10})
	size := int64(0)
	add := func(s step, events []byte) {
		t.Helper()
		data := append(raftlog.AppendMeta(nil, &s.meta), events...)
		if _, _, err := l.Add(l.index+1, s.term, data, time.Time{}); err != nil {
			t.Fatal(err)
		}
		size = int64(len(data))
	}
	pieces := func(flags raftlog.Flags, from, gno int64) (sum int64) {
		t.Helper()
		for i, f := range []raftlog.Flags{raftlog.FlagUnfinished, raftlog.FlagContinues | raftlog.FlagUnfinished,
			raftlog.FlagContinues} {
			last := int64(0)
			if i == 2 {
				last = gno
			}
			add(trxStep(at(uint64(from)+uint64(i)*100), at(uint64(from)+uint64(i)*100+100), f|flags, last, last),
				make([]byte, 1000))
			sum += size
		}
		return sum
	}
	// 11
	add(barrierStep(1, 1, 1, at(4)), nil)
	// 12
	add(trxStep(at(4), at(100), 0, 1, 1), make([]byte, 500))
	// 13, 14, 15
	large := pieces(0, 100, 2)
	// 16
	add(trxStep(at(400), at(500), raftlog.FlagSpecial, 3, 4),
		slices.Concat(statementEvents(3, 40, "ALTER TABLE t ADD c INT"),
			statementEvents(4, 1<<31, "ALTER TABLE t ADD d INT"))) // with SET timestamp: not believed
	for _, c := range []struct {
		executed    string
		heavy, next Heavy
	}{
		{"", Heavy{large, 40 * time.Second}, Heavy{}},
		{"1", Heavy{large, 40 * time.Second}, Heavy{Bytes: large}},
		{"1-2", Heavy{DDL: 40 * time.Second}, Heavy{DDL: 40 * time.Second}},
		{"1-4", Heavy{}, Heavy{}},
	} {
		b := l.Applied(testSet(t, c.executed))
		if b.Heavy != c.heavy || b.Next != c.next {
			t.Errorf("executed %q: %+v", c.executed, b)
		}
		if c.executed == "1" && b.Bytes != large+size {
			t.Errorf("%d bytes to go, want %d", b.Bytes, large+size)
		}
	}

	// What another incarnation had begun never happened, and neighbours that are merged keep what they hold.
	add(trxStep(at(500), at(600), raftlog.FlagUnfinished, 0, 0), make([]byte, 1000)) // 17
	add(barrierStep(2, 1, 2, at(4)), nil)                                            // 18
	s := trxStep(at(4), at(100), 0, 0, 0).of(1, 2).in(2)
	s.meta.GTIDs = []gtid.Range{{SID: testSID(1, 2), First: 1, Last: 1}}
	add(s, nil) // 19
	if b := l.Applied(testSet(t, "1-4")); b.Heavy != (Heavy{}) || b.Bytes != size {
		t.Errorf("after a barrier: %+v", b)
	}
	merged := mergeMarks([]Mark{{Index: 1, Heavy: Heavy{Bytes: 5}}, {Index: 2, Heavy: Heavy{Bytes: 7, DDL: 3}}})
	if merged[0].Heavy != (Heavy{12, 3}) {
		t.Errorf("merged: %+v", merged)
	}
}

// TestMarkerHeavy: what a scan of the log finds after a restart is as heavy as it was before.
func TestMarkerHeavy(t *testing.T) {
	var s Scanner
	m := Marker{}
	entry := trxStep(at(4), at(100), raftlog.FlagSpecial, 1, 1)
	if err := s.Entry(&entry.meta, 7, statementEvents(1, 40, "ALTER TABLE t ADD c INT"),
		func(x Txn) error { m.Add(x); return nil }); err != nil {
		t.Fatal(err)
	}
	plain := trxStep(at(100), at(200), 0, 2, 2)
	if err := s.Entry(&plain.meta, 8, make([]byte, 700), func(x Txn) error { m.Add(x); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(m.List) != 2 || m.List[0].Heavy != (Heavy{DDL: 40 * time.Second}) || m.List[0].Bytes < 100 ||
		m.List[1].Bytes != 700 {
		t.Errorf("%+v", m.List)
	}
}
