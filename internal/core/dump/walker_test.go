package dump

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqlwire"
)

// script builds a log entry by entry.
type script struct {
	log  *memLog
	e    *events
	meta raftlog.Meta
	asm  binlog.Assembler
}

func newScript(node uint16) *script {
	s := &script{log: newMemLog()}
	s.barrier(1, node)
	return s
}

func (s *script) barrier(term uint64, node uint16) {
	s.e = &events{uuid: gtid.IncarnationUUID(testCluster, node, 1), pos: freshStart}
	fde, err := normalFDE(s.e.fde())
	if err != nil {
		panic(err)
	}
	s.meta = raftlog.Meta{Kind: raftlog.Trx, Node: node, Incarnation: uint64(node)}
	s.asm.Reset()
	s.log.barrier(term, node, uint64(node), fde)
}

func (s *script) entry(term uint64, flags raftlog.Flags, evs ...[]byte) {
	m := s.meta
	m.Flags, m.Start, m.End = flags, s.e.pos, s.e.pos
	if len(evs) > 0 {
		if h, err := binlog.ParseHeader(evs[0]); err == nil {
			m.Start.Off = uint64(h.LogPos) - uint64(len(evs[0]))
		}
	}
	for _, ev := range evs { // as Source does; it does not care whether a script breaks the rules
		h, err := binlog.ParseHeader(ev)
		if err != nil {
			panic(err)
		}
		if b, err := s.asm.Feed(h, ev); err != nil {
			s.asm.Reset()
		} else if b == binlog.End {
			m.AddGTID(s.asm.Trx().GTID)
		}
	}
	s.log.append(term, append(raftlog.AppendMeta(nil, &m), bytes.Join(evs, nil)...), true)
}

func (s *script) gtid(gno int64) gtid.GTID {
	return gtid.GTID{SID: gtid.SID{UUID: s.e.uuid}, GNO: gno}
}

// outline names what a receiver got: R for a ROTATE with its file, F for a FORMAT_DESCRIPTION, and GTIDs of whole
// transactions as node:gno.
func outline(t *testing.T, evs [][]byte) string {
	t.Helper()
	var out []byte
	var asm binlog.Assembler
	for _, ev := range evs {
		if err := binlog.VerifyChecksum(ev); err != nil {
			t.Fatal(err)
		}
		h, err := binlog.ParseHeader(ev)
		if err != nil {
			t.Fatal(err)
		}
		boundary, err := asm.Feed(h, ev)
		switch {
		case err != nil:
			t.Fatal(err)
		case h.Type == binlog.TypeRotate:
			r, _ := binlog.ParseRotate(ev)
			out = fmt.Appendf(out, "R(%s) ", r.File)
			if h.LogPos != 0 || h.Flags&binlog.FlagArtificial == 0 {
				t.Fatal("ROTATE is not artificial")
			}
		case h.Type == binlog.TypeFormatDescription:
			out = append(out, "F "...)
			if d, _ := binlog.ParseFormatDescription(ev); h.LogPos == 0 || h.ServerID != 9 || d.Created != 0 {
				t.Fatalf("FORMAT_DESCRIPTION %+v %+v", h, d)
			}
		case boundary == binlog.End:
			_, node, _, _ := gtid.ParseIncarnation(asm.Trx().GTID.UUID)
			out = fmt.Appendf(out, "%d:%d ", node, asm.Trx().GTID.GNO)
		}
	}
	if asm.InTransaction() {
		t.Fatal("ends within a transaction")
	}
	return string(bytes.TrimSpace(out))
}

