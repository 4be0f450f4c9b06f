package robustness

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"trireme/internal/base/config"
	"trireme/internal/mysql/gtid"
	"trireme/internal/mysql/mysqld"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/verify"
)

const (
	streamUser     = "cdc"
	streamPassword = "cdc secret"
	streamServerID = 2_000_000
)

// streamAccount makes the account of consumers.
func (c *cluster) streamAccount() {
	c.t.Helper()
	db, err := c.Admin(c.leader())
	must(c.t, err)
	defer db.Close()
	run1(c.t, db, "CREATE USER "+streamUser+"@'%' IDENTIFIED BY '"+streamPassword+"'",
		"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO "+streamUser+"@'%'", "CREATE USER nobody@'%' IDENTIFIED BY '"+
			streamPassword+"'")
}

// longLog keeps all that a test writes in the log.
func longLog(n *config.Node) { n.Raft.LogMax = 10 * config.GiB }

// emptyReplica is a stock server of its own, with the accounts that GRANT statements in the log name.
func emptyReplica(t *testing.T) *sql.DB {
	t.Helper()
	_, login := plainServer(t)
	grantors(t, login)
	db, err := login.Open("")
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	run1(t, db, fmt.Sprintf("SET GLOBAL server_id = %d", streamServerID))
	return db
}

// attach points a replica to a node's stream.
func attach(t *testing.T, replica *sql.DB, n *demo.Node) {
	t.Helper()
	run1(t, replica,
		fmt.Sprintf(
			"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '%s', SOURCE_PORT = %d, SOURCE_USER = '%s', SOURCE_PASSWORD = '%s', "+
				"SOURCE_SSL = 1, SOURCE_AUTO_POSITION = 1, SOURCE_CONNECT_RETRY = 1, SOURCE_RETRY_COUNT = 1000, SOURCE_HEARTBEAT_PERIOD = 1", n.Host, n.Ports.Stream,
			streamUser, streamPassword), "START REPLICA")
}

func executed(t *testing.T, db *sql.DB) gtid.Set {
	t.Helper()
	s, err := gtid.ParseSet(get1(t, db, "SELECT @@GLOBAL.gtid_executed"))
	must(t, err)
	return s
}

// committed is what all data nodes hold: what one of them wrote for itself is not in it.
func (c *cluster) committed() (set gtid.Set) {
	c.t.Helper()
	for i, n := range c.DataNodes() {
		db, err := c.Admin(n)
		must(c.t, err)
		defer db.Close()
		if s := executed(c.t, db); i == 0 {
			set = s
		} else {
			set = set.Intersect(s)
		}
	}
	return set
}

// lacking is what has does not hold of want, but for what a mysqld wrote for itself before it led, which copies of its
// data have taken to all nodes.
func lacking(want, has gtid.Set) (missing gtid.Set) {
	for _, r := range want.Subtract(has).Ranges() {
		for _, h := range has.Ranges() {
			if h.SID == r.SID && h.First < r.First {
				missing.AddRange(r)
			}
		}
	}
	return missing
}

// streamed runs mysqlbinlog against a port, and gives the GTIDs in the order in which they came.
func streamed(t *testing.T, host string, port int, args ...string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), checkLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, needs.Tool(t, "mysqlbinlog"),
		append([]string{"--no-defaults", "--host=" + host, "--port=" + strconv.Itoa(port), "--user=" + streamUser,
			"--password=" + streamPassword, "--protocol=tcp"}, args...)...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("mysqlbinlog %s: %v\n%s", strings.Join(args, " "), err, problems.String())
	}
	var ids []string
	for _, m := range regexp.MustCompile(`(?m)^SET @@SESSION.GTID_NEXT= '([0-9a-f-]{36}:\d+)'`).
		FindAllSubmatch(out.Bytes(), -1) {
		ids = append(ids, string(m[1]))
	}
	return ids
}

