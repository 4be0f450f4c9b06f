package mysqld

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"trireme/lab/faultfs"
)

// follow makes f replicate from s, which plays the part of the feed.
func follow(t *testing.T, f, s *Server) {
	t.Helper()
	ctx := testContext(t)
	ch := Channel{Host: "127.0.0.1", Port: s.cfg.Port, Account: s.cfg.Repl}
	if err := f.Admin().ConfigureChannel(ctx, ch); err != nil {
		t.Fatal(err)
	}
	if err := f.Admin().StartReplica(ctx); err != nil {
		t.Fatal(err)
	}
}

func waitSame(t *testing.T, f, s *Server) {
	t.Helper()
	ctx := testContext(t)
	set := must[string](t)(s.Admin().GTIDExecuted(ctx))
	if !must[bool](t)(f.Admin().WaitExecuted(ctx, set, 20*time.Second)) {
		st, err := f.Admin().ReplicaStatus(ctx)
		t.Fatalf("the follower has not executed %s: %+v %v", set, st, err)
	}
}

// second makes another server in addition to the first.
func second(t *testing.T) *Server {
	t.Helper()
	cfg := initialized(t)
	cfg.ServerID = 8
	cfg.Extra["relay_log_space_limit"] = "1M" // less than one transaction below
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(testContext(t), uuidN(100)); err != nil {
		t.Fatal(err)
	}
	if err := s.Admin().AdmitClients(testContext(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Kill() })
	return s
}

// A follower survives a kill although its relay log is deleted at each start, and its events and locks can be dealt
// with.
func TestFollower(t *testing.T) {
	t.Parallel()
	leader, follower := started(t, initialized(t)), second(t)
	ctx := testContext(t)
	openForTest(t, leader)
	app := session(t, leader, leader.cfg.Admin)
	mustExec(t, app, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)",
		"INSERT INTO d.t VALUES (1,1),(2,2)",
		"CREATE EVENT d.e ON SCHEDULE EVERY 1 DAY DO DELETE FROM d.t")
	follow(t, follower, leader)
	waitSame(t, follower, leader)
	st := must[ReplicaStatus](t)(follower.Admin().ReplicaStatus(ctx))
	if !st.IORunning || !st.SQLRunning || st.IOErrno != 0 || st.SQLErrno != 0 ||
		!strings.HasPrefix(st.Retrieved, uuidN(1)+":1-") {
		t.Fatalf("%+v", st)
	}

	// Received but not applied, then killed.
	if err := follower.Admin().StopSQLThread(ctx); err != nil {
		t.Fatal(err)
	}
	mustExec(t, app, "INSERT INTO d.t VALUES (3,3)", "UPDATE d.t SET v = 9")
	set := must[string](t)(leader.Admin().GTIDExecuted(ctx))
	eventually(t, "everything received", func() bool {
		return strings.Contains(set, strings.TrimPrefix(must[ReplicaStatus](t)(follower.Admin().ReplicaStatus(ctx)).Retrieved,
			uuidN(1)+":1-"))
	})
	if err := follower.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := follower.Start(ctx, uuidN(101)); err != nil {
		t.Fatal(err)
	}
	if err := follower.Admin().AdmitClients(ctx); err != nil {
		t.Fatal(err)
	}
	if st := must[ReplicaStatus](t)(follower.Admin().ReplicaStatus(ctx)); st.IORunning || st.SQLRunning ||
		st.Retrieved != "" {
		t.Fatalf("replication runs by itself or kept its relay log: %+v", st)
	}
	follow(t, follower, leader)
	waitSame(t, follower, leader)
	// A transaction larger than the room for relay logs.
	mustExec(t, app, "CREATE TABLE d.big (id INT PRIMARY KEY, v LONGBLOB)", "START TRANSACTION")
	for i := range 16 {
		mustExec(t, app, fmt.Sprintf("INSERT INTO d.big VALUES (%d, REPEAT('x', 1024*1024))", i))
	}
	mustExec(t, app, "COMMIT")
	waitSame(t, follower, leader)
	want, got := must[map[string]uint64](t)(leader.Admin().TableChecksums(ctx)),
		must[map[string]uint64](t)(follower.Admin().TableChecksums(ctx))
	if len(want) != 2 || got["d.big"] != want["d.big"] || got["d.t"] != want["d.t"] {
		t.Fatalf("checksums %v and %v", want, got)
	}
	t.Run("metadata lock", func(t *testing.T) { blockApplier(t, leader, follower, app) })
	t.Run("events", func(t *testing.T) { restoreEvents(t, leader, follower) })
	t.Run("broken", func(t *testing.T) { breakApplier(t, leader, follower, app) })
}