func TestWalker(t *testing.T) {
	const (
		begins = raftlog.FlagUnfinished
		middle = raftlog.FlagUnfinished | raftlog.FlagContinues
		ends   = raftlog.FlagContinues
	)
	tests := []struct {
		name  string
		build func(s *script)
		has   func(s *script) gtid.Set
		want  string
		err   error
	}{
		{"several to an entry", func(s *script) {
			s.entry(1, 0, append(s.e.trx(), s.e.trx()...)...)
			s.log.append(1, nil, true)
			s.entry(1, 0, s.e.trx()...)
		}, nil, "R(trireme-1-1.000001) F 1:1 1:2 1:3", nil},
		{"what the receiver has", func(s *script) {
			s.entry(1, 0, append(s.e.trx(), append(s.e.trx(), s.e.trx()...)...)...)
		}, func(s *script) gtid.Set { return gtid.SetOf(s.gtid(2)) }, "R(trireme-1-1.000001) F 1:1 1:3", nil},
		{"all of it", func(s *script) { s.entry(1, 0, s.e.trx()...) },
			func(s *script) gtid.Set { return gtid.SetOf(s.gtid(1)) }, "", nil},
		{"a new file", func(s *script) {
			s.entry(1, 0, s.e.trx()...)
			s.e.pos = raftlog.Pos{File: 2, Off: 4}
			s.entry(1, 0, s.e.trx()...)
			s.entry(1, 0, s.e.trx()...)
		}, nil, "R(trireme-1-1.000001) F 1:1 R(trireme-1-1.000002) F 1:2 1:3", nil},
		{"a new incarnation", func(s *script) {
			s.entry(1, 0, s.e.trx()...)
			s.barrier(2, 2)
			s.entry(2, 0, s.e.trx()...)
		}, nil, "R(trireme-1-1.000001) F 1:1 R(trireme-2-2.000001) F 2:1", nil},
		{"chunks", func(s *script) {
			evs := s.e.trx()
			s.entry(1, begins, evs[:3]...)
			s.log.append(1, nil, true)
			s.entry(1, middle, evs[3:4]...)
			s.entry(1, ends, evs[4:]...)
			s.entry(1, 0, s.e.trx()...)
		}, nil, "R(trireme-1-1.000001) F 1:1 1:2", nil},
		{"chunks after a whole one", func(s *script) {
			whole, evs := s.e.trx(), s.e.trx()
			s.entry(1, begins, append(whole, evs[:3]...)...)
			s.entry(1, ends, append(evs[3:], s.e.trx()...)...)
		}, nil, "R(trireme-1-1.000001) F 1:1 1:2 1:3", nil},
		{"chunks that the receiver has", func(s *script) {
			evs := s.e.trx()
			s.entry(1, begins, evs[:3]...)
			s.entry(1, ends, evs[3:]...)
			s.entry(1, 0, s.e.trx()...)
		}, func(s *script) gtid.Set { return gtid.SetOf(s.gtid(1)) }, "R(trireme-1-1.000001) F 1:2", nil},
		{"chunks without an end", func(s *script) {
			s.entry(1, 0, s.e.trx()...)
			s.entry(1, begins, s.e.trx()[:3]...)
		}, nil, "R(trireme-1-1.000001) F 1:1", nil},
		{"chunks ended by another incarnation", func(s *script) {
			s.entry(1, begins, s.e.trx()[:3]...)
			s.barrier(2, 2)
			s.entry(2, 0, s.e.trx()...)
		}, nil, "R(trireme-2-2.000001) F 2:1", nil},
		{"chunks ended by another term", func(s *script) {
			s.entry(1, begins, s.e.trx()[:3]...)
			s.barrier(2, 1)
			s.entry(2, 0, s.e.trx()...)
		}, nil, "R(trireme-1-1.000001) F 1:1", nil},
		{"chunks taken up after another incarnation", func(s *script) {
			evs, old := s.e.trx(), s.e
			s.entry(1, begins, evs[:3]...)
			s.barrier(2, 2)
			s.e = old
			s.entry(2, ends, evs[3:]...)
		}, nil, "", ErrInvariant},
		{"chunks taken up in another term", func(s *script) {
			evs := s.e.trx()
			s.entry(1, begins, evs[:3]...)
			s.entry(2, ends, evs[3:]...)
		}, nil, "", ErrInvariant},
		{"a transaction inside another's chunks", func(s *script) {
			evs := s.e.trx()
			s.entry(1, begins, evs[:3]...)
			s.entry(1, 0, s.e.trx()...)
		}, nil, "", ErrInvariant},
		{"flag contradicts events", func(s *script) { s.entry(1, 0, s.e.trx()[:3]...) }, nil, "", ErrInvariant},
		{"bad checksum", func(s *script) {
			s.entry(1, 0, s.e.trx()...)
			evs := s.e.trx()
			evs[3][25] ^= 1
			s.entry(1, 0, evs...)
		}, nil, "R(trireme-1-1.000001) F 1:1", ErrInvariant},
		{"no transaction", func(s *script) { s.entry(1, 0, s.e.fde()) }, nil, "", ErrInvariant},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newScript(1)
			test.build(s)
			var has gtid.Set
			if test.has != nil {
				has = test.has(s)
			}
			evs, err := walkAll(t, s.log, has)
			if !errors.Is(err, test.err) || (err != nil) != (test.err != nil) {
				t.Fatalf("got error %v, want %v", err, test.err)
			}
			if got := outline(t, evs); got != test.want {
				t.Fatalf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestSeekUnfinished: where a transaction has begun and not ended, a feed begins with its first chunk, so that it knows
// what the next one continues.
func TestSeekUnfinished(t *testing.T) {
	s := newScript(1)
	s.entry(1, 0, s.e.trx()...)
	s.entry(1, raftlog.FlagUnfinished, s.e.trx()[:3]...)
	index, _, err := s.log.SeekGTID(gtid.SetOf(s.gtid(1)))
	if last := s.log.Committed(); err != nil || index != last {
		t.Fatalf("a feed begins at %d (%v), the unfinished transaction at %d", index, err, last)
	}
}

// transactions are those that the events make up.
func transactions(t *testing.T, evs [][]byte) (out []binlog.TrxInfo) {
	t.Helper()
	var asm binlog.Assembler
	for _, ev := range evs {
		h, err := binlog.ParseHeader(ev)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := asm.Feed(h, ev); err != nil {
			t.Fatal(err)
		} else if b == binlog.End {
			out = append(out, *asm.Trx())
		}
	}
	return out
}

// TestVoid: of a transaction that is void a receiver gets nothing but its GTID, whether it is in one entry or in
// several, of a feed or the change stream.
func TestVoid(t *testing.T) {
	for _, exact := range []bool{false, true} {
		s := newScript(1)
		s.entry(1, 0, append(s.e.trx(), append(s.e.trx(), s.e.trx()...)...)...)
		evs := s.e.trx()
		s.entry(1, raftlog.FlagUnfinished, evs[:3]...)
		s.entry(1, raftlog.FlagContinues, append(evs[3:], s.e.trx()...)...)
		evs, err := walkWith(t, &dumpServer{log: s.log, serverID: 9, exact: exact, stats: &counters{},
			void: func(g gtid.GTID) bool {
				return g == s.gtid(2) || g == s.gtid(4)
			}}, gtid.Set{})
		if err != nil {
			t.Fatal(err)
		}
		want := "R(trireme-1-1.000001) F 1:1 1:2 1:3 1:4 1:5"
		if exact { // the count goes on where the source's does
			want = "R(trireme-1-1.000001) F R(trireme-1-1.000001) 1:1 1:2 R(trireme-1-1.000001) 1:3 1:4 R(trireme-1-1.000001) 1:5"
		}
		if got := outline(t, evs); got != want {
			t.Fatalf("got %s", got)
		}
		for _, trx := range transactions(t, evs) {
			if empty := trx.Kind != binlog.RowsXID && trx.Kind != binlog.Payload; empty != (trx.GTID.GNO == 2 || trx.GTID.GNO == 4) {
				t.Errorf("%s is of kind %v", trx.GTID, trx.Kind)
			}
		}
	}
}

// Events of every size around the limits of packets and of the direct path arrive unharmed, those of small transactions
// packed into one.
func TestFeedPacketSizes(t *testing.T) {
	const overhead = binlog.MinEventSize + statusLen
	sizes := []int{0, 400, directBytes - overhead, directBytes - overhead + 1, writeBufferBytes, 3 << 20}
	for d := -1; d <= 1; d++ {
		sizes = append(sizes, mysqlwire.MaxPayload-overhead+d)
	}
	sizes = append(sizes, 2*mysqlwire.MaxPayload-overhead)
	s := newScript(1)
	var want []byte
	for _, size := range sizes {
		evs := s.e.trx(size, 10)
		sent := bytes.Join(evs, nil)
		if len(sent) <= packBelow {
			sent, _, _ = binlog.AppendPacked(nil, sent)
		}
		want = append(want, sent...)
		s.entry(1, 0, evs...)
	}
	evs, err := walkAll(t, s.log, gtid.Set{})
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.Join(evs[2:], nil); !bytes.Equal(got, want) { // after ROTATE and FORMAT_DESCRIPTION
		t.Fatalf("%d bytes arrive, %d were sent", len(got), len(want))
	}
}