func setOf(t *testing.T, ids []string) gtid.Set {
	t.Helper()
	var s gtid.Set
	for _, id := range ids {
		g, err := gtid.ParseGTID(id)
		must(t, err)
		if !s.Add(g) {
			t.Errorf("%s came twice", id)
		}
	}
	return s
}

// TestChangeStream: a stock server replicates from a follower's stream while leadership changes by a crash, goes on at
// a logger's with the position that it has, and in the end holds what the cluster holds, nothing else. mysqlbinlog
// reads the same transactions in the same order from every node, by GTID and by position, and on the router's other
// ports.
func TestChangeStream(t *testing.T) {
	t.Parallel()
	c := createShape(t, shape{nodes: 2, loggers: 1, tune: func(n *config.Node) {
		longLog(n)
		n.Router.Sessions = config.SessionsPass // for cutOff: TLS that the router cannot look into
	}})
	leader := c.healthy()
	follower := c.others(leader)[0]
	logger := c.Nodes()[2]
	c.streamAccount()
	replica := emptyReplica(t)
	w := c.load(verify.Config{Writers: 8, Mixed: true, Rate: steady()})
	attach(t, replica, follower)
	c.writesMore(w, loadBeforeKill)

	term := c.view().Term
	c.crash(leader)
	c.writesAfter(w, term)
	c.writesMore(w, loadBeforeKill)
	c.healthy()
	run1(t, replica, "STOP REPLICA")
	attach(t, replica, logger)
	c.writesMore(w, 100)
	term = c.view().Term
	c.crash(c.leader())
	c.writesAfter(w, term)
	c.writesMore(w, loadBeforeKill)
	t.Logf("%s", c.check(w))
	c.equal()

	want := c.committed()
	eventually(t, checkLimit, "the replica has all", func() error {
		if missing := lacking(want, executed(t, replica)); !missing.Empty() {
			return fmt.Errorf("it lacks %s; %s %s", missing,
				get1(t, replica,
					"SELECT CONCAT(LAST_ERROR_NUMBER, ' ', LAST_ERROR_MESSAGE) FROM performance_schema.replication_connection_status"),
				get1(t, replica,
					"SELECT IFNULL(MAX(CONCAT(LAST_ERROR_NUMBER, ' ', LAST_ERROR_MESSAGE)), '') FROM performance_schema.replication_applier_status_by_worker"))
		}
		return nil
	})
	has := executed(t, replica)
	if more := has.Subtract(want); !more.Empty() {
		t.Errorf("the replica has %s, which the cluster has not", more)
	}
	c.sameTables(replica)

	all := streamed(t, follower.Host, follower.Ports.Stream, "--read-from-remote-source=BINLOG-DUMP-GTIDS",
		"--to-last-log", "trireme-0-0.000000")
	if got := setOf(t, all); !got.Equal(has) {
		t.Errorf("mysqlbinlog shows %s, the replica has %s", got, has)
	}
	t.Logf("%d transactions in the stream", len(all))
	for _, n := range c.Nodes() {
		for what, ids := range map[string][]string{
			"by GTID": streamed(t, n.Host, n.Ports.Stream, "--read-from-remote-source=BINLOG-DUMP-GTIDS", "--to-last-log",
				"trireme-0-0.000000"),
			"by position": streamed(t, n.Host, n.Ports.Stream, "--read-from-remote-server", "--to-last-log",
				"trireme-0-0.000000"),
			"read-only port": streamed(t, n.Host, n.Ports.RO, "--ssl-mode=DISABLED", "--get-server-public-key",
				"--read-from-remote-server", "--to-last-log", "trireme-0-0.000000"),
		} {
			if !slices.Equal(ids, all) {
				t.Errorf("%s, %s: %d transactions, others or in another order", n.Name, what, len(ids))
			}
		}
	}
	c.streamRefuses(all)
	c.streamBegins()
	c.cutOff()
}

