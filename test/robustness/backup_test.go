package robustness

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/api"
	"trireme/internal/base/config"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/ops/backup"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/testkit"
)

// kept is a new cluster with a table kept.t to be backed up, from a follower, and who runs trireme in a directory
// next to it.
func kept(t *testing.T) (c *cluster, follower *demo.Node, w *writer, a *adopted) {
	t.Helper()
	c = lease(t)
	w = &writer{c: c}
	follower = c.others(c.healthy())[0]
	c.crash(follower) // a server that has had XA transactions since its start cannot be copied yet
	c.healthy()
	w.run("CREATE DATABASE IF NOT EXISTS kept",
		"CREATE TABLE IF NOT EXISTS kept.t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(2000))")
	base, err := demo.FreePortBase(2)
	must(t, err)
	return c, follower, w, &adopted{t: t, dir: t.TempDir(), base: base, procs: map[string]*demo.Process{}}
}

// TestBackup takes a copy from a follower while the cluster is written to, archives what is written after it, and
// restores a moment in between: a stock mysqld with exactly the rows that were committed then, which the next cluster
// could begin with. The long form, TRIREME_SOAK=1, begins it.
//
// It writes less than raft.log_max: nothing is purged below the archive.
func TestBackup(t *testing.T) {
	t.Parallel()
	began := time.Now()
	step := func(what string) { t.Logf("%s: after %v", what, time.Since(began).Round(100*time.Millisecond)) }
	c, follower, w, a := kept(t)
	step("a cluster")
	// The log is archived by one process all the time, which also takes the first copy.
	dir := filepath.Join(a.dir, "backup")
	f := &archiving{t: t, args: []string{"backup", "--to", dir, "--follow", "--config",
		filepath.Join(follower.Dir, config.NodeFileName)}}
	f.start()
	writes := 0
	eventually(t, 2*time.Minute, "a copy while rows are written", func() error {
		if writes < 200 {
			writes++
			w.run("INSERT INTO kept.t (v) VALUES (REPEAT('x', 1000))")
		}
		f.keep()
		if made, err := filepath.Glob(filepath.Join(dir, "base", "*", "manifest.json")); err != nil || len(made) != 1 {
			return fmt.Errorf("%d copies, %w", len(made), err)
		}
		return nil
	})
	step("a copy")
	for _, n := range c.Nodes() {
		eventually(t, healLimit, n.Name+" knows of the backup", func() error {
			v, err := c.seen(n)
			if b := v.Backup; err == nil && (b == nil || b.Copy == nil || b.Copy.Donor == "" || b.Copy.Bytes == 0 ||
				b.CopyAgeS > 300 || b.Archive == nil || b.ArchiveAgeS > 120) {
				err = fmt.Errorf("%+v", b)
			}
			return err
		})
	}
	step("all nodes know of it")

	// Some more, the moment, and what is not to be there afterwards: rows, a table, and an account. The large
	// transaction is archived in pieces, and an XA transaction is prepared at the moment.
	w.run("CREATE TABLE IF NOT EXISTS kept.u (a INT PRIMARY KEY)", "REPLACE INTO kept.u VALUES (7)",
		"INSERT INTO kept.t (v) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600) SELECT REPEAT('z', 2000) FROM n")
	w.run("CREATE USER IF NOT EXISTS trireme_repl@'10.%', planted@'%'", "GRANT CREATE USER ON *.* TO planted@'%'")
	c.sql(c.healthy(), func(admin *sql.Conn) {
		for _, q := range []string{"CREATE USER IF NOT EXISTS 'mysql.planted'@'%', grants@'%', stands@'%', harmless@'%', may_be@'%'",
			"CREATE ROLE IF NOT EXISTS planted_role", "GRANT SUPER ON *.* TO 'mysql.planted'@'%'",
			"GRANT UPDATE ON mysql.* TO grants@'%'", "GRANT ALL ON kept.* TO harmless@'%'",
			"GRANT CREATE USER ON *.* TO planted_role", "GRANT planted_role TO stands@'%'",
			"INSERT INTO mysql.proxies_priv VALUES ('%', 'may_be', '%', 'planted', 0, '', NOW())"} {
			c.exec(admin, q)
		}
	})
	w.prepare("kept", "INSERT INTO kept.u VALUES (9)")
	moment, want := w.moment()
	w.run("INSERT INTO kept.t (v) VALUES ('too late')", "DELETE FROM kept.t WHERE id < 5",
		"CREATE USER IF NOT EXISTS late@localhost")
	w.try(func(s *session) error {
		// it is not there any more
		if err := s.try("XA ROLLBACK 'kept'"); err != nil && !strings.Contains(err.Error(), "1397") {
			return err
		}
		return nil
	})
	w.run("DROP TABLE IF EXISTS kept.u")
	last, committed := c.view().CommitIndex, time.Now()

	eventually(t, healLimit, "the archive has all of it", func() error {
		f.keep()
		names, err := filepath.Glob(filepath.Join(dir, "log", "*-*.seg"))
		if err != nil || len(names) == 0 {
			return fmt.Errorf("%d segments, %w", len(names), err)
		}
		if at := lastEntry(t, slices.Max(names)); at < last {
			return fmt.Errorf("entry %d of %d", at, last)
		}
		return nil
	})
	t.Logf("what was committed last was in the archive %v later", time.Since(committed).Round(10*time.Millisecond))
	if soak() {
		a.drill(c, dir)
		step("a drill")
	}
	logged := f.stop()
	t.Logf("%d rows were written while the copy was made\n%s", writes, logged)
	w.run("DROP DATABASE kept", "DROP USER IF EXISTS late@localhost, trireme_repl@'10.%', planted@'%'")
	step("a backup")
	a.done("backup", "verify", dir)

	to := filepath.Join(a.dir, "restored")
	var made backup.Restored
	a.inJSON(0, &made, "restore", "--from", dir, "--to-gtid", moment.String(), "--data", to,
		"--port", fmt.Sprint(a.base+8))
	if len(made.RolledBack) != 1 || !strings.Contains(made.RolledBack[0], fmt.Sprintf("%x", "kept")) {
		t.Errorf("the XA transaction is not named: %+v", made)
	}
	for _, who := range []string{"planted", "mysql.planted", "grants", "planted_role", "stands", "may_be"} {
		if !slices.Contains(made.Administrators, "'"+who+"'@'%'") {
			t.Errorf("%s, a planted account, is not named", who)
		}
	}
	if made.Proven || slices.Contains(made.Administrators, "'harmless'@'%'") {
		t.Errorf("a harmless account is named, or the backup is said to be proven: %+v", made)
	}
	step("a restored server")
	a.refused(api.KindNotEmpty, to, "restore", "--from", dir, "--data", to)
	a.restored(to, want, moment)
	step("a look at it")
}

