package dump

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trireme/internal/core/raftlog"
	"trireme/internal/mysql/gtid"
)

const feedPassword = "f-Secret1"

func newFeed(t *testing.T, log Log, report func(error)) *Feed {
	t.Helper()
	f, err := NewFeed(FeedConfig{Listen: "127.0.0.1:0", User: "feed", Password: feedPassword, UID: os.Getuid(),
		ServerID:   1<<20 + 1,
		ServerUUID: gtid.IncarnationUUID(testCluster, 9, 0), ServerVersion: DefaultServerVersion, Appliers: 4,
		Report: report}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// follower starts a mysqld that is fed by f.
func newFollower(t *testing.T, f *Feed, id uint32) *testServer {
	t.Helper()
	s := newServer(t, id, "--replica-parallel-workers=4", "--replica-preserve-commit-order=ON", "--super-read-only=ON",
		"--innodb-flush-log-at-trx-commit=0")
	s.start(gtid.IncarnationUUID(testCluster, uint16(id), 1))
	s.follow(f)
	return s
}

func (s *testServer) follow(f *Feed) {
	s.t.Helper()
	host, port, err := net.SplitHostPort(f.Addr())
	if err != nil {
		s.t.Fatal(err)
	}
	s.Exec(
		fmt.Sprintf(
			"CHANGE REPLICATION SOURCE TO SOURCE_HOST='%s', SOURCE_PORT=%s, SOURCE_USER='feed', SOURCE_PASSWORD='%s', "+
				"SOURCE_AUTO_POSITION=1, SOURCE_SSL=0, GET_SOURCE_PUBLIC_KEY=1, SOURCE_RETRY_COUNT=0, SOURCE_CONNECT_RETRY=1, "+
				"SOURCE_HEARTBEAT_PERIOD=0.2", host, port, feedPassword))
	s.Exec("START REPLICA")
}

// caughtUp waits until the follower has executed what the leader has.
func caughtUp(t *testing.T, leader, follower *testServer) {
	t.Helper()
	var executed string
	leader.Row("SELECT @@GLOBAL.gtid_executed", &executed)
	deadline := time.Now().Add(120 * time.Second)
	for {
		var missing string
		follower.Row(fmt.Sprintf("SELECT GTID_SUBTRACT('%s', @@GLOBAL.gtid_executed)", executed), &missing)
		if missing == "" {
			return
		}
		if e := follower.replicaError(); e != "" {
			t.Fatalf("replication stopped: %s", e)
		}
		if time.Now().After(deadline) {
			t.Fatalf("follower lacks %s", missing)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *testServer) replicaError() string {
	var e string
	s.Row(`SELECT CONCAT_WS(' ', (SELECT MAX(last_error_message) FROM performance_schema.replication_applier_status_by_worker),
		(SELECT MAX(last_error_message) FROM performance_schema.replication_applier_status_by_coordinator),
		(SELECT MAX(IF(service_state='OFF', last_error_message, '')) FROM performance_schema.replication_connection_status))`, &e)
	return strings.TrimSpace(e)
}

// checksums maps each table of schema d to its checksum.
func (s *testServer) checksums() map[string]string {
	s.t.Helper()
	rows, err := s.DB.QueryContext(limit(s.t, 30*time.Second),
		"SELECT table_name FROM information_schema.tables WHERE table_schema='d'")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	sums := map[string]string{}
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			s.t.Fatal(err)
		}
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		var table, sum string
		s.Row("CHECKSUM TABLE d."+name, &table, &sum)
		var count string
		s.Row("SELECT COUNT(*) FROM d."+name, &count)
		sums[name] = sum + "/" + count
	}
	return sums
}

func sameData(t *testing.T, leader, follower *testServer) {
	t.Helper()
	caughtUp(t, leader, follower)
	a, b := leader.checksums(), follower.checksums()
	if fmt.Sprint(a) != fmt.Sprint(b) || len(a) == 0 {
		t.Fatalf("leader %v, follower %v", a, b)
	}
}

// cluster is leader -> Source -> memLog -> Feed -> follower.
type cluster struct {
	leader, follower *testServer
	src              *Source
	rec              *recorder
	log              *memLog
	feed             *Feed
	reported         atomic.Pointer[error]
}

func newCluster(t *testing.T, chunkBytes int) *cluster {
	t.Helper()
	c := &cluster{log: newMemLog()}
	c.leader, c.src = newLeader(t, SourceConfig{ChunkBytes: chunkBytes})
	c.feed = newFeed(t, c.log, func(err error) { c.reported.Store(&err) })
	fde, err := c.src.Attach(limit(t, 10*time.Second), freshStart)
	if err != nil {
		t.Fatal(err)
	}
	c.log.barrier(1, 1, 1, fde)
	c.rec = &recorder{t: t, src: c.src, done: make(chan error, 1), end: freshStart}
	c.rec.discard.Store(true)
	c.rec.start()
	t.Cleanup(c.rec.finish)
	c.rec.mu.Lock()
	c.rec.proposed = func(p Payload) { c.log.append(1, p.Data, true) }
	c.rec.mu.Unlock()
	c.follower = newFollower(t, c.feed, 2)
	c.leader.Exec("CREATE DATABASE d")
	return c
}

// mixedLoad runs n writers of every kind of transaction until stopped.
func mixedLoad(t *testing.T, s *testServer, n int, withXA bool) (stop func()) {
	t.Helper()
	s.Exec("CREATE TABLE d.m (id BIGINT PRIMARY KEY AUTO_INCREMENT, writer INT, v BIGINT, b LONGBLOB, j JSON, KEY (v))")
	var stopped atomic.Bool
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			conn, err := s.DB.Conn(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			for k := 0; !stopped.Load(); k++ {
				if err := mixedTransaction(conn.ExecContext, i, k, withXA); err != nil && mysqlCode(err) != 1213 {
					t.Errorf("writer %d: %v", i, err)
					return
				}
			}
		}()
	}
	return func() { stopped.Store(true); wg.Wait() }
}

func mixedTransaction[R any](exec func(context.Context, string, ...any) (R, error), writer, k int, withXA bool) error {
	w := strconv.Itoa(writer)
	var statements []string
	switch n := rand.IntN(200); {
	case n == 0:
		statements = []string{"INSERT INTO d.m (writer, v, b) VALUES (" + w + ", 0, REPEAT('z', 3000000))"}
	case n == 1:
		statements = []string{"CREATE TABLE IF NOT EXISTS d.t" + w + " (i INT PRIMARY KEY)", "INSERT IGNORE INTO d.t" + w +
			" VALUES (" + strconv.Itoa(k) + ")"}
	case n == 2:
		statements = []string{"DROP TABLE IF EXISTS d.t" + w}
	case n == 3 && withXA:
		x := fmt.Sprintf("'x%d_%d'", writer, k)
		statements = []string{"XA START " + x, "INSERT INTO d.m (writer, v) VALUES (" + w + ", 7)", "XA END " + x,
			"XA PREPARE " + x, "XA COMMIT " + x}
	case n == 4:
		statements = []string{"SET SESSION binlog_transaction_compression=ON", "UPDATE d.m SET v=v+1 WHERE writer=" + w +
			" ORDER BY id LIMIT 20", "SET SESSION binlog_transaction_compression=OFF"}
	case n < 60:
		statements = []string{"BEGIN", "UPDATE d.m SET v=v+1 WHERE writer=" + w + " ORDER BY id DESC LIMIT 2",
			"INSERT INTO d.m (writer, v) VALUES (" + w + ", 1)", "COMMIT"}
	case n < 65:
		statements = []string{"DELETE FROM d.m WHERE writer=" + w + " ORDER BY id LIMIT 3"}
	case n < 70:
		statements = []string{"SET SESSION binlog_row_value_options='PARTIAL_JSON'", "INSERT INTO d.m (writer, j) VALUES (" +
			w + ", JSON_OBJECT('a', REPEAT('j', 200), 'b', 1))",
			"UPDATE d.m SET j=JSON_SET(j, '$.b', " + strconv.Itoa(k) + ") WHERE writer=" + w +
				" AND j IS NOT NULL ORDER BY id DESC LIMIT 2", "SET SESSION binlog_row_value_options=''"}
	case n < 73:
		statements = []string{"SET SESSION binlog_format=STATEMENT", "INSERT INTO d.m (writer, v) VALUES (" + w + ", 8)",
			"SET SESSION binlog_format=ROW"}
	case n < 76:
		statements = []string{"SET SESSION binlog_rows_query_log_events=ON", "INSERT INTO d.m (writer, v) VALUES (" + w +
			", 9)", "SET SESSION binlog_rows_query_log_events=OFF"}
	default:
		statements = []string{"INSERT INTO d.m (writer, v, b) VALUES (" + w + ", 2, REPEAT('y', " +
			strconv.Itoa(rand.IntN(500)) + "))"}
	}
	for _, q := range statements {
		if _, err := exec(context.Background(), q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return nil
}

func TestFeedEndToEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 256<<10)
	stop := mixedLoad(t, c.leader, 8, true)
	target := c.rec.transactions() + 1500
	eventually(t, 60*time.Second, "load", func() bool { return c.rec.transactions() > target })
	stop()
	sameData(t, c.leader, c.follower)

	// The receiver loses its connection again and again.
	c.leader.Exec("DROP TABLE d.m")
	stop = mixedLoad(t, c.leader, 8, true)
	for i := range 8 {
		target := c.rec.transactions() + 100
		c.feed.mu.Lock()
		before := c.feed.current
		if before != nil {
			before.stop(errGone)
		}
		c.feed.mu.Unlock()
		eventually(t, 30*time.Second, fmt.Sprintf("load and reconnect %d", i), func() bool {
			c.feed.mu.Lock()
			defer c.feed.mu.Unlock()
			return c.rec.transactions() > target && c.feed.current != nil && c.feed.current != before
		})
	}
	stop()
	sameData(t, c.leader, c.follower)

	// Paused, as on a leader: nothing arrives, the receiver stays content. Then everything does.
	c.feed.SetPaused(true)
	eventually(t, 20*time.Second, "paused dump", func() bool { return connected(c.feed) })
	sent := c.feed.stats.transactions.Load()
	c.leader.Exec("CREATE TABLE d.late (id INT PRIMARY KEY)")
	var state string
	var beats int // counted since the receiver began, or over connections
	content := func() bool {
		c.follower.Row(
			"SELECT service_state, count_received_heartbeats FROM performance_schema.replication_connection_status", &state,
			&beats)
		return state == "ON"
	}
	eventually(t, 20*time.Second, "the receiver is there again", content)
	before := beats
	eventually(t, 20*time.Second, "heartbeats", func() bool { return content() && beats > before+2 })
	if n := c.feed.stats.transactions.Load() - sent; n != 0 {
		t.Fatalf("%d transactions sent while paused", n)
	}
	c.feed.SetPaused(false)
	sameData(t, c.leader, c.follower)
	if e := c.reported.Load(); e != nil {
		t.Fatal(*e)
	}
}

// A worker that cannot get a row's lock reads its transaction, which is in a payload, again from the relay log.
func TestFeedRetries(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 256<<10)
	c.leader.Exec("CREATE TABLE d.r (id INT PRIMARY KEY, v INT)")
	c.leader.Exec("INSERT INTO d.r VALUES (1, 0), (2, 0)")
	caughtUp(t, c.leader, c.follower)
	c.follower.Exec("SET GLOBAL innodb_lock_wait_timeout = 1")
	c.follower.Exec("STOP REPLICA SQL_THREAD") // so that its workers take the setting
	c.follower.Exec("START REPLICA SQL_THREAD")
	reader, err := c.follower.DB.BeginTx(limit(t, time.Minute), nil)
	if err != nil {
		t.Fatal(err)
	}
	var v int
	if err := reader.QueryRowContext(limit(t, 10*time.Second), "SELECT v FROM d.r WHERE id = 2 FOR SHARE").Scan(&v); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"UPDATE d.r SET v = v + 1", "INSERT INTO d.r VALUES (3, 0)", "UPDATE d.r SET v = v + 10"} {
		c.leader.Exec(q)
	}
	eventually(t, 30*time.Second, "two retries", func() bool {
		var n int
		c.follower.Row("SELECT SUM(count_transactions_retries) FROM performance_schema.replication_applier_status", &n)
		return n >= 2
	})
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	sameData(t, c.leader, c.follower)
}

func TestFeedFollowerKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	stop := mixedLoad(t, c.leader, 8, false)
	for i := range 3 {
		target := c.rec.transactions() + 500
		eventually(t, 60*time.Second, "load", func() bool { return c.rec.transactions() > target })
		c.follower.Kill()
		c.follower.start(gtid.IncarnationUUID(testCluster, 2, uint64(i+2)))
		c.follower.Exec("START REPLICA")
	}
	stop()
	sameData(t, c.leader, c.follower)
}

func TestFeedAbortedChunks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 64<<10)
	c.leader.Exec("CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)")
	c.leader.Exec("INSERT INTO d.t (b) VALUES ('before')")
	caughtUp(t, c.leader, c.follower)
	before := c.follower.checksums()

	// A transaction in chunks, of which all but the last are committed.
	var mu sync.Mutex
	var chunks []Payload
	c.rec.mu.Lock()
	c.rec.hold = true
	c.rec.proposed = func(p Payload) {
		mu.Lock()
		defer mu.Unlock()
		chunks = append(chunks, p)
	}
	c.rec.mu.Unlock()
	count := c.rec.transactions()
	c.leader.run("INSERT INTO d.t (b) SELECT REPEAT('a', 5000) FROM information_schema.collations LIMIT 200")
	eventually(t, 20*time.Second, "chunks", func() bool { return c.rec.transactions() == count+1 })
	if len(chunks) < 10 {
		t.Fatalf("%d chunks", len(chunks))
	}
	aborted := chunks[0].Meta
	for _, p := range chunks[:len(chunks)-1] {
		if p.Meta.Flags&raftlog.FlagUnfinished == 0 || len(p.Meta.GTIDs) != 0 {
			t.Fatalf("chunk %+v", p.Meta)
		}
		c.log.append(1, p.Data, true)
	}
	sent := c.feed.stats.bytes.Load()
	c.log.append(2, nil, true) // raft's empty entry of the new term
	eventually(t, 10*time.Second, "feed at the end", func() bool { return c.feed.stats.next.Load() > c.log.Committed() })
	if c.feed.stats.bytes.Load() != sent {
		t.Fatal("an unfinished transaction was sent")
	}

	// Another node takes over.
	other := newServer(t, 3, sourceArgs...)
	other.start(gtid.IncarnationUUID(testCluster, 3, 1))
	src := newSourceFor(t, other, 1, SourceConfig{})
	fde, err := src.Attach(limit(t, 10*time.Second), freshStart)
	if err != nil {
		t.Fatal(err)
	}
	c.log.barrier(2, 3, 1, fde)
	r := &recorder{t: t, src: src, done: make(chan error, 1), end: freshStart,
		proposed: func(p Payload) { c.log.append(2, p.Data, true) }}
	r.start()
	t.Cleanup(r.finish)
	other.Exec("CREATE DATABASE e")
	other.Exec("CREATE TABLE e.t (id INT PRIMARY KEY)")
	caughtUp(t, other, c.follower)
	if after := c.follower.checksums(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Fatalf("was %v, is %v", before, after)
	}
	var executed string
	c.follower.Row("SELECT @@GLOBAL.gtid_executed", &executed)
	if strings.Contains(executed, fmt.Sprintf("%s:1-%d", c.leader.uuid, count+1)) {
		t.Fatalf("follower executed an aborted transaction: %s, chunks from %v", executed, aborted.Start)
	}
	// A receiver that begins in front of all that passes the remains as well.
	late := newFollower(t, newFeed(t, c.log, nil), 4)
	caughtUp(t, other, late)
	if after := late.checksums(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Fatalf("was %v, is %v", before, after)
	}
}

func TestFeedPurged(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 0)
	c.leader.Exec("CREATE TABLE d.t (id INT PRIMARY KEY)")
	caughtUp(t, c.leader, c.follower)
	c.log.purge(3)
	reported := make(chan error, 10)
	late := newFollower(t, newFeed(t, c.log, func(err error) { reported <- err }), 4)
	select {
	case err := <-reported:
		if !errors.Is(err, ErrPurged) {
			t.Fatalf("got %v, want ErrPurged", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nothing reported")
	}
	eventually(t, 20*time.Second, "error 1236 in the receiver", func() bool {
		var code int
		late.Row("SELECT last_error_number FROM performance_schema.replication_connection_status", &code)
		return code == 13114 || code == 1236 // ER_SERVER_SOURCE_FATAL_ERROR_READING_BINLOG wraps it
	})
}