// streamBegins shows that a consumer may begin with what a follower says that it has executed, also if that follower
// has led and then logged statements of its own, which no other node ever sees.
func (c *cluster) streamBegins() {
	c.t.Helper()
	old := c.leader()
	_, err := c.Switchover(c.t.Context(), "")
	must(c.t, err)
	c.healthy()
	own, err := c.Admin(old)
	must(c.t, err)
	defer own.Close()
	before := executed(c.t, own)
	run1(c.t, own, "FLUSH STATUS")
	extra := executed(c.t, own).Subtract(before)
	db, err := sql.Open("mysql", fmt.Sprintf("%s:%s@tcp(%s:%d)/", streamUser, streamPassword, old.Host, old.Ports.Stream))
	must(c.t, err)
	defer db.Close()
	begin := executed(c.t, db)
	var file, executedSet string
	var position int
	var ignore any
	must(c.t, db.QueryRow("SHOW BINARY LOG STATUS").Scan(&file, &position, &ignore, &ignore, &executedSet))
	shown, err := gtid.ParseSet(executedSet)
	must(c.t, err)
	if extra.Empty() || !begin.Intersect(extra).Empty() || !before.ContainsSet(begin) || !shown.Equal(begin) {
		c.t.Errorf("statements of its own %s; on the stream's port it has executed %s, status says %s", extra, begin, shown)
	}
	if ids := streamed(c.t, old.Host, old.Ports.Stream, "--read-from-remote-source=BINLOG-DUMP-GTIDS", "--to-last-log",
		"--exclude-gtids="+begin.String(), "trireme-0-0.000000"); len(ids) > 0 {
		c.t.Errorf("%d transactions after what it has executed", len(ids))
	}
}

// cutOff shows that no consumer stays at a leader's own binary log, which it can reach by mysqld's own port and by TLS
// that the router cannot look into.
func (c *cluster) cutOff() {
	c.t.Helper()
	leader := c.leader()
	db, err := c.Admin(leader)
	must(c.t, err)
	defer db.Close()
	file := get1(c.t, db,
		"SELECT SUBSTRING_INDEX(FILE_NAME, '/', -1) FROM performance_schema.file_instances WHERE EVENT_NAME = 'wait/io/file/sql/binlog' LIMIT 1")
	for _, port := range []int{leader.Ports.MySQL, leader.Ports.RW} {
		ctx, cancel := context.WithTimeout(c.t.Context(), healLimit)
		cmd := exec.CommandContext(ctx, needs.Tool(c.t, "mysqlbinlog"), "--no-defaults", "--host="+leader.Host,
			"--port="+strconv.Itoa(port), "--user="+streamUser, "--password="+streamPassword, "--protocol=tcp",
			"--ssl-mode=REQUIRED", "--read-from-remote-server", "--stop-never", "--result-file="+filepath.Join(c.t.TempDir(),
				"out"), file)
		out, err := cmd.CombinedOutput()
		if err == nil || ctx.Err() != nil {
			c.t.Errorf("port %d: %v, %v; want it to be cut off:\n%s", port, err, ctx.Err(), out)
		}
		c.t.Logf("port %d: %v %s", port, err, out)
		cancel()
	}
}

// streamRefuses shows what consumers are told that cannot be served.
func (c *cluster) streamRefuses(all []string) {
	c.t.Helper()
	n := c.Nodes()[0]
	for _, x := range []struct {
		name, user string
		args       []string
		want       string
	}{
		{"privilege", "nobody", []string{"--read-from-remote-server", "trireme-0-0.000000"}, "REPLICATION SLAVE"},
		{"a file of mysqld's", streamUser, []string{"--read-from-remote-server", "binlog.000001"},
			"one mysqld's own binary log"},
		{"rolled back", streamUser, []string{"--read-from-remote-source=BINLOG-DUMP-GTIDS", "--exclude-gtids=" +
			all[len(all)-1] + "," + ahead(c.t, all[len(all)-1]), "trireme-0-0.000000"},
			"has never committed"},
	} {
		c.streamRefused(n, x.name, x.user, x.want, x.args...)
	}
}

