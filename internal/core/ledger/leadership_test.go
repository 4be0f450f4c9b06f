package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/sqlkind"
)

// clientTrx is a transaction of a connection: BEGIN, a row, and an end. With packed it is a compressed payload.
func clientTrx(gno int64, thread uint32, packed bool, end string) []byte {
	h := binlog.Header{Timestamp: 1, Type: binlog.TypeGTID, ServerID: 1, LogPos: 1}
	sid := testSID(1, 1)
	body := append([]byte{0}, sid.UUID[:]...)
	body = append(binary.LittleEndian.AppendUint64(body, uint64(gno)), 2)
	body = append(body, make([]byte, 16+7+1+4)...)
	ev := binlog.AppendEvent(nil, h, body)
	if end == "DDL" {
		return binlog.AppendQuery(ev, h, thread, "app", "DROP TABLE t")
	}
	rest := binlog.AppendQuery(nil, h, thread, "app", "BEGIN")
	h.Type = binlog.TypeWriteRows
	rest = binlog.AppendEvent(rest, h, make([]byte, 30))
	if end == "ROLLBACK" {
		return append(ev, binlog.AppendRollback(rest, h)...)
	}
	h.Type = binlog.TypeXID
	rest = binlog.AppendEvent(rest, h, make([]byte, 8))
	if !packed {
		return append(ev, rest...)
	}
	var bare []byte // events in a payload have no checksum
	for len(rest) > 0 {
		size := binary.LittleEndian.Uint32(rest[9:])
		binary.LittleEndian.PutUint32(rest[9:], size-4)
		bare, rest = append(bare, rest[:size-4]...), rest[size:]
	}
	w, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	data := w.EncodeAll(bare, nil)
	head := binary.LittleEndian.AppendUint16([]byte{2, 1, 0, 1, 3, 0xfc}, uint16(len(data)))
	h.Type = binlog.TypeTransactionPayload
	return binlog.AppendEvent(ev, h, append(append(head, 0), data...))
}

// The connection of a transaction is found whatever its form, but only if the transaction begins after the reading
// began.
func TestTail(t *testing.T) {
	leadership := Leadership{Node: 1, Incarnation: 1, Term: 1}
	tail := NewTail(leadership, 10)
	big := clientTrx(3, 7, false, "")
	h, err := binlog.ParseHeader(big)
	if err != nil {
		t.Fatal(err)
	}
	xa := slices.Clone(xaPrepareEvents(sqlkind.XID{FormatID: 1, GTRID: "x"})) // of connection 1
	add := func(index, term uint64, flags raftlog.Flags, events []byte) {
		m := trxStep(at(4), at(5), flags, 0, 0).meta
		if err := tail.Add(&m, index, term, events); err != nil {
			t.Fatalf("entry %d: %v", index, err)
		}
	}
	add(10, 1, raftlog.FlagContinues|raftlog.FlagSpecial, slices.Concat(big[h.EventSize:], clientTrx(1, 7, false, ""),
		clientTrx(2, 8, true, "")))
	add(11, 1, raftlog.FlagUnfinished, big[:h.EventSize])
	settings := raftlog.Meta{Kind: raftlog.Settings}
	if err := tail.Add(&settings, 12, 1, []byte("settings")); err != nil {
		t.Fatal(err)
	}
	add(13, 1, raftlog.FlagContinues, big[h.EventSize:])
	add(14, 1, raftlog.FlagSpecial, slices.Concat(clientTrx(4, 7, false, "DDL"), clientTrx(5, 9, false, "ROLLBACK"), xa))
	add(15, 1, 0, clientTrx(6, 7, true, ""))
	add(16, 2, 0, clientTrx(7, 7, false, "")) // of another leadership
	if tail.Next != 17 {
		t.Errorf("next is %d", tail.Next)
	}
	gno := func(n int64) gtid.GTID { return gtid.GTID{SID: testSID(1, 1), GNO: n} }
	for _, c := range []struct {
		thread uint32
		from   uint64
		after  gtid.GTID
		want   string
	}{
		{7, 10, gtid.GTID{}, "10:1 13:3 14:4 15:6 "},
		{7, 11, gtid.GTID{}, "13:3 14:4 15:6 "},
		{7, 10, gno(4), "15:6 "},
		{7, 10, gno(6), ""},
		{7, 10, gno(99), "10:1 13:3 14:4 15:6 "},
		{8, 10, gtid.GTID{}, "10:2 "},
		{9, 10, gtid.GTID{}, "14:5 undone "},
		{1, 10, gtid.GTID{}, "14:1 "},
		{2, 10, gtid.GTID{}, ""},
	} {
		got := ""
		for _, x := range tail.Of(c.thread, c.from, c.after) {
			got += fmt.Sprintf("%d:%d ", x.Index, x.GTID.GNO)
			if x.Undone {
				got += "undone "
			}
		}
		if got != c.want {
			t.Errorf("connection %d from %d after %v: %q, want %q", c.thread, c.from, c.after, got, c.want)
		}
	}
	broken := trxStep(at(4), at(5), 0, 0, 0).meta
	if err := tail.Add(&broken, 17, 1, []byte("no event at all, of any kind")); err == nil {
		t.Error("what is no event is taken")
	}
}

// A leadership lasts until a barrier after which none of its transactions can be committed: of a later term, or of a
// later life of the same mysqld.
func TestSpan(t *testing.T) {
	l := New(raftlog.Boundary{})
	for _, s := range []step{
		barrierStep(2, 1, 5, at(4)), {term: 2}, barrierStep(2, 1, 5, at(4)), barrierStep(2, 1, 6, at(4)), // 1 to 4
		{term: 3}, barrierStep(4, 2, 1, at(4)), {term: 5}, // 5 to 7
	} {
		if err := s.add(l); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		leadership Leadership
		want       Span
		err        error
	}{
		{Leadership{1, 5, 2}, Span{1, 4, 7}, nil},
		{Leadership{1, 6, 2}, Span{4, 6, 7}, nil},
		{Leadership{2, 1, 4}, Span{6, 0, 7}, nil},
		{Leadership{2, 2, 4}, Span{}, ErrNotYet},
		{Leadership{3, 1, 6}, Span{}, ErrNotYet},
		{Leadership{1, 6, 3}, Span{}, ErrNoLeadership}, // no node opened writes in term 3
		{Leadership{2, 5, 2}, Span{}, ErrForgotten},
		{Leadership{1, 4, 1}, Span{}, ErrForgotten},
	} {
		got, _, err := l.Span(c.leadership)
		if !errors.Is(err, c.err) || err == nil && got != c.want {
			t.Errorf("%v: %+v, %v; want %+v, %v", c.leadership, got, err, c.want, c.err)
		}
	}
	_, changed, _ := l.Span(Leadership{3, 1, 6})
	if err := barrierStep(6, 3, 1, at(4)).add(l); err != nil {
		t.Fatal(err)
	}
	<-changed
	if got, _, err := l.Span(Leadership{2, 1, 4}); err != nil || got.End != 8 {
		t.Errorf("%+v, %v", got, err)
	}
	for term := uint64(7); term < 7+maxBarriers; term++ {
		if err := barrierStep(term, 3, term, at(4)).add(l); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := l.Span(Leadership{2, 1, 4}); !errors.Is(err, ErrForgotten) || len(l.barriers) != maxBarriers {
		t.Errorf("%v, %d barriers", err, len(l.barriers))
	}
}
