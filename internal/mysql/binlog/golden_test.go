package binlog

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"trireme/internal/mysql/gtid"
)

// update writes testdata/*.golden, this package's transcripts of the samples. Read them before you commit them. The
// samples are written by a server: see TestUpdateBinlogSamples in test/mysql.
var update = flag.Bool("update", false, "write the transcripts in testdata")

// TestGolden reads binary log files that a real mysqld wrote and compares what this package finds in them with the
// transcript, and positions, types, GTIDs and GTID sets with what the server itself says in SHOW BINLOG EVENTS.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.binlog")
	if err != nil || len(files) < 8 {
		t.Fatalf("testdata/*.binlog: %d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".binlog"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := transcript(t, data)
			golden := strings.TrimSuffix(file, ".binlog") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("transcript differs from %s: %s", golden, firstDifference(got, string(want)))
			}
			compareWithServer(t, data, strings.TrimSuffix(file, ".binlog")+".events")
		})
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d is\n%s\nwant\n%s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

// eachEvent calls f for every event of a binary log file and checks that the file ends with the last one.
func eachEvent(t testing.TB, data []byte, f func(pos int, h Header, ev []byte)) {
	t.Helper()
	rest, ok := bytes.CutPrefix(data, []byte(Magic))
	if !ok {
		t.Fatal("no magic number")
	}
	for len(rest) > 0 {
		pos := len(data) - len(rest)
		h, ev, next, err := Cut(rest)
		if err != nil {
			t.Fatalf("at %d: %v", pos, err)
		}
		f(pos, h, ev)
		rest = next
	}
}

// transcript prints one line for each event and one for each transaction.
func transcript(t *testing.T, data []byte) string {
	var out strings.Builder
	var a Assembler
	eachEvent(t, data, func(pos int, h Header, ev []byte) {
		if err := VerifyChecksum(ev); err != nil {
			t.Fatalf("at %d: %v", pos, err)
		}
		b, err := a.Feed(h, ev)
		if err != nil {
			t.Fatalf("at %d: %v", pos, err)
		}
		indent := ""
		if b == Inside || b == End {
			indent = "  "
		}
		fmt.Fprintf(&out, "%s%d %v %v%s\n", indent, pos, h.Type, b, details(t, h, ev))
		if b == End {
			fmt.Fprintf(&out, "  = %s\n", describe(a.Trx()))
		}
	})
	if a.InTransaction() {
		t.Fatal("the file ends in a transaction")
	}
	return out.String()
}

func details(t *testing.T, h Header, ev []byte) string {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	switch h.Type {
	case TypeFormatDescription:
		d, err := ParseFormatDescription(ev)
		must(err)
		return fmt.Sprintf(" version=%s types=%d checksum=%d created=%t flags=%#x", d.ServerVersion, len(d.PostHeaderLens),
			d.Checksum, d.Created != 0, h.Flags)
	case TypePreviousGTIDs:
		s, err := parsePreviousGTIDs(ev)
		must(err)
		return fmt.Sprintf(" %q", s.String())
	case TypeGTID, TypeGTIDTagged:
		g, err := ParseGTID(ev)
		must(err)
		return fmt.Sprintf(" %v length=%d last_committed=%d sequence=%d sbr=%t version=%d", g.GTID, g.TransactionLength,
			g.LastCommitted, g.SequenceNumber, g.MayHaveSBR, g.ImmediateVersion)
	case TypeQuery:
		q, err := ParseQuery(ev)
		must(err)
		return fmt.Sprintf(" schema=%s xid=%t unknown=%t error=%d %q", q.Schema, q.HasXID, q.UnknownVars, q.ErrorCode, q.SQL)
	case TypeRotate:
		r, err := ParseRotate(ev)
		must(err)
		return fmt.Sprintf(" %s:%d", r.File, r.Position)
	case TypeXAPrepare:
		x, err := ParseXAPrepare(ev)
		must(err)
		return fmt.Sprintf(" %v one-phase=%t", x.XID, x.OnePhase)
	case TypeTransactionPayload:
		p, err := ParsePayload(ev)
		must(err)
		return fmt.Sprintf(" compression=%d uncompressed=%d payload=%d", p.Compression, p.UncompressedSize, len(p.Payload))
	}
	return ""
}

