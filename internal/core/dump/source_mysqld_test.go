package dump

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/binlog"
	"trireme/internal/mysql/gtid"
)

const testCluster = 7

// newLeader starts a mysqld with semi-sync and a Source prepared for it.
func newLeader(t *testing.T, cfg SourceConfig, args ...string) (*testServer, *Source) {
	t.Helper()
	s := newServer(t, 1, append(append([]string(nil), sourceArgs...), args...)...)
	s.start(gtid.IncarnationUUID(testCluster, 1, 1))
	return s, newSourceFor(t, s, 1, cfg)
}

func newSourceFor(t *testing.T, s *testServer, incarnation uint64, cfg SourceConfig) *Source {
	t.Helper()
	cfg.Dial, cfg.User = s.dial, "root"
	cfg.Node, cfg.Incarnation, cfg.ServerUUID = uint16(s.id), incarnation, s.uuid
	cfg.ReplicaServerID = 1 << 20
	src := newSource(t, cfg)
	t.Cleanup(func() { src.Close() })
	if err := src.Prepare(limit(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	return src
}

// breakConnection makes the Source lose the dump connection that is read; mysqld does not notice.
func (r *recorder) breakConnection() {
	r.l.Do(func() {
		if reader := r.src.reader; reader != nil {
			reader.end(lost(io.EOF))
		}
	})
}

// killDump makes mysqld end the dump.
func (s *testServer) killDump() {
	s.t.Helper()
	var id int64
	s.Row("SELECT MAX(id) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'", &id)
	s.Exec(fmt.Sprintf("KILL %d", id))
}

var freshStart = raftlog.Pos{File: 1, Off: 4}

// run executes a statement in the background and returns where its outcome arrives.
func (s *testServer) run(query string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := s.DB.ExecContext(context.Background(), query)
		done <- err
	}()
	return done
}

func stillWaits(t *testing.T, done <-chan error, d time.Duration, what string) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("%s returned without an ACK: %v", what, err)
	case <-time.After(d): // nothing to poll for: it must not happen
	}
}

func arrives(t *testing.T, done <-chan error, what string) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("%s does not return", what)
	}
}

func TestSourceCommitsWaitForAck(t *testing.T) {
	s, src := newLeader(t, SourceConfig{})
	created := s.run("CREATE DATABASE d")
	r := record(t, src, freshStart)
	arrives(t, created, "CREATE DATABASE, begun before the stream")
	if !r.special() {
		t.Fatal("DDL is not special")
	}
	s.Exec("CREATE TABLE d.t (id INT PRIMARY KEY, v INT)")
	s.Exec("INSERT INTO d.t VALUES (1, 1)")
	if r.special() {
		t.Fatal("an INSERT is special")
	}

	r.setHold(true)
	held := s.run("INSERT INTO d.t VALUES (2, 2)")
	stillWaits(t, held, 300*time.Millisecond, "INSERT")
	var rows int
	if s.Row("SELECT COUNT(*) FROM d.t", &rows); rows != 1 {
		t.Fatalf("%d rows visible, want 1", rows)
	}

	// mysqld takes the start of a dump as an ACK, so neither a reconnect may release the waiter.
	before, _ := resumes(src)
	r.breakConnection()
	resumedMore(t, src, before)
	stillWaits(t, held, 300*time.Millisecond, "INSERT, after a reconnect")
	r.release()
	arrives(t, held, "INSERT, after the ACK")

	// An ACK given while the connection is down must be sent on the next one.
	r.setHold(true)
	held = s.run("INSERT INTO d.t VALUES (3, 3)")
	eventually(t, 10*time.Second, "payload", func() bool { return r.transactions() == 5 })
	r.breakConnection()
	r.release()
	arrives(t, held, "INSERT, acknowledged without a connection")
}

func TestSourceRefusesForeignAcks(t *testing.T) {
	s, src := newLeader(t, SourceConfig{})
	if err := src.Ack(1, freshStart); !errors.Is(err, ErrNotAttached) {
		t.Fatalf("got %v, want ErrNotAttached", err)
	}
	r := record(t, src, freshStart)
	s.Exec("CREATE DATABASE d")
	pos := src.Position()
	for _, test := range []struct {
		inc uint64
		pos raftlog.Pos
	}{{2, pos}, {1, raftlog.Pos{File: pos.File, Off: pos.Off + 1}}, {1, raftlog.Pos{File: pos.File + 1, Off: 4}}} {
		if err := src.Ack(test.inc, test.pos); !errors.Is(err, ErrInvariant) {
			t.Fatalf("Ack(%d, %v): got %v, want ErrInvariant", test.inc, test.pos, err)
		}
	}
	if err := src.Ack(1, freshStart); err != nil { // cumulative: an old one is nothing
		t.Fatal(err)
	}
	r.stop()
	<-r.done
	src.Close()
	if err := src.Run(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v, want ErrClosed", err)
	}
	if err := src.Ack(1, pos); !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v, want ErrClosed", err)
	}
	r.done <- nil
	r.done = make(chan error, 1)
	r.done <- ErrClosed
}

