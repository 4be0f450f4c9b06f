package router

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"trireme/internal/core/dump"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqlwire"
)

// fakeStreams sends one packet to each consumer and keeps what it was told of it.
type fakeStreams struct {
	mu     sync.Mutex
	served []dump.Consumer
	wait   bool // until the router or the client ends
	unsure bool // nothing can be said of what is committed
}

func (s *fakeStreams) Purged() string { return "11111111-1111-1111-1111-111111111111:1-7" }

// Known leaves ownStatements out.
func (s *fakeStreams) Known(_ context.Context, executed gtid.Set) (gtid.Set, error) {
	own, err := gtid.ParseSet(ownStatements)
	if !executed.Intersect(own).Empty() && s.unsure {
		return gtid.Set{}, &mysqlwire.ServerError{Code: mysqlwire.CodeServerUnavailable, State: "HY000",
			Message: "no majority"}
	}
	return executed.Subtract(own), err
}

const ownStatements = "22222222-2222-2222-2222-222222222222:8-9"

func (s *fakeStreams) Serve(ctx context.Context, c dump.Consumer) {
	defer c.Conn.Close()
	defer context.AfterFunc(ctx, func() { c.Conn.Close() })()
	s.mu.Lock()
	s.served = append(s.served, c)
	wait := s.wait
	s.mu.Unlock()
	_, _ = c.Conn.Write(mysqlwire.AppendPacket(nil, c.Seq, []byte("\x00an event")))
	if wait {
		_, _ = c.Conn.Read(make([]byte, 1))
	}
}

// mayRead lets the account of a wireServer have the log.
func (s *wireServer) mayRead(grants string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = map[string][]string{
		"SHOW GRANTS": {"GRANT USAGE ON *.* TO `app`@`%`", grants},
		whoAsks:       {"6170704025"},
		whatItSet:     {"5000000000,1,0,CRC32"},
	}
}

const mayReadIt = "GRANT SELECT, REPLICATION SLAVE ON *.* TO `app`@`%`"

func logInWire(t *testing.T, addr string) *mysqlwire.Client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c, err := mysqlwire.Login(ctx, nc, mysqlwire.ClientConfig{User: "app", Password: wirePassword})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// askForLog sends a dump command and returns the answer's first packet.
func askForLog(t *testing.T, c *mysqlwire.Client) []byte {
	t.Helper()
	if err := c.WriteCommand(mysqlwire.ComBinlogDumpGTID, []byte("which")); err != nil {
		t.Fatal(err)
	}
	_ = c.NetConn().SetReadDeadline(time.Now().Add(limit))
	p, err := c.ReadPacket()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(p)
}

func refusedAs(t *testing.T, p []byte, code uint16, want string) {
	t.Helper()
	e, err := mysqlwire.ParseERR(p)
	if err != nil || e.Code != code || !strings.Contains(e.Message, want) {
		t.Fatalf("%q: %+v %v, want %d with %q", p, e, err, code, want)
	}
}

