package dump

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trireme/internal/base/loop"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqlwire"
)

var fakeUUID = gtid.IncarnationUUID(testCluster, 1, 1)

// events makes the binary log of a fake mysqld, file by file.
type events struct {
	uuid gtid.UUID
	pos  raftlog.Pos
	gno  int64
}

// add gives ev its place in the file.
func (e *events) add(ev []byte) []byte {
	e.pos.Off += uint64(len(ev))
	binlog.SetLogPos(ev, uint32(e.pos.Off))
	return ev
}

func (e *events) fde() []byte {
	return e.add(binlog.AppendFormatDescription(nil, binlog.Header{Timestamp: 1, ServerID: 1, LogPos: 1}, "9.7.4", 77))
}

// trx makes a transaction as sysbench's oltp_write_only writes it: 11 events, 1746 bytes, or rows of other sizes.
func (e *events) trx(rows ...int) [][]byte {
	if len(rows) == 0 {
		rows = []int{400, 30, 400, 30, 200, 200}
	}
	e.gno++
	h := binlog.Header{Timestamp: 1, ServerID: 1, LogPos: 1}
	row := func(t binlog.EventType, size int) []byte {
		h := h
		h.Type = t
		return binlog.AppendEvent(nil, h, bytes.Repeat([]byte{'r'}, size))
	}
	evs := [][]byte{nil, binlog.AppendQuery(nil, h, 8, "", "BEGIN")}
	for i, size := range rows {
		if i%2 == 0 {
			evs = append(evs, row(binlog.TypeTableMap, 40))
		}
		evs = append(evs, row(binlog.TypeUpdateRows, size))
	}
	evs = append(evs, row(binlog.TypeXID, 8))
	length := uint64(gtidEventSize)
	for _, ev := range evs[1:] {
		length += uint64(len(ev))
	}
	evs[0] = gtidEvent(e.uuid, e.gno, length)
	for _, ev := range evs {
		e.add(ev)
	}
	return evs
}

const gtidEventSize = binlog.MinEventSize + 1 + 16 + 8 + 1 + 16 + 7 + 9 + 4

// gtidEvent makes a GTID event of constant size: the transaction's length is packed into 9 bytes.
func gtidEvent(uuid gtid.UUID, gno int64, length uint64) []byte {
	body := append([]byte{0}, uuid[:]...)
	body = binary.LittleEndian.AppendUint64(body, uint64(gno))
	body = append(body, 2)
	body = binary.LittleEndian.AppendUint64(body, uint64(gno-1))
	body = binary.LittleEndian.AppendUint64(body, uint64(gno))
	body = append(body, 1, 2, 3, 4, 5, 6, 0)
	body = append(body, 0xFE)
	body = binary.LittleEndian.AppendUint64(body, length)
	body = binary.LittleEndian.AppendUint32(body, 90704)
	return binlog.AppendEvent(nil, binlog.Header{Timestamp: 1, Type: binlog.TypeGTID, ServerID: 1, LogPos: 1}, body)
}

// packets frames events as mysqld's dump does; only the last one asks for an ACK.
func packets(dst []byte, ack bool, evs ...[]byte) []byte {
	for i, ev := range evs {
		flag := byte(0)
		if ack && i == len(evs)-1 {
			flag = 1
		}
		payload := append([]byte{0, semiSyncMagic, flag}, ev...)
		for seq := byte(i); ; seq++ {
			n := min(len(payload), mysqlwire.MaxPayload)
			var head [mysqlwire.HeaderLen]byte
			mysqlwire.PutHeader(head[:], n, seq)
			dst = append(append(dst, head[:]...), payload[:n]...)
			if payload = payload[n:]; n < mysqlwire.MaxPayload {
				break
			}
		}
	}
	return dst
}

// opening is what a dump from pos begins with.
func opening(e *events) []byte {
	name := string(appendFileName(nil, "binlog", e.pos.File))
	dst := packets(nil, false, binlog.AppendArtificialRotate(nil, 1, name, e.pos.Off))
	if e.pos.Off == firstOffset {
		return packets(dst, false, e.fde())
	}
	fde := (&events{}).fde()
	binlog.SetLogPos(fde, 0)
	return packets(dst, false, fde)
}

// fakeMysqld accepts logins on a unix socket and hands each dump to serve.
func fakeMysqld(t testing.TB, serve func(nc net.Conn, e *events)) SourceConfig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	lis, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lis.Close() })
	go func() {
		for {
			nc, err := lis.Accept()
			if err != nil {
				return
			}
			go fakeSession(nc, serve)
		}
	}()
	return SourceConfig{
		Dial: func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", path) },
		User: "repl", Password: "secret", Node: 1, Incarnation: 1, ServerUUID: fakeUUID, ReplicaServerID: 99,
	}
}

