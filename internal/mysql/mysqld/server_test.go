package mysqld

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"trireme/internal/base/datacache"
	labchild "trireme/lab/child"
	"trireme/lab/faultfs"
)

// testLimit bounds everything that one test does with a server.
const testLimit = 2 * time.Minute

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testLimit)
	t.Cleanup(cancel)
	return ctx
}

func TestMain(m *testing.M) {
	labchild.Main(faultfs.Server)
	if os.Getenv(parentEnv) != "" {
		beParent()
		return
	}
	if os.Getenv(lockerEnv) != "" {
		beLocker()
		return
	}
	if os.Getenv(fatEnv) != "" {
		beFat()
	}
	os.Exit(m.Run())
}

// findMySQL skips the test when there is no server and none is required: needs.MySQL for this package, which that one
// imports.
func findMySQL(t *testing.T) Binary {
	t.Helper()
	b, err := Find(testContext(t), "")
	if err != nil {
		if os.Getenv("TRIREME_REQUIRE_MYSQL") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return b
}

// freePort is one for a server of this test: below the ephemeral range, so that no outgoing connection takes it before
// the server does, and claimed by a listener on the next port until the test ends.
func freePort(t *testing.T) int {
	t.Helper()
	const first, pairs = 17000, 1000
	for i := range pairs {
		port := first + 2*((os.Getpid()+i)%pairs)
		claim, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+1)))
		if err != nil {
			continue
		}
		free, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			_ = claim.Close()
			continue
		}
		_ = free.Close()
		t.Cleanup(func() { _ = claim.Close() })
		return port
	}
	t.Fatalf("no free port from %d on", first)
	return 0
}

func testConfig(t *testing.T, dir string) Config {
	t.Helper()
	return Config{
		Binary: findMySQL(t), Dir: dir, Port: freePort(t), ServerID: 7,
		Admin: Account{"trireme_admin", `s3cret'\"`}, Repl: Account{"trireme_repl", "r3pl"},
		Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
		Extra:  map[string]string{"innodb_buffer_pool_size": "32M", "innodb-redo-log-capacity": "16M"},
	}
}