// writers run single-row transactions until stopped and count those that were acknowledged.
type writers struct {
	stop  atomic.Bool
	wg    sync.WaitGroup
	acked atomic.Int64
	errs  chan error
}

func startWriters(t *testing.T, s *testServer, n int) *writers {
	t.Helper()
	s.Exec("CREATE TABLE d.w (writer INT, n INT, v VARCHAR(300), PRIMARY KEY (writer, n))")
	s.DB.SetMaxIdleConns(n)
	w := &writers{errs: make(chan error, n)}
	for i := range n {
		w.wg.Add(1)
		go func() {
			defer w.wg.Done()
			for k := 0; !w.stop.Load(); k++ {
				text := strings.Repeat("x", rand.IntN(300))
				if _, err := s.DB.Exec("INSERT INTO d.w VALUES (?, ?, ?)", i, k, text); err != nil {
					w.errs <- err
					return
				}
				w.acked.Add(1)
			}
		}()
	}
	return w
}

func (w *writers) finish(t *testing.T) {
	t.Helper()
	w.stop.Store(true)
	done := make(chan struct{})
	go func() { w.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("a writer is stuck")
	}
	select {
	case err := <-w.errs:
		t.Fatal(err)
	default:
	}
}

func TestSourceReconnectsUnderLoad(t *testing.T) {
	t.Parallel()
	s, src := newLeader(t, SourceConfig{})
	r := record(t, src, freshStart)
	r.discard.Store(true)
	s.Exec("CREATE DATABASE d")
	r.delayAcks(10 * time.Millisecond)
	w := startWriters(t, s, 16)
	const rounds = 20
	for i := range rounds {
		acked := w.acked.Load()
		before, _ := resumes(src)
		if i%10 == 9 {
			s.killDump()
		} else {
			r.breakConnection()
		}
		resumedMore(t, src, before)
		eventually(t, 15*time.Second, fmt.Sprintf("commits after reconnect %d", i),
			func() bool { return w.acked.Load() > acked+50 })
	}
	w.finish(t)
	// CREATE DATABASE and CREATE TABLE come on top.
	if got, want := r.transactions(), uint64(w.acked.Load())+2; got != want {
		t.Fatalf("%d transactions in the stream, %d were committed", got, want)
	}
	var executed string
	s.Row("SELECT @@GLOBAL.gtid_executed", &executed)
	if got := r.gtids.String(); got != executed {
		t.Fatalf("stream holds %s, mysqld executed %s", got, executed)
	}
	n, again := resumes(src)
	if again == 0 {
		t.Error("nothing was read again: ACKs never lagged")
	}
	t.Logf("%d commits, %d reconnects, %d bytes read again", w.acked.Load(), n, again)
}

// A login hangs while an account statement waits for its ACK; the spare does not need one.
func TestSourceSpareCuresHangingLogin(t *testing.T) {
	t.Parallel()
	s, src := newLeader(t, SourceConfig{LoginLimit: time.Second})
	r := record(t, src, freshStart)
	eventually(t, 10*time.Second, "a spare", func() bool { return len(src.pool.idle) > 0 })
	r.setHold(true)
	held := s.run("CREATE USER u IDENTIFIED BY 'p'")
	eventually(t, 10*time.Second, "payload", func() bool { return r.transactions() == 1 })
	if nc, err := src.openSession(limit(t, 500*time.Millisecond)); err == nil {
		nc.Close()
		t.Fatal("a login gets through: the test shows nothing")
	}
	before, _ := resumes(src)
	start := time.Now()
	r.breakConnection()
	resumedMore(t, src, before)
	t.Logf("spare took over after %v", time.Since(start))
	stillWaits(t, held, 200*time.Millisecond, "CREATE USER")
	r.release()
	arrives(t, held, "CREATE USER")
	eventually(t, 10*time.Second, "a new spare", func() bool { return len(src.pool.idle) > 0 })
}

