package binlog

import (
	"bytes"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"trireme/lab/testkit"
)

// packedLog replaces the transactions of a binary log file that can be packed, and counts them.
func packedLog(t *testing.T, data []byte) (out []byte, packed int) {
	t.Helper()
	var a Assembler
	var trx []byte
	out = append(out, data[:4]...)
	eachEvent(t, data, func(_ int, h Header, ev []byte) {
		b, err := a.Feed(h, ev)
		if err != nil {
			t.Fatal(err)
		}
		switch trx = append(trx, ev...); {
		case b == Outside:
			out = append(out, trx...)
		case b == End:
			want := *a.Trx()
			dst, ok, err := AppendPacked(out, trx)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				if len(dst) != len(out) {
					t.Fatalf("%v was not packed, and %d bytes were appended", want.GTID, len(dst)-len(out))
				}
				dst = append(dst, trx...)
			} else {
				packed++
				checkPacked(t, dst[len(out):], want, trx)
			}
			out = dst
		default:
			return
		}
		trx = trx[:0]
	})
	return out, packed
}

// checkPacked: an assembler finds the same transaction, and the payload holds the same events but for checksums.
func checkPacked(t *testing.T, got []byte, want TrxInfo, trx []byte) {
	t.Helper()
	if want.Kind != RowsXID {
		t.Errorf("%v of kind %v was packed", want.GTID, want.Kind)
	}
	var a Assembler
	var payload []byte
	for rest := got; len(rest) > 0; {
		h, ev, next, err := Cut(rest)
		if err != nil || VerifyChecksum(ev) != nil {
			t.Fatalf("%v: event of what was packed: %v", want.GTID, err)
		}
		if _, err := a.Feed(h, ev); err != nil {
			t.Fatal(err)
		}
		payload, rest = ev, next
	}
	info := *a.Trx()
	if a.InTransaction() || info.Kind != Payload || info.GTID != want.GTID || info.ThreadID != want.ThreadID ||
		info.Special || info.LastCommitted != want.LastCommitted {
		t.Errorf("packed, %v is %+v; it was %+v", want.GTID, info, want)
	}
	if info.TransactionLength != 0 && info.TransactionLength != uint64(len(got)) {
		t.Errorf("%v: its GTID event says %d bytes of %d", want.GTID, info.TransactionLength, len(got))
	}
	p, err := ParsePayload(payload)
	if err != nil || p.Compression != CompressionNone || p.UncompressedSize != uint64(len(p.Payload)) {
		t.Fatalf("%v: payload %+v, %v", want.GTID, p, err)
	}
	_, _, rest, _ := Cut(trx)
	inner := p.Payload
	for len(rest) > 0 {
		_, ev, next, _ := Cut(rest)
		n := len(ev) - ChecksumLen
		if len(inner) < n || decodeHeader(inner).EventSize != uint32(n) ||
			!bytes.Equal(inner[HeaderLen:n], ev[HeaderLen:n]) || !bytes.Equal(inner[:9], ev[:9]) {
			t.Fatalf("%v: %v differs in the payload", want.GTID, TypeOf(ev))
		}
		inner, rest = inner[n:], next
	}
	if len(inner) != 0 {
		t.Errorf("%v: %d bytes too much in the payload", want.GTID, len(inner))
	}
}

// TestAppendPacked packs what real servers wrote; mysqlbinlog reads the files as it reads those that the server wrote
// itself.
func TestAppendPacked(t *testing.T) {
	for name, want := range map[string]int{"dml-1": 5, "statement-1": 7, "ddl-1": 1, "tagged-2": 1, "xa-1": 0,
		"payload-1": 0, "account-1": 0} {
		t.Run(name, func(t *testing.T) {
			data, _ := sample(t, name)
			out, packed := packedLog(t, data)
			if packed != want {
				t.Errorf("%d transactions were packed, want %d", packed, want)
			}
			file := filepath.Join(t.TempDir(), "binlog.000001")
			if err := os.WriteFile(file, out, 0o600); err != nil {
				t.Fatal(err)
			}
			testkit.Tool(t, "", "mysqlbinlog", "--verify-binlog-checksum", "-vv", file)
		})
	}
}

