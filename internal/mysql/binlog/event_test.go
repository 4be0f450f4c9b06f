package binlog

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/sqlkind"
)

// sample returns the events of a file in testdata.
func sample(t testing.TB, name string) (data []byte, events [][]byte) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name + ".binlog")
	if err != nil {
		t.Fatal(err)
	}
	eachEvent(t, data, func(_ int, _ Header, ev []byte) { events = append(events, ev) })
	return data, events
}

// firstOf returns the first event of a type.
func firstOf(t testing.TB, events [][]byte, want EventType) []byte {
	t.Helper()
	for _, ev := range events {
		if TypeOf(ev) == want {
			return ev
		}
	}
	t.Fatalf("no %v", want)
	return nil
}

func mustSet(t testing.TB, text string) gtid.Set {
	t.Helper()
	s, err := gtid.ParseSet(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestHeader(t *testing.T) {
	h := Header{Timestamp: 1 << 31, Type: TypeGTID, ServerID: 1<<32 - 1, EventSize: 12345, LogPos: 1<<32 - 2,
		Flags: 0x8001}
	b := h.Append([]byte("x"))[1:]
	if got, err := ParseHeader(b); err != nil || got != h || len(b) != HeaderLen {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := ParseHeader(b[:HeaderLen-1]); !errors.Is(err, ErrShort) {
		t.Error(err)
	}
	for _, size := range []uint32{0, HeaderLen, MinEventSize - 1, MaxEventSize + 1, 1<<32 - 1} {
		h.EventSize = size
		if _, err := ParseHeader(h.Append(nil)); !errors.Is(err, ErrMalformed) {
			t.Errorf("size %d: %v", size, err)
		}
	}
	if TypeOf(b) != TypeGTID || TypeOf(b[:5]) != 0 {
		t.Error("TypeOf")
	}
}

func TestCut(t *testing.T) {
	_, events := sample(t, "tagged-2")
	two := append(bytes.Clone(events[0]), events[1]...)
	h, ev, rest, err := Cut(two)
	if err != nil || h.Type != TypeFormatDescription || !bytes.Equal(ev, events[0]) || !bytes.Equal(rest, events[1]) ||
		cap(ev) != len(ev) {
		t.Errorf("%+v, %v", h, err)
	}
	for n := range len(events[0]) {
		if _, ev, rest, err := Cut(two[:n]); !errors.Is(err, ErrShort) || ev != nil || len(rest) != n {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

func TestChecksum(t *testing.T) {
	_, events := sample(t, "dml-1")
	for _, ev := range events[:20] {
		for i := range ev {
			bad := bytes.Clone(ev)
			bad[i] ^= 0x10
			if err := VerifyChecksum(bad); err == nil {
				t.Fatalf("%v: byte %d is wrong and it is not noticed", TypeOf(ev), i)
			}
		}
		if err := VerifyChecksum(ev[:len(ev)-1]); !errors.Is(err, ErrMalformed) {
			t.Error(err)
		}
	}
	// The flag "in use" of a FORMAT_DESCRIPTION event may come and go; of another event it may not.
	for i, want := range []error{nil, ErrChecksum} {
		ev := bytes.Clone(events[i])
		ev[17] ^= byte(FlagInUse)
		if err := VerifyChecksum(ev); !errors.Is(err, want) {
			t.Errorf("%v: %v", TypeOf(ev), err)
		}
	}
	if VerifyChecksum(nil) == nil || Body(nil) != nil {
		t.Error("nothing is not an event")
	}
}

func TestSetLogPos(t *testing.T) {
	_, events := sample(t, "dml-1")
	for _, ev := range events[:5] {
		h, _ := ParseHeader(ev)
		moved := bytes.Clone(ev)
		SetLogPos(moved, 4242)
		got, err := ParseHeader(moved)
		if err != nil || got.LogPos != 4242 || VerifyChecksum(moved) != nil || !bytes.Equal(Body(moved), Body(ev)) {
			t.Errorf("%+v, %v", got, err)
		}
		SetLogPos(moved, h.LogPos)
		if !bytes.Equal(moved, ev) {
			t.Errorf("%v: not the same after a round trip", h.Type)
		}
	}
}

// TestFormatDescription makes the very bytes that mysqld wrote.
func TestFormatDescription(t *testing.T) {
	for _, name := range []string{"dml-1", "tagged-1", "tagged-2"} {
		_, events := sample(t, name)
		h, _ := ParseHeader(events[0])
		d, err := ParseFormatDescription(events[0])
		if err != nil {
			t.Fatal(err)
		}
		if made := AppendFormatDescription(nil, h, string(d.ServerVersion), d.Created); !bytes.Equal(made, events[0]) {
			t.Errorf("%s:\n% x, mysqld wrote\n% x", name, made, events[0])
		}
		zero, err := AppendWithCreatedZero([]byte("front"), events[0])
		if err != nil || VerifyChecksum(zero[5:]) != nil {
			t.Fatal(err)
		}
		if h, err := ParseHeader(zero[5:]); err != nil || h.Flags&FlagInUse != 0 {
			t.Errorf("%+v, %v", h, err)
		}
		if d, err := ParseFormatDescription(zero[5:]); err != nil || d.Created != 0 || string(d.ServerVersion) != "9.7.4-2" ||
			d.Checksum != ChecksumCRC32 {
			t.Errorf("%+v, %v", d, err)
		}
	}
	if _, err := AppendWithCreatedZero(nil, AppendRollback(nil, Header{})); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}

// TestFormatDescriptionVersions has the post-header lengths of other servers: 8.0's is what its binary logs show.
func TestFormatDescriptionVersions(t *testing.T) {
	const v80 = "000d0008000000000400040000006200041a08000000080808020000000a0a0a2a2a001234000a2800"
	const v97 = "000d0008000000000400040000006300041a08000000000000020000000a0a0a2a2a001234000a280000"
	for version, want := range map[string]string{
		"8.0.26": v80, "8.0.40-log": v80, "8.1.0": v80, "8.2.0": v80, "8.4.3": v97, "9.0.1": v97, "9.7.4-2": v97,
		"10.0.0": v97, "unreadable": v97,
		"8.3.0": strings.Replace(strings.Replace(v97, "08000000000000", "08000000080808", 1), "6200", "6300", 1),
	} {
		ev := AppendFormatDescription(nil, Header{}, version, 0)
		d, err := ParseFormatDescription(ev)
		if got := hex.EncodeToString(d.PostHeaderLens); err != nil || got != want {
			t.Errorf("%s: %v\n%s, want\n%s", version, err, got, want)
		}
		// The lengths say their own number: that of the FORMAT_DESCRIPTION event is 57 and one for each type.
		if int(d.PostHeaderLens[TypeFormatDescription-1]) != fdeFixedLen+len(d.PostHeaderLens) {
			t.Errorf("%s: %d types", version, len(d.PostHeaderLens))
		}
	}
	long := AppendFormatDescription(nil, Header{}, strings.Repeat("9", 80), 7)
	if d, err := ParseFormatDescription(long); err != nil || len(d.ServerVersion) != 49 || d.Created != 7 {
		t.Errorf("%+v, %v", d, err)
	}
	for name, change := range map[string]func(ev []byte){
		"binlog version": func(ev []byte) { ev[HeaderLen] = 3 },
		"header length":  func(ev []byte) { ev[HeaderLen+56] = 20 },
		"checksum":       func(ev []byte) { ev[len(ev)-5] = 2 },
	} {
		ev := AppendFormatDescription(nil, Header{}, "9.7.4", 0)
		change(ev)
		if _, err := ParseFormatDescription(ev); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPreviousGTIDs(t *testing.T) {
	_, events := sample(t, "tagged-2")
	set, err := parsePreviousGTIDs(events[1])
	if err != nil {
		t.Fatal(err)
	}
	h, _ := ParseHeader(events[1])
	if made := AppendPreviousGTIDs(nil, h, set); !bytes.Equal(made, events[1]) {
		t.Errorf("% x, mysqld wrote % x", made, events[1])
	}
}

// parsePreviousGTIDs reads a PREVIOUS_GTIDS event: the GTIDs of all files before this one.
func parsePreviousGTIDs(ev []byte) (gtid.Set, error) {
	_, body, err := bodyOf(ev, TypePreviousGTIDs)
	if err != nil {
		return gtid.Set{}, err
	}
	set, err := gtid.DecodeBinary(body)
	if err != nil {
		return gtid.Set{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return set, nil
}

func TestRotate(t *testing.T) {
	_, events := sample(t, "tagged-1")
	ev := firstOf(t, events, TypeRotate)
	r, err := ParseRotate(ev)
	if err != nil || string(r.File) != "binlog.000002" || r.Position != 4 {
		t.Errorf("%+v, %v", r, err)
	}
	h, _ := ParseHeader(ev)
	if made := AppendRotate(nil, h, "binlog.000002", 4); !bytes.Equal(made, ev) {
		t.Errorf("% x, mysqld wrote % x", made, ev)
	}
	artificial := AppendArtificialRotate(nil, 9, "f", 1<<40)
	h, err = ParseHeader(artificial)
	if err != nil || h.Flags != FlagArtificial || h.LogPos != 0 || h.Timestamp != 0 || h.ServerID != 9 {
		t.Errorf("%+v, %v", h, err)
	}
	if r, err := ParseRotate(artificial); err != nil || r.Position != 1<<40 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := ParseRotate(AppendRotate(nil, Header{}, "", 4)); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}

func TestHeartbeat(t *testing.T) {
	for _, position := range []uint64{4, 250, 251, 65535, 65536, 1<<24 - 1, 1 << 24, 1<<32 - 1, 1 << 32, 1 << 60} {
		ev := AppendHeartbeatV2(nil, 3, "binlog.000001", position)
		hb, err := ParseHeartbeat(ev)
		if err != nil || string(hb.File) != "binlog.000001" || hb.Position != position || VerifyChecksum(ev) != nil {
			t.Errorf("%d: %+v, %v", position, hb, err)
		}
		for n := range len(Body(ev)) - 1 { // all but the end mark
			if cut := AppendEvent(nil, Header{Type: TypeHeartbeatV2}, Body(ev)[:n]); VerifyChecksum(cut) != nil {
				t.Fatal("checksum")
			} else if _, err := ParseHeartbeat(cut); !errors.Is(err, ErrMalformed) {
				t.Errorf("cut to %d: %v", n, err)
			}
		}
	}
	ev := AppendHeartbeat(nil, 3, "binlog.000001", 4711)
	if hb, err := ParseHeartbeat(ev); err != nil || string(hb.File) != "binlog.000001" || hb.Position != 4711 {
		t.Errorf("%+v, %v", hb, err)
	}
	if _, err := ParseHeartbeat(AppendRollback(nil, Header{})); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}

func TestIgnorable(t *testing.T) {
	ev := AppendIgnorable(nil, Header{Timestamp: 5, ServerID: 6, LogPos: 7}, []byte("body"))
	h, err := ParseHeader(ev)
	if err != nil || h.Type != TypeIgnorable || h.Flags != FlagIgnorable || h.LogPos != 7 || VerifyChecksum(ev) != nil {
		t.Errorf("%+v, %v", h, err)
	}
	if body := Body(ev); string(body) != "body" {
		t.Errorf("%q", body)
	}
}

func TestQuery(t *testing.T) {
	ev := AppendQuery(nil, Header{ServerID: 1}, 77, "app", "BEGIN")
	if q, err := ParseQuery(ev); err != nil || q.ThreadID != 77 || string(q.Schema) != "app" || string(q.SQL) != "BEGIN" ||
		q.HasXID || VerifyChecksum(ev) != nil {
		t.Errorf("%+v, %v", q, err)
	}
	vars := func(b ...byte) []byte {
		body := append([]byte{1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, byte(len(b)), 0}, b...)
		return AppendEvent(nil, Header{Type: TypeQuery}, append(body, "d\x00SELECT 1"...))
	}
	xid := []byte{varDDLLoggedWithXID, 9, 0, 0, 0, 0, 0, 0, 0}
	with := func(b ...byte) []byte { return append(b, xid...) }
	for name, b := range map[string][]byte{
		"alone":           xid,
		"flags2":          with(varFlags2, 0, 0, 0, 0),
		"sql mode":        with(varSQLMode, 0, 0, 0, 0, 0, 0, 0, 0),
		"catalog":         with(varCatalog, 3, 's', 't', 'd', 0),
		"no catalog":      with(varCatalog, 0),
		"auto increment":  with(varAutoIncrement, 1, 0, 1, 0),
		"charset":         with(varCharset, 1, 2, 3, 4, 5, 6),
		"time zone":       with(varTimeZone, 6, 'S', 'Y', 'S', 'T', 'E', 'M'),
		"catalog nz":      with(varCatalogNZ, 3, 's', 't', 'd'),
		"lc_time_names":   with(varLCTimeNames, 1, 0),
		"charset db":      with(varCharsetDatabase, 1, 0),
		"table map":       with(varTableMapForUpdate, 1, 2, 3, 4, 5, 6, 7, 8),
		"data written":    with(varSourceDataWritten, 1, 2, 3, 4),
		"invoker":         with(varInvoker, 1, 'u', 2, 'h', 'h'),
		"names":           with(varUpdatedDBNames, 2, 'a', 0, 'b', 'b', 0),
		"too many names":  with(varUpdatedDBNames, 254),
		"microseconds":    with(varMicroseconds, 1, 2, 3),
		"timestamps":      with(varExplicitDefaultsForTS, 1),
		"collation":       with(varDefaultCollationUTF8MB4, 255, 0),
		"primary key":     with(varRequirePrimaryKey, 1),
		"encryption":      with(varDefaultTableEncryption, 1),
		"cascade trigger": with(varEnableCascadeTriggers, 1),
		"after it":        append(bytes.Clone(xid), varRequirePrimaryKey, 1),
	} {
		q, err := ParseQuery(vars(b...))
		if err != nil || !q.HasXID || q.XID != 9 || q.UnknownVars || string(q.Schema) != "d" || string(q.SQL) != "SELECT 1" {
			t.Errorf("%s: %+v, %v", name, q, err)
		}
		for n := 1; n < len(b); n++ { // cut anywhere, it must not read past the end
			if _, err := ParseQuery(vars(b[:n]...)); err != nil && !errors.Is(err, ErrMalformed) {
				t.Errorf("%s cut to %d: %v", name, n, err)
			}
		}
	}
	if q, err := ParseQuery(vars(with(99, 1)...)); err != nil || !q.UnknownVars || q.HasXID {
		t.Errorf("unknown variable: %+v, %v", q, err)
	}
	if q, err := ParseQuery(vars(varDDLLoggedWithXID, 255, 255, 255, 255, 255, 255, 255, 255)); err != nil || q.HasXID {
		t.Errorf("invalid xid: %+v, %v", q, err)
	}
	if q, err := ParseQuery(vars(xid[:8]...)); !errors.Is(err, ErrMalformed) {
		t.Errorf("cut xid: %+v, %v", q, err)
	}
	noZero := AppendEvent(nil, Header{Type: TypeQuery},
		[]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00dxSELECT"))
	if _, err := ParseQuery(noZero); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}

func TestCommitEvents(t *testing.T) {
	if _, err := ParseXID(AppendEvent(nil, Header{Type: TypeXID}, make([]byte, 7))); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
	if x, err := ParseXID(AppendEvent(nil, Header{Type: TypeXID}, []byte{1, 2, 0, 0, 0, 0, 0, 0})); err != nil ||
		x != 513 {
		t.Error(x, err)
	}
	prepare := func(gtrid, bqual uint32, data string) []byte {
		b := binary.LittleEndian.AppendUint32([]byte{1, 7, 0, 0, 0}, gtrid)
		b = binary.LittleEndian.AppendUint32(b, bqual)
		return AppendEvent(nil, Header{Type: TypeXAPrepare}, append(b, data...))
	}
	if x, err := ParseXAPrepare(prepare(1, 2, "gbb")); err != nil ||
		x != (XAPrepareEvent{true, sqlkind.XID{FormatID: 7, GTRID: "g", BQual: "bb"}}) {
		t.Errorf("%+v, %v", x, err)
	}
	for name, ev := range map[string][]byte{
		"cut": prepare(2, 2, "gbb"), "too long": prepare(1, 1, "gbb"), "gtrid": prepare(65, 0, strings.Repeat("x", 65)),
		"bqual": prepare(0, 65, strings.Repeat("x", 65)), "huge": prepare(1<<32-1, 1<<32-1, "x"),
		"short": AppendEvent(nil, Header{Type: TypeXAPrepare}, []byte{1}),
	} {
		if _, err := ParseXAPrepare(ev); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGTIDEvent(t *testing.T) {
	_, events := sample(t, "dml-1")
	ev := firstOf(t, events, TypeGTID)
	body := bytes.Clone(Body(ev))
	anonymous := bytes.Clone(body)
	copy(anonymous[1:25], make([]byte, 24))
	if g, err := ParseGTID(AppendEvent(nil, Header{Type: TypeAnonymousGTID}, anonymous)); err != nil || !g.GTID.IsZero() ||
		g.SequenceNumber != 1 || g.TransactionLength == 0 {
		t.Errorf("anonymous: %+v, %v", g, err)
	}
	// On a replica the original commit time and version follow the immediate ones, and top bits say so.
	replica := bytes.Clone(body[:42])
	replica = append(replica, 1, 0, 0, 0, 0, 0, 0x80, 2, 0, 0, 0, 0, 0, 0, 200)
	replica = append(replica, 0x4a, 0x38, 1, 0x80, 0x49, 0x38, 1, 0)
	if g, err := ParseGTID(AppendEvent(nil, Header{Type: TypeGTID}, replica)); err != nil || g.ImmediateCommit != 1 ||
		g.OriginalCommit != 2 || g.TransactionLength != 200 || g.ImmediateVersion != 79946 {
		t.Errorf("replica: %+v, %v", g, err)
	}
	for name, ev := range map[string][]byte{
		"anonymous with GNO": AppendEvent(nil, Header{Type: TypeAnonymousGTID}, body),
		"no GNO":             AppendEvent(nil, Header{Type: TypeGTID}, anonymous),
		"negative GNO": AppendEvent(nil, Header{Type: TypeGTID}, append(append(bytes.Clone(body[:24]), 0x80),
			body[25:]...)),
		"clock code": AppendEvent(nil, Header{Type: TypeGTID},
			append(append(bytes.Clone(body[:25]), 1), body[26:]...)),
		"cut":           AppendEvent(nil, Header{Type: TypeGTID}, body[:len(body)-1]),
		"not a GTID":    AppendRollback(nil, Header{}),
		"tagged, empty": AppendEvent(nil, Header{Type: TypeGTIDTagged}, nil),
	} {
		if g, err := ParseGTID(ev); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
}

func TestGTIDTaggedEvent(t *testing.T) {
	_, events := sample(t, "tagged-1")
	body := Body(firstOf(t, events, TypeGTIDTagged))
	for n := range body {
		if g, err := ParseGTID(AppendEvent(nil, Header{Type: TypeGTIDTagged}, body[:n])); !errors.Is(err, ErrMalformed) {
			t.Errorf("cut to %d: %+v, %v", n, g, err)
		}
	}
	// A later version's field that may be ignored ends the reading; one that must be known is an error.
	later := append(bytes.Clone(body), 13<<1, 1<<1)
	later[1] += 2 << 1
	want, _ := ParseGTID(AppendEvent(nil, Header{Type: TypeGTIDTagged}, body))
	if g, err := ParseGTID(AppendEvent(nil, Header{Type: TypeGTIDTagged}, later)); err != nil || g != want {
		t.Errorf("%+v, %v", g, err)
	}
	later[2] = 13 << 1
	if g, err := ParseGTID(AppendEvent(nil, Header{Type: TypeGTIDTagged}, later)); !errors.Is(err, ErrMalformed) {
		t.Errorf("%+v, %v", g, err)
	}
}

// TestVarlen has numbers with the bytes that the description of the format gives for them, and all lengths.
func TestVarlen(t *testing.T) {
	for text, want := range map[string]uint64{
		"00": 0, "02": 1, "fe": 127, "0102": 128, "fbff07": 65535, "01fe": 16256, "fffffffffffffffffff"[:18]: 1<<64 - 1,
		"7fffffffffffffff": 1<<56 - 1, "ff0000000000000001": 1 << 56, "bfffffffffffff": 1<<49 - 1,
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		f := fields{b: b}
		if got := f.varlen(); got != want || f.failed || len(f.b) != 0 {
			t.Errorf("%s: %d (failed %t, %d bytes left), want %d", text, got, f.failed, len(f.b), want)
		}
		f = fields{b: b[:len(b)-1]}
		if f.varlen(); !f.failed {
			t.Errorf("%s is cut and read nevertheless", text)
		}
	}
	for text, want := range map[string]int64{"f3ff0f": 65535, "ebff0f": -65535, "fbff0f": -65536} {
		b, _ := hex.DecodeString(text)
		f := fields{b: b}
		if got := f.varlenSigned(); got != want || f.failed {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

func TestPositionOf(t *testing.T) {
	for _, test := range []struct {
		start  uint64
		logPos uint32
		want   uint64
	}{
		{4, 100, 100}, {1<<32 - 10, 5, 1<<32 + 5}, {1<<32 + 5, 200, 1<<32 + 200}, {3<<32 - 1, 0, 3 << 32},
		{1<<32 - 1, 1<<32 - 1, 1<<32 - 1},
	} {
		if got := PositionOf(test.start, test.logPos); got != test.want {
			t.Errorf("PositionOf(%d, %d) = %d, want %d", test.start, test.logPos, got, test.want)
		}
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		TypeQuery.String(): "Query", TypeGTIDTagged.String(): "Gtid_tagged_log_event", EventType(99).String(): "type 99",
		EventType(6).String(): "type 6", RowsXID.String(): "rows-xid", Payload.String(): "payload", Kind(99).
					String(): "unknown", End.String(): "end", Boundary(9).String(): "unknown",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