func TestSourceLargeTransactions(t *testing.T) {
	t.Parallel()
	s, src := newLeader(t, SourceConfig{}, "--binlog-row-event-max-size=8192")
	r := record(t, src, freshStart)
	r.discard.Store(true)
	s.Exec("CREATE DATABASE d")
	s.Exec("CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)")

	before, _ := r.seen()
	tx, err := s.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for range 64 { // 64 MiB in rows of 64 KiB
		if _, err :=
			tx.Exec(
				"INSERT INTO d.t (b) SELECT REPEAT('r', 65536) FROM (SELECT 1 FROM information_schema.collations LIMIT 16) x"); err != nil {
			t.Fatal(err)
		}
	}
	commit(t, tx)
	if n, largest := r.seen(); n-before < 60 || largest > 1<<20+streamSlackBytes {
		t.Fatalf("64 MiB came in %d payloads of at most %d bytes", n-before, largest)
	}

	// Lost in the middle of a transaction, in chunks already handed out: the rest must fit.
	reconnects, skipped := resumes(src)
	r.mu.Lock()
	first := len(r.payloads)
	r.hold = true // all of it is read again, from its start
	r.sink = func(Payload) {
		if n := len(r.payloads) - first; n == 3 || n == 9 {
			r.breakConnection()
		}
	}
	r.mu.Unlock()
	count := r.transactions()
	held := s.run("INSERT INTO d.t (b) SELECT b FROM d.t LIMIT 256")
	eventually(t, 30*time.Second, "the whole transaction", func() bool { return r.transactions() == count+1 })
	r.mu.Lock()
	r.sink = nil
	r.mu.Unlock()
	if n, again := resumes(src); n-reconnects != 2 || again-skipped < 9<<20 {
		t.Fatalf("not twice resumed inside the transaction: %d times, %d bytes again", n-reconnects, again-skipped)
	}
	stillWaits(t, held, 200*time.Millisecond, "INSERT of 16 MiB")
	r.release()
	arrives(t, held, "INSERT of 16 MiB")

	for _, size := range []int{1 << 20, 20 << 20, 1<<24 - 200} { // larger than the buffer, and than a packet
		s.Exec(fmt.Sprintf("INSERT INTO d.t (b) VALUES (REPEAT('b', %d))", size))
		s.Exec("INSERT INTO d.t (b) VALUES ('small')")
	}
	if _, largest := r.seen(); largest < 20<<20 {
		t.Fatalf("largest payload %d bytes", largest)
	}
}

func commit(t *testing.T, tx *sql.Tx) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- tx.Commit() }()
	arrives(t, done, "COMMIT")
}

// Around the size of a packet every way of splitting an event occurs.
func TestSourcePacketBoundary(t *testing.T) {
	t.Parallel()
	s, src := newLeader(t, SourceConfig{})
	r := record(t, src, freshStart)
	r.discard.Store(true)
	s.Exec("CREATE DATABASE d")
	s.Exec("CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)")
	s.Exec("INSERT INTO d.t (b) VALUES (REPEAT('b', 16777216))")
	// A row event has some 40 bytes in addition to its blob.
	for size := 16777215 - 50; size < 16777215-30; size += 2 {
		s.Exec(fmt.Sprintf("INSERT INTO d.t (b) VALUES (REPEAT('b', %d))", size))
	}
}

