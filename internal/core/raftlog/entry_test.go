package raftlog

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"trireme/internal/mysql/gtid"
)

func sampleMetas() []Meta {
	u1, u2 := gtid.IncarnationUUID(1, 2, 3), gtid.IncarnationUUID(1, 3, 4)
	return []Meta{
		{Kind: Barrier, Node: 1, Incarnation: 7, Start: Pos{1, 4}, End: Pos{1, 4}},
		{Kind: Settings},
		{Kind: Trx, Flags: FlagUnfinished, Node: 65535, Incarnation: math.MaxUint64, Start: Pos{1, 1 << 40},
			End: Pos{math.MaxUint32, math.MaxUint64}},
		{Kind: Trx, Flags: FlagSpecial, Node: 1, Incarnation: 9,
			GTIDs: []gtid.Range{{SID: gtid.SID{UUID: u1}, First: 5, Last: 5}}},
		{Kind: Trx, GTIDs: []gtid.Range{
			{SID: gtid.SID{UUID: u1}, First: 1, Last: gtid.MaxGNO}, {SID: gtid.SID{UUID: u1}, First: 9, Last: 9},
			{SID: gtid.SID{UUID: u1, Tag: strings.Repeat("t", 32)}, First: 3, Last: 300},
			{SID: gtid.SID{UUID: u2}, First: 70000, Last: 70001},
		}},
	}
}

func sameMeta(a, b *Meta) bool {
	if len(a.GTIDs) != len(b.GTIDs) {
		return false
	}
	for i := range a.GTIDs {
		if a.GTIDs[i] != b.GTIDs[i] {
			return false
		}
	}
	x, y := *a, *b
	x.GTIDs, y.GTIDs = nil, nil
	return x.Kind == y.Kind && x.Flags == y.Flags && x.Node == y.Node && x.Incarnation == y.Incarnation &&
		x.Start == y.Start && x.End == y.End
}

func TestMetaRoundTrip(t *testing.T) {
	for _, m := range sampleMetas() {
		data := append(AppendMeta(nil, &m), "events"...)
		if n := MetaSize(&m); n != len(data)-6 {
			t.Errorf("MetaSize %d, encoded %d", n, len(data)-6)
		}
		got, events, err := DecodeMeta(data)
		if err != nil || !sameMeta(&got, &m) || string(events) != "events" {
			t.Errorf("decoded %+v %q %v, want %+v", got, events, err, m)
		}
		for n := range len(data) - 6 {
			if _, _, err := DecodeMeta(data[:n]); !errors.Is(err, ErrMeta) {
				t.Fatalf("cut to %d bytes: %v", n, err)
			}
		}
	}
}

// TestMetaExtensions: what a newer version adds is skipped, unless it says that it must be understood.
func TestMetaExtensions(t *testing.T) {
	m := sampleMetas()[3]
	with := func(tlv ...byte) []byte {
		b := AppendMeta(nil, &m)
		b = append(b, tlv...)
		b[offMetaLen] = byte(len(b))
		return append(b, 'e')
	}
	if got, events, err := DecodeMeta(with(9, 2, 'x', 'y')); err != nil || !sameMeta(&got, &m) || string(events) != "e" {
		t.Errorf("unknown field: %+v %q %v", got, events, err)
	}
	for name, data := range map[string][]byte{
		"critical field": with(0x89, 0),
		"version":        append([]byte{2}, with()[1:]...),
		"kind":           append([]byte{1, 99}, with()[2:]...),
		"reserved": append(append([]byte(nil), with()[:offReserved]...),
			append([]byte{1, 0}, with()[offMetaLen:]...)...),
	} {
		if _, _, err := DecodeMeta(data); !errors.Is(err, ErrMetaVersion) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, tlv := range map[string][]byte{
		"field over the end": {9, 3, 'x'}, "no server": {1, 3, 0, 1, 0}, "tag too long": {1, 1, 34},
		"range from 0": append([]byte{1, 19, 1}, make([]byte, 18)...),
	} {
		if _, _, err := DecodeMeta(with(tlv...)); !errors.Is(err, ErrMeta) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAddGTIDMerges(t *testing.T) {
	var m Meta
	a, b := gtid.SID{UUID: gtid.IncarnationUUID(1, 1, 1)}, gtid.SID{UUID: gtid.IncarnationUUID(1, 1, 2)}
	for _, g := range []gtid.GTID{{SID: a, GNO: 1}, {SID: a, GNO: 2}, {SID: b, GNO: 3}, {SID: a, GNO: 3},
		{SID: a, GNO: 5}} {
		m.AddGTID(g)
	}
	if len(m.GTIDs) != 4 || m.GTIDs[0].Last != 2 {
		t.Errorf("%v", m.GTIDs)
	}
}

func TestPos(t *testing.T) {
	p := Pos{1, 4}
	if p.String() != "binlog.000001:4" || (Pos{1234567, 9}).String() != "binlog.1234567:9" {
		t.Error(p, Pos{1234567, 9})
	}
	if !p.Less(Pos{1, 5}) || !p.Less(Pos{2, 0}) || p.Less(p) || (Pos{2, 0}).Less(p) {
		t.Error("order")
	}
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	one := sampleMetas()[3]
	data := AppendMeta(nil, &one)
	var into Meta
	if n := testing.AllocsPerRun(100, func() { _, _ = into.Decode(data) }); n != 0 {
		t.Errorf("Decode: %v allocations", n)
	}
}

func TestMetaRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Meta{
			Kind: Kind(rapid.IntRange(1, 3).Draw(t, "kind")), Flags: Flags(rapid.Uint16().Draw(t, "flags")),
			Node: rapid.Uint16().Draw(t, "node"), Incarnation: rapid.Uint64().Draw(t, "incarnation"),
			Start: Pos{rapid.Uint32().Draw(t, "file"), rapid.Uint64().Draw(t, "off")},
			End:   Pos{rapid.Uint32().Draw(t, "file"), rapid.Uint64().Draw(t, "off")},
		}
		for range rapid.IntRange(0, 5).Draw(t, "ranges") {
			first := rapid.Int64Range(1, gtid.MaxGNO).Draw(t, "first")
			sid := gtid.SID{UUID: gtid.UUID{byte(rapid.IntRange(0, 2).Draw(t, "uuid"))},
				Tag: rapid.StringMatching("([a-z][a-z0-9]{0,31})?").Draw(t, "tag")}
			m.GTIDs = append(m.GTIDs, gtid.Range{SID: sid, First: first, Last: rapid.Int64Range(first, gtid.MaxGNO).
				Draw(t, "last")})
		}
		data := AppendMeta(nil, &m)
		got, rest, err := DecodeMeta(data)
		if err != nil || len(rest) != 0 || !sameMeta(&got, &m) || MetaSize(&m) != len(data) {
			t.Fatalf("%+v %v, want %+v", got, err, m)
		}
	})
}

func FuzzDecodeMeta(f *testing.F) {
	for _, m := range sampleMetas() {
		f.Add(AppendMeta(nil, &m))
	}
	f.Add([]byte{1, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, events, err := DecodeMeta(data)
		if err != nil {
			if !errors.Is(err, ErrMeta) && !errors.Is(err, ErrMetaVersion) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.HasSuffix(data, events) {
			t.Fatal("the events are not the rest")
		}
		again, _, err := DecodeMeta(AppendMeta(nil, &m))
		if err != nil || !sameMeta(&again, &m) {
			t.Fatalf("%+v is read back as %+v: %v", m, again, err)
		}
	})
}