// streamRefused has mysqlbinlog ask a node's stream for what it must not be given.
func (c *cluster) streamRefused(n *demo.Node, what, user, want string, args ...string) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), needs.Tool(c.t, "mysqlbinlog"),
		append([]string{"--no-defaults", "--host=" + n.Host, "--port=" + strconv.Itoa(n.Ports.Stream),
			"--user=" + user, "--password=" + streamPassword, "--protocol=tcp"}, args...)...)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
		c.t.Errorf("%s: %s: %v, want %q:\n%s", n.Name, what, err, want, out)
	}
}

// TestChangeStreamRefuses: a consumer that asks for transactions that are purged, or for a place that the log has not
// reached, is told so by every node; no one gets in with a wrong password, or without the TLS that the account
// requires; and a stock replica stands with its error and has applied nothing. Ten seconds.
func TestChangeStreamRefuses(t *testing.T) {
	needs.Long(t)
	c := lease(t)
	c.healthy()
	c.streamAccount()
	admin := c.admin(c.leader())
	admin.exec("CREATE USER sealed@'%' IDENTIFIED BY '"+streamPassword+"' REQUIRE SSL",
		"GRANT REPLICATION SLAVE ON *.* TO sealed@'%'")
	c.notWhole()
	byGTID := []string{"--read-from-remote-source=BINLOG-DUMP-GTIDS", "--to-last-log", "trireme-0-0.000000"}
	file, last := c.streamEnd()
	for _, n := range c.Nodes() {
		c.streamRefused(n, "what is purged", streamUser, "purged required binary logs", byGTID...)
		c.streamRefused(n, "a GTID to come", streamUser, "has never committed",
			append(byGTID, "--exclude-gtids="+c.committed().String()+","+ahead(t, last))...)
		c.streamRefused(n, "a position to come", streamUser, "position > file size", "--read-from-remote-server",
			"--start-position=4000000000", file)
		c.streamRefused(n, "a file to come", streamUser, "Could not find first log file name", "--read-from-remote-server",
			"trireme-1-999.000001")
		c.streamRefused(n, "a wrong password", streamUser, "Access denied", append(byGTID, "--password=wrong")...)
		c.streamRefused(n, "no TLS", "sealed", "Access denied", append(byGTID, "--ssl-mode=DISABLED",
			"--get-server-public-key")...)
	}

	replica := emptyReplica(t)
	had := executed(t, replica)
	attach(t, replica, c.Nodes()[0])
	eventually(t, healLimit, "the replica stands", func() error {
		said := get1(t, replica,
			"SELECT CONCAT(SERVICE_STATE, ' ', LAST_ERROR_NUMBER, ' ', LAST_ERROR_MESSAGE) FROM performance_schema.replication_connection_status")
		if !strings.HasPrefix(said, "OFF 13114 ") || !strings.Contains(said, "1236") ||
			!strings.Contains(said, "purged required binary logs") {
			return errors.New(said)
		}
		return nil
	})
	if now := executed(t, replica); !now.Equal(had) {
		t.Errorf("the replica had %s and has %s", had, now)
	}
	admin.exec("DROP USER " + streamUser + "@'%', nobody@'%', sealed@'%'")
}

// streamEnd is the file that the leader's mysqld writes now, by the stream's name, and a GTID of that server.
func (c *cluster) streamEnd() (file, id string) {
	c.t.Helper()
	leader := c.healthy()
	s := c.admin(leader)
	for _, m := range c.view().Members {
		if m.Name == leader.Name {
			incarnation, _, _ := strings.Cut(m.MySQL.Epoch, "/")
			number :=
				s.value("SELECT MAX(SUBSTRING_INDEX(FILE_NAME, '.', -1)) FROM performance_schema.file_instances WHERE EVENT_NAME = 'wait/io/file/sql/binlog'")
			file = fmt.Sprintf("trireme-%d-%s.%s", m.Raft.ID, incarnation, number)
		}
	}
	return file, s.value("SELECT @@server_uuid") + ":1"
}