func fakeSession(nc net.Conn, serve func(nc net.Conn, e *events)) {
	s, err := mysqlwire.Accept(context.Background(), nc, mysqlwire.ServerConfig{User: "repl", Password: "secret",
		Version: "9.7.4"})
	if err != nil {
		return
	}
	defer s.Close()
	for {
		command, argument, err := s.ReadCommand()
		if err != nil || command == mysqlwire.ComQuit {
			return
		}
		if command != mysqlwire.ComBinlogDump {
			if s.WriteOK() != nil {
				return
			}
			continue
		}
		file, _ := fileNumber(string(argument[10:]))
		raw, _, err := s.Detach()
		if err != nil {
			return
		}
		serve(raw, &events{uuid: fakeUUID, pos: raftlog.Pos{File: file, Off: uint64(binary.LittleEndian.Uint32(argument))}})
		return
	}
}

// heard is a log that notes from where and up to where streams were resumed.
type heard struct {
	mu      sync.Mutex
	resumed []resumed
}

type resumed struct{ from, handed raftlog.Pos }

func (h *heard) Enabled(context.Context, slog.Level) bool { return true }
func (h *heard) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *heard) WithGroup(string) slog.Handler            { return h }
func (h *heard) Handle(_ context.Context, line slog.Record) error {
	if line.Message != "resumed the binary log" {
		return nil
	}
	var at []raftlog.Pos
	line.Attrs(func(a slog.Attr) bool {
		var p raftlog.Pos
		_, err := fmt.Sscanf(a.Value.String(), "binlog.%d:%d", &p.File, &p.Off)
		at = append(at, p)
		return err == nil
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resumed = append(h.resumed, resumed{at[0], at[1]})
	return nil
}

// resumes tells how often src has resumed the stream, and how many bytes of its newest file it read again.
func resumes(src *Source) (times int, again uint64) {
	h := src.cfg.Logger.Handler().(*heard)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.resumed {
		if r.from.File == r.handed.File {
			again += r.handed.Off - r.from.Off
		}
	}
	return len(h.resumed), again
}

// resumedMore waits until src has resumed the stream more often than that.
func resumedMore(t testing.TB, src *Source, before int) {
	t.Helper()
	eventually(t, 20*time.Second, "a reconnect", func() bool {
		n, _ := resumes(src)
		return n > before
	})
}

// newSource makes a Source that is read on a loop of its own, unless cfg has one.
func newSource(t testing.TB, cfg SourceConfig) *Source {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(&heard{})
	}
	if cfg.Loop == nil {
		cfg.Loop = newLoop(t)
	}
	return NewSource(cfg)
}

// attach makes a Source that has its FORMAT_DESCRIPTION event.
func attach(t testing.TB, cfg SourceConfig) *Source {
	t.Helper()
	src := newSource(t, cfg)
	t.Cleanup(func() { src.Close() })
	if err := src.Prepare(limit(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := src.Attach(limit(t, 10*time.Second), freshStart); err != nil {
		t.Fatal(err)
	}
	return src
}

// newLoop makes a loop that lasts as long as the test.
func newLoop(t testing.TB) *loop.Loop {
	t.Helper()
	l, err := loop.New(time.Second)
	if err != nil {
		t.Fatal(err)
	}
	l.Start()
	t.Cleanup(func() {
		l.Stop()
		l.Wait()
	})
	return l
}

// pulled is a Source whose payloads are taken one at a time: after each one it waits for Resume.
type pulled struct {
	*Source
	l        *loop.Loop
	payloads chan Payload
	ended    chan error
	stop     func()
	taken    bool
}

func pull(t testing.TB, src *Source) *pulled {
	ctx, cancel := context.WithCancel(context.Background())
	p := &pulled{Source: src, l: src.cfg.Loop, payloads: make(chan Payload, 1), ended: make(chan error, 1)}
	go func() {
		p.ended <- src.Run(ctx, func(got Payload) bool {
			p.payloads <- got
			return false
		})
	}()
	p.stop = func() {
		cancel()
		select {
		case err := <-p.ended:
			p.ended <- err
		case <-time.After(20 * time.Second):
			t.Error("Run outlives its context")
		}
	}
	t.Cleanup(p.stop)
	return p
}

func attached(t testing.TB, cfg SourceConfig) *pulled { return pull(t, attach(t, cfg)) }

// next is the next payload, or why there will be none.
func (p *pulled) next(ctx context.Context) (Payload, error) {
	if p.taken {
		p.l.Do(p.Resume)
	}
	select {
	case got := <-p.payloads:
		p.taken = true
		return got, nil
	case err := <-p.ended:
		p.ended <- err
		return Payload{}, err
	case <-ctx.Done():
		return Payload{}, ctx.Err()
	}
}

// hang keeps a fake dump open until the other side closes it, discarding ACKs.
func hang(nc net.Conn) { _, _ = io.Copy(io.Discard, nc) }

func TestSourceRefusesBrokenStreams(t *testing.T) {
	heartbeat := binlog.AppendHeartbeat(nil, 1, "binlog.000001", 4)
	tests := []struct {
		name   string
		stream func(e *events) []byte
		want   string
	}{
		{"hole in GTIDs", func(e *events) []byte {
			b := packets(nil, true, e.trx()...)
			e.gno++
			return packets(b, true, e.trx()...)
		}, "hole or a double"},
		{"doubled transaction", func(e *events) []byte {
			b := packets(nil, true, e.trx()...)
			e.gno--
			return packets(b, true, e.trx()...)
		}, "hole or a double"},
		{"gap in positions", func(e *events) []byte {
			e.pos.Off += 10
			return packets(nil, true, e.trx()...)
		}, "gap or a double"},
		{"foreign incarnation", func(e *events) []byte {
			e.uuid[15]++
			return packets(nil, true, e.trx()...)
		}, "not of this incarnation"},
		{"bad checksum", func(e *events) []byte {
			evs := e.trx()
			evs[3][30] ^= 1
			return packets(nil, true, evs...)
		}, "checksum"},
		{"no semi-sync", func(e *events) []byte {
			ev := e.trx()[0]
			var head [mysqlwire.HeaderLen]byte
			mysqlwire.PutHeader(head[:], len(ev)+1, 0)
			return append(append(head[:], 0), ev...)
		}, "semi-sync"},
		{"transaction without its end", func(e *events) []byte {
			evs := e.trx()
			return packets(packets(nil, false, evs[:5]...), true,
				(&events{uuid: fakeUUID, pos: raftlog.Pos{File: 1, Off: e.pos.Off -
					uint64(len(bytes.Join(evs[5:], nil)))}, gno: e.gno}).trx()...)
		}, "out of order"},
		{"jump to another file", func(e *events) []byte {
			return packets(nil, false, binlog.AppendArtificialRotate(nil, 1, "binlog.000003", 4))
		}, "jumps"},
		{"foreign file", func(e *events) []byte {
			return packets(nil, false, binlog.AppendArtificialRotate(nil, 1, "other.000002", 4))
		}, "named"},
		{"fatal error of the server", func(*events) []byte {
			return framed(mysqlwire.AppendERR(nil, &mysqlwire.ServerError{Code: mysqlwire.CodeSourceFatalDump,
				Message: "no such position"}))
		}, "no such position"},
		{"neither event nor error", func(*events) []byte { return framed([]byte{7, 7, 7}) }, "malformed"},
		{"event and packet disagree", func(*events) []byte {
			return framed(append([]byte{0, semiSyncMagic, 0}, append(bytes.Clone(heartbeat), 0)...))
		}, "disagree"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			src := attached(t, fakeMysqld(t, func(nc net.Conn, e *events) {
				b := append(opening(e), packets(nil, true, e.trx()...)...)
				_, _ = nc.Write(append(b, test.stream(e)...))
				hang(nc)
			}))
			var err error
			for err == nil {
				_, err = src.next(limit(t, 10*time.Second))
			}
			if !errors.Is(err, ErrInvariant) || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want ErrInvariant with %q", err, test.want)
			}
		})
	}
}

func framed(payload []byte) []byte {
	var head [mysqlwire.HeaderLen]byte
	mysqlwire.PutHeader(head[:], len(payload), 0)
	return append(head[:], payload...)
}

func TestSourceReconnectsAfterAnError(t *testing.T) {
	dumps, taken := make(chan raftlog.Pos, 10), make(chan struct{})
	src := attached(t, fakeMysqld(t, func(nc net.Conn, e *events) {
		dumps <- e.pos
		b := opening(e)
		if len(dumps) == 1 {
			_, _ = nc.Write(packets(b, true, e.trx()...))
			<-taken
			b = append([]byte(nil),
				framed(mysqlwire.AppendERR(nil, &mysqlwire.ServerError{Code: mysqlwire.CodeServerShutdown}))...)
		} else {
			e.gno = 1
			if e.pos.Off < 1000 { // not yet acknowledged: it comes again
				e.gno = 0
				b = packets(b, true, e.trx()...)
			}
			b = packets(b, true, e.trx()...)
		}
		_, _ = nc.Write(b)
		hang(nc)
	}))
	for gno := int64(1); gno <= 2; gno++ {
		p, err := src.next(limit(t, 10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Meta.GTIDs) != 1 || p.Meta.GTIDs[0].First != gno || p.Meta.GTIDs[0].Last != gno {
			t.Fatalf("payload %d holds %v", gno, p.Meta.GTIDs)
		}
		if gno == 1 {
			close(taken)
		}
	}
	<-dumps
	if again := <-dumps; again != freshStart {
		t.Fatalf("resumed from %v, which mysqld takes as acknowledged; want %v", again, freshStart)
	}
}

// The events of a commit group come in several writes; only the last is marked.
func TestSourceWaitsForCommitGroup(t *testing.T) {
	src := attached(t, fakeMysqld(t, func(nc net.Conn, e *events) {
		_, _ = nc.Write(opening(e))
		for range 2 {
			for i := range 5 {
				_, _ = nc.Write(packets(nil, i == 4, e.trx()...))
			}
		}
		_, _ = nc.Write(packets(nil, false, e.trx()...)) // never followed by a marked one
		hang(nc)
	}))
	var sizes []int64
	for total := int64(0); total < 11; {
		p, err := src.next(limit(t, 10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		n := p.Meta.GTIDs[0].Last - p.Meta.GTIDs[0].First + 1
		total += n
		sizes = append(sizes, n)
	}
	if len(sizes) > 3 { // groups may come together, and never apart
		t.Fatalf("payloads of %v transactions", sizes)
	}
}

// A closed Source is not referenced any more, however long the context lasts in which it was read: a node makes a
// Source each time it leads.
func TestClosedSourceIsForgotten(t *testing.T) {
	cfg := fakeMysqld(t, func(nc net.Conn, e *events) {
		_, _ = nc.Write(packets(opening(e), true, e.trx()...))
		hang(nc)
	})
	ctx, cancel := context.WithCancel(t.Context()) // a context that ends after the test
	defer cancel()
	cfg.Loop = newLoop(t)
	var gone atomic.Bool
	func() {
		src := NewSource(cfg)
		if _, err := src.Attach(limit(t, 10*time.Second), freshStart); err != nil {
			t.Fatal(err)
		}
		got := make(chan struct{}, 1)
		ended := make(chan error, 1)
		go func() {
			ended <- src.Run(ctx, func(Payload) bool {
				got <- struct{}{}
				return true
			})
		}()
		<-got
		runtime.AddCleanup(src, func(struct{}) { gone.Store(true) }, struct{}{})
		if err := src.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
	}()
	for deadline := time.Now().Add(20 * time.Second); !gone.Load(); time.Sleep(10 * time.Millisecond) {
		if runtime.GC(); time.Now().After(deadline) {
			t.Fatal("it is still held")
		}
	}
}

// A server that does not read ACKs must not block Ack, and gets the newest one in the end.
func TestAckNeverBlocks(t *testing.T) {
	const count = 30000
	read := make(chan struct{})
	newest := make(chan uint64, 1)
	var end raftlog.Pos
	src := attached(t, fakeMysqld(t, func(nc net.Conn, e *events) {
		_, _ = nc.Write(opening(e))
		_ = nc.(*net.UnixConn).SetReadBuffer(4096)
		var b []byte
		for range count {
			b = packets(b[:0], true, e.trx(10)...)
			_, _ = nc.Write(b)
		}
		<-read
		var pos uint64
		for pos != e.pos.Off {
			var packet [mysqlwire.HeaderLen + 1 + 8 + len("binlog.000001")]byte
			if _, err := io.ReadFull(nc, packet[:]); err != nil || packet[4] != semiSyncMagic ||
				string(packet[13:]) != "binlog.000001" {
				newest <- 0
				return
			}
			next := binary.LittleEndian.Uint64(packet[5:])
			if next <= pos {
				newest <- 0
				return
			}
			pos = next
		}
		newest <- pos
	}))
	for done := int64(0); done < count; {
		p, err := src.next(limit(t, 20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		done = p.Meta.GTIDs[0].Last
		end = p.Meta.End
		// One ACK per payload is far less than the socket holds: every event end of the payload makes it overflow.
		for off := p.Meta.Start.Off + 1; off <= end.Off; off += 97 {
			if err := src.Ack(1, raftlog.Pos{File: 1, Off: off}); err != nil {
				t.Fatal(err)
			}
		}
		if err := src.Ack(1, end); err != nil {
			t.Fatal(err)
		}
	}
	close(read)
	select {
	case got := <-newest:
		if got != end.Off {
			t.Fatalf("newest ACK %d, want %d", got, end.Off)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the newest ACK never came")
	}
}