// blockApplier: a reader's open transaction keeps the applier from DDL until it is found and killed.
func blockApplier(t *testing.T, leader, follower *Server, app *lane) {
	ctx := testContext(t)
	mustExec(t, app, "CREATE USER reader IDENTIFIED BY 'pw'", "GRANT SELECT ON *.* TO reader")
	waitSame(t, follower, leader)
	reader := session(t, follower, Account{"reader", "pw"})
	mustExec(t, reader, "START TRANSACTION", "SELECT * FROM d.t")
	mustExec(t, app, "ALTER TABLE d.t ADD COLUMN w INT")
	var found []Blocker
	eventually(t, "the blocker is found", func() bool {
		found = must[[]Blocker](t)(follower.Admin().MetadataBlockers(ctx))
		return len(found) > 0
	})
	if len(found) != 1 || found[0].ID != reader.id.Load() || found[0].Object != "d.t" || found[0].User != "reader" {
		t.Fatalf("%+v", found)
	}
	if killed := must[[]Blocker](t)(follower.Admin().KillMetadataBlockers(ctx)); len(killed) != 1 {
		t.Fatalf("%+v", killed)
	}
	waitSame(t, follower, leader)
}

// restoreEvents: a replicated event is switched off on the follower; promotion switches it on, locally and otherwise
// unchanged.
func restoreEvents(t *testing.T, leader, follower *Server) {
	ctx := testContext(t)
	waitSame(t, follower, leader)
	events := must[[]Event](t)(follower.Admin().Events(ctx))
	if len(events) != 1 || events[0].Name != "e" || !strings.HasSuffix(events[0].Status, "SIDE_DISABLED") {
		t.Fatalf("%+v", events)
	}
	const shape = "SELECT CONCAT_WS('|', DEFINER, SQL_MODE, EVENT_DEFINITION, INTERVAL_VALUE, INTERVAL_FIELD, TIME_ZONE, CHARACTER_SET_CLIENT, COLLATION_CONNECTION) AS s FROM information_schema.EVENTS"
	before := must[table](t)(leader.Admin().bulk.query(ctx, shape))
	executed := must[string](t)(follower.Admin().GTIDExecuted(ctx))
	if err := follower.Admin().SetSuperReadOnly(ctx, false); err != nil {
		t.Fatal(err)
	}
	if err := follower.Admin().SetEventEnabled(ctx, "d", "e", true); err != nil {
		t.Fatal(err)
	}
	if err := follower.Admin().SetSuperReadOnly(ctx, true); err != nil {
		t.Fatal(err)
	}
	if events = must[[]Event](t)(follower.Admin().Events(ctx)); events[0].Status != "ENABLED" {
		t.Fatalf("%+v", events)
	}
	after := must[table](t)(follower.Admin().bulk.query(ctx, shape))
	if before[0]["s"] != after[0]["s"] {
		t.Fatalf("the event was\n%s\nand is\n%s", before[0]["s"], after[0]["s"])
	}
	if got := must[string](t)(follower.Admin().GTIDExecuted(ctx)); got != executed {
		t.Fatalf("it used a GTID: %s, was %s", got, executed)
	}
}