// initialized gives a config whose data directory is a copy of one that Initialize has made.
func initialized(t *testing.T) Config {
	t.Helper()
	cfg := testConfig(t, t.TempDir())
	dir, err := datacache.Dir(testContext(t), CacheDir(), cfg.Binary.Path, cfg.Recipe(),
		func(ctx context.Context, dir string) error {
			made := cfg
			made.Dir = dir
			return Initialize(ctx, made)
		})
	if err == nil {
		err = InitializeFrom(testContext(t), cfg, dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// testWriter shows the log of a failed test only.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Helper()
	defer func() { _ = recover() }() // the end of a process may be noted after the end of its test
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func uuidN(n int) string { return fmt.Sprintf("00000000-0000-8000-8001-%012x", n) }

// started gives a running server that lets everybody in; the end of the test kills it.
func started(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(testContext(t), uuidN(1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Admin().AdmitClients(testContext(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// session is an application's or a test's own connection; its statements are logged.
func session(t *testing.T, s *Server, a Account) *lane {
	t.Helper()
	l := newLane(laneSpec{socket: s.cfg.Socket(), account: a, logged: true})
	t.Cleanup(l.close)
	if err := l.open(testContext(t)); err != nil {
		t.Fatal(err)
	}
	return l
}

func mustExec(t *testing.T, l *lane, statements ...string) {
	t.Helper()
	for _, q := range statements {
		if err := l.exec(testContext(t), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// eventually polls cond with a deadline.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// openForTest lets a server without a daemon commit.
func openForTest(t *testing.T, s *Server) {
	t.Helper()
	mustExec(t, s.Admin().control, "SET GLOBAL rpl_semi_sync_source_enabled = OFF")
	if err := s.Admin().OpenWrites(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

func alive(pid int) bool {
	p, ok := readProcess(pid)
	return ok && p.isMysqld()
}

func TestInitializeLeavesNoGTID(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t, t.TempDir())
	if err := Initialize(testContext(t), cfg); err != nil {
		t.Fatal(err)
	}
	if err := Initialize(testContext(t), cfg); !errors.Is(err, ErrInitialized) {
		t.Fatalf("second initialise: %v", err)
	}
	s := started(t, cfg)
	a, ctx := s.Admin(), testContext(t)
	if set := must[string](t)(a.GTIDExecuted(ctx)); set != "" {
		t.Fatalf("gtid_executed = %q", set)
	}
	if pos := must[BinlogPos](t)(a.BinlogStatus(ctx)); pos.File != "binlog.000001" {
		t.Fatalf("binary log at %v", pos)
	}
	ro, super, err := a.ReadOnly(ctx)
	if err != nil || !ro || !super {
		t.Fatalf("read_only %v, super_read_only %v, %v", ro, super, err)
	}
	if err := a.VerifyLeaderSettings(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := a.ReplicaStatus(ctx); !errors.Is(err, ErrNoChannel) {
		t.Fatalf("replica status without a channel: %v", err)
	}
	root := newLane(laneSpec{socket: cfg.Socket(), account: Account{User: "root"}})
	defer root.close()
	if err := root.open(ctx); err == nil {
		t.Fatal("root can log in without a password")
	}
	st, err := os.Stat(cfg.optionFile())
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("my.cnf: %v, %v", st.Mode(), err)
	}
}

// A restart after SIGKILL drops the binary log, keeps what was committed, and has a new server_uuid.
func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	s := started(t, initialized(t))
	ctx := testContext(t)
	openForTest(t, s)
	app := session(t, s, s.cfg.Admin)
	mustExec(t, app, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1),(2)")
	if err := s.Admin().FlushEngineLogs(ctx); err != nil {
		t.Fatal(err)
	}
	before := must[string](t)(s.Admin().GTIDExecuted(ctx))
	sums := must[map[string]uint64](t)(s.Admin().TableChecksums(ctx))
	if before != uuidN(1)+":1-3" || len(sums) != 1 {
		t.Fatalf("executed %q, checksums %v", before, sums)
	}
	if err := s.Start(ctx, uuidN(2)); !errors.Is(err, ErrRunning) {
		t.Fatalf("second start: %v", err)
	}
	done, old := s.Done(), s.Admin()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	<-done
	if e, ok := s.Exit(); !ok || e.Signal != syscall.SIGKILL || !e.Asked {
		t.Fatalf("exit %+v %v", e, ok)
	}
	if _, err := old.Ping(ctx); err == nil {
		t.Fatal("a dead server answers")
	}
	for n := 2; n < 4; n++ {
		if err := s.Start(ctx, uuidN(n)); err != nil {
			t.Fatal(err)
		}
		if got := must[[]string](t)(s.Admin().globals(ctx, "server_uuid")); got[0] != uuidN(n) || s.UUID() != uuidN(n) {
			t.Fatalf("server_uuid %v", got)
		}
		if n == 2 {
			gone := s.SocketGone()
			if err := s.StopPolitely(ctx); err != nil {
				t.Fatal(err)
			}
			select {
			case <-gone:
				t.Fatal("our own stop is reported as somebody else's")
			default:
			}
		}
	}
	after := must[map[string]uint64](t)(s.Admin().TableChecksums(ctx))
	if got := must[string](t)(s.Admin().GTIDExecuted(ctx)); got != before || after["d.t"] != sums["d.t"] {
		t.Fatalf("executed %q, was %q; checksums %v, were %v", got, before, after, sums)
	}
	if pos := must[BinlogPos](t)(s.Admin().BinlogStatus(ctx)); pos.File != "binlog.000001" {
		t.Fatalf("the old binary log is still there: %v", pos)
	}
}

func TestPlugHoles(t *testing.T) {
	t.Parallel()
	s := started(t, initialized(t))
	ctx, a := testContext(t), s.Admin()
	for _, set := range []string{uuidN(9) + ":5-7", uuidN(9) + ":1-2:9," + uuidN(8) + ":1"} {
		if err := a.PlugGTIDs(ctx, set); err != nil {
			t.Fatal(err)
		}
	}
	want := uuidN(8) + ":1," + uuidN(9) + ":1-2:5-7:9"
	if got := must[string](t)(a.GTIDExecuted(ctx)); got != want {
		t.Fatalf("executed %q, want %q", got, want)
	}
	if err := a.PlugGTIDs(ctx, uuidN(9)+":5"); err == nil {
		t.Fatal("a GTID was plugged twice")
	}
	if !must[bool](t)(a.WaitExecuted(ctx, uuidN(9)+":5", time.Second)) {
		t.Fatal("a plugged GTID is not executed")
	}
	if must[bool](t)(a.WaitExecuted(ctx, uuidN(9)+":3", 50*time.Millisecond)) {
		t.Fatal("a hole is executed")
	}
}

// What SET PERSIST_ONLY wrote must not be loaded at the next start: it would switch semi-sync off (S4).
func TestPersistedVariablesAreNotLoaded(t *testing.T) {
	t.Parallel()
	s := started(t, initialized(t))
	ctx := testContext(t)
	mustExec(t, s.Admin().control, "SET PERSIST_ONLY rpl_semi_sync_source_enabled = OFF",
		"SET PERSIST_ONLY read_only = OFF")
	if _, err := os.Stat(filepath.Join(s.cfg.DataDir(), "mysqld-auto.cnf")); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(ctx, uuidN(2)); err != nil {
		t.Fatal(err)
	}
	if err := s.Admin().VerifyLeaderSettings(ctx); err != nil {
		t.Fatal(err)
	}
	mustExec(t, s.Admin().control, "SET GLOBAL rpl_semi_sync_source_enabled = OFF")
	err := s.Admin().VerifyLeaderSettings(ctx)
	if !errors.Is(err, ErrWrongSettings) || !strings.Contains(err.Error(), "rpl_semi_sync_source_enabled") {
		t.Fatalf("semi-sync off: %v", err)
	}
}

// A server that somebody shuts down says so by removing its socket, long before it ends.
func TestSocketGone(t *testing.T) {
	s := started(t, initialized(t))
	select {
	case <-s.SocketGone():
		t.Fatal("the socket is there")
	default:
	}
	gone := s.SocketGone()
	mustExec(t, session(t, s, s.cfg.Admin), "SHUTDOWN")
	select {
	case <-gone:
	case <-time.After(20 * time.Second):
		t.Fatal("it was not noticed")
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if s.Pid() != 0 {
		t.Fatal("still there")
	}
}

// RESTART is a request to the daemon: the process ends with code 16.
func TestRestartStatement(t *testing.T) {
	t.Parallel()
	s := started(t, initialized(t))
	_ = session(t, s, s.cfg.Admin).exec(testContext(t), "RESTART") // the connection may be cut before the answer
	select {
	case <-s.Done():
	case <-time.After(time.Minute):
		t.Fatal("still running")
	}
	if e, ok := s.Exit(); !ok || !e.RestartAsked() || e.Asked {
		t.Fatalf("exit %v", e)
	}
}

func TestLongDirectory(t *testing.T) {
	cfg := testConfig(t, filepath.Join(t.TempDir(), strings.Repeat("long", 20)))
	if len(filepath.Join(cfg.RunDir(), "mysqld.sock")) <= maxSocketPath {
		t.Skip("the temporary directory is too short for this test")
	}
	other := initialized(t)
	if err := InitializeFrom(testContext(t), cfg, other.Dir); err != nil {
		t.Fatal(err)
	}
	if p := cfg.Socket(); len(p) > maxSocketPath {
		t.Fatal(p)
	}
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(cfg.Socket())) })
	s := started(t, cfg)
	if _, err := s.Admin().Ping(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

// If a socket's path would be too long, only root can create the short folder for a daemon that runs as root. A folder
// that others can write to, or that belongs to another user, is not used.
func TestSocketFolder(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make what another user would")
	}
	cfg := Config{Dir: filepath.Join(t.TempDir(), strings.Repeat("long", 25))}
	folder := filepath.Dir(cfg.Socket())
	for dir := filepath.Dir(folder); ; dir = filepath.Dir(dir) {
		uid, mode, err := ownerOf(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || uid != 0 || mode&0o022 != 0 {
			t.Fatalf("another user can make %s: %s is of user %d, mode %o, %v", folder, dir, uid, mode, err)
		}
		if dir == "/" {
			break
		}
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := cfg.makeDirs(); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func() error{
		"of another user": func() error { return os.Chown(folder, 65534, 65534) },
		"open to others":  func() error { return errors.Join(os.Chown(folder, 0, 0), os.Chmod(folder, 0o777)) },
		"a link":          func() error { return errors.Join(os.RemoveAll(folder), os.Symlink(t.TempDir(), folder)) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if err := cfg.makeDirs(); err == nil {
			t.Errorf("a socket folder that is %s is used", what)
		}
		if err := errors.Join(os.RemoveAll(folder), cfg.makeDirs()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnusableDirectories(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	t.Run("none", func(t *testing.T) {
		if err := Check(ctx, testConfig(t, t.TempDir())); !errors.Is(err, ErrNotInitialized) {
			t.Fatal(err)
		}
	})
	t.Run("foreign", func(t *testing.T) {
		cfg := testConfig(t, t.TempDir())
		if err := os.MkdirAll(filepath.Join(cfg.DataDir(), "mysql"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := Check(ctx, cfg); !errors.Is(err, ErrForeignData) {
			t.Fatal(err)
		}
		if err := Initialize(ctx, cfg); !errors.Is(err, ErrForeignData) {
			t.Fatal(err)
		}
	})
	t.Run("newer", func(t *testing.T) {
		cfg := initialized(t)
		newer := `{"file_format":"1","upgrade_history":[{"version":"9.7.4"},{"version":"99.1.0"}]}`
		if err := os.WriteFile(filepath.Join(cfg.DataDir(), "mysql_upgrade_history"), []byte(newer), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Check(ctx, cfg); !errors.Is(err, ErrNewerData) || !strings.Contains(err.Error(), "99.1") {
			t.Fatal(err)
		}
	})
	t.Run("port", func(t *testing.T) {
		cfg := initialized(t)
		l, err := net.Listen("tcp", cfg.ListenAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		err = Check(ctx, cfg)
		if !errors.Is(err, ErrPortInUse) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
			t.Fatal(err)
		}
	})
	t.Run("account", func(t *testing.T) {
		cfg := initialized(t)
		cfg.Admin.User = "other"
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(ctx, uuidN(1)); !errors.Is(err, ErrAccess) || s.Pid() != 0 {
			t.Fatal(err, s.Pid())
		}
	})
}

// lower_case_table_names is fixed when the data directory is made.
func TestFormatOptions(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t, t.TempDir())
	cfg.Extra["lower-case-table-names"] = "1"
	if err := Initialize(testContext(t), cfg); err != nil {
		t.Fatal(err)
	}
	s := started(t, cfg)
	if got := must[[]string](t)(s.Admin().globals(testContext(t), "lower_case_table_names")); got[0] != "1" {
		t.Fatal(got)
	}
	if err := s.StopPolitely(testContext(t)); err != nil {
		t.Fatal(err)
	}
	delete(cfg.Extra, "lower-case-table-names")
	s = must[*Server](t)(New(cfg))
	if err := s.Start(testContext(t), uuidN(2)); !errors.Is(err, ErrExited) ||
		!strings.Contains(err.Error(), "lower_case_table_names cannot change") {
		t.Fatal(err)
	}
}

// Pages that are torn beyond InnoDB's means end each start; the error names the way out.
func TestTornPages(t *testing.T) {
	t.Parallel()
	cfg := initialized(t)
	f := must[*os.File](t)(os.OpenFile(filepath.Join(cfg.DataDir(), "mysql.ibd"), os.O_RDWR, 0))
	defer f.Close()
	const page = 16 << 10
	st := must[os.FileInfo](t)(f.Stat())
	for at := int64(page); at < st.Size(); at += page {
		if _, err := f.WriteAt([]byte("torn"), at+page/2); err != nil {
			t.Fatal(err)
		}
	}
	err := must[*Server](t)(New(cfg)).Start(testContext(t), uuidN(1))
	if !errors.Is(err, ErrExited) || !strings.Contains(err.Error(), "`trireme reinit`") {
		t.Fatal(err)
	}
}

// Doublewrite files that the power went from while mysqld was making them do not keep it from starting: each length
// that a disk may have left.
func TestUnfinishedDoublewriteFiles(t *testing.T) {
	t.Parallel()
	cfg := initialized(t)
	s := started(t, cfg)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	files := must[[]string](t)(filepath.Glob(filepath.Join(cfg.DataDir(), "#ib_*.dblwr")))
	if len(files) < 2 {
		t.Fatalf("doublewrite files: %q", files)
	}
	const page = 16 << 10
	for i, size := range []int64{1, page / 2, page - 1, page, 2*page + page/2} {
		for _, f := range files {
			if err := os.Truncate(f, size); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Start(testContext(t), uuidN(2+i)); err != nil {
			t.Fatalf("files of %d bytes: %v", size, err)
		}
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if st := must[os.FileInfo](t)(os.Stat(f)); st.Size() < page {
				t.Errorf("%s was %d bytes long and is %d after a start", f, size, st.Size())
			}
		}
	}
}

// A mysqld that ends at once: its own words and advice are in the error.
func TestExitsAtOnce(t *testing.T) {
	t.Parallel()
	cfg := initialized(t)
	cfg.Extra["no_such_variable"] = "1"
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Start(testContext(t), uuidN(1))
	if !errors.Is(err, ErrExited) || !strings.Contains(err.Error(), "no_such_variable") ||
		!strings.Contains(err.Error(), "mysql.options") {
		t.Fatal(err)
	}
}

func TestNonTransactionalTableIsNamed(t *testing.T) {
	t.Parallel()
	s := started(t, initialized(t))
	ctx := testContext(t)
	openForTest(t, s)
	app := session(t, s, s.cfg.Admin)
	mustExec(t, app, "CREATE DATABASE d", "SET SESSION sql_mode = DEFAULT")
	if err := app.exec(ctx, "CREATE TABLE d.m (a INT) ENGINE=MyISAM"); errorNumber(err) != 3161 {
		t.Fatalf("MyISAM: %v", err)
	}
	if err := app.exec(ctx, "CREATE TEMPORARY TABLE d.m (a INT) ENGINE=MEMORY"); errorNumber(err) != 3161 {
		t.Fatalf("mysqld refuses the engine for temporary tables too: %v", err)
	}
	// With engine substitution such a table quietly becomes InnoDB.
	mustExec(t, app, "SET SESSION sql_mode = ''", "CREATE TABLE d.ok (a INT) ENGINE=MyISAM")
	if err := s.Admin().checkTables(ctx); err != nil {
		t.Fatal(err)
	}
	// Such a table can only come from before: made here by a server without our settings.
	if err := s.StopPolitely(ctx); err != nil {
		t.Fatal(err)
	}
	makeMyISAM(t, s.cfg)
	err := s.Start(ctx, uuidN(2))
	if !errors.Is(err, ErrNonTransaction) || !strings.Contains(err.Error(), "d.old (MyISAM)") {
		t.Fatal(err)
	}
	if s.Pid() != 0 {
		t.Fatal("refused, and running")
	}
}

// makeMyISAM runs a plain mysqld on cfg's data directory for one statement.
func makeMyISAM(t *testing.T, cfg Config) {
	t.Helper()
	socket := filepath.Join(cfg.RunDir(), "plain.sock")
	p, err := cfg.launch(launchSpec{args: []string{"--no-defaults", "--datadir=" + cfg.DataDir(), "--skip-networking",
		"--skip-log-bin", "--loose-mysqlx=OFF", "--secure-file-priv=NULL", "--socket=" + socket,
		"--pid-file=" + filepath.Join(cfg.RunDir(), "plain.pid"), "--log-error=" + cfg.initLog()}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.kill() }()
	l := newLane(laneSpec{socket: socket, account: cfg.Admin})
	defer l.close()
	if err := waitReady(testContext(t), p, l, cfg.initLog()); err != nil {
		t.Fatal(err)
	}
	mustExec(t, l, "CREATE TABLE d.old (a INT) ENGINE=MyISAM")
	if err := p.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.done
}