// TestNotPacked: what mysqld would not compress, and what does not fit, stays as it is.
func TestNotPacked(t *testing.T) {
	_, events := sample(t, "dml-1")
	// The first transaction with rows: its GTID event has room for a length above 250.
	at := slices.IndexFunc(events, func(ev []byte) bool { return TypeOf(ev) == TypeTableMap })
	gtidEvent, begin, table, row := events[at-2], events[at-1], events[at], events[at+1]
	xid := firstOf(t, events, TypeXID)
	other := func(typ EventType) []byte { return AppendEvent(nil, Header{Type: typ}, make([]byte, 20)) }
	unknown := bytes.Clone(gtidEvent)
	if !setLength(unknown, 0) || unknown[lengthAt(unknown)] == 0 {
		t.Fatal("the length of this GTID event is in one byte")
	}
	unknown[lengthAt(unknown)] = 0
	PutChecksum(unknown)
	tests := map[string][][]byte{
		"no XID":           {gtidEvent, begin, table, row},
		"XID in the midst": {gtidEvent, begin, xid, table, row, xid},
		"no BEGIN":         {gtidEvent, table, row, xid},
		"QUERY inside":     {gtidEvent, begin, begin, xid},
		"GTID alone":       {gtidEvent},
		"only XID":         {gtidEvent, xid},
		"no GTID":          {begin, table, row, xid},
		"a statement":      {gtidEvent, begin, other(TypeIntvar), xid},
		"LOAD DATA":        {gtidEvent, begin, other(TypeBeginLoadQuery), xid},
		"XA":               {gtidEvent, begin, table, row, other(TypeXAPrepare)},
		"no known length":  {unknown, begin, table, row, xid},
	}
	for name, evs := range tests {
		if out, ok, err := AppendPacked([]byte("x"), bytes.Join(evs, nil)); ok || err != nil || string(out) != "x" {
			t.Errorf("%s: packed %v, %v, %d bytes", name, ok, err, len(out))
		}
	}
	if _, ok, err := AppendPacked(nil, bytes.Join([][]byte{gtidEvent, begin, table, row, xid}, nil)); !ok || err != nil {
		t.Errorf("the same in order is not packed: %v", err)
	}
	if _, ok, err := AppendPacked(nil, append(bytes.Join([][]byte{gtidEvent, begin, table, row}, nil),
		xid[:len(xid)-1]...)); ok || err == nil {
		t.Error("an event that is cut off was packed")
	}
}

func TestLimitInFlight(t *testing.T) {
	_, events := sample(t, "dml-1")
	ev := firstOf(t, events, TypeGTID)
	const at = HeaderLen + 26
	clock := func(last, sequence int64) []byte {
		out := bytes.Clone(ev)
		binary.LittleEndian.PutUint64(out[at:], uint64(last))
		binary.LittleEndian.PutUint64(out[at+8:], uint64(sequence))
		PutChecksum(out)
		return out
	}
	buf := make([]byte, 0, 256)
	for _, test := range []struct{ last, sequence, n, want int64 }{
		{10, 100, 4, 96},
		{98, 100, 4, 98}, // it waits for more than that
		{96, 100, 4, 96},
		{99, 100, 1, 99},
		{0, 1, 4, 0},   // the first of a file
		{0, 100, 4, 0}, // it waits for all
		{1, 4, 4, 1},
		{1, 6, 4, 2},
		{0, 0, 4, 0}, // without a clock
		{10, 100, 0, 10},
	} {
		in := clock(test.last, test.sequence)
		kept := bytes.Clone(in)
		out := LimitInFlight(buf, in, test.n)
		g, err := ParseGTID(out)
		if err != nil || VerifyChecksum(out) != nil || g.LastCommitted != test.want || g.SequenceNumber != test.sequence {
			t.Errorf("%+v: %+v, %v", test, g, err)
		}
		if !bytes.Equal(in, kept) {
			t.Errorf("%+v: the event itself was changed", test)
		}
	}
	for _, other := range events {
		if TypeOf(other) != TypeGTID && &LimitInFlight(buf, other, 1)[0] != &other[0] {
			t.Errorf("%v was changed", TypeOf(other))
		}
	}
	if short := ev[:HeaderLen+30]; len(LimitInFlight(buf, short, 1)) != len(short) {
		t.Error("a short event was changed")
	}
}

// TestWaitsForAll: DDL and statements of accounts do, rows and the ends of XA transactions do not.
func TestWaitsForAll(t *testing.T) {
	for _, test := range []struct {
		file   string
		begins []string // of statements, in the order of the file
	}{
		{"account-1", []string{"CREATE USER", "CREATE ROLE", "GRANT", "SET DEFAULT ROLE", "REVOKE", "DROP USER"}},
		{"statement-1", []string{"CREATE DATABASE", "CREATE TABLE", "ALTER TABLE"}},
		{"dml-1", []string{"CREATE DATABASE", "CREATE TABLE"}},
		{"xa-1", []string{"CREATE DATABASE", "CREATE TABLE"}},
	} {
		data, _ := sample(t, test.file)
		wait, free := map[string]int{}, map[string]int{}
		eachEvent(t, data, func(at int, h Header, ev []byte) {
			if h.Type != TypeGTID {
				return
			}
			rest := data[at+len(ev):]
			_, next, _, err := Cut(rest)
			if err != nil {
				t.Fatal(err)
			}
			text := TypeOf(next).String()
			if q, err := ParseQuery(next); err == nil {
				text = string(q.SQL)
			}
			if WaitsForAll(ev, rest) {
				wait[text]++
			} else {
				free[text]++
			}
		})
		for _, b := range test.begins {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(wait)), func(s string) bool { return strings.HasPrefix(s, b) }) {
				t.Errorf("%s: no %s waits: %v", test.file, b, wait)
			}
		}
		for text := range free {
			if text != "BEGIN" && !strings.HasPrefix(text, "XA ") {
				t.Errorf("%s: %s does not wait", test.file, text)
			}
		}
		for text := range wait {
			if strings.HasPrefix(text, "XA ") {
				t.Errorf("%s: %s waits", test.file, text)
			}
		}
	}
	_, events := sample(t, "account-1")
	if ev := firstOf(t, events, TypeGTID); !WaitsForAll(ev, nil) || WaitsForAll(ev[:HeaderLen], nil) ||
		WaitsForAll(nil, nil) {
		t.Error("an end of the input")
	}
}
