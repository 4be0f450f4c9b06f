package binlog

import (
	"bytes"
	"testing"
)

// TestAppendVoid: a transaction of its own with the same GTID, whose events are whole, and which says how long it is.
func TestAppendVoid(t *testing.T) {
	seen := map[EventType]int{}
	for _, name := range []string{"dml-1", "ddl-1", "xa-1", "payload-1", "tagged-1"} {
		_, events := sample(t, name)
		for _, first := range events {
			if !TypeOf(first).StartsTransaction() {
				continue
			}
			seen[TypeOf(first)]++
			before := bytes.Clone(first)
			void, err := AppendVoid([]byte("x"), first)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(first, before) {
				t.Fatal("the event was changed in place")
			}
			checkVoid(t, void[1:], first)
		}
	}
	if seen[TypeGTID] == 0 || seen[TypeGTIDTagged] == 0 {
		t.Errorf("tried: %v", seen)
	}
	if _, err := AppendVoid(nil, AppendQuery(nil, Header{}, 0, "", "BEGIN")); err == nil {
		t.Error("a QUERY event began a transaction")
	}
}

func checkVoid(t *testing.T, void, first []byte) {
	t.Helper()
	want, err := ParseGTID(first)
	if err != nil {
		t.Fatal(err)
	}
	var asm Assembler
	n := 0
	for rest := void; len(rest) > 0; n++ {
		h, ev, next, err := Cut(rest)
		if err == nil {
			err = VerifyChecksum(ev)
		}
		var b Boundary
		if err == nil {
			b, err = asm.Feed(h, ev)
		}
		if err != nil || (b == End) != (len(next) == 0) {
			t.Fatalf("%v: boundary %v, %v", h.Type, b, err)
		}
		rest = next
	}
	got := asm.Trx()
	same := got.GTID == want.GTID && got.SequenceNumber == want.SequenceNumber && got.LastCommitted == want.LastCommitted
	if !same || n != 3 {
		t.Errorf("%d events, %+v for %+v", n, got.GTIDEvent, want)
	}
	if got.TransactionLength != uint64(len(void)) {
		t.Errorf("says %d bytes, has %d", got.TransactionLength, len(void))
	}
}
