package binlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/klauspost/compress/zstd"

	"trireme/internal/mysql/gtid"
)

// TestAssembler feeds made-up streams. A line of input is one event; "reset" is a call of Reset. See event below for
// the words. Each line of output is the boundary, and for an End also the transaction; the first error ends the output,
// unless a reset follows.
func TestAssembler(t *testing.T) {
	datadriven.RunTest(t, "testdata/assembler", func(t *testing.T, d *datadriven.TestData) string {
		var a Assembler
		var out strings.Builder
		for line := range strings.Lines(d.Input) {
			line = strings.TrimSpace(line)
			if line == "reset" {
				a.Reset()
				out.WriteString("reset\n")
				continue
			}
			ev := event(t, line)
			h, err := ParseHeader(ev)
			if err != nil {
				t.Fatal(err)
			}
			b, err := a.Feed(h, ev)
			if err != nil {
				if _, again := a.Feed(h, ev); again != err {
					t.Fatalf("after %v the next event gives %v", err, again)
				}
				fmt.Fprintf(&out, "%s: %v\n", line, err)
				continue
			}
			fmt.Fprintf(&out, "%s: %v\n", line, b)
			if b == End {
				fmt.Fprintf(&out, "  = %s\n", describe(a.Trx()))
			}
			if a.InTransaction() != (b == Start || b == Inside) && b != Outside {
				t.Fatalf("%v, in transaction: %t", b, a.InTransaction())
			}
		}
		return out.String()
	})
}

// event makes an event from words: gtid N [length], anonymous, query SQL, query+xid SQL, query+unknown SQL, xid,
// xa-prepare XID-LETTER [one-phase], payload SQL…, rotate, artificial-rotate, fde, or a type's name or number
// [ignorable].
func event(t *testing.T, line string) []byte {
	t.Helper()
	word, rest, _ := strings.Cut(line, " ")
	query := func(vars ...byte) []byte {
		body := append([]byte{7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(len(vars)), 0}, vars...)
		return AppendEvent(nil, Header{Type: TypeQuery}, append(append(body, 0), rest...))
	}
	switch word {
	case "gtid":
		var gno, length int
		_, _ = fmt.Sscan(rest, &gno, &length)
		return gtidEvent(TypeGTID, int64(gno), uint64(length))
	case "anonymous":
		return gtidEvent(TypeAnonymousGTID, 0, 0)
	case "query":
		return query()
	case "query+xid":
		return query(varDDLLoggedWithXID, 1, 0, 0, 0, 0, 0, 0, 0)
	case "query+unknown":
		return query(200, 1)
	case "xid":
		return AppendEvent(nil, Header{Type: TypeXID}, make([]byte, 8))
	case "xa-prepare":
		letter, onePhase, _ := strings.Cut(rest, " ")
		return AppendEvent(nil, Header{Type: TypeXAPrepare}, xaPrepareBody(letter, onePhase != ""))
	case "rotate":
		return AppendRotate(nil, Header{}, "f", 4)
	case "artificial-rotate":
		return AppendArtificialRotate(nil, 1, "f", 4)
	case "fde":
		return AppendFormatDescription(nil, Header{}, "9.7.4", 0)
	}
	var flags uint16
	if rest == "ignorable" {
		flags = FlagIgnorable
	}
	for typ := range EventType(255) {
		if typ.String() == strings.ReplaceAll(word, "-", " ") {
			return AppendEvent(nil, Header{Type: typ, Flags: flags}, []byte("body"))
		}
	}
	t.Fatalf("no such event: %s", line)
	return nil
}

func gtidEvent(typ EventType, gno int64, length uint64) []byte {
	body := make([]byte, 17, 64)
	body = binary.LittleEndian.AppendUint64(body, uint64(gno))
	body = append(body, logicalClockCode)
	body = append(body, make([]byte, 16+7)...)
	body = appendPacked(body, length)
	return AppendEvent(nil, Header{Type: typ}, binary.LittleEndian.AppendUint32(body, 90704))
}