func TestSourceRotationAndKinds(t *testing.T) {
	t.Parallel()
	s, src := newLeader(t, SourceConfig{}, "--max-binlog-size=65536")
	r := record(t, src, freshStart)
	s.Exec("CREATE DATABASE d")
	w := startWriters(t, s, 8)
	for i := range 5 {
		target := raftlog.Pos{File: uint32(2 * (i + 1)), Off: 4}
		eventually(t, 30*time.Second, "rotation", func() bool { return target.Less(src.Position()) })
		r.breakConnection()
	}
	w.finish(t)
	conn, err := s.DB.Conn(limit(t, 5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{
		"CREATE TABLE d.x AS SELECT * FROM d.w LIMIT 10",
		"ALTER TABLE d.x ADD COLUMN c INT, ADD PRIMARY KEY (writer, n)",
		"DROP TABLE IF EXISTS d.missing", "CREATE TABLE IF NOT EXISTS d.x (i INT)",
		"FLUSH PRIVILEGES", "ANALYZE TABLE d.x", "CREATE USER u", "GRANT SELECT ON d.* TO u", "GRANT SELECT ON d.* TO u",
		"XA START 'a'", "UPDATE d.x SET c=1", "XA END 'a'", "XA PREPARE 'a'", "XA COMMIT 'a'",
		"XA START 'b'", "UPDATE d.x SET c=2", "XA END 'b'", "XA COMMIT 'b' ONE PHASE",
		"XA START 'c'", "UPDATE d.x SET c=3", "XA END 'c'", "XA PREPARE 'c'", "XA ROLLBACK 'c'",
		"SET SESSION binlog_transaction_compression=ON", "UPDATE d.x SET c=4",
		"SET SESSION binlog_transaction_compression=OFF", "SET gtid_next='AUTOMATIC:sometag'", "UPDATE d.x SET c=5",
		"UPDATE d.x SET c=6", "SET gtid_next='AUTOMATIC'", "SET SESSION binlog_format=STATEMENT",
		"UPDATE d.x SET c=7 WHERE n=@a", "SET SESSION binlog_format=ROW", "DROP DATABASE d", "CREATE DATABASE d",
	} {
		if _, err := conn.ExecContext(limit(t, 20*time.Second), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	for range 3 { // files without a transaction
		s.Exec("FLUSH BINARY LOGS")
	}
	s.Exec("CREATE TABLE d.y (id INT PRIMARY KEY)")
	r.breakConnection()
	s.Exec("FLUSH BINARY LOGS")
	s.Exec("FLUSH BINARY LOGS")
	r.breakConnection()
	s.Exec("DROP TABLE d.y")
	var executed string
	s.Row("SELECT @@GLOBAL.gtid_executed", &executed)
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := r.gtids.String(); got != strings.ReplaceAll(executed, "\n", "") {
		t.Fatalf("stream holds %s, mysqld executed %s", got, executed)
	}
}

func TestSourceBackpressure(t *testing.T) {
	s, src := newLeader(t, SourceConfig{})
	if _, err := src.Attach(limit(t, 10*time.Second), freshStart); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	none := func(Payload) bool { return false }
	go func() { ended <- src.Run(ctx, none) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", err)
	}
	done := s.run("CREATE DATABASE d")
	again := pull(t, src)
	p, err := again.next(limit(t, 10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Ack(1, p.Meta.End); err != nil {
		t.Fatal(err)
	}
	arrives(t, done, "CREATE DATABASE")
	again.stop()
	s.Kill()
	src.cfg.ReconnectLimit = 300 * time.Millisecond
	if err := src.Run(limit(t, 10*time.Second), none); !errors.Is(err, ErrDisconnected) {
		t.Fatalf("got %v, want ErrDisconnected", err)
	}
}

// Beyond 4 GiB the position goes by another command; it must behave as the usual one does.
func TestSourceWidePosition(t *testing.T) {
	s, src := newLeader(t, SourceConfig{})
	r := record(t, src, freshStart)
	s.Exec("CREATE DATABASE d")
	s.Exec("CREATE TABLE d.t (id INT PRIMARY KEY)")
	from := src.Position()
	r.setHold(true)
	held := s.run("INSERT INTO d.t VALUES (1)")
	eventually(t, 10*time.Second, "payload", func() bool { return r.transactions() == 3 })
	want := r.payloads[2].Data

	session, err := src.openSession(limit(t, 5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	// Another replica than the Source, whose dump mysqld would end otherwise.
	if _, err := session.Exec(limit(t, 5*time.Second), "SET @replica_uuid=UUID(), @slave_uuid=@replica_uuid"); err != nil {
		t.Fatal(err)
	}
	cfg := src.cfg
	cfg.ReplicaServerID++
	command, argument := wideDumpCommand(&cfg, from)
	if err := session.WriteCommand(command, argument); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for len(got) < len(want)-raftlog.MetaSize(&r.payloads[2].Meta) {
		session.NetConn().SetReadDeadline(time.Now().Add(10 * time.Second))
		p, err := session.ReadPacket()
		if err != nil {
			t.Fatal(err)
		}
		if h, err := binlog.ParseHeader(p[prefixLen:]); err != nil {
			t.Fatal(err)
		} else if h.LogPos > uint32(from.Off) && !isHeartbeat(h.Type) {
			got = append(got, p[prefixLen:]...)
		}
	}
	if !bytes.HasSuffix(want, got) {
		t.Fatal("another stream than by COM_BINLOG_DUMP")
	}
	stillWaits(t, held, 100*time.Millisecond, "INSERT")
	r.release()
	arrives(t, held, "INSERT")
}
