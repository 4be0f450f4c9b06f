package robustness

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/api"
	"trireme/internal/ops/demo"
	"trireme/internal/ops/setup"
	"trireme/lab/needs"
	"trireme/lab/testkit"
)

const plainPassword = "plain secret" // of root on the servers that are adopted

// plain is a MySQL server that knows nothing of Trireme.
type plain struct {
	t    *testing.T
	dir  string
	port int
	proc *demo.Process
}

func (p *plain) data() string   { return filepath.Join(p.dir, "data") }
func (p *plain) socket() string { return filepath.Join(p.dir, "s") }

// startPlain starts mysqld as a distribution would. Its data directory is there.
func startPlain(t *testing.T, bin, dir string, serverID, port int) *plain {
	t.Helper()
	p := &plain{t: t, dir: dir, port: port}
	cnf := fmt.Sprintf(`[mysqld]
datadir=%s
socket=%s
port=%d
server_id=%d
pid_file=%s/pid
log_error=%s/error.log
log_bin=%s/binlogs/mysql-bin
gtid_mode=ON
enforce_gtid_consistency=ON
report_host=127.0.0.1
report_port=%d
bind_address=127.0.0.1
mysqlx=OFF
event_scheduler=ON
innodb_buffer_pool_size=64M
innodb_redo_log_capacity=64M
max_connections=123
character_set_server=latin1
secure_file_priv=NULL
`, p.data(), p.socket(), port, serverID, dir, dir, dir, port)
	must(t, os.MkdirAll(filepath.Join(dir, "binlogs"), 0o750))
	must(t, os.WriteFile(filepath.Join(dir, "my.cnf"), []byte(cnf), 0o600))
	args := []string{"--defaults-file=" + filepath.Join(dir, "my.cnf")}
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	var err error
	p.proc, err = demo.StartProcess(demo.Command{Path: bin, Args: args, Dir: "/", LogFile: filepath.Join(dir, "out.log")})
	must(t, err)
	t.Cleanup(p.proc.Kill)
	return p
}

// open connects as root.
func (p *plain) open(password string) *sql.DB {
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = "root", password, "unix", p.socket()
	return openDB(p.t, c)
}

func openDB(t *testing.T, c *mysql.Config) *sql.DB {
	t.Helper()
	c.Timeout, c.InterpolateParams = 5*time.Second, true
	connector, err := mysql.NewConnector(c)
	must(t, err)
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// run statements that must succeed.
func run1(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sqlLimit)
	defer cancel()
	for _, q := range statements {
		if _, err := db.ExecContext(ctx, q); err != nil {
			t.Fatalf("%.80s: %v", q, err)
		}
	}
}

func get1(t *testing.T, db *sql.DB, q string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sqlLimit)
	defer cancel()
	var v sql.NullString
	if err := db.QueryRowContext(ctx, q).Scan(&v); err != nil {
		t.Fatalf("%.80s: %v", q, err)
	}
	return v.String
}

// replicationSet is a source and a replica with some data.
type replicationSet struct {
	source, replica *plain
}

