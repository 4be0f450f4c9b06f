package router

import (
	"bytes"
	"testing"

	"trireme/internal/mysql/mysqlwire"
)

// The answer to a prepared CALL with an OUT parameter, as 9.7.4 gives it to a client without CLIENT_DEPRECATE_EOF: the
// parameter's row ends with an EOF that announces nothing, and the OK follows.
func TestAnswerWithOutParameters(t *testing.T) {
	var all []byte
	for i, p := range []string{
		"\x01", "\x03def\x00\x00\x00\x011\x00\f?\x00\x02\x00\x00\x00\b\x81\x00\x00\x00\x00", "\xfe\x00\x00\n\x00",
		"\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00", "\xfe\x00\x00\n\x00", "\x01",
		"\x03def\x01d\x01p\x01p\x01x\x01x\f?\x00\v\x00\x00\x00\x03\x00\x00\x00\x00\x00", "\xfe\x00\x00*\x10",
		"\x00\x00\a\x00\x00\x00", "\xfe\x00\x00\"\x00", "\x00\x00\x00\"\x00\x00\x00",
	} {
		all = mysqlwire.AppendPacket(all, byte(i+1), []byte(p))
	}
	a := newAnswer(comStmtExecute, false)
	for i := range all {
		if a.done() {
			t.Fatalf("it ends after byte %d of %d", i, len(all))
		}
		if used, err := a.feed(all[i : i+1]); err != nil || used != 1 {
			t.Fatalf("byte %d: %d, %v", i, used, err)
		}
	}
	if !a.done() || a.failed || a.status&mysqlwire.StatusAutocommit == 0 {
		t.Errorf("%+v", a)
	}
}

// An answer ends at the same byte however it is cut into parts, and never beyond what there is.
func FuzzAnswer(f *testing.F) {
	ok := mysqlwire.AppendPacket(nil, 1, mysqlwire.AppendOK(nil, mysqlwire.OK{Status: 2}))
	rows := bytes.Join([][]byte{{1, 0, 0, 1, 1}, {3, 0, 0, 2, 3, 'd', 'e'}, {5, 0, 0, 3, 0xfe, 0, 0, 2, 0},
		{2, 0, 0, 4, 1, 'x'}, {5, 0, 0, 5, 0xfe, 0, 0, 2, 0}}, nil)
	f.Add(ok, byte(comPing), true, uint8(1))
	f.Add(rows, byte(comQuery), false, uint8(7))
	f.Add([]byte{12, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, byte(comStmtPrepare), true, uint8(5))
	f.Fuzz(func(t *testing.T, b []byte, command byte, deprecate bool, part uint8) {
		whole, parts := newAnswer(command, deprecate), newAnswer(command, deprecate)
		end, err := whole.feed(b)
		if end > len(b) {
			t.Fatalf("%d of %d bytes", end, len(b))
		}
		used := 0
		for used < len(b) {
			n, perr := parts.feed(b[used:min(len(b), used+int(part)+1)])
			used += n
			if perr != nil {
				if err == nil {
					t.Fatalf("in parts %v", perr)
				}
				return
			}
			if n == 0 {
				break
			}
		}
		if err == nil && (used != end || parts.state != whole.state || parts.status != whole.status ||
			parts.failed != whole.failed) {
			t.Errorf("in parts %d %+v, in one %d %+v", used, parts, end, whole)
		}
	})
}

// A packet that is longer than what is looked at belongs to the answer as a whole.
func TestAnswerLongOK(t *testing.T) {
	p := mysqlwire.AppendOK(nil, mysqlwire.OK{AffectedRows: 2, Status: 2})
	p = mysqlwire.AppendPacket(nil, 1, append(p, "(Records: 2  Duplicates: 0  Warnings: 0"...))
	for cut := range p {
		a := newAnswer(comQuery, true)
		n, err := a.feed(p[:cut])
		if n != cut || err != nil || a.done() {
			t.Fatalf("%d of %d bytes, %v, %+v", n, cut, err, a)
		}
		n, err = a.feed(append(p[cut:len(p):len(p)], 0))
		if n != len(p)-cut || err != nil || !a.done() || a.status != 2 {
			t.Fatalf("after %d: %d bytes, %v, %+v", cut, n, err, a)
		}
	}
}

func TestAnswerRows(t *testing.T) {
	rows := bytes.Join([][]byte{{1, 0, 0, 1, 1}, {3, 0, 0, 2, 3, 'd', 'e'}, {5, 0, 0, 3, 0xfe, 0, 0, 2, 0},
		{2, 0, 0, 4, 1, 'x'}, {5, 0, 0, 5, 0xfe, 0, 0, 3, 0}}, nil)
	a := newAnswer(comQuery, false)
	if n, err := a.feed(append(rows, 0)); n != len(rows) || err != nil || a.state != answerDone || a.status != 3 {
		t.Errorf("%d of %d bytes, %v, %+v", n, len(rows), err, a)
	}
}
