package binlog

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// TestUnchecked: of inserts, and of what has its cascades in the log, the checks go; nothing else changes. A payload
// gives the events in it.
func TestUnchecked(t *testing.T) {
	body := func(flags uint16) []byte {
		return append(binary.LittleEndian.AppendUint16(make([]byte, 6), flags), "rest"...)
	}
	events := [][]byte{AppendQuery(nil, Header{}, 1, "", "BEGIN")}
	var want []uint16
	for _, c := range []struct {
		typ        EventType
		flags, out uint16
	}{
		{TypeTableMap, 1, 1},
		{TypeWriteRows, 1, 3},
		{TypeWriteRowsV1, 1, 3},
		{TypeWriteRows, 0x11, 0x13},
		{TypeUpdateRows, 1, 1}, // the replica is to cascade
		{TypeUpdateRows, 0x10, 0x12},
		{TypePartialUpdateRows, 0x11, 0x13},
		{TypeDeleteRows, 1, 1},
		{TypeDeleteRows, 0x11, 0x13},
		{TypeDeleteRows, 0x13, 0x13},
	} {
		events = append(events, AppendEvent(nil, Header{Type: c.typ, LogPos: 7}, body(c.flags)))
		want = append(want, c.out)
	}
	events = append(events, AppendEvent(nil, Header{Type: TypeXID}, make([]byte, 8)))
	size := 0
	for _, ev := range events {
		size += len(ev) - ChecksumLen
	}
	payload := appendPayload(nil, Header{}, bytes.Join(events, nil), size)

	for name, in := range map[string][][]byte{"events": events, "a payload": {payload}} {
		var out [][]byte
		for _, ev := range in {
			before := bytes.Clone(ev)
			if err := Unchecked(ev, func(ev []byte) error { out = append(out, ev); return VerifyChecksum(ev) }); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(ev, before) {
				t.Error("the event was changed in place")
			}
		}
		if len(out) != len(events) {
			t.Fatalf("%s: %d events", name, len(out))
		}
		for i, ev := range out {
			if i == 0 || i == len(out)-1 {
				if !bytes.Equal(ev, events[i]) {
					t.Errorf("%s: event %d was changed", name, i)
				}
				continue
			}
			h, _ := ParseHeader(ev)
			plain, _ := ParseHeader(events[i])
			if h != plain || !bytes.Equal(Body(ev), body(want[i-1])) {
				t.Errorf("%s: %v: %x, want flags %#x", name, h.Type, Body(ev), want[i-1])
			}
		}
	}

	_, real := sample(t, "payload-1")
	n := 0
	for _, ev := range real {
		if TypeOf(ev) != TypeTransactionPayload {
			continue
		}
		var asm Summary
		if err := Unchecked(ev, func(ev []byte) error { n++; return asm.Add(ev) }); err != nil {
			t.Fatal(err)
		}
		var whole Summary
		if err := whole.Add(ev); err != nil || asm.String() != whole.String() {
			t.Errorf("%q, want %q, %v", asm.String(), whole.String(), err)
		}
		for cut := range 3 { // a payload that is cut off
			bad := AppendEvent(nil, Header{Type: TypeTransactionPayload}, Body(ev)[:len(Body(ev))-1-cut])
			if err := Unchecked(bad, func([]byte) error { return nil }); err == nil {
				t.Error("a damaged payload was taken")
			}
		}
	}
	if n == 0 {
		t.Error("no compressed transaction was tried")
	}
}