func xaPrepareBody(letter string, onePhase bool) []byte {
	b := []byte{0, 1, 0, 0, 0, byte(len(letter)), 0, 0, 0, 0, 0, 0, 0}
	if onePhase {
		b[0] = 1
	}
	return append(b, letter...)
}

// payloadEvent compresses events, which lose their checksums.
func payloadEvent(t testing.TB, c Compression, events ...[]byte) []byte {
	var inner []byte
	for _, ev := range events {
		bare := bytes.Clone(ev[:len(ev)-ChecksumLen])
		binary.LittleEndian.PutUint32(bare[9:], uint32(len(bare)))
		inner = append(inner, bare...)
	}
	payload := inner
	if c == CompressionZSTD {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		payload = w.EncodeAll(inner, nil)
	}
	return rawPayload(uint64(c), uint64(len(inner)), payload)
}

func rawPayload(compression, uncompressed uint64, payload []byte) []byte {
	var body []byte
	for _, field := range [][2]uint64{{payloadCompression, compression}, {payloadUncompressedSize, uncompressed},
		{payloadSize, uint64(len(payload))}} {
		body = appendPacked(body, field[0])
		body = appendPacked(body, packedLen(field[1]))
		body = appendPacked(body, field[1])
	}
	return AppendEvent(nil, Header{Type: TypeTransactionPayload}, append(append(body, payloadEnd), payload...))
}

func TestPayload(t *testing.T) {
	rows := AppendEvent(nil, Header{Type: TypeWriteRows}, bytes.Repeat([]byte("row "), 300_000))
	begin := AppendQuery(nil, Header{}, 99, "app", "BEGIN")
	xa := AppendQuery(nil, Header{}, 98, "app", "XA START X'67',X'',1")
	prepared := AppendEvent(nil, Header{Type: TypeXAPrepare}, xaPrepareBody("g", false))
	committed := AppendEvent(nil, Header{Type: TypeXAPrepare}, xaPrepareBody("g", true))
	xid := AppendEvent(nil, Header{Type: TypeXID}, make([]byte, 8))
	// The package is pure: looking into a payload must not leave a goroutine running.
	before := runtime.NumGoroutine()
	defer func() {
		if after := runtime.NumGoroutine(); after > before {
			t.Errorf("%d goroutines, %d before", after, before)
		}
	}()
	var a Assembler
	for _, test := range []struct {
		name   string
		events [][]byte
		want   string // of describe, or of the error
	}{
		{"rows", [][]byte{begin, rows, rows, xid}, "payload thread=true compressed"},
		{"XA PREPARE", [][]byte{xa, rows, rows, prepared},
			"xa-prepare thread=true xid=X'67',X'',1 one-phase=false special compressed"},
		{"XA COMMIT ONE PHASE", [][]byte{xa, rows, committed},
			"xa-commit thread=true xid=X'67',X'',1 one-phase=true special compressed"},
		{"XA without end", [][]byte{xa, rows, rows}, "does not end in XA_PREPARE"},
		{"DDL", [][]byte{AppendQuery(nil, Header{}, 1, "", "DROP TABLE t")}, "neither with BEGIN nor"},
		{"rows first", [][]byte{rows, xid}, "Write_rows of"},
		{"empty", nil, "EOF"},
		{"malformed query", [][]byte{AppendEvent(nil, Header{Type: TypeQuery}, nil)}, "QUERY event with a body of 0 bytes"},
		{"malformed prepare", [][]byte{xa, AppendEvent(nil, Header{Type: TypeXAPrepare}, nil)}, "XA_PREPARE event"},
	} {
		for _, c := range []Compression{CompressionZSTD, CompressionNone} {
			t.Run(fmt.Sprint(test.name, c), func(t *testing.T) {
				a.Reset()
				got := feedPayload(t, &a, payloadEvent(t, c, test.events...))
				if !strings.Contains(got, test.want) {
					t.Errorf("%s, want %s", got, test.want)
				}
			})
		}
	}
	broken := payloadEvent(t, CompressionZSTD, begin, rows, xid)
	p, err := ParsePayload(broken)
	if err != nil || p.UncompressedSize < 1_200_000 {
		t.Fatalf("%+v, %v", p, err)
	}
	for name, ev := range map[string][]byte{
		"compression 7": rawPayload(7, 1, []byte("x")),
		"not zstd":      rawPayload(0, 1, []byte("not zstd at all")),
		"cut zstd":      rawPayload(0, 1, p.Payload[:6]),
		"compression":   rawPayload(300, 1, nil),
		"no fields":     AppendEvent(nil, Header{Type: TypeTransactionPayload}, []byte{0}),
		"no end":        AppendEvent(nil, Header{Type: TypeTransactionPayload}, []byte{2, 1, 0}),
		"size too big":  AppendEvent(nil, Header{Type: TypeTransactionPayload}, []byte{2, 1, 0, 1, 1, 9, 0, 'x'}),
		"bytes after":   AppendEvent(nil, Header{Type: TypeTransactionPayload}, []byte{2, 1, 0, 1, 1, 0, 0, 'x'}),
		"tiny event":    rawPayload(255, 19, Header{Type: TypeQuery, EventSize: 18}.Append(nil)),
	} {
		a.Reset()
		if got := feedPayload(t, &a, ev); !strings.Contains(got, "malformed") {
			t.Errorf("%s: %s", name, got)
		}
	}
	// A field that is not known is skipped.
	ev := AppendEvent(nil, Header{Type: TypeTransactionPayload}, []byte{9, 3, 1, 2, 3, 2, 3, 252, 255, 0, 1, 1, 1, 0, 'x'})
	if p, err := ParsePayload(ev); err != nil || p.Compression != CompressionNone || string(p.Payload) != "x" {
		t.Errorf("%+v, %v", p, err)
	}
}