// lastEntry is the last entry of a segment, by its name.
func lastEntry(t *testing.T, segment string) uint64 {
	t.Helper()
	_, to, _ := strings.Cut(strings.TrimSuffix(filepath.Base(segment), ".seg"), "-")
	at, err := strconv.ParseUint(to, 16, 64)
	must(t, err)
	return at
}

// drill proves the backup, which is being continued, by a follower; and without one.
func (a *adopted) drill(c *cluster, dir string) {
	t := a.t
	t.Helper()
	scratch := filepath.Join(a.dir, "scratch")
	must(t, os.Mkdir(scratch, 0o700))
	var d backup.Drilled
	eventually(t, healLimit, "a drill", func() error { // who follows may lead a moment later
		with := c.others(c.healthy())[0]
		code, out := runCommand(t, exec.Command(testkit.Program(t, testkit.Trireme), "backup", "drill", dir, "--scratch",
			scratch, "--json", "--config", filepath.Join(with.Dir, config.NodeFileName)))
		if code != 0 {
			return fmt.Errorf("exit code %d: %s", code, out)
		}
		if err := json.Unmarshal(out, &d); err != nil || d.With != with.Name || d.Tables == 0 || len(d.Differences) > 0 {
			t.Fatalf("%v %s", err, out)
		}
		return nil
	})
	d = backup.Drilled{}
	if a.inJSON(0, &d, "backup", "drill", dir, "--scratch", scratch, "--no-compare"); d.With != "" || d.Tables == 0 {
		t.Errorf("a drill without a node: %+v", d)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("drills have left %v, %v", left, err)
	}
}

