package dump

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqlwire"
	"trireme/lab/heap"
)

// bring has s read of b what it has space for.
func (s *Source) bring(b []byte) int {
	s.st.compact()
	n := copy(s.st.space(), b)
	s.st.came(n)
	return n
}

// scanAll runs a Source over a stream from {1, 4} that comes in pieces of the given sizes and is then lost, and returns
// what it handed out and why it ended.
func scanAll(stream []byte, chunkBytes, bufBytes int, size func() int) ([]Payload, error) {
	s := NewSource(SourceConfig{Node: 1, Incarnation: 1, ServerUUID: fakeUUID, ChunkBytes: chunkBytes})
	s.st = newStream(bufBytes)
	s.begin(freshStart)
	s.rewind(freshStart)
	var all []Payload
	for {
		p, ok, err := s.scan()
		switch {
		case err != nil:
			return all, err
		case ok:
			all = append(all, p)
		case len(stream) == 0:
			return all, errLost
		default:
			n := s.bring(stream[:min(size(), len(stream))])
			if n == 0 {
				return all, errors.New("there is no space and no payload")
			}
			stream = stream[n:]
		}
	}
}

// However the bytes arrive and wherever the chunks end, the same events come out, in payloads that chain.
func TestStreamSegmentation(t *testing.T) {
	e := &events{uuid: fakeUUID, pos: freshStart}
	stream := opening(e)
	var want []byte
	var trxs int64
	for i := range 200 {
		rows := []int{rand.IntN(400)}
		if i%10 == 0 {
			rows = []int{3000, 9000, 20000, 10, 60000} // larger than a chunk, and than the buffer
		}
		evs := e.trx(rows...)
		trxs++
		want = append(want, bytes.Join(evs, nil)...)
		stream = packets(stream, rand.IntN(3) > 0, evs...)
		if i%7 == 0 {
			stream = packets(stream, false, binlog.AppendHeartbeat(nil, 1, "binlog.000001", uint32(e.pos.Off)))
		}
		if i%50 == 49 { // the next file
			stream = packets(stream, false,
				e.add(binlog.AppendRotate(nil, binlog.Header{ServerID: 1, LogPos: 1}, "binlog.next", 4)))
			e.pos = raftlog.Pos{File: e.pos.File + 1, Off: firstOffset}
			stream = append(stream, opening(e)...)
		}
	}
	for _, test := range []struct{ chunk, buf, read int }{
		{1 << 20, 1<<20 + 4096, 1 << 20}, {8192, 16384, 1}, {8192, 16384, 5000}, {100, 8192, 700}, {1, 8192, 300},
		{30000, 30500, 1000},
	} {
		got, err := scanAll(stream, test.chunk, test.buf, func() int { return 1 + rand.IntN(test.read) })
		if !errors.Is(err, errLost) {
			t.Fatalf("%+v: %v", test, err)
		}
		var events []byte
		r := &recorder{t: t, end: freshStart, hold: true}
		for _, p := range got {
			if err := r.take(p); err != nil {
				t.Fatalf("%+v: %v", test, err)
			}
			events = append(events, p.Data[raftlog.MetaSize(&p.Meta):]...)
		}
		if int64(r.count) > trxs || !bytes.HasPrefix(want, events) || len(want)-len(events) > len(want)/50 {
			// What ends without a mark at the very end of the stream may be lost with the connection, nothing else.
			t.Fatalf("%+v: %d of %d transactions, %d of %d bytes", test, r.count, trxs, len(events), len(want))
		}
	}
}