func feedPayload(t *testing.T, a *Assembler, ev []byte) string {
	t.Helper()
	start := gtidEvent(TypeGTID, 1, 0)
	h, _ := ParseHeader(start)
	if b, err := a.Feed(h, start); b != Start || err != nil {
		t.Fatal(b, err)
	}
	h, _ = ParseHeader(ev)
	b, err := a.Feed(h, ev)
	if err != nil {
		if !errors.Is(err, ErrMalformed) {
			t.Fatal(err)
		}
		return err.Error()
	}
	if b != End {
		t.Fatal(b)
	}
	x := *a.Trx()
	x.Bytes, x.GTIDEvent = 0, GTIDEvent{}
	return strings.Replace(describe(&x), "bytes=0 ", "", 1)
}

// TestAbortMarker cuts a real transaction after every event and ends it with the marker.
func TestAbortMarker(t *testing.T) {
	_, events := sample(t, "dml-1")
	start := 0
	for i, ev := range events { // the sixth transaction has many events
		if g, err := ParseGTID(ev); err == nil && g.GTID.GNO == 6 {
			start = i
		}
	}
	for n := 1; TypeOf(events[start+n-1]) != TypeXID; n++ {
		var a Assembler
		for _, ev := range append(events[start:start+n:start+n], AppendRollback(nil, Header{})) {
			h, _ := ParseHeader(ev)
			if _, err := a.Feed(h, ev); err != nil {
				t.Fatal(err)
			}
		}
		if a.InTransaction() || a.Trx().Kind != RowsRollback || a.Trx().GTID.GNO != 6 {
			t.Errorf("after %d events: %+v", n, a.Trx())
		}
	}
}