// writer writes to the leader: on a machine without CPU a leader may change although nothing is broken. What it runs
// can be run twice.
type writer struct {
	c *cluster
	s *session // nil: to be opened
}

func (w *writer) try(f func(*session) error) {
	t := w.c.t
	t.Helper()
	eventually(t, healLimit, "a write", func() (err error) {
		if w.s == nil {
			if w.s, err = w.open(); err != nil {
				return err
			}
		}
		if err = f(w.s); err != nil {
			w.s.close()
			w.s = nil
		}
		return err
	})
}

func (w *writer) open() (*session, error) {
	ctx, cancel := context.WithTimeout(w.c.t.Context(), healLimit)
	defer cancel()
	n, err := w.c.Leader(ctx)
	if err != nil {
		return nil, err
	}
	l := w.c.Direct(n)
	l.StatementTimeout = sqlLimit
	db, err := l.Open("")
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		db.Close()
		return nil, err
	}
	s := &session{c: w.c, db: db, conn: conn}
	w.c.t.Cleanup(s.close)
	return s, nil
}

func (w *writer) run(statements ...string) {
	w.c.t.Helper()
	for _, st := range statements {
		w.try(func(s *session) error { return s.try(st) })
	}
}

// prepare leaves an XA transaction prepared. One that a leader before has prepared does as well.
func (w *writer) prepare(xid, statement string) {
	w.c.t.Helper()
	w.try(func(s *session) error {
		there, err := s.rows("XA RECOVER")
		if err != nil || strings.Contains(strings.Join(there, " "), xid) {
			return err
		}
		for _, q := range []string{"XA START '" + xid + "'", statement, "XA END '" + xid + "'", "XA PREPARE '" + xid + "'"} {
			if err := s.try(q); err != nil {
				return err
			}
		}
		return nil
	})
}

const keptRows = "SELECT CONCAT(COUNT(*), ' ', SUM(CRC32(CONCAT(id, v)))) FROM kept.t"

// moment writes a last row, and gives its GTID and the rows that are there with it.
func (w *writer) moment() (g gtid.GTID, rows string) {
	w.c.t.Helper()
	w.try(func(s *session) error {
		err := s.try("INSERT INTO kept.t (v) VALUES ('the moment')")
		values := make([]string, 3)
		for i, q := range []string{"SELECT @@server_uuid", "SELECT @@GLOBAL.gtid_executed", keptRows} {
			if err == nil {
				values[i], err = s.tryValue(q)
			}
		}
		if err != nil {
			return err
		}
		uuid, err := gtid.ParseUUID(values[0])
		if err != nil {
			return err
		}
		set, err := gtid.ParseSet(values[1])
		g, rows = gtid.GTID{SID: gtid.SID{UUID: uuid}, GNO: set.Last(gtid.SID{UUID: uuid})}, values[2]
		return err
	})
	return g, rows
}

// archiving is a `trireme backup --follow`, started again when it ends, as a service manager does.
type archiving struct {
	t     *testing.T
	args  []string
	cmd   *exec.Cmd
	out   *bytes.Buffer
	ended chan error
	again int
}

func (f *archiving) start() {
	f.cmd, f.out, f.ended = exec.Command(testkit.Program(f.t, testkit.Trireme), f.args...), &bytes.Buffer{},
		make(chan error, 1)
	f.cmd.Stdout, f.cmd.Stderr = f.out, f.out
	must(f.t, f.cmd.Start())
	cmd, ended := f.cmd, f.ended
	go func() { ended <- cmd.Wait() }()
	f.t.Cleanup(func() { _ = cmd.Process.Kill() })
}

// keep starts it again; not for ever.
func (f *archiving) keep() {
	f.t.Helper()
	select {
	case err := <-f.ended:
		if f.again++; f.again > 3 {
			f.t.Fatalf("trireme %s: %v\n%s", strings.Join(f.args, " "), err, f.out)
		}
		f.t.Logf("it is started again: %v\n%s", err, f.out)
		f.start()
	default:
	}
}