// TestDumpIsServed: on every port, and in every way of treating sessions, who asks for a binary log gets the committed
// one and never the server's.
func TestDumpIsServed(t *testing.T) {
	for _, test := range []struct {
		name  string
		cfg   Config
		addr  func(*Router) string
		first []string // statements before
	}{
		{"read-write, passed on", Config{}, (*Router).RWAddr, nil},
		{"read-only, passed on", Config{}, (*Router).ROAddr, []string{"SELECT 1"}},
		{"read-write, followed", Config{Sessions: true}, (*Router).RWAddr, nil},
		{"read-only, followed", Config{Sessions: true}, (*Router).ROAddr, []string{"SELECT 1"}},
		{"tied", Config{Sessions: true}, (*Router).RWAddr, []string{"SET @x = 1"}},
		{"splitting", Config{SplitListen: "127.0.0.1:0"}, (*Router).SplitAddr, []string{"SELECT 1"}},
		{"of its own", Config{StreamListen: "127.0.0.1:0"}, (*Router).StreamAddr,
			[]string{"SELECT 1", "SET @source_heartbeat_period = 1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, streams := newWireServer(t), &fakeStreams{}
			server.mayRead(mayReadIt)
			test.cfg.HoldTimeout, test.cfg.Streams = limit, streams
			r := start(t, test.cfg)
			r.SetView(View{RW: server.target("1")})
			c := logInWire(t, test.addr(r))
			for _, q := range test.first {
				if _, err := c.Exec(t.Context(), q); err != nil {
					t.Fatal(err)
				}
			}
			if p := askForLog(t, c); string(p) != "\x00an event" {
				t.Fatalf("answer %q", p)
			}
			streams.mu.Lock()
			got := streams.served[0]
			streams.mu.Unlock()
			if got.Command != mysqlwire.ComBinlogDumpGTID || string(got.Argument) != "which" || got.Beat != 5*time.Second ||
				!got.Replica ||
				got.SemiSync || got.Checksum != "CRC32" || got.Account != "app@%" {
				t.Fatalf("%+v", got)
			}
			for _, s := range server.statements() {
				if strings.Contains(s, "which") {
					t.Fatalf("the server was sent %q", s)
				}
			}
			eventually(t, "its server's connection is closed", func() bool { return r.Stats().ByTarget["n-1"] == 0 })
		})
	}
}

func TestDumpIsRefused(t *testing.T) {
	for _, test := range []struct {
		name   string
		cfg    Config
		grants string
		set    string
		code   uint16
		want   string
	}{
		{"privilege", Config{Streams: &fakeStreams{}}, "GRANT SELECT ON *.* TO `app`@`%`", "0,0,0,CRC32", codePrivilege,
			"REPLICATION SLAVE"},
		{"privilege for a schema", Config{Streams: &fakeStreams{}}, "GRANT REPLICATION SLAVE ON `x`.* TO `app`@`%`",
			"0,0,0,CRC32", codePrivilege, "REPLICATION SLAVE"},
		{"heartbeat", Config{Streams: &fakeStreams{}}, mayReadIt, "1e30,0,0,CRC32", mysqlwire.CodeSourceFatalDump,
			"heartbeat"},
		{"unreadable", Config{Streams: &fakeStreams{}}, mayReadIt, "?", mysqlwire.CodeSourceFatalDump, "character set"},
		{"no log here", Config{}, mayReadIt, "0,0,0,CRC32", mysqlwire.CodeSourceFatalDump, "router.stream_port"},
	} {
		for _, sessions := range []bool{false, true} {
			t.Run(test.name, func(t *testing.T) {
				server := newWireServer(t)
				server.mayRead(test.grants)
				server.mu.Lock()
				server.rows[whatItSet] = []string{test.set}
				server.mu.Unlock()
				cfg := test.cfg
				cfg.HoldTimeout, cfg.Sessions = limit, sessions
				r := start(t, cfg)
				r.SetView(View{RW: server.target("1")})
				refusedAs(t, askForLog(t, logInWire(t, r.RWAddr())), test.code, test.want)
				if f, ok := test.cfg.Streams.(*fakeStreams); ok && len(f.served) != 0 {
					t.Fatal("it is served all the same")
				}
			})
		}
	}
}

// If a client sends the request directly after a query, without waiting for its answer, that answer is not taken for
// the answer to the router's own question.
func TestDumpBehindAnAnswer(t *testing.T) {
	server, streams := newWireServer(t), &fakeStreams{}
	server.mayRead("GRANT SELECT ON *.* TO `app`@`%`")
	server.mu.Lock()
	server.rows["forged"] = []string{mayReadIt}
	server.mu.Unlock()
	r := start(t, Config{HoldTimeout: limit, Streams: streams})
	r.SetView(View{RW: server.target("1")})
	for range 20 {
		c := logInWire(t, r.RWAddr())
		var said []byte
		for range 4 {
			said = append(said, packet(0, append([]byte{comQuery}, "forged"...)...)...)
		}
		if _, err := c.NetConn().Write(append(said, dumpCommand...)); err != nil {
			t.Fatal(err)
		}
		_ = c.NetConn().SetReadDeadline(time.Now().Add(limit))
		_, _ = io.Copy(io.Discard, c.NetConn())
	}
	if len(streams.served) != 0 {
		t.Fatal("an account without the privilege was served")
	}
}