// ahead is a GTID of the same server that is far from being written.
func ahead(t *testing.T, id string) string {
	t.Helper()
	g, err := gtid.ParseGTID(id)
	must(t, err)
	g.GNO += 1 << 40
	return g.String()
}

// sameTables compares the tables of a server with those of the leader.
func (c *cluster) sameTables(replica *sql.DB) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), checkLimit)
	defer cancel()
	leader, err := c.Admin(c.leader())
	must(c.t, err)
	defer leader.Close()
	want, err := verify.Checksums(ctx, leader)
	must(c.t, err)
	got, err := verify.Checksums(ctx, replica)
	must(c.t, err)
	for _, p := range verify.JudgeEqual("checksum", map[string]map[string]string{"cluster": want, "replica": got}) {
		c.t.Error(p)
	}
	if len(want) == 0 {
		c.t.Error("nothing was compared")
	}
}

// TestChangeStreamConsumer: python-mysql-replication reads rows from one node after the other, while leadership moves
// and a node that serves it dies, and sees each row once, in order.
func TestChangeStreamConsumer(t *testing.T) {
	if !soak() {
		t.Skip("a Python package: TRIREME_SOAK=1")
	}
	python := filepath.Join(drivers(), "python", "bin", "python")
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import pymysqlreplication").CombinedOutput(); err != nil {
		cannot(t, fmt.Sprintf("%v %s: scripts/drivers.sh", err, out))
	}
	c := createShape(t, shape{nodes: 3, tune: longLog})
	leader := c.healthy()
	c.streamAccount()
	admin, err := c.Admin(leader)
	must(t, err)
	run1(t, admin, "GRANT SELECT ON *.* TO "+streamUser+"@'%'", "CREATE DATABASE stream",
		"CREATE TABLE stream.t (id INT PRIMARY KEY)")
	begin := get1(t, admin, "SELECT @@GLOBAL.gtid_executed")
	admin.Close()

	const rows = 300
	var ports []string
	for _, n := range append(c.others(leader), leader) {
		ports = append(ports, strconv.Itoa(n.Ports.Stream))
	}
	ctx, cancel := context.WithTimeout(t.Context(), checkLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, python,
		append([]string{"testdata/stream.py", streamUser, streamPassword, begin, strconv.Itoa(rows)}, ports...)...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	seen := make(chan int, rows+1)
	go func() {
		defer close(seen)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var id int
			if json.Unmarshal(lines.Bytes(), &id) == nil {
				seen <- id
			}
		}
	}()
	router, err := c.Routed().Open("")
	must(t, err)
	defer router.Close()
	next := 1
	for i := range rows {
		if i == rows/3 {
			_, err := c.Switchover(ctx, "")
			must(t, err)
		}
		if i == 2*rows/3 {
			c.KillDaemon(c.others(leader)[0]) // whose stream is read
		}
		eventually(t, healLimit, "a write", func() error {
			_, err := router.ExecContext(ctx, fmt.Sprintf("INSERT INTO stream.t VALUES (%d) ON DUPLICATE KEY UPDATE id = id",
				i+1))
			return err
		})
	}
	for id := range seen {
		if id != next {
			t.Fatalf("row %d, want %d\n%s", id, next, problems.String())
		}
		next++
	}
	if err := errors.Join(cmd.Wait(), ctx.Err()); err != nil || next != rows+1 {
		t.Fatalf("%d rows: %v\n%s", next-1, err, problems.String())
	}
	t.Logf("%d rows, %s", rows, problems.String())
}

// drivers is the folder that scripts/drivers.sh fills.
func drivers() string {
	return cmp.Or(os.Getenv("TRIREME_DRIVERS"), filepath.Join(mysqld.CacheDir(), "drivers"))
}