// TestWrongLength changes what the GTID event of a real transaction says about its length.
func TestWrongLength(t *testing.T) {
	_, events := sample(t, "tagged-2")
	trx := events[2:]
	g, err := ParseGTID(trx[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []int{-1, 1} {
		body := bytes.Clone(Body(trx[0]))
		at := bytes.LastIndex(body, appendPacked(nil, g.TransactionLength))
		copy(body[at:], appendPacked(nil, uint64(int(g.TransactionLength)+by)))
		changed := AppendEvent(nil, Header{Type: TypeGTID}, body)
		var a Assembler
		for i, ev := range append([][]byte{changed}, trx[1:]...) {
			h, _ := ParseHeader(ev)
			_, err := a.Feed(h, ev)
			if last := i == len(trx)-1; errors.Is(err, ErrLength) != last {
				t.Errorf("length %+d, event %d: %v", by, i, err)
			}
		}
	}
	var a Assembler
	h, _ := ParseHeader(trx[0])
	if _, err := a.Feed(h, trx[0][:30]); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}

func TestAssemblerDoesNotAllocate(t *testing.T) {
	for _, name := range []string{"dml-1", "tagged-1", "payload-1"} {
		_, events := sample(t, name)
		var keep [][]byte // all but XA, whose xid is a string, and one tag at most
		var a Assembler
		var trx [][]byte
		for _, ev := range events {
			h, _ := ParseHeader(ev)
			b, err := a.Feed(h, ev)
			if err != nil {
				t.Fatal(err)
			}
			if b == Outside {
				continue
			}
			if trx = append(trx, ev); b == End {
				if tag := a.Trx().GTID.Tag; a.Trx().XID.GTRID == "" && (tag == "" || tag == "backup" || tag == "z") {
					keep = append(keep, trx...)
				}
				trx = nil
			}
		}
		headers := make([]Header, len(keep))
		for i, ev := range keep {
			headers[i], _ = ParseHeader(ev)
		}
		n := testing.AllocsPerRun(50, func() {
			for i, ev := range keep {
				if _, err := a.Feed(headers[i], ev); err != nil {
					t.Fatal(err)
				}
			}
		})
		// Untagged transactions between tagged ones forget the tag, and the race detector empties the pools of zstd now
		// and then, so "dml" alone promises none at all.
		if limit := map[string]float64{"dml-1": 0, "tagged-1": 2, "payload-1": 10}[name]; n > limit {
			t.Errorf("%s: %v allocations for %d events", name, n, len(keep))
		}
	}
}

// FuzzParse gives every parser every event; none may crash, and what is made from what was read is read as the same.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"dml-1", "ddl-1", "xa-1", "tagged-1", "tagged-2", "payload-1", "account-1"} {
		_, events := sample(f, name)
		for _, ev := range events {
			if len(ev) < 1000 {
				f.Add(byte(TypeOf(ev)), Body(ev))
			}
		}
	}
	f.Add(byte(TypeHeartbeatV2), Body(AppendHeartbeatV2(nil, 1, "f", 1<<40)))
	f.Fuzz(func(t *testing.T, typ byte, body []byte) {
		ev := AppendEvent(nil, Header{Type: EventType(typ)}, body)
		if err := VerifyChecksum(ev); err != nil {
			t.Fatal(err)
		}
		if err := parseAny(t, ev); err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatal(err)
		}
	})
}

func parseAny(t *testing.T, ev []byte) error {
	h, _ := ParseHeader(ev)
	switch h.Type {
	case TypeFormatDescription:
		if _, err := ParseFormatDescription(ev); err != nil {
			return err
		}
		out, err := AppendWithCreatedZero(nil, ev)
		if err != nil || len(out) != len(ev) || VerifyChecksum(out) != nil {
			t.Fatal(err)
		}
		return nil
	case TypePreviousGTIDs:
		set, err := parsePreviousGTIDs(ev)
		if err == nil {
			if again, err := parsePreviousGTIDs(AppendPreviousGTIDs(nil, h, set)); err != nil || !again.Equal(set) {
				t.Fatal(err)
			}
		}
		return err
	case TypeGTID, TypeGTIDTagged, TypeAnonymousGTID:
		g, err := ParseGTID(ev)
		if err == nil && h.Type != TypeAnonymousGTID {
			if again, err := gtid.ParseGTID(g.GTID.String()); err != nil || again != g.GTID {
				t.Fatal(err)
			}
		}
		return err
	case TypeRotate:
		r, err := ParseRotate(ev)
		if err == nil && !bytes.Equal(AppendRotate(nil, h, string(r.File), r.Position), ev) {
			t.Fatal("not the same")
		}
		return err
	case TypeHeartbeat, TypeHeartbeatV2:
		hb, err := ParseHeartbeat(ev)
		if err == nil && h.Type == TypeHeartbeatV2 {
			again, err := ParseHeartbeat(AppendHeartbeatV2(nil, 1, string(hb.File), hb.Position))
			if err != nil || again.Position != hb.Position || !bytes.Equal(again.File, hb.File) {
				t.Fatal(err)
			}
		}
		return err
	case TypeQuery:
		_, err := ParseQuery(ev)
		return err
	case TypeXID:
		_, err := ParseXID(ev)
		return err
	case TypeXAPrepare:
		_, err := ParseXAPrepare(ev)
		return err
	case TypeTransactionPayload:
		_, err := ParsePayload(ev)
		return err
	}
	return nil
}