// makeSet makes a running replication set.
func makeSet(t *testing.T, dir string, base int) replicationSet {
	t.Helper()
	bin := needs.MySQL(t)
	one, two := filepath.Join(dir, "source"), filepath.Join(dir, "replica")
	must(t, os.MkdirAll(one, 0o755))
	must(t, os.MkdirAll(two, 0o755))
	data := os.DirFS(testkit.NewServer(t).DataDir()) // without auto.cnf
	must(t, os.CopyFS(filepath.Join(one, "data"), data))
	must(t, os.CopyFS(filepath.Join(two, "data"), data))
	s := replicationSet{source: startPlain(t, bin.Path, one, 11, base), replica: startPlain(t, bin.Path, two, 12, base+5)}
	for _, p := range []*plain{s.source, s.replica} {
		db := p.open("")
		eventually(t, healLimit, "a plain server is up", func() error {
			if !p.proc.Alive() {
				b, _ := os.ReadFile(filepath.Join(p.dir, "error.log"))
				t.Fatalf("it has ended:\n%s", b)
			}
			return db.PingContext(t.Context())
		})
		run1(t, db, "SET sql_log_bin = 0", "SET PERSIST innodb_print_all_deadlocks = ON")
	}
	run1(t, s.source.open(""), "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
		"SET PERSIST rpl_semi_sync_source_enabled = ON", "SET PERSIST rpl_semi_sync_source_timeout = 1000")
	run1(t, s.replica.open(""), "INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'",
		"SET PERSIST rpl_semi_sync_replica_enabled = ON")
	src := s.source.open("")
	run1(t, src, "CREATE USER repl@'127.0.0.1' IDENTIFIED BY 'repl'", "GRANT REPLICATION SLAVE ON *.* TO repl@'127.0.0.1'",
		"CREATE USER app@'%' IDENTIFIED BY 'app'", "CREATE DATABASE shop", "GRANT ALL ON shop.* TO app@'%'",
		"CREATE USER root@'127.0.0.1' IDENTIFIED BY '"+plainPassword+"'",
		"GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION",
		"CREATE TABLE shop.big (id INT AUTO_INCREMENT PRIMARY KEY, v LONGBLOB)",
		"CREATE TABLE shop.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
		"CREATE VIEW shop.w AS SELECT COUNT(*) AS n FROM shop.big", "CREATE TABLE shop.ticks (at DATETIME(6))",
		"CREATE DEFINER=app@'%' EVENT shop.tick ON SCHEDULE EVERY 1 SECOND DO INSERT INTO shop.ticks VALUES (NOW(6))")
	for range 8 {
		run1(t, src, "INSERT INTO shop.big (v) VALUES (REPEAT(RANDOM_BYTES(1024), 1024))")
	}
	rep := s.replica.open("")
	run1(t, rep,
		fmt.Sprintf(
			"CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=%d, SOURCE_USER='repl', SOURCE_PASSWORD='repl',"+
				" SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1, SOURCE_CONNECT_RETRY=1", base), "START REPLICA")
	run1(t, src, "ALTER USER root@localhost IDENTIFIED BY '"+plainPassword+"'") // replicated
	eventually(t, healLimit, "the replica follows", func() error {
		if a, b := get1(t, src, "SELECT @@gtid_executed"), get1(t, rep, "SELECT @@gtid_executed"); a != b {
			return fmt.Errorf("source %s, replica %s", a, b)
		}
		return nil
	})
	return s
}

// adopted is a cluster that a test makes with the command line.
type adopted struct {
	t     *testing.T
	dir   string
	base  int // port
	procs map[string]*demo.Process
}

// command is trireme on the host of these nodes.
func (a *adopted) command(ctx context.Context, args ...string) *exec.Cmd {
	a.t.Helper()
	cmd := exec.CommandContext(ctx, testkit.Program(a.t, testkit.Trireme), args...)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+filepath.Join(a.dir, "config"), "TRIREME_MYSQL_PASSWORD=",
		"TRIREME_JOIN_TOKEN=")
	return cmd
}

