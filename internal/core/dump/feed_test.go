package dump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqlwire"
)

// loggedIn is a receiver that has said nothing yet.
func loggedIn(t *testing.T, f *Feed) *mysqlwire.Client {
	t.Helper()
	nc, err := net.Dial("tcp", f.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	c, err := mysqlwire.Login(limit(t, 10*time.Second), nc, mysqlwire.ClientConfig{User: "feed", Password: feedPassword})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// connected tells whether a receiver is being served.
func connected(f *Feed) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current != nil
}

// nextEvent reads one packet of a dump.
func nextEvent(t *testing.T, c *mysqlwire.Client) ([]byte, error) {
	t.Helper()
	if err := c.NetConn().SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	p, err := c.ReadPacket()
	if err != nil {
		return nil, err
	}
	if mysqlwire.IsERR(p) {
		e, err := mysqlwire.ParseERR(p)
		if err != nil {
			return nil, err
		}
		return nil, e
	}
	return append([]byte(nil), p[1:]...), nil
}

func TestFeedAnswersReceiver(t *testing.T) {
	defer goleak.VerifyNone(t)
	f := newFeed(t, newScript(1).log, nil)
	defer f.Close()
	c := loggedIn(t, f)
	ctx := limit(t, 10*time.Second)
	for question, want := range map[string]string{
		"SELECT @@GLOBAL.SERVER_ID":                    "1048577",
		"SELECT @@GLOBAL.SERVER_UUID":                  gtid.IncarnationUUID(testCluster, 9, 0).String(),
		"SELECT @@GLOBAL.GTID_MODE":                    "ON",
		"SELECT @source_binlog_checksum":               "CRC32",
		"SELECT @master_binlog_checksum":               "CRC32",
		"select @@global.rpl_semi_sync_source_enabled": "0",
	} {
		row, err := c.QueryRow(ctx, question)
		if err != nil || row[0].Text != want {
			t.Fatalf("%s: %v %v, want %s", question, row, err, want)
		}
	}
	if row, err := c.QueryRow(ctx, "SELECT UNIX_TIMESTAMP()"); err != nil || len(row[0].Text) < 10 {
		t.Fatal(row, err)
	}
	if err := c.Register(ctx, 5); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exec(ctx, "DROP DATABASE d"); !mysqlwire.IsServerCode(err, mysqlwire.CodeNotSupported) {
		t.Fatalf("got %v, want 1235", err)
	}
	if err := c.WriteCommand(mysqlwire.ComBinlogDump, make([]byte, 11)); err != nil {
		t.Fatal(err)
	}
	if _, err := nextEvent(t, c); !mysqlwire.IsServerCode(err, mysqlwire.CodeSourceFatalDump) {
		t.Fatalf("got %v, want 1236", err)
	}
	c.Close()
}

func TestFeedRefusesRequests(t *testing.T) {
	for _, test := range []struct {
		name     string
		argument []byte
		want     string
	}{
		{"own server id", dumpArgument(1<<20+1, gtid.Set{}), "same server id"},
		{"short", make([]byte, 9), "malformed"},
		{"broken set", append(dumpArgument(5, gtid.Set{})[:22], 3, 0, 0, 0, 1, 2, 3), "dump request"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := loggedIn(t, newFeed(t, newScript(1).log, nil))
			if err := c.WriteCommand(mysqlwire.ComBinlogDumpGTID, test.argument); err != nil {
				t.Fatal(err)
			}
			if _, err := nextEvent(t, c); !mysqlwire.IsServerCode(err, mysqlwire.CodeSourceFatalDump) ||
				!strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want 1236 with %q", err, test.want)
			}
		})
	}
}

// A receiver that comes before anything is known to be committed waits for it.
func TestFeedBeforeTheFirstEntry(t *testing.T) {
	s := &script{log: newMemLog()}
	s.log.held = true
	s.barrier(1, 1)
	s.entry(1, 0, s.e.trx()...)
	c := loggedIn(t, newFeed(t, s.log, nil))
	if err := c.WriteCommand(mysqlwire.ComBinlogDumpGTID, dumpArgument(5, gtid.Set{})); err != nil {
		t.Fatal(err)
	}
	for events, typ := 0, binlog.EventType(0); typ != binlog.TypeGTID; events++ {
		if events == 2 { // ROTATE and FORMAT_DESCRIPTION have come
			s.log.setCommitted(2)
		}
		ev, err := nextEvent(t, c)
		if err != nil {
			t.Fatalf("after %d events: %v", events, err)
		}
		typ = binlog.TypeOf(ev)
	}
}