func describe(x *TrxInfo) string {
	s := fmt.Sprintf("%v %v bytes=%d thread=%t", x.GTID, x.Kind, x.Bytes, x.ThreadID != 0)
	if x.XID.GTRID != "" {
		s += fmt.Sprintf(" xid=%v one-phase=%t", x.XID, x.OnePhase)
	}
	for _, flag := range []struct {
		set  bool
		name string
	}{{x.Account, "account"}, {x.Special, "special"}, {x.Compressed, "compressed"}} {
		if flag.set {
			s += " " + flag.name
		}
	}
	return s
}

// compareWithServer holds the file against the rows of SHOW BINLOG EVENTS: position, type, end, text.
func compareWithServer(t *testing.T, data []byte, eventsFile string) {
	text, err := os.ReadFile(eventsFile)
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	eachEvent(t, data, func(pos int, h Header, ev []byte) {
		if len(rows) == 0 {
			t.Fatalf("the server does not know the event at %d", pos)
		}
		row := strings.SplitN(rows[0], "\t", 4)
		rows = rows[1:]
		if want := []string{strconv.Itoa(pos), h.Type.String(), strconv.Itoa(int(h.LogPos))}; !slicesEqual(row[:3], want) {
			t.Fatalf("event %v, the server says %v", want, row[:3])
		}
		checkText(t, h, ev, row[3])
		for len(rows) > 0 && strings.HasPrefix(rows[0], row[2]+"\t") && strings.Contains(rows[0], "\t"+row[2]+"\t") {
			rows = rows[1:] // an event inside a payload: its position is the payload's end, and so is its own end
		}
	})
	if len(rows) != 0 {
		t.Errorf("the server knows %d events more, the first is %s", len(rows), rows[0])
	}
}

func slicesEqual(a, b []string) bool { return strings.Join(a, "\t") == strings.Join(b, "\t") }

// checkText compares the last column where this package can say the same.
func checkText(t *testing.T, h Header, ev []byte, server string) {
	t.Helper()
	switch h.Type {
	case TypePreviousGTIDs:
		set, err := parsePreviousGTIDs(ev)
		if got := strings.ReplaceAll(set.String(), "\n", `\n`); err != nil || got != server {
			t.Errorf("PREVIOUS_GTIDS %q (%v), the server says %q", got, err, server)
		}
		again, err := gtid.ParseSet(strings.ReplaceAll(server, `\n`, "\n"))
		// A server that has seen a tag writes the tagged form from then on, even for a set without tags.
		sameForm := set.HasTags() == (Body(ev)[7] == 1)
		if err != nil || !again.Equal(set) || (sameForm && !bytes.Equal(again.AppendBinary(nil), Body(ev))) {
			t.Errorf("PREVIOUS_GTIDS from text: %v (%v), encoded % x, the server writes % x", again, err,
				again.AppendBinary(nil), Body(ev))
		}
	case TypeGTID, TypeGTIDTagged:
		g, err := ParseGTID(ev)
		if want := "SET @@SESSION.GTID_NEXT= '" + g.GTID.String() + "'"; err != nil || want != server {
			t.Errorf("GTID %v (%v), the server says %s", g.GTID, err, server)
		}
	case TypeQuery:
		q, err := ParseQuery(ev)
		if got := strings.Contains(server, fmt.Sprintf("/* xid=%d */", q.XID)); err != nil || got != q.HasXID {
			t.Errorf("xid %d %t (%v), the server says %s", q.XID, q.HasXID, err, server)
		}
	case TypeXAPrepare:
		x, err := ParseXAPrepare(ev)
		if err != nil || !strings.Contains(server, x.XID.String()) {
			t.Errorf("%v (%v), the server says %s", x.XID, err, server)
		}
	}
}