// cli runs trireme and gives its output and exit code.
func (a *adopted) cli(args ...string) (out string, code int) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), healLimit)
	defer cancel()
	cmd := a.command(ctx, args...)
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		a.t.Fatalf("trireme %s: %v", strings.Join(args, " "), err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// done runs trireme, which must succeed.
func (a *adopted) done(args ...string) string {
	a.t.Helper()
	out, code := a.cli(args...)
	if code != 0 {
		a.t.Fatalf("trireme %s: exit %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// inJSON runs trireme with --json, which must end with a code, and decodes what it prints.
func (a *adopted) inJSON(code int, res any, args ...string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), healLimit)
	defer cancel()
	got, out := runCommand(a.t, a.command(ctx, append(args, "--json")...))
	if got != code {
		a.t.Fatalf("trireme %s: exit %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	must(a.t, json.Unmarshal(out, res))
}

// refused runs trireme, which must fail in one way and name what an operator needs.
func (a *adopted) refused(kind api.Kind, name string, args ...string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), healLimit)
	defer cancel()
	code, out := runCommand(a.t, a.command(ctx, append(args, "--json")...))
	if err := failedAs(code, out, kind, strings.Join(args, " "), name); err != nil {
		a.t.Error(err)
	}
}

// flags of node i.
func (a *adopted) flags(i int) []string {
	p := a.base + 5*i
	return []string{"--name", "n" + strconv.Itoa(i+1), "--dir", a.node(i), "--host", "127.0.0.1", "--bind", "127.0.0.1",
		"--peer-port", strconv.Itoa(p + 1), "--api-port", strconv.Itoa(p + 2), "--rw-port", strconv.Itoa(p + 3), "--ro-port",
		strconv.Itoa(p + 4), "--split-port", "0", "--stream-port", "0"}
}

func (a *adopted) node(i int) string { return filepath.Join(a.dir, "n"+strconv.Itoa(i+1)) }
func (a *adopted) api(i int) string  { return fmt.Sprintf("127.0.0.1:%d", a.base+5*i+2) }

// adopt gives the arguments to adopt a plain server as node i.
func (a *adopted) adopt(i int, p *plain, more ...string) []string {
	secret := filepath.Join(a.dir, "root.password")
	must(a.t, os.WriteFile(secret, []byte(plainPassword+"\n"), 0o600))
	args := append([]string{"adopt", "--socket", p.socket(), "--password-file", secret}, a.flags(i)...)
	return append(args, more...)
}

// start starts the daemon of node i.
func (a *adopted) start(i int) {
	a.t.Helper()
	dir := a.node(i)
	p, err := demo.StartProcess(demo.Command{Path: testkit.Program(a.t, testkit.Trireme),
		Args: []string{"node", "--config", filepath.Join(dir, "trireme.toml")},
		Dir:  "/", LogFile: filepath.Join(a.dir, fmt.Sprintf("n%d.log", i+1))})
	must(a.t, err)
	a.procs[filepath.Base(dir)] = p
	a.t.Cleanup(func() {
		p.Stop(10 * time.Second)
		if a.t.Failed() {
			b, _ := os.ReadFile(filepath.Join(a.dir, fmt.Sprintf("n%d.log", i+1)))
			lines := strings.Split(string(b), "\n")
			a.t.Logf("n%d:\n%s", i+1, strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
	})
}

// view is the cluster as node i sees it.
func (a *adopted) view(i int) (api.ClusterView, error) {
	cl := api.NewClient("http://"+a.api(i), "", nil)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(a.t.Context(), 3*time.Second)
	defer cancel()
	return cl.Cluster(ctx)
}

// healthy waits until so many voters are, as node i sees it, and returns the leader.
func (a *adopted) healthy(i, members int) string {
	a.t.Helper()
	var leader string
	eventually(a.t, healLimit, fmt.Sprintf("%d healthy members", members), func() error {
		v, err := a.view(i)
		if err != nil {
			return err
		}
		n := 0
		for _, m := range v.Members {
			if m.State == api.StateHealthy && m.Raft.Voter {
				n++
			}
		}
		leader = v.Leader
		if n != members || leader == "" {
			return fmt.Errorf("%d of %d members are healthy, %q leads: %+v", n, members, leader, v.Members)
		}
		return nil
	})
	return leader
}

// app connects to a router port of node i as the application.
func (a *adopted) app(i, port int) *sql.DB {
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = "app", "app", "tcp", fmt.Sprintf("127.0.0.1:%d", a.base+5*i+port)
	return openDB(a.t, c)
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	st, err := os.Stat(path)
	must(t, err)
	return st.Sys().(*syscall.Stat_t).Ino
}

// TestAdopt follows docs/ops/adopt.md: a source and its replica become a cluster with a logger, in place; and what was
// promised of it.
func TestAdopt(t *testing.T) {
	t.Parallel()
	needMySQL(t)
	base, err := demo.FreePortBase(3)
	must(t, err)
	a := &adopted{t: t, dir: t.TempDir(), base: base, procs: map[string]*demo.Process{}}
	began := time.Now()
	step := func(what string) {
		t.Logf("%s: after %v", what, time.Since(began).Round(100*time.Millisecond))
		began = time.Now()
	}
	set := makeSet(t, a.dir, base)
	src := set.source.open(plainPassword)
	replica := fmt.Sprintf("127.0.0.1:%d", set.replica.port)
	step("a replication set runs")

	// What forbids to begin is said, and nothing changes.
	before := get1(t, src, "SELECT @@gtid_executed")
	a.refused(api.KindUnreachable, filepath.Join(a.dir, "none"),
		append([]string{"adopt", "--socket", filepath.Join(a.dir, "none")}, a.flags(0)...)...)
	wrong := filepath.Join(a.dir, "wrong")
	must(t, os.WriteFile(wrong, []byte("wrong"), 0o600))
	a.refused(api.KindFailed, "1045", append([]string{"adopt", "--socket", set.source.socket(), "--password-file", wrong},
		a.flags(0)...)...)
	a.refused(api.KindUsage, "--socket", append([]string{"adopt"}, a.flags(0)...)...)
	a.refused(api.KindConflict, "server_uuid", a.adopt(0, set.source)...)
	a.refused(api.KindConflict, "127.0.0.1", a.adopt(1, set.replica)...)
	out, code := a.cli(a.adopt(0, set.source, "--dry-run", "--replica", replica)...)
	if code != 0 || !strings.Contains(out, "max_connections") || !strings.Contains(out, "log_replica_updates") {
		t.Fatalf("dry run: exit %d\n%s", code, out)
	}
	t.Logf("the dry run says:\n%s", out)
	if _, err := os.Stat(a.node(0)); err == nil {
		t.Error("a dry run made the node's directory")
	}
	if after := get1(t, src, "SELECT @@gtid_executed"); trimTicks(after) != trimTicks(before) {
		t.Errorf("refusals changed the server: %s, then %s", before, after)
	}
	step("refusals and a dry run")

	// A replica that does not progress: the old set goes on as if nothing had been.
	rep := set.replica.open(plainPassword)
	holder, err := rep.Conn(t.Context())
	must(t, err)
	_, err = holder.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK")
	must(t, err)
	a.refused(api.KindFailed, replica, a.adopt(0, set.source, "--replica", replica, "--outage", "1s")...)
	_, err = holder.ExecContext(t.Context(), "UNLOCK TABLES")
	must(t, err)
	must(t, holder.Close())
	run1(t, src, "INSERT INTO shop.t (v) VALUES (1)")
	if n := get1(t, src,
		"SELECT COUNT(*) FROM mysql.user WHERE User LIKE 'trireme%' OR account_locked = 'Y' AND User = 'repl'"); n != "0" {
		t.Errorf("%s accounts are left", n)
	}
	if _, err := os.Stat(a.node(0)); err == nil {
		t.Error("an adoption that was taken back left the node's directory")
	}
	step("an adoption is taken back")

	big := inode(t, filepath.Join(set.source.data(), "shop", "big.ibd"))
	bigReplica := inode(t, filepath.Join(set.replica.data(), "shop", "big.ibd"))
	gap := newGapMeter(t, func() *sql.DB {
		c := mysql.NewConfig()
		c.User, c.Passwd, c.Net, c.Addr = "app", "app", "tcp", fmt.Sprintf("127.0.0.1:%d", base)
		return openDB(t, c)
	}())
	a.done(a.adopt(0, set.source, "--replica", replica)...)
	a.start(0)
	a.healthy(0, 1)
	gap.next()
	t.Logf("writes were closed for %v", gap.longest())
	gap.stop()
	step("the source is a cluster")
	if got := inode(t, filepath.Join(a.node(0), "mysql", "data", "shop", "big.ibd")); got != big {
		t.Error("the data was copied")
	}
	if _, err := os.Stat(set.source.data()); err == nil {
		t.Error("the old data directory is there still")
	}
	if logs, _ := filepath.Glob(filepath.Join(a.node(0), setup.BeforeAdopt, "binlog", "mysql-bin.*")); len(logs) < 2 {
		t.Errorf("the old binary logs are not kept: %v", logs)
	}
	a.refused(api.KindFailed, a.node(0), "adopt", "--undo", "--dir", a.node(0))

	token := func(name, role string) string {
		var res api.JoinTokenResult
		must(t, json.Unmarshal([]byte(a.done("add", name, "--role", role, "--json", "--api", a.api(0))), &res))
		return res.Token
	}
	// One transaction too many: the cluster refuses it and names it, and the server goes on.
	run1(t, rep, "SET GLOBAL super_read_only = OFF")
	errant := newErrant(t, rep)
	a.refused(api.KindConflict, errant, a.adopt(1, set.replica, token("n2", "voter"))...)
	if v := get1(t, rep, "SELECT @@super_read_only"); v != "0" {
		t.Errorf("super_read_only is %s after a refusal", v)
	}
	// The base is what counts: without it the replica fits again.
	run1(t, rep, "RESET BINARY LOGS AND GTIDS", "SET GLOBAL gtid_purged = '"+a.baseOf(0)+"'")
	a.done(a.adopt(1, set.replica, token("n2", "voter"))...)
	a.start(1)
	a.done(append([]string{"join", "--role", "logger", token("n3", "logger")}, a.flags(2)...)...)
	a.start(2)
	if leader := a.healthy(0, 3); leader != "n1" {
		t.Errorf("%s leads", leader)
	}
	step("the replica and a logger have joined")
	if got := inode(t, filepath.Join(a.node(1), "mysql", "data", "shop", "big.ibd")); got != bigReplica {
		t.Error("the replica's data was copied")
	}

	app := a.app(2, 3)
	eventually(t, healLimit, "writes through the router", func() error {
		_, err := app.ExecContext(t.Context(), "INSERT INTO shop.t (v) VALUES (2)")
		return err
	})
	if n := get1(t, app, "SELECT n FROM shop.w"); n != "8" {
		t.Errorf("%s rows of data", n)
	}
	if v := get1(t, app, "SELECT CONCAT(@@max_connections, ' ', @@character_set_server)"); v != "135 latin1" {
		t.Errorf("settings: %s", v)
	}
	a.ticks(app)

	// The data of both lives on when the adopted source dies.
	a.procs["n1"].Kill()
	eventually(t, healLimit, "n2 takes over", func() error {
		if v, err := a.view(1); err != nil || v.Leader != "n2" {
			return fmt.Errorf("%q leads: %w", v.Leader, err)
		}
		_, err := app.ExecContext(t.Context(), "INSERT INTO shop.t (v) VALUES (3)")
		return err
	})
	a.ticks(app)
	a.start(0)
	a.healthy(1, 3)
	step("failover and rejoin")
	a.equal(app, 0, 1)
	step("the nodes are equal")
}

// trimTicks takes out what the event has done meanwhile: the number at the end.
func trimTicks(set string) string {
	at := strings.LastIndex(set, "-")
	return set[:max(at, 0)]
}

// ticks: the scheduled event runs.
func (a *adopted) ticks(app *sql.DB) {
	a.t.Helper()
	n := get1(a.t, app, "SELECT COUNT(*) FROM shop.ticks")
	eventually(a.t, healLimit, "the event runs", func() error {
		if get1(a.t, app, "SELECT COUNT(*) FROM shop.ticks") == n {
			return errors.New("no new tick")
		}
		return nil
	})
}

// equal: the nodes have the same data.
func (a *adopted) equal(app *sql.DB, nodes ...int) {
	a.t.Helper()
	run1(a.t, app, "DROP EVENT shop.tick")
	eventually(a.t, healLimit, "the nodes are equal", func() error {
		var sums []string
		for _, i := range nodes {
			db := a.direct(i)
			rows, err := db.QueryContext(a.t.Context(), "CHECKSUM TABLE shop.big, shop.t, shop.ticks")
			if err != nil {
				return err
			}
			var b bytes.Buffer
			for rows.Next() {
				var name, sum sql.NullString
				must(a.t, rows.Scan(&name, &sum))
				fmt.Fprintf(&b, "%s=%s ", name.String, sum.String)
			}
			must(a.t, rows.Close())
			sums = append(sums, b.String())
		}
		for _, s := range sums {
			if s != sums[0] {
				return fmt.Errorf("%q", sums)
			}
		}
		return nil
	})
}

// direct connects to node i's mysqld as the application.
func (a *adopted) direct(i int) *sql.DB { return a.app(i, 0) }

// baseOf is the GTID set that the cluster began with, as node i has it.
func (a *adopted) baseOf(i int) string {
	a.t.Helper()
	var c struct {
		Base string `json:"base"`
	}
	b, err := os.ReadFile(filepath.Join(a.node(i), "cluster.json"))
	must(a.t, err)
	must(a.t, json.Unmarshal([]byte(string(b)), &c))
	return c.Base
}

// newErrant makes a transaction of a server's own and returns its GTID.
func newErrant(t *testing.T, db *sql.DB) string {
	t.Helper()
	run1(t, db, "CREATE DATABASE errant", "DROP DATABASE errant")
	return get1(t, db, "SELECT @@server_uuid") + ":1"
}

// gapMeter writes all the time and remembers the longest time without a write.
type gapMeter struct {
	last, worst atomic.Int64 // ns
	count       atomic.Int64
	cancel      context.CancelFunc
	ended       chan struct{}
	t           *testing.T
}

func newGapMeter(t *testing.T, db *sql.DB) *gapMeter {
	ctx, cancel := context.WithCancel(t.Context())
	g := &gapMeter{cancel: cancel, ended: make(chan struct{}), t: t}
	g.last.Store(time.Now().UnixNano())
	go func() {
		defer close(g.ended)
		for ctx.Err() == nil {
			sctx, cancel := context.WithTimeout(ctx, time.Second)
			_, err := db.ExecContext(sctx, "INSERT INTO shop.t (v) VALUES (9)")
			cancel()
			if err == nil {
				now := time.Now().UnixNano()
				g.worst.Store(max(g.worst.Load(), now-g.last.Load()))
				g.last.Store(now)
				g.count.Add(1)
			}
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(g.stop)
	return g
}

// next waits for another write.
func (g *gapMeter) next() {
	g.t.Helper()
	n := g.count.Load()
	eventually(g.t, healLimit, "writes go on", func() error {
		if g.count.Load() == n {
			return errors.New("no write")
		}
		return nil
	})
}

func (g *gapMeter) longest() time.Duration {
	return time.Duration(g.worst.Load()).Round(time.Millisecond)
}

func (g *gapMeter) stop() {
	g.cancel()
	<-g.ended
}
