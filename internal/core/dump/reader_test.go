package dump

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trireme/internal/base/loop"
	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/mysqlwire"
)

// readAck reads the position of one ACK.
func readAck(nc net.Conn) (uint64, error) {
	_ = nc.SetReadDeadline(time.Now().Add(20 * time.Second))
	var packet [mysqlwire.HeaderLen + 1 + 8 + len("binlog.000001")]byte
	if _, err := io.ReadFull(nc, packet[:]); err != nil {
		return 0, err
	}
	var pos uint64
	for i, b := range packet[mysqlwire.HeaderLen+1:][:8] {
		pos |= uint64(b) << (8 * i)
	}
	return pos, nil
}

// on runs f on the loop and waits for it.
func on(l *loop.Loop, f func()) {
	done := make(chan struct{})
	l.Do(func() {
		f()
		close(done)
	})
	<-done
}

// A large event, of one packet and of several, comes in small pieces; ACKs go out meanwhile, and what comes out is what
// went in.
func TestLargeEventInPieces(t *testing.T) {
	for _, size := range []int{300 << 10, 17 << 20, mysqlwire.MaxPayload - prefixLen - binlog.MinEventSize} {
		begun, acked := make(chan struct{}), make(chan uint64, 1)
		var want []byte
		cfg := fakeMysqld(t, func(nc net.Conn, e *events) {
			_, _ = nc.Write(packets(opening(e), true, e.trx()...))
			evs := e.trx(10, size, 20)
			want = bytes.Join(evs, nil)
			b := packets(nil, true, evs...)
			for i, piece := range slices.Collect(slices.Chunk(b, 1+len(b)/300)) {
				if i == 150 {
					close(begun)
					pos, _ := readAck(nc)
					acked <- pos
				}
				_, _ = nc.Write(piece)
			}
			hang(nc)
		})
		cfg.ChunkBytes = 4096
		src := attach(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		payloads, ended := make(chan Payload, 1000), make(chan error, 1)
		go func() {
			ended <- src.Run(ctx, func(p Payload) bool {
				payloads <- p
				return true
			})
		}()
		r := &recorder{t: t, end: freshStart, hold: true}
		var got []byte
		for n := 0; r.count < 2; n++ {
			var p Payload
			select {
			case p = <-payloads:
			case <-time.After(20 * time.Second):
				t.Fatal("no payload")
			}
			if err := r.take(p); err != nil {
				t.Fatal(err)
			}
			if n > 0 {
				got = append(got, p.Data[raftlog.MetaSize(&p.Meta):]...)
				continue
			}
			<-begun
			if err := src.Ack(1, p.Meta.End); err != nil {
				t.Fatal(err)
			}
			if pos := <-acked; pos != p.Meta.End.Off {
				t.Fatalf("an ACK for %d, want %v", pos, p.Meta.End)
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes of events, want %d", len(got), len(want))
		}
		cancel()
		<-ended
	}
}

// Nothing is handed out between a refusal and Resume, which may come from within take; the loop does not turn in vain
// meanwhile, though mysqld says more and hangs up; and nothing is lost.
func TestTakeWithoutRoom(t *testing.T) {
	const trxs = 50
	gone := make(chan struct{})
	cfg := fakeMysqld(t, func(nc net.Conn, e *events) {
		b := opening(e)
		for range trxs / 2 {
			b = packets(b, true, e.trx()...)
		}
		_, _ = nc.Write(b)
		select {
		case <-gone:
			_, _ = nc.Write(packets(nil, true, slices.Concat(e.trx(), e.trx())...)) // in one group
			for range trxs/2 - 2 {
				_, _ = nc.Write(packets(nil, true, e.trx()...))
			}
			hang(nc)
		default:
			nc.Close()
			close(gone)
		}
	})
	cfg.ChunkBytes = trxBytes // a payload for each transaction
	l, err := loop.New(time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var turns atomic.Int64
	l.Hook(func() bool {
		turns.Add(1)
		return false
	})
	l.Start()
	cfg.Loop = l
	src := attach(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	defer func() {
		cancel()
		<-ended
		l.Stop()
		l.Wait()
	}()
	taken := make(chan int64, 2*trxs)
	go func() {
		ended <- src.Run(ctx, func(p Payload) bool {
			taken <- p.Meta.GTIDs[0].Last
			if p.Meta.GTIDs[0].Last%3 == 0 {
				src.Resume()
			}
			return p.Meta.GTIDs[0].Last%5 == 0
		})
	}()
	next := func() int64 {
		select {
		case n := <-taken:
			return n
		case <-time.After(20 * time.Second):
			t.Fatal("no payload")
			return 0
		}
	}
	for want := int64(1); want <= trxs; want++ {
		if n := next(); n != want {
			t.Fatalf("transaction %d, want %d", n, want)
		}
		if want%3 == 0 || want%5 == 0 {
			continue
		}
		if want == 1 {
			<-gone
			before := turns.Load()
			time.Sleep(100 * time.Millisecond) // nothing is to happen
			if n := turns.Load() - before; n > 20 {
				t.Errorf("%d turns without anything to do", n)
			}
		}
		on(l, func() {
			if len(taken) > 0 {
				t.Error("a payload without Resume")
			}
			src.Resume()
		})
	}
}

// trxBytes is the size of events.trx.
const trxBytes = 1746

// The end of the wait for the rest of a commit group: what the socket has by then still comes with it, and what does
// not come is not waited for.
func TestGroupLimit(t *testing.T) {
	say := make(chan []byte)
	var e *events
	src := attached(t, fakeMysqld(t, func(nc net.Conn, es *events) {
		e = es
		_, _ = nc.Write(packets(opening(e), true, e.trx()...))
		for b := range say {
			_, _ = nc.Write(b)
			say <- nil
		}
		hang(nc)
	}))
	defer close(say)
	if _, err := src.next(limit(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	write := func(ack bool) {
		say <- packets(nil, ack, e.trx()...)
		<-say
	}
	on(src.l, func() {
		src.Resume()
		write(false)
		if src.reader.read(); src.reader.group == nil {
			t.Error("the rest of a group is not waited for")
		}
		write(true)
		time.Sleep(2 * groupLimit) // the loop is held up
	})
	src.taken = false
	p, err := src.next(limit(t, 20*time.Second))
	if err != nil || p.Meta.GTIDs[0].First != 2 || p.Meta.GTIDs[0].Last != 3 {
		t.Fatalf("%+v, %v", p.Meta, err)
	}
	began := time.Now()
	write(false)
	if p, err = src.next(limit(t, 20*time.Second)); err != nil || p.Meta.GTIDs[0].Last != 4 {
		t.Fatalf("%+v, %v", p.Meta, err)
	}
	if took := time.Since(began); took < groupLimit {
		t.Errorf("the rest of the group was waited for %v", took)
	}
	on(src.l, func() {
		if src.reader.group != nil {
			t.Error("a group is waited for, and nothing has come")
		}
	})
}

// While nothing comes, ctx's end ends Run, and the connection stays open for ACKs and the next Run; Close ends it, with
// and without Run.
func TestRunEnds(t *testing.T) {
	acked, closed := make(chan uint64, 10), make(chan struct{}, 10)
	cfg := fakeMysqld(t, func(nc net.Conn, e *events) {
		_, _ = nc.Write(packets(opening(e), true, e.trx()...))
		for {
			pos, err := readAck(nc)
			if err != nil {
				closed <- struct{}{}
				return
			}
			acked <- pos
			_, _ = nc.Write(packets(nil, true, e.trx()...))
		}
	})
	cause := errors.New("for a reason")
	for _, running := range []bool{true, false} {
		src := attach(t, cfg)
		run := func() (end raftlog.Pos) {
			ctx, cancel := context.WithCancelCause(t.Context())
			err := src.Run(ctx, func(p Payload) bool {
				end = p.Meta.End
				time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
				return true
			})
			if !errors.Is(err, cause) {
				t.Fatalf("got %v, want %v", err, cause)
			}
			return end
		}
		for range 3 {
			end := run()
			if err := src.Ack(1, end); err != nil {
				t.Fatal(err)
			}
			if pos := <-acked; pos != end.Off {
				t.Fatalf("an ACK for %d, want %v", pos, end)
			}
		}
		ended := make(chan error, 1)
		if running {
			going := make(chan struct{}, 1)
			go func() {
				ended <- src.Run(t.Context(), func(Payload) bool {
					going <- struct{}{}
					return false
				})
			}()
			<-going
		} else {
			ended <- ErrClosed
		}
		_ = src.Close()
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Fatalf("got %v, want ErrClosed", err)
		}
		<-closed
		if err := src.Run(t.Context(), nil); !errors.Is(err, ErrClosed) {
			t.Fatalf("got %v, want ErrClosed", err)
		}
		if n, _ := resumes(src); n != 0 || len(acked) > 0 {
			t.Fatalf("%d reconnects, %d ACKs too many", n, len(acked))
		}
	}
}

// Close ends a wait for the FORMAT_DESCRIPTION event, and ctx does.
func TestAttachEnds(t *testing.T) {
	begun := make(chan struct{}, 10)
	cfg := fakeMysqld(t, func(nc net.Conn, _ *events) {
		begun <- struct{}{}
		hang(nc)
	})
	for _, by := range []error{ErrClosed, context.Canceled} {
		src := newSource(t, cfg)
		defer src.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := src.Attach(ctx, freshStart)
			ended <- err
		}()
		<-begun
		if by == ErrClosed {
			_ = src.Close()
		} else {
			cancel()
		}
		select {
		case err := <-ended:
			if !errors.Is(err, by) {
				t.Errorf("got %v, want %v", err, by)
			}
		case <-time.After(20 * time.Second):
			t.Error("Attach does not end")
		}
		cancel()
	}
}

// A transaction before the FORMAT_DESCRIPTION event is an error of Attach, and of no loop that others need.
func TestTransactionBeforeTheFormat(t *testing.T) {
	cfg := fakeMysqld(t, func(nc net.Conn, e *events) {
		b := packets(nil, false, binlog.AppendArtificialRotate(nil, 1, "binlog.000001", e.pos.Off))
		_, _ = nc.Write(packets(b, true, e.trx()...))
		hang(nc)
	})
	src := newSource(t, cfg)
	defer src.Close()
	if _, err := src.Attach(limit(t, 20*time.Second), raftlog.Pos{File: 1, Off: 1500}); !errors.Is(err, ErrInvariant) {
		t.Errorf("got %v, want ErrInvariant", err)
	}
}

// A silent stream is lost, one with heartbeats is not; while take has no room nobody listens. A stream that has gone on
// for long counts as resumed, whether or not it had a payload: the next loss has all of ReconnectLimit again.
func TestSilence(t *testing.T) {
	dumps := make(chan raftlog.Pos, 10)
	cfg := fakeMysqld(t, func(nc net.Conn, e *events) {
		number := len(dumps)
		dumps <- e.pos
		b := opening(e)
		if number == 0 {
			b = packets(b, true, e.trx()...)
		}
		_, _ = nc.Write(b)
		for began := time.Now(); number == 1 && time.Since(began) < time.Second; time.Sleep(20 * time.Millisecond) {
			_, _ = nc.Write(packets(nil, false, binlog.AppendHeartbeat(nil, 1, "binlog.000001", uint32(e.pos.Off))))
		}
		hang(nc)
	})
	cfg.SilenceLimit, cfg.ReconnectLimit = 200*time.Millisecond, 500*time.Millisecond
	var log counting
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	reconnects := func() int { return log.count("resumed the binary log") }
	src := attached(t, cfg)
	p, err := src.next(limit(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Ack(1, p.Meta.End); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * cfg.SilenceLimit) // nothing is to happen
	if n := reconnects(); n != 0 {
		t.Fatalf("%d reconnects while nothing was read", n)
	}
	began := time.Now()
	src.l.Do(src.Resume)
	eventually(t, 20*time.Second, "a reconnect", func() bool { return reconnects() >= 1 })
	eventually(t, 20*time.Second, "another reconnect", func() bool { return reconnects() >= 2 })
	if took := time.Since(began); took < time.Second {
		t.Errorf("a stream with heartbeats was lost after %v", took)
	}
	if n := log.count(errLost.Error() + ": i/o timeout"); n < 2 {
		t.Errorf("%d lines of silence", n)
	}
	select {
	case err := <-src.ended:
		t.Errorf("the second loss has less time: %v", err)
		src.ended <- err
	default:
	}
}

// What does not hold together inside a large event ends the stream.
func TestBrokenLargeEvents(t *testing.T) {
	e := &events{uuid: fakeUUID, pos: freshStart}
	open := opening(e)
	evs := e.trx(10, 17<<20)
	sound := packets(nil, true, evs...)
	second := bytes.Index(sound, []byte{0xff, 0xff, 0xff}) + mysqlwire.HeaderLen + mysqlwire.MaxPayload
	for name, test := range map[string]struct {
		change func(b []byte)
		want   error
	}{
		"another sequence":   {func(b []byte) { b[second+3]++ }, mysqlwire.ErrSequence},
		"a packet too long":  {func(b []byte) { b[second]++ }, mysqlwire.ErrMalformed},
		"a packet too short": {func(b []byte) { b[second]-- }, mysqlwire.ErrMalformed},
		"none":               {func([]byte) {}, errLost},
	} {
		b := bytes.Clone(sound)
		test.change(b)
		got, err := scanAll(slices.Concat(open, b), 4096, 8192, func() int { return 64 << 10 })
		if !errors.Is(err, test.want) || strings.HasPrefix(name, "a packet") && !strings.Contains(err.Error(), "disagree") {
			t.Errorf("%s: %v after %d payloads", name, err, len(got))
		}
	}
}