// A dump outlives the role of the server that it logged in at, and not the router.
func TestDumpOutlivesItsServer(t *testing.T) {
	server, streams := newWireServer(t), &fakeStreams{wait: true}
	server.mayRead(mayReadIt)
	r := start(t, Config{HoldTimeout: limit, Streams: streams})
	r.SetView(View{RW: server.target("1")})
	c := logInWire(t, r.RWAddr())
	if p := askForLog(t, c); string(p) != "\x00an event" {
		t.Fatalf("answer %q", p)
	}
	r.SetView(View{RW: server.target("2")}) // returns once everything of the first is closed
	_ = c.NetConn().SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := c.ReadPacket(); err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Fatalf("the dump has ended: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	_ = c.NetConn().SetReadDeadline(time.Now().Add(limit))
	if _, err := c.NetConn().Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Fatalf("the dump goes on without its router: %v", err)
	}
}

// A router that closes does not wait for the rest of a request.
func TestCloseInARequest(t *testing.T) {
	server := newWireServer(t)
	server.mayRead(mayReadIt)
	r := start(t, Config{HoldTimeout: limit, Streams: &fakeStreams{}})
	r.SetView(View{RW: server.target("1")})
	c := logInWire(t, r.RWAddr())
	if _, err := c.NetConn().Write(dumpCommand[:mysqlwire.HeaderLen+1]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its server is let go", func() bool { return r.Stats().ByTarget["n-1"] == 0 })
	closed := make(chan error, 1)
	go func() { closed <- r.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(r.cfg.LoginTimeout / 2):
		t.Fatal("the router waits for it")
	}
}

// A port that somebody else has costs the stream its own port, and nothing else.
func TestStreamPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	server := newWireServer(t)
	server.mayRead(mayReadIt)
	r := start(t, Config{HoldTimeout: limit, Streams: &fakeStreams{}, StreamListen: taken.Addr().String()})
	if got := r.StreamAddr(); got != "" {
		t.Fatalf("it listens at %s", got)
	}
	r.SetView(View{RW: server.target("1")})
	if p := askForLog(t, logInWire(t, r.RWAddr())); string(p) != "\x00an event" {
		t.Fatalf("answer %q", p)
	}
}

// On the stream's own port the log's word counts for what is purged, and a replica is told that nothing is
// semi-synchronous.
func TestStreamPortAnswers(t *testing.T) {
	server := newWireServer(t)
	server.mayRead(mayReadIt)
	r := start(t, Config{HoldTimeout: limit, Streams: &fakeStreams{}, StreamListen: "127.0.0.1:0"})
	r.SetView(View{RO: []Target{*server.target("1")}})
	c := logInWire(t, r.StreamAddr())
	for q, want := range map[string]string{
		"select @@global.gtid_purged":                      "11111111-1111-1111-1111-111111111111:1-7",
		" SELECT @@GLOBAL.rpl_semi_sync_source_enabled ; ": "0",
		whatItSet: "5000000000,1,0,CRC32",
	} {
		row, err := c.QueryRow(t.Context(), q)
		if err != nil || row[0].Text != want {
			t.Fatalf("%s: %v %v, want %s", q, row, err, want)
		}
	}
	if got := server.statements(); len(got) != 1 || got[0] != whatItSet {
		t.Fatalf("the server was sent %q", got)
	}
}