// FuzzAssembler walks arbitrary bytes as a stream. Whatever comes, every event gets an answer, bytes are counted, and
// after an error nothing but that error.
func FuzzAssembler(f *testing.F) {
	for _, name := range []string{"ddl-1", "xa-1", "tagged-2", "admin-1"} {
		data, err := os.ReadFile("testdata/" + name + ".binlog")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[len(Magic):])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var a Assembler
		var failed error
		length := uint64(0)
		for len(data) > 0 {
			h, ev, rest, err := Cut(data)
			if err != nil {
				return
			}
			data = rest
			b, err := a.Feed(h, ev)
			switch {
			case failed != nil:
				if err != failed {
					t.Fatalf("%v after %v", err, failed)
				}
			case err != nil:
				failed = err
			case b == Start:
				length = uint64(h.EventSize)
			case b != Outside:
				length += uint64(h.EventSize)
			}
			if failed == nil && b == End && (a.Trx().Bytes != length || a.Trx().Kind == KindNone || a.InTransaction()) {
				t.Fatalf("%+v, %d bytes", a.Trx(), length)
			}
		}
	})
}

// BenchmarkHeaderWalk reads a file event by event: header only, with checksum, and with boundaries.
func BenchmarkHeaderWalk(b *testing.B) {
	_, events := sample(b, "dml-1")
	var stream []byte
	n := 0
	for _, ev := range events {
		if len(ev) < 1000 { // rows as an OLTP load has them
			stream = append(stream, ev...)
			n++
		}
	}
	for name, visit := range map[string]func(h Header, ev []byte) error{
		"cut":      func(Header, []byte) error { return nil },
		"checksum": func(_ Header, ev []byte) error { return VerifyChecksum(ev) },
	} {
		b.Run(name, func(b *testing.B) { walk(b, stream, n, visit) })
	}
	var a Assembler
	var whole []byte
	for _, ev := range events {
		whole = append(whole, ev...)
	}
	b.Run("assembler", func(b *testing.B) {
		walk(b, whole, len(events), func(h Header, ev []byte) error { _, err := a.Feed(h, ev); return err })
	})
}

func walk(b *testing.B, stream []byte, n int, visit func(h Header, ev []byte) error) {
	b.ReportAllocs()
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		for rest := stream; len(rest) > 0; {
			h, ev, next, err := Cut(rest)
			if err == nil {
				err = visit(h, ev)
			}
			if err != nil {
				b.Fatal(err)
			}
			rest = next
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/event")
}

func BenchmarkPayload(b *testing.B) {
	begin := AppendQuery(nil, Header{}, 99, "app", "BEGIN")
	rows := AppendEvent(nil, Header{Type: TypeWriteRows}, bytes.Repeat([]byte("a row with some text in it "), 60))
	for name, n := range map[string]int{"2KB": 1, "1MB": 600} {
		b.Run(name, func(b *testing.B) {
			events := [][]byte{begin}
			for range n {
				events = append(events, rows)
			}
			p, err := ParsePayload(payloadEvent(b, CompressionZSTD, events...))
			if err != nil {
				b.Fatal(err)
			}
			var r payloadReader
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.read(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