// A receiver refuses a heartbeat below its own count, and a ROTATE follows from one above.
func TestFeedHeartbeats(t *testing.T) {
	s := newScript(1)
	s.entry(1, 0, append(s.e.trx(), s.e.trx()...)...)
	c := loggedIn(t, newFeed(t, s.log, nil))
	if _, err := c.Exec(limit(t, 5*time.Second),
		"SET @master_heartbeat_period=20000000, @source_heartbeat_period=20000000"); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteCommand(mysqlwire.ComBinlogDumpGTID, dumpArgument(5, gtid.SetOf(s.gtid(1)))); err != nil {
		t.Fatal(err)
	}
	var file string
	var pos uint64
	beats, ends := 0, 0
	for beats < 5 {
		ev, err := nextEvent(t, c)
		if err != nil {
			t.Fatal(err)
		}
		h, err := binlog.ParseHeader(ev)
		if err != nil {
			t.Fatal(err)
		}
		switch h.Type {
		case binlog.TypeRotate:
			r, err := binlog.ParseRotate(ev)
			if err != nil {
				t.Fatal(err)
			}
			file, pos = string(r.File), r.Position
		case binlog.TypeHeartbeat:
			hb, err := binlog.ParseHeartbeat(ev)
			if err != nil || string(hb.File) != file || hb.Position != pos {
				t.Fatalf("heartbeat %+v %v, receiver is at %s:%d", hb, err, file, pos)
			}
			beats++
			if beats == 3 { // one more transaction after a silence
				s.entry(1, 0, s.e.trx()...)
			}
		default:
			pos += uint64(len(ev))
			if h.Type == binlog.TypeTransactionPayload {
				ends++
			}
		}
	}
	if ends != 2 {
		t.Fatalf("%d transactions", ends)
	}
}

func TestFeedNewDumpReplacesOld(t *testing.T) {
	s := newScript(1)
	f := newFeed(t, s.log, nil)
	first := fakeReceiver(t, f, gtid.Set{})
	if _, err := nextEvent(t, first); err != nil {
		t.Fatal(err)
	}
	second := fakeReceiver(t, f, gtid.Set{})
	if _, err := nextEvent(t, second); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := nextEvent(t, first); err != nil {
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				t.Fatal("the first dump goes on")
			}
			break
		}
	}
	s.entry(1, 0, s.e.trx()...)
	for {
		ev, err := nextEvent(t, second)
		if err != nil {
			t.Fatal(err)
		}
		if binlog.TypeOf(ev) == binlog.TypeTransactionPayload {
			break
		}
	}
	if !connected(f) {
		t.Fatal("no dump is left")
	}
}