func FuzzSourceStream(f *testing.F) {
	e := &events{uuid: fakeUUID, pos: freshStart}
	b := packets(opening(e), true, e.trx()...)
	f.Add(packets(b, true, e.trx(10, 5000)...), uint16(9))
	f.Add(framed(mysqlwire.AppendERR(nil, &mysqlwire.ServerError{Code: 1236})), uint16(100))
	f.Fuzz(func(t *testing.T, stream []byte, read uint16) {
		got, err := scanAll(stream, 4096, 8192, func() int { return int(read)%8192 + 1 })
		if err == nil {
			t.Fatal("the stream does not end")
		}
		r := &recorder{t: t, end: freshStart, hold: true}
		for _, p := range got {
			if err := r.take(p); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzDumpRequest(f *testing.F) {
	f.Add(dumpArgument(7, gtid.Set{}))
	f.Add(dumpArgument(7, gtid.SetOf(gtid.GTID{SID: gtid.SID{UUID: fakeUUID}, GNO: 5},
		gtid.GTID{SID: gtid.SID{UUID: fakeUUID, Tag: "t"}, GNO: 5})))
	f.Fuzz(func(t *testing.T, b []byte) {
		request, err := parseDumpRequest(b)
		if err != nil {
			if !errors.Is(err, mysqlwire.ErrMalformed) && !errors.Is(err, gtid.ErrEncoding) {
				t.Fatalf("unclassified: %v", err)
			}
			return
		}
		again, err := parseDumpRequest(dumpArgument(request.serverID, request.set))
		if err != nil || !again.set.Equal(request.set) || again.serverID != request.serverID {
			t.Fatalf("%+v became %+v: %v", request, again, err)
		}
	})
}

// sink is a connection that keeps what is written.
type sink struct {
	net.Conn
	bytes.Buffer
}

func (s *sink) Write(b []byte) (int, error)      { return s.Buffer.Write(b) }
func (s *sink) Read([]byte) (int, error)         { return 0, io.EOF }
func (s *sink) Close() error                     { return nil }
func (s *sink) SetWriteDeadline(time.Time) error { return nil }

// walkAll feeds the committed part of log to a receiver that has set, and returns the events and why it ended.
func walkAll(t testing.TB, log *memLog, set gtid.Set) ([][]byte, error) {
	return walkWith(t, &dumpServer{log: log, serverID: 9, stats: &counters{}}, set)
}

func walkWith(t testing.TB, o *dumpServer, set gtid.Set) ([][]byte, error) {
	out, log := &sink{}, o.log.(*memLog)
	w := newPacketWriter(t.Context(), out, 1)
	k := &walker{o: o, w: w, sending: &sending{has: set}, next: log.first}
	var err error
	for k.next <= log.committed && err == nil {
		entries, _ := log.Read(w.ctx, k.next, log.committed, readBytes)
		for i := range entries {
			if err = k.entry(w.ctx, &entries[i]); err != nil {
				break
			}
		}
	}
	if e := w.flush(); e != nil {
		t.Fatal(e)
	}
	return unframe(t, out.Bytes()), err
}

// unframe takes a feed's packets apart and checks their sequence.
func unframe(t testing.TB, b []byte) [][]byte {
	t.Helper()
	var evs [][]byte
	var payload []byte
	for seq := byte(1); len(b) > 0; seq++ {
		n, got := mysqlwire.ParseHeader(b)
		if got != seq {
			t.Fatalf("packet %d, want %d", got, seq)
		}
		payload = append(payload, b[4:4+n]...)
		b = b[4+n:]
		if n < mysqlwire.MaxPayload {
			if payload[0] != 0 {
				t.Fatalf("payload begins with %x", payload[0])
			}
			evs = append(evs, payload[1:])
			payload = nil
		}
	}
	return evs
}

func FuzzWalker(f *testing.F) {
	log := benchLog(16)
	f.Add(log.entries[0].Data, log.entries[1].Data, log.entries[2].Data)
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		log := newMemLog()
		for _, data := range [][]byte{a, b, c} {
			log.append(1, data, true)
		}
		evs, err := walkAll(t, log, gtid.Set{})
		if err != nil && !errors.Is(err, ErrInvariant) {
			t.Fatal(err)
		}
		var asm binlog.Assembler
		for _, ev := range evs { // whatever the log holds, a receiver gets sound whole transactions
			h, err := binlog.ParseHeader(ev)
			if err != nil || binlog.VerifyChecksum(ev) != nil {
				t.Fatal(err)
			}
			if _, err := asm.Feed(h, ev); err != nil {
				t.Fatal(err)
			}
		}
		if asm.InTransaction() {
			t.Fatal("a receiver got part of a transaction")
		}
	})
}

// conversation is a receiver that says b once it is logged in, and then waits.
type conversation struct {
	sink
	b []byte
}

func (c *conversation) Read(p []byte) (int, error) {
	if len(c.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.b)
	c.b = c.b[n:]
	return n, nil
}
func (*conversation) SetDeadline(time.Time) error     { return nil }
func (*conversation) SetReadDeadline(time.Time) error { return nil }
func (*conversation) RemoteAddr() net.Addr            { return &net.TCPAddr{} }

// FuzzReceiver is a client of the feed that logged in and sends any commands: each is answered, or the conversation
// ends with a known error. No dump begins, so nothing of the log is sent.
func FuzzReceiver(f *testing.F) {
	command := func(b []byte, c byte, argument string) []byte {
		return append(b, framed(append([]byte{c}, argument...))...)
	}
	f.Add(command(command(nil, mysqlwire.ComQuery, "SELECT @@GLOBAL.GTID_MODE"), mysqlwire.ComQuit, ""))
	f.Add(command(nil, mysqlwire.ComQuery, "SET @source_heartbeat_period = 99999999999999999999"))
	f.Add(command(nil, mysqlwire.ComQuery, "SET HEARTBEAT_PERIOD"))
	f.Add(command(nil, mysqlwire.ComBinlogDump, "\x04\x00\x00\x00\x00\x00"))
	f.Add(command(nil, 0xFF, ""))
	f.Add(command(nil, mysqlwire.ComBinlogDumpGTID, "short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		heap.Within(t, 8<<20+64*len(b), func() {
			login := mysqlwire.AppendResponse(nil, mysqlwire.Response{Capabilities: 1<<9 | 1<<15 | 1<<19, User: "feed",
				Plugin: mysqlwire.PluginCachingSHA2})
			hello := framed(login)
			hello[3] = 1
			nc := &conversation{b: append(hello, b...)}
			s, err := mysqlwire.Accept(t.Context(), nc, mysqlwire.ServerConfig{User: "feed", Version: DefaultServerVersion})
			if err != nil {
				t.Fatal(err)
			}
			feed := &Feed{cfg: FeedConfig{ServerID: 9, ServerUUID: fakeUUID, Logger: slog.New(slog.DiscardHandler)},
				paused: true}
			feed.server = dumpServer{log: newMemLog(), serverID: 9, stats: &feed.stats, tasks: &feed.tasks}
			feed.ctx, feed.cancel = context.WithCancel(context.Background())
			feed.cancel() // a dump that begins is over at once
			r := &receiver{f: feed, s: s, heartbeat: defaultHeartbeat}
			err = r.run()
			if r.heartbeat < minHeartbeat {
				t.Fatalf("a heartbeat every %v", r.heartbeat)
			}
			var se *mysqlwire.ServerError
			for _, known := range []error{nil, io.EOF, io.ErrUnexpectedEOF, mysqlwire.ErrMalformed, mysqlwire.ErrSequence,
				mysqlwire.ErrTooLarge, gtid.ErrEncoding,
				context.Canceled, errReplaced} {
				if errors.Is(err, known) {
					return
				}
			}
			if !errors.As(err, &se) && !strings.Contains(err.Error(), "same server id") {
				t.Fatalf("unclassified: %v", err)
			}
		})
	})
}