// breakApplier: the applier's error is in the status.
func breakApplier(t *testing.T, leader, follower *Server, app *lane) {
	ctx := testContext(t)
	if err := follower.Admin().SetSuperReadOnly(ctx, false); err != nil {
		t.Fatal(err)
	}
	mustExec(t, follower.Admin().bulk, "DELETE FROM d.t WHERE id = 1")
	mustExec(t, app, "UPDATE d.t SET v = 10 WHERE id = 1")
	eventually(t, "the applier stops", func() bool {
		st := must[ReplicaStatus](t)(follower.Admin().ReplicaStatus(ctx))
		return !st.SQLRunning && st.SQLErrno == 1032 && st.SQLError != ""
	})
}

// A commit waits for an acknowledgement that never comes: the status says so, closing for writes hangs and gives up in
// time, and the admin sessions still work.
func TestWaitingCommit(t *testing.T) {
	t.Parallel()
	s := started(t, initialized(t))
	ctx, a := testContext(t), s.Admin()
	if err := a.OpenWrites(ctx); err != nil {
		t.Fatal(err)
	}
	app := session(t, s, s.cfg.Admin)
	mustExec(t, app, "SET sql_log_bin = 0", "CREATE USER plain IDENTIFIED BY 'pw'", "SET sql_log_bin = 1")
	session(t, s, Account{"plain", "pw"})
	ended := make(chan error, 1)
	go func() { ended <- app.exec(ctx, "CREATE USER u IDENTIFIED BY 'x'") }()
	eventually(t, "the commit waits", func() bool { return must[Semisync](t)(a.WaitingSessions(ctx)).Waiting == 1 })

	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if err := a.SetSuperReadOnly(short, true); !errors.Is(err, ErrTimeout) {
		t.Fatalf("super_read_only with a waiter: %v", err)
	}
	if p := must[Pulse](t)(a.Ping(ctx)); p.Committing != 1 || p.Written == 0 {
		t.Fatalf("with a commit that waits: %+v", p)
	}
	if set := must[string](t)(a.GTIDExecuted(ctx)); set != "" {
		t.Fatalf("executed %q before the acknowledgement", set)
	}
	if owned := must[string](t)(a.GTIDOwned(ctx)); !strings.Contains(owned, ":1#") {
		t.Fatalf("the commit that waits owns its GTID: %q", owned)
	}
	if pos := must[BinlogPos](t)(a.BinlogStatus(ctx)); pos.Offset < 300 {
		t.Fatalf("the commit is not in the binary log: %v", pos)
	}
	if n, err := a.KillApplicationConnections(ctx); n != 1 || err != nil {
		t.Fatalf("%d sessions killed, only plain's should be: %v", n, err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Fatal("the client heard OK")
	}
	if err := s.Start(ctx, uuidN(2)); err != nil {
		t.Fatal(err)
	}
	users := must[table](t)(s.Admin().status.query(ctx, "SELECT User FROM mysql.user WHERE User = 'u'"))
	if set := must[string](t)(s.Admin().GTIDExecuted(ctx)); set != "" || len(users) != 0 {
		t.Fatalf("the unacknowledged account survived: executed %q, users %v", set, users)
	}
}

// TestKillSparesCommits: a session whose commit waits for room in the binary log is not killed: mysqld would end, or
// continue with a binary log that lacks bytes. Others are killed.
func TestKillSparesCommits(t *testing.T) {
	t.Parallel()
	cfg := initialized(t)
	disk := diskAt(t, cfg.BinlogDir())
	s := started(t, cfg)
	ctx, a := testContext(t), s.Admin()
	openForTest(t, s)
	mustExec(t, session(t, s, s.cfg.Admin), "CREATE USER plain IDENTIFIED BY 'pw'", "CREATE DATABASE d",
		"GRANT ALL ON d.* TO plain", "CREATE TABLE d.t (id INT PRIMARY KEY)")
	session(t, s, Account{"plain", "pw"})
	app, ended := session(t, s, Account{"plain", "pw"}), make(chan error, 1)
	if err := disk.Inject(faultfs.Full("")); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- app.exec(ctx, "INSERT INTO d.t VALUES (1)") }()
	eventually(t, "a commit waits", func() bool {
		return slices.ContainsFunc(must[[]Session](t)(a.ApplicationSessions(ctx)), Session.Commits)
	})
	if n, err := a.KillApplicationConnections(ctx); n != 1 || err != nil {
		t.Fatalf("%d sessions killed, one should be: %v", n, err)
	}
	select { // a killed one would wake up within a second
	case err := <-ended:
		t.Fatalf("the commit that waited for room: %v", err)
	case <-time.After(1500 * time.Millisecond):
	}
	if _, err := a.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
}