// What breaks an invariant is reported and ends the receiver for good.
func TestFeedReportsInvariant(t *testing.T) {
	s := newScript(1)
	evs := s.e.trx()
	evs[4][30] ^= 1
	s.entry(1, 0, evs...)
	reported := make(chan error, 1)
	c := fakeReceiver(t, newFeed(t, s.log, func(err error) { reported <- err }), gtid.Set{})
	for {
		if _, err := nextEvent(t, c); err != nil {
			if !mysqlwire.IsServerCode(err, mysqlwire.CodeSourceFatalDump) {
				t.Fatalf("got %v, want 1236", err)
			}
			break
		}
	}
	select {
	case err := <-reported:
		if !errors.Is(err, ErrInvariant) {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("nothing reported")
	}
}

// rottenLog cannot be read.
type rottenLog struct{ *memLog }

func (rottenLog) Read(_ context.Context, from, _ uint64, _ int) ([]Entry, error) {
	return nil, fmt.Errorf("entry %d: %w", from, raftlog.ErrCorrupt)
}

// A log that has rotted is reported: it never gets better, and only the feed sees what mysqld waits for.
func TestFeedReportsRot(t *testing.T) {
	s := newScript(1)
	s.entry(1, 0, s.e.trx()...)
	reported := make(chan error, 1)
	c := fakeReceiver(t, newFeed(t, rottenLog{s.log}, func(err error) { reported <- err }), gtid.Set{})
	for {
		if _, err := nextEvent(t, c); err != nil {
			break
		}
	}
	select {
	case err := <-reported:
		if !errors.Is(err, raftlog.ErrCorrupt) {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("nothing reported")
	}
}

func TestFeedBoundsConnections(t *testing.T) {
	f := newFeed(t, newScript(1).log, nil)
	for range maxConnections {
		loggedIn(t, f)
	}
	nc, err := net.Dial("tcp", f.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("got %v, want EOF", err)
	}
}

func TestSourceCloseLeavesNothing(t *testing.T) {
	cfg := fakeMysqld(t, func(nc net.Conn, e *events) {
		_, _ = nc.Write(opening(e))
		hang(nc)
	})
	cfg.Loop = newLoop(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	src := NewSource(cfg)
	if err := src.Prepare(limit(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := src.Attach(limit(t, 10*time.Second), freshStart); err != nil {
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() {
		next <- src.Run(t.Context(), func(Payload) bool { return true })
	}()
	src.Close()
	if err := <-next; !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v, want ErrClosed", err)
	}
}

// door is a gate that lets a number of transactions pass.
type door struct {
	mu      sync.Mutex
	has     gtid.Set
	asked   gtid.GTID
	left    int
	changed chan struct{}
}

func (d *door) Begin(has gtid.Set) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.has = has
}

func (d *door) Pass(trx *binlog.TrxInfo) (time.Duration, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked = trx.GTID; d.left == 0 {
		return time.Hour, d.changed
	}
	d.left--
	return 0, nil
}

func (d *door) open(k int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left += k
	close(d.changed)
	d.changed = make(chan struct{})
}

// TestFeedGate: what a gate holds back is not sent, what goes before it is, and heartbeats go on; a change is heard at
// once.
func TestFeedGate(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := newScript(1)
	for range 4 {
		s.entry(1, 0, s.e.trx()...)
	}
	d := &door{changed: make(chan struct{}), left: 1}
	f, err := NewFeed(FeedConfig{Listen: "127.0.0.1:0", User: "feed", Password: feedPassword, UID: os.Getuid(),
		ServerID:   1<<20 + 1,
		ServerUUID: gtid.IncarnationUUID(testCluster, 9, 0), Gate: d}, s.log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := loggedIn(t, f)
	if _, err := c.Exec(limit(t, 5*time.Second), "SET @source_heartbeat_period=20000000"); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteCommand(mysqlwire.ComBinlogDumpGTID, dumpArgument(5, gtid.SetOf(s.gtid(1)))); err != nil {
		t.Fatal(err)
	}
	// ends reads until so many transactions have ended and two heartbeats followed each other: nothing more comes.
	ends := func(want int) {
		t.Helper()
		var asm binlog.Assembler
		for beats, got := 0, 0; beats < 2 || got < want; {
			ev, err := nextEvent(t, c)
			if err != nil {
				t.Fatal(err)
			}
			h, err := binlog.ParseHeader(ev)
			if err != nil {
				t.Fatal(err)
			}
			if beats++; h.Type != binlog.TypeHeartbeat && h.Type != binlog.TypeHeartbeatV2 {
				beats = 0
				if b, err := asm.Feed(h, ev); err != nil {
					t.Fatal(err)
				} else if b == binlog.End {
					if got++; got > want {
						t.Fatalf("%s was sent", asm.Trx().GTID)
					}
				}
			}
		}
	}
	ends(1)
	d.mu.Lock()
	if !d.has.Equal(gtid.SetOf(s.gtid(1))) || d.asked != s.gtid(3) {
		t.Errorf("told of %s, asked about %s", d.has, d.asked)
	}
	d.mu.Unlock()
	d.open(1)
	ends(1)
	f.Again()
	for err == nil {
		_, err = nextEvent(t, c)
	}
	c.Close()
}