// TestStreamPortTellsWhatIsKnown: a server's own statements are left out of what it has executed, however a consumer
// asks for that, and its session goes on.
func TestStreamPortTellsWhatIsKnown(t *testing.T) {
	const committed = "11111111-1111-1111-1111-111111111111:1-9"
	server, streams := newWireServer(t), &fakeStreams{}
	server.mayRead(mayReadIt)
	status := []string{"binlog.000007", "4", "", "", committed + ",\n" + ownStatements}
	server.mu.Lock()
	server.rows["SELECT @@GLOBAL.gtid_executed"] = []string{committed + ",\n" + ownStatements}
	server.rows["SELECT @@gtid_executed"] = []string{committed}
	server.wide = map[string][]string{"SHOW BINARY LOG STATUS": status, "show master status": status}
	server.fail = map[string]uint16{"SHOW MASTER STATUS": 1227}
	server.mu.Unlock()
	r := start(t, Config{HoldTimeout: limit, Streams: streams, StreamListen: "127.0.0.1:0"})
	r.SetView(View{RO: []Target{*server.target("1")}})
	c := logInWire(t, r.StreamAddr())
	for range 2 {
		for q, want := range map[string]string{
			"SELECT @@GLOBAL.gtid_executed": committed,
			"SELECT @@gtid_executed":        committed,
			"SHOW BINARY LOG STATUS":        "binlog.000007 4   " + committed,
			"show master status":            "binlog.000007 4   " + committed,
			whatItSet:                       "5000000000,1,0,CRC32",
		} {
			row, err := c.QueryRow(t.Context(), q)
			var got []string
			for _, v := range row {
				got = append(got, v.Text)
			}
			if err != nil || strings.Join(got, " ") != want {
				t.Fatalf("%s: %q %v, want %q", q, got, err, want)
			}
		}
		if _, err := c.QueryRow(t.Context(), "SHOW MASTER STATUS"); err == nil || !strings.Contains(err.Error(), "1227") {
			t.Fatalf("a server's error: %v", err)
		}
	}
	streams.unsure = true
	if _, err := c.QueryRow(t.Context(), "SELECT @@GLOBAL.gtid_executed"); err == nil ||
		!strings.Contains(err.Error(), "no majority") {
		t.Fatalf("without a majority: %v", err)
	}
	if _, err := c.QueryRow(t.Context(), "SELECT @@gtid_executed"); err != nil {
		t.Fatalf("after that: %v", err)
	}
}

// A consumer's server shows all that was committed when it came: a follower that does not soon is passed over. Without
// a majority any server will do, and what is purged is not told.
func TestStreamShowsWhatIsCommitted(t *testing.T) {
	for _, test := range []struct {
		name    string
		down    error // of the majority
		applied uint64
		own     time.Duration
		want    string
	}{
		{"a current follower", nil, 5, limit, "n-2"},
		{"one that lags", nil, 4, time.Millisecond, "n-1"},
		{"no majority", errors.New("no majority"), 4, limit, "n-2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			leader, follower := newWireServer(t), newWireServer(t)
			reads := &fakeReads{commit: 5, applied: map[string]uint64{"n-1": 5, "n-2": test.applied}, down: test.down}
			r := start(t, Config{HoldTimeout: limit, OwnWritesTimeout: test.own, Streams: &fakeStreams{},
				StreamListen: "127.0.0.1:0", Reads: reads})
			r.SetView(View{RW: leader.target("1"), RO: []Target{*follower.target("2")}})
			c := logInWire(t, r.StreamAddr())
			if got := r.Stats().ByTarget; got[test.want] != 1 {
				t.Fatalf("the session is at %v, want %s", got, test.want)
			}
			row, err := c.QueryRow(t.Context(), "SELECT @@global.gtid_purged")
			if test.down == nil && (err != nil || row[0].Text != (&fakeStreams{}).Purged()) || test.down != nil &&
				(err == nil || !strings.Contains(err.Error(), "no majority")) {
				t.Fatalf("gtid_purged: %v %v", row, err)
			}
			if row, err = c.QueryRow(t.Context(), "SELECT @@global.rpl_semi_sync_source_enabled"); err != nil ||
				row[0].Text != "0" {
				t.Fatalf("after it: %v %v", row, err)
			}
			logInWire(t, r.ROAddr())
			if got := r.Stats().ByTarget; got["n-2"] == 0 {
				t.Fatalf("the read-only port waits, too: %v", got)
			}
		})
	}
}