// TestPulseUninstrumented: commits that stand still show without performance_schema too.
func TestPulseUninstrumented(t *testing.T) {
	t.Parallel()
	cfg := initialized(t)
	cfg.Extra = map[string]string{"performance_schema": "OFF"}
	s := started(t, cfg)
	ctx, a := testContext(t), s.Admin()
	if err := a.OpenWrites(ctx); err != nil {
		t.Fatal(err)
	}
	before := must[Pulse](t)(a.Ping(ctx))
	app, ended := session(t, s, s.cfg.Admin), make(chan error, 1)
	go func() { ended <- app.exec(ctx, "CREATE USER u IDENTIFIED BY 'x'") }()
	eventually(t, "the commit waits", func() bool { return must[Semisync](t)(a.WaitingSessions(ctx)).Waiting == 1 })
	if p := must[Pulse](t)(a.Ping(ctx)); before.Committing != 0 || p.Committing != 1 || p.Written <= before.Written {
		t.Errorf("with a commit that waits: %+v, before: %+v", p, before)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the client heard OK")
	}
}

func TestDurabilityRole(t *testing.T) {
	t.Parallel()
	s := started(t, initialized(t))
	ctx := testContext(t)
	for _, c := range []struct {
		leader bool
		want   []string
	}{{true, []string{"2", "0"}}, {false, []string{"0", "0"}}} {
		if err := s.Admin().SetDurabilityRole(ctx, c.leader); err != nil {
			t.Fatal(err)
		}
		if got := must[[]string](t)(s.Admin().globals(ctx, "innodb_flush_log_at_trx_commit", "sync_binlog")); !slices.Equal(got, c.want) {
			t.Fatalf("leader %v: %v", c.leader, got)
		}
	}
}

// TestXARecover: what a session has prepared is there after a kill and without the binary log, and its end is logged:
// lifecycle.ownXA rests on it.
func TestXARecover(t *testing.T) {
	t.Parallel()
	s := started(t, initialized(t))
	openForTest(t, s)
	app := session(t, s, s.cfg.Admin)
	mustExec(t, app, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)",
		"XA START 'a,b', X'00ff', 42", "INSERT INTO d.t VALUES (1)", "XA END 'a,b', X'00ff', 42",
		"XA PREPARE 'a,b', X'00ff', 42")
	found := must[[]XID](t)(s.Admin().XARecover(testContext(t)))
	if len(found) != 1 || found[0] != (XID{42, "a,b", "\x00\xff"}) {
		t.Fatalf("%+v", found)
	}
	ctx := testContext(t)
	if err := errors.Join(s.Admin().FlushEngineLogs(ctx), s.Kill(), s.Start(ctx, uuidN(2)), s.Admin().AdmitClients(ctx)); err != nil {
		t.Fatal(err)
	}
	if again := must[[]XID](t)(s.Admin().XARecover(testContext(t))); !slices.Equal(again, found) {
		t.Fatalf("after a restart: %+v", again)
	}
	openForTest(t, s)
	app = session(t, s, s.cfg.Admin)
	mustExec(t, app, "XA COMMIT 'a,b', X'00ff', 42")
	events := must[table](t)(s.Admin().bulk.query(testContext(t), "SHOW BINLOG EVENTS IN 'binlog.000001'"))
	if last := events[len(events)-1]["info"]; last != "XA COMMIT X'612c62',X'00ff',42" {
		t.Errorf("the last event is %q", last)
	}
}

