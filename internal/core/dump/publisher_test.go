package dump

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqlwire"
)

// placeLog is a memLog for one consumer.
type placeLog struct{ *memLog }

func (l placeLog) Sets() (purged, committed gtid.Set) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range append(l.gone[:len(l.gone):len(l.gone)], l.entries...) {
		if e.Index > l.committed || len(e.Data) == 0 {
			continue
		}
		m, _, err := raftlog.DecodeMeta(e.Data)
		if err != nil {
			continue
		}
		for _, r := range m.GTIDs {
			committed.AddRange(r)
			if e.Index < l.first {
				purged.AddRange(r)
			}
		}
	}
	return purged, committed
}

// GTIDsBefore knows the first file of node 1, and whole entries only.
func (l placeLog) GTIDsBefore(node uint16, incarnation uint64, at raftlog.Pos) (has gtid.Set, last raftlog.Pos,
	err error) {
	if node != 1 || incarnation != 1 {
		return has, last, raftlog.ErrNoPosition
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	end := raftlog.Pos{}
	last = freshStart // of the barrier
	for _, e := range append(l.gone[:len(l.gone):len(l.gone)], l.entries...) {
		if m, _, err := raftlog.DecodeMeta(e.Data); err == nil && e.Index <= l.committed && m.Kind == raftlog.Trx {
			if end = m.End; !at.Less(m.End) {
				last = end
				for _, r := range m.GTIDs {
					has.AddRange(r)
				}
			}
		}
	}
	if end.Less(at) {
		return has, last, raftlog.ErrBeyond
	}
	return has, last, nil
}

func (l placeLog) Close() {}

func newPublisher(t *testing.T, s *script, change func(*PublisherConfig)) *Publisher {
	t.Helper()
	cfg := PublisherConfig{Cluster: testCluster, ServerID: 9, Reserved: 4095, ServerVersion: DefaultServerVersion,
		Open:      func() PublishedLog { return placeLog{s.log} },
		ReadIndex: func(context.Context) (uint64, error) { return s.log.Committed(), nil }}
	if change != nil {
		change(&cfg)
	}
	p := NewPublisher(cfg)
	t.Cleanup(p.Close)
	return p
}

// consume has a consumer served, and returns its end of the connection.
func consume(t *testing.T, p *Publisher, c Consumer) *mysqlwire.Conn {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	nc, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if c.Conn, err = lis.Accept(); err != nil {
		t.Fatal(err)
	}
	_ = c.Conn.(*net.TCPConn).SetWriteBuffer(64 << 10)
	_ = nc.(*net.TCPConn).SetReadBuffer(64 << 10)
	if c.Checksum == "" {
		c.Checksum = "CRC32"
	}
	go p.Serve(t.Context(), c)
	return mysqlwire.NewConn(nc, 64<<20)
}

func byGTID(set gtid.Set) Consumer {
	return Consumer{Command: mysqlwire.ComBinlogDumpGTID, Argument: dumpArgument(5000, set)}
}

// endsAtOnce asks for what there is.
func endsAtOnce(c Consumer) Consumer {
	if c.Command == mysqlwire.ComBinlogDump {
		binary.LittleEndian.PutUint16(c.Argument[4:], flagNonBlock)
	} else {
		binary.LittleEndian.PutUint16(c.Argument, flagNonBlock)
	}
	return c
}

func byPosition(file string, pos uint32) Consumer {
	b := binary.LittleEndian.AppendUint32(nil, pos)
	b = binary.LittleEndian.AppendUint32(append(b, 0, 0), 5000)
	return Consumer{Command: mysqlwire.ComBinlogDump, Argument: append(b, file...)}
}

// take reads packets up to the end of the dump, or until enough says so. err is the server's.
func take(t *testing.T, c *mysqlwire.Conn, enough func(ev []byte) bool) (evs [][]byte, err error) {
	t.Helper()
	for {
		if err := c.NetConn().SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		p, err := c.ReadPacket()
		switch {
		case err != nil:
			return evs, err
		case mysqlwire.IsERR(p):
			e, err := mysqlwire.ParseERR(p)
			if err != nil {
				t.Fatal(err)
			}
			return evs, e
		case mysqlwire.IsEOF(p):
			return evs, nil
		case p[0] != 0:
			t.Fatalf("packet %x", p[:1])
		}
		ev := append([]byte(nil), p[1:]...)
		if evs = append(evs, ev); enough != nil && enough(ev) {
			return evs, nil
		}
	}
}

// refusedWith takes a dump that must end in 1236.
func refusedWith(t *testing.T, c *mysqlwire.Conn, want string) {
	t.Helper()
	if evs, err := take(t, c, nil); !mysqlwire.IsServerCode(err, mysqlwire.CodeSourceFatalDump) ||
		!strings.Contains(err.Error(), want) {
		t.Fatalf("%d events and %v, want 1236 with %q", len(evs), err, want)
	}
}

// threeEntries is a log of 1:1 | 1:2 1:3 | 1:4 in chunks.
func threeEntries() *script {
	s := newScript(1)
	s.entry(1, 0, s.e.trx()...)
	s.entry(1, 0, append(s.e.trx(), s.e.trx()...)...)
	big := s.e.trx()
	s.entry(1, raftlog.FlagUnfinished, big[:5]...)
	s.entry(1, raftlog.FlagContinues, big[5:]...)
	return s
}

// positions checks that a receiver which counts as mysqld's does, by ROTATE and lengths, counts what the source wrote
// in its events, and that these are the source's own.
func positions(t *testing.T, evs [][]byte) {
	t.Helper()
	count := uint64(0)
	for i, ev := range evs {
		h, err := binlog.ParseHeader(ev)
		if err != nil {
			t.Fatal(err)
		}
		if h.Type == binlog.TypeRotate {
			r, err := binlog.ParseRotate(ev)
			if err != nil {
				t.Fatal(err)
			}
			count = r.Position
			continue
		}
		if count += uint64(len(ev)); count != uint64(h.LogPos) {
			t.Fatalf("event %d, %v: the receiver is at %d, the event ends at %d", i, h.Type, count, h.LogPos)
		}
		if h.Type == binlog.TypeTransactionPayload {
			t.Fatal("a transaction was packed")
		}
	}
}

func TestPublisherServesWhatIsMissing(t *testing.T) {
	for _, test := range []struct {
		name string
		has  func(s *script) gtid.Set
		want string
	}{
		{"all", func(*script) gtid.Set { return gtid.Set{} },
			"R(trireme-0-0.000000) F R(trireme-1-1.000001) F R(trireme-1-1.000001) 1:1 1:2 1:3 1:4"},
		{"a hole", func(s *script) gtid.Set { return gtid.SetOf(s.gtid(1), s.gtid(3)) },
			"R(trireme-0-0.000000) F R(trireme-1-1.000001) F R(trireme-1-1.000001) 1:2 R(trireme-1-1.000001) 1:4"},
		{"nothing", func(s *script) gtid.Set { return gtid.SetOf(s.gtid(1), s.gtid(2), s.gtid(3), s.gtid(4)) },
			"R(trireme-0-0.000000) F"},
		{"and its own", func(s *script) gtid.Set {
			return gtid.SetOf(s.gtid(1), s.gtid(2), s.gtid(3), gtid.GTID{SID: gtid.SID{UUID: gtid.UUID{7}}, GNO: 5})
		}, "R(trireme-0-0.000000) F R(trireme-1-1.000001) F R(trireme-1-1.000001) 1:4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := threeEntries()
			evs, err := take(t, consume(t, newPublisher(t, s, nil), endsAtOnce(byGTID(test.has(s)))), nil)
			if err != nil {
				t.Fatal(err)
			}
			positions(t, evs)
			if got := outline(t, evs); got != test.want {
				t.Fatalf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// A consumer is sent what becomes committed, and nothing before.
func TestPublisherWaitsForCommit(t *testing.T) {
	s := newScript(1)
	s.entry(1, 0, s.e.trx()...)
	p := newPublisher(t, s, nil)
	c := consume(t, p, byGTID(gtid.Set{}))
	ended := func(ev []byte) bool { return binlog.TypeOf(ev) == binlog.TypeXID }
	if _, err := take(t, c, ended); err != nil {
		t.Fatal(err)
	}
	before := s.log.Committed()
	s.log.held = true
	s.entry(1, 0, s.e.trx()...) // no majority has it yet
	beat := consume(t, p, Consumer{Command: mysqlwire.ComBinlogDumpGTID,
		Argument: dumpArgument(5001, gtid.SetOf(s.gtid(1))), Beat: 20 * time.Millisecond})
	evs, err := take(t, beat, func(ev []byte) bool { return binlog.TypeOf(ev) == binlog.TypeHeartbeat })
	if err != nil || len(evs) != 3 { // ROTATE, FORMAT_DESCRIPTION, heartbeat
		t.Fatalf("%d events, %v", len(evs), err)
	}
	s.log.setCommitted(before + 1)
	for _, c := range []*mysqlwire.Conn{c, beat} {
		if _, err := take(t, c, ended); err != nil {
			t.Fatal(err)
		}
	}
	if st := p.Stats(); st.Consumers != 2 || st.Dumps != 2 || st.Behind != 0 {
		t.Fatalf("%+v", st)
	}
}

func TestPublisherRefuses(t *testing.T) {
	gno := func(uuid gtid.UUID, first, last int64) (s gtid.Set) {
		s.AddRange(gtid.Range{SID: gtid.SID{UUID: uuid}, First: first, Last: last})
		return s
	}
	one := gtid.IncarnationUUID(testCluster, 1, 1)
	for _, test := range []struct {
		name string
		c    Consumer
		want string
	}{
		{"ahead", byGTID(gno(one, 1, 5)), "never committed " + one.String() + ":5"},
		{"short", Consumer{Command: mysqlwire.ComBinlogDumpGTID, Argument: make([]byte, 9)}, "malformed"},
		{"short, by position", Consumer{Command: mysqlwire.ComBinlogDump, Argument: make([]byte, 9)}, "malformed"},
		{"broken set", Consumer{Command: mysqlwire.ComBinlogDumpGTID, Argument: append(dumpArgument(5, gtid.Set{})[:22], 3, 0,
			0, 0, 1, 2, 3)}, "dump request"},
		{"too long", Consumer{Command: mysqlwire.ComBinlogDumpGTID, Argument: make([]byte, maxArgument+1)},
			"exceeds"},
		{"semi-sync", Consumer{Command: mysqlwire.ComBinlogDumpGTID, Argument: dumpArgument(5000, gtid.Set{}),
			SemiSync: true}, "asynchronous"},
		{"a node's server id", Consumer{Command: mysqlwire.ComBinlogDumpGTID, Argument: dumpArgument(2, gtid.Set{}),
			Replica: true}, "server_id above"},
		{"mysqld's own file", byPosition("binlog.000003", 4), "one mysqld's own binary log"},
		{"a name like ours", byPosition("trireme-1-1.1", 4), "one mysqld's own binary log"},
		{"position below 4", byPosition("trireme-1-1.000001", 3), "position < 4"},
		{"position beyond", byPosition("trireme-1-1.000001", 1<<30), "position > file size"},
		{"another cluster's", byPosition("trireme-7-1.000001", 4), "not in the log of this cluster"},
	} {
		t.Run(test.name, func(t *testing.T) {
			refusedWith(t, consume(t, newPublisher(t, threeEntries(), nil), test.c), test.want)
		})
	}
}

// What a node's mysqld wrote for itself, before it led, between two times that it led, or without ever leading, comes
// with a copy of its data and is no sign of a rollback.
func TestPublisherTakesLocalStatements(t *testing.T) {
	s := newScript(1)
	s.e.gno = 3 // 1 to 3 were its own
	s.entry(1, 0, s.e.trx()...)
	s.e.gno = 6 // 5 and 6, too
	s.entry(1, 0, s.e.trx()...)
	has := gtid.SetOf(s.gtid(1), s.gtid(2), s.gtid(3), s.gtid(5), s.gtid(6),
		gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(testCluster, 2, 7)}, GNO: 40})
	evs, err := take(t, consume(t, newPublisher(t, s, nil), endsAtOnce(byGTID(has))), nil)
	if err != nil || !strings.HasSuffix(outline(t, evs), "1:4 1:7") {
		t.Fatal(err, outline(t, evs))
	}
}

// TestPublisherKnown: what a mysqld wrote for itself after it had led, which looks like what a failover has rolled
// back, is left out of what consumers are told that it has executed, once a majority has said what is committed.
func TestPublisherKnown(t *testing.T) {
	s := threeEntries()
	asked, down := 0, error(nil)
	p := newPublisher(t, s, func(cfg *PublisherConfig) {
		cfg.ReadIndex = func(context.Context) (uint64, error) { asked++; return s.log.Committed(), down }
	})
	all := gtid.SetOf(s.gtid(1), s.gtid(2), s.gtid(3), s.gtid(4))
	other := gtid.SetOf(gtid.GTID{SID: gtid.SID{UUID: gtid.IncarnationUUID(testCluster, 2, 7)}, GNO: 40})
	known, err := p.Known(t.Context(), all.Union(other))
	if err != nil || !known.Equal(all.Union(other)) || asked != 0 {
		t.Fatalf("%v %v, asked %d times", known, err, asked)
	}
	with := all.Union(other).Union(gtid.SetOf(s.gtid(5), s.gtid(6)))
	if known, err = p.Known(t.Context(), with); err != nil || !known.Equal(all.Union(other)) || asked != 1 {
		t.Fatalf("%v %v, asked %d times", known, err, asked)
	}
	evs, err := take(t, consume(t, p, endsAtOnce(byGTID(known))), nil)
	if err != nil || strings.Contains(outline(t, evs), "1:") {
		t.Fatal(err, outline(t, evs))
	}
	down = errors.New("no majority")
	var told *mysqlwire.ServerError
	if known, err = p.Known(t.Context(), with); !errors.As(err, &told) || told.Code != mysqlwire.CodeServerUnavailable {
		t.Fatalf("without a majority: %v %v", known, err)
	}
}

// A consumer that comes from a node which knew more is no liar: this node asks what is committed, and waits until it
// knows.
func TestPublisherCatchesUp(t *testing.T) {
	s := threeEntries()
	all := s.log.Committed()
	s.log.setCommitted(all - 3) // 1:1
	has := gtid.SetOf(s.gtid(1), s.gtid(2))
	p := newPublisher(t, s, func(cfg *PublisherConfig) {
		cfg.ReadIndex = func(context.Context) (uint64, error) {
			time.AfterFunc(time.Millisecond, func() { s.log.setCommitted(all) })
			return all, nil
		}
	})
	evs, err := take(t, consume(t, p, endsAtOnce(byGTID(has))), nil)
	if err != nil || !strings.HasSuffix(outline(t, evs), "1:3 1:4") {
		t.Fatal(err, outline(t, evs))
	}
	s.log.setCommitted(all - 3)
	p = newPublisher(t, s, func(cfg *PublisherConfig) {
		cfg.ReadIndex = func(context.Context) (uint64, error) { return 0, errors.New("no majority") }
	})
	if _, err := take(t, consume(t, p, byGTID(has)), nil); !mysqlwire.IsServerCode(err, mysqlwire.CodeServerUnavailable) {
		t.Fatalf("got %v, want an error after which a replica tries again", err)
	}
}

func TestPublisherPurged(t *testing.T) {
	s := threeEntries()
	s.log.purge(4) // 1:4 is left
	p := newPublisher(t, s, nil)
	one := s.gtid(1).UUID.String()
	refusedWith(t, consume(t, p, byGTID(gtid.SetOf(s.gtid(1)))),
		"Cannot replicate because the source purged required binary logs")
	refusedWith(t, consume(t, p, byGTID(gtid.SetOf(s.gtid(1)))),
		fmt.Sprintf("The GTID set sent by the replica is '%s:1', and the missing transactions are '%s:2-3'.", one, one))
	refusedWith(t, consume(t, p, byPosition("trireme-0-0.000000", 4)), "purged required binary logs")
	for name, c := range map[string]Consumer{
		"has it":         byGTID(gtid.SetOf(s.gtid(1), s.gtid(2), s.gtid(3))),
		"wants the rest": byPosition("", 4),
	} {
		evs, err := take(t, consume(t, p, endsAtOnce(c)), nil)
		if err != nil || !strings.HasSuffix(outline(t, evs), "1:4") {
			t.Fatal(name, err, outline(t, evs))
		}
	}
	if st := p.Stats(); st.Refused != 3 {
		t.Fatalf("%+v", st)
	}
}

// A consumer that does not read keeps neither the log nor anybody else waiting, and is told when what it lacks is gone.
func TestPublisherSlowConsumer(t *testing.T) {
	s := newScript(1)
	p := newPublisher(t, s, nil)
	slow := consume(t, p, byGTID(gtid.Set{}))
	for range 200 {
		s.entry(1, 0, s.e.trx(100<<10)...)
	}
	for deadline := time.Now().Add(20 * time.Second); p.Stats().Transactions == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is sent")
		}
	}
	s.log.purge(s.log.Committed())
	fast := consume(t, p, endsAtOnce(byPosition("", 4)))
	if evs, err := take(t, fast, nil); err != nil || !strings.HasSuffix(outline(t, evs), "1:200") {
		t.Fatal(err)
	}
	refusedWith(t, slow, "past this consumer")
}

func TestPublisherByPosition(t *testing.T) {
	s := newScript(1)
	s.entry(1, 0, s.e.trx()...)
	end := uint32(s.e.pos.Off)
	s.entry(1, 0, s.e.trx()...)
	p := newPublisher(t, s, nil)
	for _, test := range []struct {
		file string
		pos  uint32
		want string
	}{
		{"", 4, "R(trireme-0-0.000000) F R(trireme-1-1.000001) F R(trireme-1-1.000001) 1:1 1:2"},
		{"trireme-0-0.000000", 4, "R(trireme-0-0.000000) F R(trireme-1-1.000001) F R(trireme-1-1.000001) 1:1 1:2"},
		{"trireme-1-1.000001", 4, "R(trireme-1-1.000001) F 1:1 1:2"},
		{"trireme-1-1.000001", end, "R(trireme-1-1.000001) F R(trireme-1-1.000001) 1:2"},
		{"trireme-1-1.000001", uint32(s.e.pos.Off), "R(trireme-1-1.000001) F R(trireme-1-1.000001)"},
	} {
		evs, err := take(t, consume(t, p, endsAtOnce(byPosition(test.file, test.pos))), nil)
		if err != nil {
			t.Fatal(err)
		}
		positions(t, evs)
		if got := outline(t, evs); got != test.want {
			t.Errorf("%s:%d: got  %s\nwant %s", test.file, test.pos, got, test.want)
		}
	}
}

// A consumer that knows no GTIDs may be cut off after any event: with the file and the offset that it counts there it
// gets what it lacks, once.
func TestPublisherCutAnywhere(t *testing.T) {
	s := newScript(1)
	for range 3 {
		s.entry(1, 0, s.e.trx()...)
	}
	p := newPublisher(t, s, nil)
	for _, first := range []Consumer{byPosition("trireme-0-0.000000", 4),
		byPosition("trireme-1-1.000001", uint32(s.e.pos.Off)*2/3)} {
		evs, err := take(t, consume(t, p, endsAtOnce(first)), nil)
		if err != nil {
			t.Fatal(err)
		}
		file, pos := "", uint64(0)
		lacks := []string{"1:1", "1:2", "1:3"}
		if bytes.HasPrefix(first.Argument[10:], []byte("trireme-1")) {
			has, _, _ := placeLog{s.log}.GTIDsBefore(1, 1, raftlog.Pos{File: 1, Off: s.e.pos.Off * 2 / 3})
			lacks = lacks[has.Count():]
		}
		for _, ev := range evs {
			switch binlog.TypeOf(ev) {
			case binlog.TypeRotate:
				r, err := binlog.ParseRotate(ev)
				if err != nil {
					t.Fatal(err)
				}
				file, pos = string(r.File), r.Position
			case binlog.TypeXID:
				lacks = lacks[1:]
				fallthrough
			default:
				pos += uint64(len(ev))
			}
			rest, err := take(t, consume(t, p, endsAtOnce(byPosition(file, uint32(pos)))), nil)
			if err != nil {
				t.Fatal(err)
			}
			got := slices.DeleteFunc(strings.Fields(outline(t, rest)),
				func(w string) bool { return !strings.HasPrefix(w, "1:") })
			if !slices.Equal(got, lacks) {
				t.Fatalf("cut off after %v, at %s:%d: got %v, want %v", binlog.TypeOf(ev), file, pos, got, lacks)
			}
		}
		if len(lacks) != 0 {
			t.Fatalf("%v were never sent", lacks)
		}
	}
}

// A client that asks for 'NONE' takes the first ROTATE without a checksum (mysqlbinlog), and all others as the
// FORMAT_DESCRIPTION event says. One that asks for nothing knows of no checksums.
func TestPublisherChecksums(t *testing.T) {
	s := threeEntries()
	p := newPublisher(t, s, nil)
	c := endsAtOnce(byGTID(gtid.Set{}))
	c.Checksum = "NONE"
	evs, err := take(t, consume(t, p, c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := binary.LittleEndian.Uint32(evs[0][9:]); int(n) != len(evs[0]) ||
		!strings.HasSuffix(string(evs[0]), "trireme-0-0.000000") {
		t.Fatalf("first event of %d bytes: %q", n, evs[0])
	}
	for _, ev := range evs[1:] {
		if err := binlog.VerifyChecksum(ev); err != nil {
			t.Fatal(err)
		}
	}
	server, client := net.Pipe()
	defer client.Close()
	go p.Serve(t.Context(), Consumer{Conn: server, Command: mysqlwire.ComBinlogDumpGTID,
		Argument: dumpArgument(5000, gtid.Set{})})
	refusedWith(t, mysqlwire.NewConn(client, 0), "can not handle replication events with the checksum")
}

func TestPublisherBoundsConsumers(t *testing.T) {
	p := newPublisher(t, threeEntries(), func(cfg *PublisherConfig) { cfg.MaxConsumers = 2 })
	for range 2 {
		if _, err := take(t, consume(t, p, byGTID(gtid.Set{})), func([]byte) bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := take(t, consume(t, p, byGTID(gtid.Set{})), nil); !mysqlwire.IsServerCode(err, mysqlwire.CodeTooManyConns) {
		t.Fatalf("got %v, want 1040", err)
	}
}

// Close ends dumps, also one whose consumer does not read.
func TestPublisherCloses(t *testing.T) {
	s := newScript(1)
	for range 100 {
		s.entry(1, 0, s.e.trx(100<<10)...)
	}
	p := newPublisher(t, s, nil)
	c := consume(t, p, byGTID(gtid.Set{}))
	for deadline := time.Now().Add(20 * time.Second); p.Stats().Transactions == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is sent")
		}
	}
	p.Close()
	if _, err := io.Copy(io.Discard, c.NetConn()); errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

// What breaks an invariant is reported, and the consumer stops for good.
func TestPublisherReportsInvariant(t *testing.T) {
	s := newScript(1)
	evs := s.e.trx()
	evs[4][30] ^= 1
	s.entry(1, 0, evs...)
	reported := make(chan error, 1)
	p := newPublisher(t, s, func(cfg *PublisherConfig) { cfg.Report = func(err error) { reported <- err } })
	refusedWith(t, consume(t, p, byGTID(gtid.Set{})), "invariant")
	if err := <-reported; !errors.Is(err, ErrInvariant) {
		t.Fatal(err)
	}
}

// FuzzParseDump: whatever a client sends is refused or understood.
func FuzzParseDump(f *testing.F) {
	f.Add(byte(mysqlwire.ComBinlogDumpGTID),
		dumpArgument(1, gtid.SetOf(gtid.GTID{SID: gtid.SID{UUID: gtid.UUID{1}}, GNO: 3})))
	f.Add(byte(mysqlwire.ComBinlogDump), byPosition("trireme-1-1.000001", 4).Argument)
	f.Fuzz(func(t *testing.T, command byte, b []byte) {
		w, err := parseDump(command, b)
		if err != nil {
			return
		}
		if id, ok := parseFileID(w.file); ok && id.String() != w.file {
			t.Fatalf("%q is %v", w.file, id)
		}
	})
}