// stop ends it as Ctrl-C does, and gives what it said.
func (f *archiving) stop() string {
	f.t.Helper()
	must(f.t, f.cmd.Process.Signal(syscall.SIGINT))
	select {
	case err := <-f.ended:
		if err != nil {
			f.t.Fatalf("trireme %s: %v\n%s", strings.Join(f.args, " "), err, f.out)
		}
	case <-time.After(healLimit):
		f.t.Fatalf("trireme %s does not end", strings.Join(f.args, " "))
	}
	return f.out.String()
}

// opened starts a stock mysqld on what was restored, and says how to log in to it.
func (a *adopted) opened(dir string) (db *sql.DB, cfg *mysql.Config) {
	t := a.t
	t.Helper()
	bin := needs.MySQL(t)
	proc, err := demo.StartProcess(demo.Command{Path: bin.Path,
		Args: []string{"--defaults-file=" + filepath.Join(dir, "my.cnf")}, Dir: "/", LogFile: filepath.Join(dir, "out.log")})
	must(t, err)
	t.Cleanup(proc.Kill)
	password, err := os.ReadFile(filepath.Join(dir, rootPassword))
	must(t, err)
	cfg = mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = "root", strings.TrimSpace(string(password)),
		"unix", mysqld.Config{Dir: dir}.Socket()
	db = openDB(t, cfg)
	eventually(t, time.Minute, "the restored server answers", func() error {
		if !proc.Alive() {
			said, _ := os.ReadFile(filepath.Join(dir, "log", "mysqld.err"))
			t.Fatalf("the restored server has ended: %s", said[max(0, len(said)-1500):])
		}
		return db.PingContext(t.Context())
	})
	return db, cfg
}

// rootPassword is the file in a restored directory that has it.
const rootPassword = "root-password"

// restored looks at what was restored, and asks to begin a new cluster with it (in a soak: begins one), by the commands
// that restore names.
func (a *adopted) restored(dir, want string, moment gtid.GTID) {
	t := a.t
	t.Helper()
	db, cfg := a.opened(dir)
	if got := get1(t, db, keptRows); got != want {
		t.Errorf("rows of kept.t: %s, want %s", got, want)
	}
	if got := get1(t, db, "SELECT v FROM kept.t ORDER BY id DESC LIMIT 1"); got != "the moment" {
		t.Errorf("the last row is %q", got)
	}
	// Without the row of the XA transaction, nor its locks.
	run1(t, db, "SET SESSION innodb_lock_wait_timeout = 1")
	if got := get1(t, db, "SELECT GROUP_CONCAT(a) FROM kept.u FOR UPDATE"); got != "7" {
		t.Errorf("the table that was dropped later holds %q", got)
	}
	if got := get1(t, db, "SELECT GROUP_CONCAT(User) FROM mysql.user WHERE User = 'late' OR User LIKE 'trireme%'"); got != "" {
		t.Errorf("accounts: %s", got)
	}
	set, err := gtid.ParseSet(get1(t, db, "SELECT @@GLOBAL.gtid_executed"))
	must(t, err)
	if got := set.Last(moment.SID); got != moment.GNO {
		t.Errorf("executed up to %d, want %s", got, moment)
	}
	run1(t, db, "DELETE FROM kept.u") // it takes writes

	adopt := append([]string{"adopt", "--socket", cfg.Addr, "--user", "root", "--password-file",
		filepath.Join(dir, rootPassword)}, a.flags(0)...)
	if !soak() { // what can refuse is asked
		a.done(append(adopt, "--dry-run")...)
		return
	}
	a.done(adopt...)
	a.start(0)
	a.healthy(0, 1)
	cfg.Addr = mysqld.Config{Dir: filepath.Join(a.node(0), "mysql")}.Socket()
	led := openDB(t, cfg)
	if got := get1(t, led, keptRows); got != want {
		t.Errorf("rows of kept.t in the new cluster: %s, want %s", got, want)
	}
	run1(t, led, "INSERT INTO kept.u VALUES (8)")
}