func TestPurgeBinlogs(t *testing.T) {
	t.Parallel()
	s := started(t, initialized(t))
	ctx := testContext(t)
	openForTest(t, s)
	mustExec(t, s.Admin().bulk, "FLUSH LOCAL BINARY LOGS")
	if err := s.Admin().PurgeBinlogs(ctx, "binlog.000002"); err != nil {
		t.Fatal(err)
	}
	logs := must[table](t)(s.Admin().bulk.query(ctx, "SHOW BINARY LOGS"))
	if len(logs) != 1 || logs[0]["log_name"] != "binlog.000002" {
		t.Fatalf("%v", logs)
	}
}

// The account of an application can do its work, make accounts, and nothing that breaks a promise.
func TestAppAccount(t *testing.T) {
	t.Parallel()
	s := started(t, initialized(t))
	ctx := testContext(t)
	openForTest(t, s)
	for range 2 { // a second call changes nothing
		if err := MakeAppAccount(ctx, s.Admin().app.db, "app", "secret"); err != nil {
			t.Fatal(err)
		}
	}
	app := session(t, s, Account{"app", "secret"})
	admin := "'" + s.cfg.Admin.User + "'@localhost"
	mustExec(t, app,
		"CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)",
		"CREATE FUNCTION d.f() RETURNS INT RETURN 1",
		"CREATE TRIGGER d.tr BEFORE INSERT ON d.t FOR EACH ROW SET NEW.id = NEW.id",
		"CREATE EVENT d.e ON SCHEDULE EVERY 1 DAY DO DELETE FROM d.t", "CREATE USER other IDENTIFIED BY 'x'",
		"GRANT SELECT, INSERT ON d.* TO other WITH GRANT OPTION", "GRANT CREATE USER ON *.* TO other", "CREATE ROLE r",
		"GRANT r TO other", "ALTER USER other IDENTIFIED BY 'y'", "DROP USER other", "SELECT COUNT(*) FROM mysql.user",
		"SHOW PROCESSLIST", "XA RECOVER")
	for _, q := range []string{
		"SET GLOBAL rpl_semi_sync_source_enabled = OFF", "SET PERSIST rpl_semi_sync_source_enabled = OFF",
		"SET PERSIST_ONLY rpl_semi_sync_source_enabled = OFF", "SET GLOBAL super_read_only = OFF",
		"SET SESSION sql_log_bin = 0", "SET SESSION gtid_next = '" + uuidN(9) + ":1'", "SHUTDOWN", "RESTART",
		"FLUSH BINARY LOGS", "FLUSH TABLES", "FLUSH STATUS", "FLUSH TABLES WITH READ LOCK", "FLUSH PRIVILEGES",
		"RESET BINARY LOGS AND GTIDS", "PURGE BINARY LOGS TO 'binlog.000001'", "STOP REPLICA",
		"CHANGE REPLICATION SOURCE TO SOURCE_PORT = 1", "UNINSTALL PLUGIN rpl_semi_sync_source",
		"INSTALL PLUGIN x SONAME 'x.so'", "UPDATE mysql.user SET plugin = 'x'", "DELETE FROM mysql.plugin",
		"DROP TABLE mysql.gtid_executed", "CREATE TABLE mysql.x (a INT)", "ALTER TABLE mysql.user ADD COLUMN x INT",
		"LOCK TABLES mysql.user WRITE", "ALTER USER " + admin +
			" IDENTIFIED BY 'x'", "DROP USER " + admin, "GRANT " + admin +
			" TO app", "SET PASSWORD FOR " + admin + " = 'x'",
		"RENAME USER " + admin + " TO x", "REVOKE ALL ON *.* FROM " + admin, "GRANT SYSTEM_USER ON *.* TO app",
		"GRANT REPLICATION SLAVE ON *.* TO app", "GRANT INSERT ON mysql.* TO app", "CREATE DEFINER = " + admin +
			" PROCEDURE d.p() SET GLOBAL super_read_only = OFF", "CREATE DEFINER = " + admin +
			" EVENT d.x ON SCHEDULE EVERY 1 SECOND DO SET GLOBAL rpl_semi_sync_source_enabled = OFF",
		"ALTER INSTANCE DISABLE INNODB REDO_LOG", "CLONE LOCAL DATA DIRECTORY = '/tmp/never'",
		"SELECT 1 INTO OUTFILE '/tmp/never'", "LOCK INSTANCE FOR BACKUP", "SHOW BINLOG EVENTS",
		"SET GLOBAL event_scheduler = OFF", "SET GLOBAL gtid_purged = '+" + uuidN(9) + ":1'",
	} {
		if err := app.exec(ctx, q); err == nil {
			t.Errorf("allowed: %s", q)
		} else if n := errorNumber(err); n == 1064 || n == 0 {
			t.Errorf("not refused but misunderstood: %s: %v", q, err)
		}
	}
	if err := s.Admin().VerifyLeaderSettings(ctx); err == nil ||
		!strings.Contains(err.Error(), "rpl_semi_sync_source_enabled") {
		t.Fatal("this test runs with semi-sync off", err)
	}
	if n := must[int](t)(s.Admin().KillApplicationConnections(ctx)); n != 1 {
		t.Fatalf("%d killed", n)
	}
	eventually(t, "the session is gone",
		func() bool { return len(must[[]Session](t)(s.Admin().ApplicationSessions(ctx))) == 0 })
	turnsAway(t, s, Account{"app", "secret"})
}

// turnsAway starts the server again: until it is told otherwise it accepts only Trireme's own accounts.
func turnsAway(t *testing.T, s *Server, app Account) {
	ctx := testContext(t)
	if err := errors.Join(s.Admin().FlushEngineLogs(ctx), s.Kill(), s.Start(ctx, uuidN(2))); err != nil {
		t.Fatal(err)
	}
	l := newLane(laneSpec{socket: s.cfg.Socket(), account: app, logged: true})
	defer l.close()
	if err := l.open(ctx); errorNumber(err) != 3032 {
		t.Fatalf("an application at a server that was not judged: %v", err)
	}
	session(t, s, s.cfg.Repl)
	if err := s.Admin().AdmitClients(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.open(ctx); err != nil {
		t.Fatal(err)
	}
}

// A server that stands still misses the deadline, and the probe's login survives it.
func TestPingStoppedServer(t *testing.T) {
	t.Parallel()
	s := started(t, initialized(t))
	ctx, a := testContext(t), s.Admin()
	before := a.probe.id.Load()
	if err := syscall.Kill(s.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "every thread of mysqld has stopped", func() bool { return allStopped(t, s.Pid()) })
	for range 2 {
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		if _, err := a.Ping(short); !errors.Is(err, ErrTimeout) {
			t.Fatal(err)
		}
		cancel()
	}
	if err := syscall.Kill(s.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the answer that was late, and a fresh one
		if p := must[Pulse](t)(a.Ping(ctx)); p.Committing != 0 {
			t.Fatalf("%+v", p)
		}
	}
	if after := a.probe.id.Load(); after != before {
		t.Fatalf("connection %d became %d", before, after)
	}
}

// allStopped reports whether SIGSTOP has reached every thread: kill returns before that, and a thread that still runs
// answers.
func allStopped(t *testing.T, pid int) bool {
	threads := must[[]string](t)(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)))
	return len(threads) > 0 && !slices.ContainsFunc(threads, func(path string) bool {
		stat, err := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(stat), ") ") // pid (name) state …
		return err != nil || !strings.HasPrefix(rest, "T")
	})
}

// Who gives up waiting for a busy session leaves the statement alone that keeps it busy; who gives up on his own ends
// it.
func TestBusySession(t *testing.T) {
	t.Parallel()
	s := started(t, initialized(t))
	ctx, a := testContext(t), s.Admin()
	long, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := a.WaitExecuted(long, uuidN(9)+":1", time.Minute)
		ended <- err
	}()
	id := a.wait.id.Load()
	busy := func() bool {
		for _, r := range must[table](t)(a.status.query(ctx, "SHOW PROCESSLIST")) {
			if r["id"] == fmt.Sprint(id) && r["command"] == "Query" {
				return true
			}
		}
		return false
	}
	eventually(t, "the session is busy", busy)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := a.WaitExecuted(short, uuidN(9)+":2", time.Second); !errors.Is(err, ErrTimeout) {
		t.Fatal(err)
	}
	if !busy() {
		t.Fatal("the first statement was ended for the second")
	}
	stop()
	if err := <-ended; !errors.Is(err, ErrTimeout) {
		t.Fatal(err)
	}
	eventually(t, "the statement is killed on the server", func() bool { return !busy() })
	if must[bool](t)(a.WaitExecuted(ctx, uuidN(9)+":1", time.Millisecond)) {
		t.Fatal("executed")
	}
}

// Open transactions are listed with what they have done, and no longer once they have ended, however often one looks;
// prepared ones and our own are not.
func TestOpenTransactions(t *testing.T) {
	t.Parallel()
	s := started(t, initialized(t))
	ctx, a := testContext(t), s.Admin()
	if err := errors.Join(a.SetSemisync(ctx, false), a.OpenWrites(ctx)); err != nil {
		t.Fatal(err)
	}
	ours := session(t, s, s.cfg.Admin)
	mustExec(t, ours, "CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)", "CREATE USER plain IDENTIFIED BY 'pw'",
		"GRANT ALL ON d.* TO plain",
		"BEGIN", "INSERT INTO d.t VALUES (9)")
	one, two := session(t, s, Account{"plain", "pw"}), session(t, s, Account{"plain", "pw"})
	mustExec(t, one, "START TRANSACTION")
	if got := must[[]OpenTransaction](t)(a.OpenTransactions(ctx, true)); len(got) != 1 || got[0].Rows != 0 ||
		got[0].User != "plain" {
		t.Fatalf("%+v", got)
	}
	mustExec(t, one, "INSERT INTO d.t VALUES (1), (2)")
	eventually(t, "InnoDB's rows are shown", func() bool {
		got := must[[]OpenTransaction](t)(a.OpenTransactions(ctx, true))
		<-time.After(120 * time.Millisecond) // INNODB_TRX is not refreshed sooner
		return len(got) == 1 && got[0].Rows == 2 && got[0].Statement == "INSERT INTO d.t VALUES (1), (2)"
	})
	first := must[[]OpenTransaction](t)(a.OpenTransactions(ctx, false))
	mustExec(t, two, "XA START 'x'", "INSERT INTO d.t VALUES (3)", "XA END 'x'")
	if got := must[[]OpenTransaction](t)(a.OpenTransactions(ctx, false)); len(got) != 2 || !first[0].Same(got[0]) ||
		first[0].Same(got[1]) {
		t.Fatalf("%+v, before %+v", got, first)
	}
	mustExec(t, two, "XA PREPARE 'x'")
	for range 3 {
		mustExec(t, one, "COMMIT")
		if got := must[[]OpenTransaction](t)(a.OpenTransactions(ctx, true)); len(got) != 0 {
			t.Fatalf("ended transactions are listed: %+v", got)
		}
		mustExec(t, one, "BEGIN")
		if got := must[[]OpenTransaction](t)(a.OpenTransactions(ctx, true)); len(got) != 1 || first[0].Same(got[0]) {
			t.Fatalf("%+v, before %+v", got, first)
		}
	}
	mustExec(t, two, "XA ROLLBACK 'x'")
}
