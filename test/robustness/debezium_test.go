package robustness

import (
	"bufio"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trireme/internal/mysql/gtid"
	"trireme/internal/ops/demo"
)

// debeziumSettings are docs/change-stream.md's, but for the address, the account and the files.
var debeziumSettings = map[string]string{
	"name":                           "changes",
	"connector.class":                "io.debezium.connector.mysql.MySqlConnector",
	"topic.prefix":                   "trireme",
	"database.server.id":             "3000001",
	"database.ssl.mode":              "required",
	"database.include.list":          "stream",
	"snapshot.mode":                  "initial",
	"schema.history.internal":        "io.debezium.storage.file.history.FileSchemaHistory",
	"offset.storage":                 "org.apache.kafka.connect.storage.FileOffsetBackingStore",
	"offset.flush.interval.ms":       "200",
	"connect.keep.alive.interval.ms": "10000",
	"include.schema.changes":         "false",
	"key.converter.schemas.enable":   "false",
	"value.converter.schemas.enable": "false",
	"schema.history.internal.store.only.captured.tables.ddl": "true",
}

// TestDebezium: Debezium copies a table from one node's stream while it is written to, and goes on with its changes
// there, at another node when that one dies with it, and at a third one, while leadership moves by a switchover and by
// a crash. What was acknowledged was told, each key's changes in the order of their commits, and nothing else; twice
// only after a restart. It should take about two minutes.
func TestDebezium(t *testing.T) {
	if !soak() {
		t.Skip("a long run: TRIREME_SOAK=1")
	}
	jars := filepath.Join(drivers(), "debezium")
	java, err := exec.LookPath("java")
	if found, _ := filepath.Glob(filepath.Join(jars, "debezium-connector-mysql-*.jar")); err != nil || len(found) == 0 {
		cannot(t, "there is no Java or no "+jars+": scripts/drivers.sh soak")
	}
	c := createShape(t, shape{nodes: 3, tune: longLog})
	leader := c.healthy()
	others := c.others(leader)
	c.streamAccount()
	admin, err := c.Admin(leader)
	must(t, err)
	run1(t, admin, "GRANT SELECT, RELOAD, SHOW DATABASES ON *.* TO "+streamUser+"@'%'", "CREATE DATABASE stream",
		"CREATE TABLE stream.t (id INT PRIMARY KEY, v INT NOT NULL)")
	admin.Close()
	w := c.writeVersions()
	w.more(50)

	settings := maps.Clone(debeziumSettings)
	dir := t.TempDir()
	settings["offset.storage.file.filename"] = filepath.Join(dir, "offsets")
	settings["schema.history.internal.file.filename"] = filepath.Join(dir, "history")
	var runs []*debezium
	starts := func(n *demo.Node) *debezium {
		d := startDebezium(t, java, jars, settings, n)
		runs = append(runs, d)
		return d
	}
	var d *debezium
	hasTold := func(last [versionWriters]int) {
		t.Helper()
		eventually(t, checkLimit, "Debezium tells what is written, started again where it ended with a connection",
			func() error {
				if d.ended() {
					t.Logf("Debezium ended: %s", d.why())
					d = starts(d.node)
				}
				return d.hasTold(last)
			})
	}
	told := func() {
		t.Helper()
		hasTold(w.more(50))
	}

	d = starts(others[0])
	told()
	_, err = c.Switchover(t.Context(), others[1].Name)
	must(t, err)
	told()
	c.KillDaemon(others[0])
	d.kill()

	d = starts(leader)
	c.start(others[0])
	told()
	c.healthy()
	admin, err = c.Admin(c.leader())
	must(t, err)
	run1(t, admin, "ALTER TABLE stream.t ADD COLUMN w INT NOT NULL DEFAULT 7", "CREATE USER later IDENTIFIED BY 'x'",
		"GRANT SELECT ON stream.* TO later")
	admin.Close()
	term := c.view().Term
	c.crash(c.leader())
	c.failedOver(term)
	told()
	d.end()

	c.healthy()
	d = starts(others[1])
	told()
	d.cut = true
	c.KillDaemon(others[1])
	c.start(others[1])
	told()
	hasTold(w.end())
	d.end()
	c.healthy()
	c.equal()
	w.judge(runs, c.committed())
}

// A versions has some writers, each of which gives its own keys one version after the other, three keys in a
// transaction.
type versions struct {
	t       *testing.T
	db      *sql.DB // the router's
	stop    atomic.Bool
	writers sync.WaitGroup

	mu    sync.Mutex
	tried [versionWriters]int   // the version that a writer has tried last
	acked [versionWriters][]int // versions that were acknowledged, in order
}

const (
	versionWriters = 4
	versionKeys    = 5 // of each writer
)

// versionOf is which keys of a writer get a version.
func versionOf(writer, version int) (keys []int) {
	for i := range 3 {
		keys = append(keys, writer*versionKeys+(version+i)%versionKeys)
	}
	return keys
}

func (c *cluster) writeVersions() *versions {
	c.t.Helper()
	db, err := c.Routed().Open("")
	must(c.t, err)
	w := &versions{t: c.t, db: db}
	for i := range versionWriters {
		w.writers.Go(func() { w.write(i) })
	}
	c.t.Cleanup(func() {
		w.end()
		_ = db.Close()
	})
	return w
}

// write repeats what fails, which changes nothing if it was carried out after all. Its pace is one that a JVM next to
// three servers keeps up with.
func (w *versions) write(writer int) {
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for version := 1; !w.stop.Load(); version++ {
		<-pace.C
		var rows []string
		for _, k := range versionOf(writer, version) {
			rows = append(rows, fmt.Sprintf("(%d, %d)", k, version))
		}
		w.mu.Lock()
		w.tried[writer] = version
		w.mu.Unlock()
		statement := "INSERT INTO stream.t (id, v) VALUES " + strings.Join(rows, ", ") +
			" AS new ON DUPLICATE KEY UPDATE v = GREATEST(t.v, new.v)"
		for w.tries(statement) != nil {
			if w.stop.Load() {
				return
			}
			<-pace.C
		}
		w.mu.Lock()
		w.acked[writer] = append(w.acked[writer], version)
		w.mu.Unlock()
	}
}

func (w *versions) tries(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), healLimit)
	defer cancel()
	_, err := w.db.ExecContext(ctx, statement)
	return err
}

// more waits until each writer has had n more versions acknowledged, and returns their last ones.
func (w *versions) more(n int) (last [versionWriters]int) {
	w.t.Helper()
	before := w.lasts()
	eventually(w.t, healLimit, "writes go on", func() error {
		last = w.lasts()
		for i := range last {
			if last[i] < before[i]+n {
				return fmt.Errorf("writer %d is at %d, was at %d", i, last[i], before[i])
			}
		}
		return nil
	})
	return last
}

func (w *versions) lasts() (last [versionWriters]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, acked := range w.acked {
		if len(acked) > 0 {
			last[i] = acked[len(acked)-1]
		}
	}
	return last
}

func (w *versions) end() [versionWriters]int {
	w.stop.Store(true)
	w.writers.Wait()
	return w.lasts()
}

// judge compares what was told, by one start after the other, with what was written and what is committed.
func (w *versions) judge(runs []*debezium, committed gtid.Set) {
	w.t.Helper()
	type version struct{ key, v int }
	by := map[version]string{} // GTID
	copied := map[int]int{}    // version of a key in the snapshot
	for i, d := range runs {
		at, doubles := map[int]int{}, 0
		for _, x := range d.told() {
			writer := x.key / versionKeys
			switch {
			case x.table != "stream.t" || writer >= versionWriters || x.v < 1 || x.v > w.tried[writer]:
				w.t.Errorf("run %d told %+v, which was not written", i, x)
				continue
			case x.op == "r" && i == 0:
				copied[x.key] = x.v
				continue
			case x.op == "r":
				w.t.Errorf("run %d copied %+v again", i, x)
				continue
			}
			g, err := gtid.ParseGTID(x.gtid)
			must(w.t, err)
			if !committed.Contains(g) {
				w.t.Errorf("run %d told %+v, which was never committed", i, x)
			}
			if first, again := by[version{x.key, x.v}]; again && first != x.gtid {
				w.t.Errorf("run %d told %+v, which came as %s before", i, x, first)
			}
			by[version{x.key, x.v}] = x.gtid
			switch {
			case x.v > at[x.key]:
				at[x.key] = x.v
			case !d.cut:
				w.t.Errorf("run %d told %+v after version %d", i, x, at[x.key])
			default:
				doubles++
			}
		}
		w.t.Logf("run %d: %d changes, %d again", i, len(d.told()), doubles)
	}
	if len(copied) != versionWriters*versionKeys {
		w.t.Errorf("%d rows in the snapshot", len(copied))
	}
	for writer, acked := range w.acked {
		for _, v := range acked {
			for _, key := range versionOf(writer, v) {
				if by[version{key, v}] == "" && v > copied[key] {
					w.t.Errorf("version %d of row %d was acknowledged and never told; the snapshot had %d", v, key, copied[key])
				}
			}
		}
	}
}

// A debezium is one start of Changes.java, and what it has said.
type debezium struct {
	t    *testing.T
	node *demo.Node
	cmd  *exec.Cmd
	in   io.Closer
	done chan struct{}
	cut  bool // its connection was lost meanwhile

	mu      sync.Mutex
	changes []change
	stopped string // why
}

type change struct {
	table, op, gtid string
	key, v          int
}

func startDebezium(t *testing.T, java, jars string, settings map[string]string, n *demo.Node) *debezium {
	t.Helper()
	var words strings.Builder
	own := map[string]string{"database.hostname": n.Host, "database.port": fmt.Sprint(n.Ports.Stream),
		"database.user": streamUser, "database.password": streamPassword}
	for _, m := range []map[string]string{settings, own} {
		for name, value := range m {
			fmt.Fprintf(&words, "%s=%s\n", name, value)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "debezium.properties")
	must(t, os.WriteFile(file, []byte(words.String()), 0o600))
	log, err := os.CreateTemp(cmp.Or(os.Getenv("TRIREME_KEEP"), dir), "debezium-*.log")
	must(t, err)
	d := &debezium{t: t, node: n, done: make(chan struct{})}
	d.cmd = exec.Command(java, "-Xmx256m", "-cp", filepath.Join(jars, "*"), "testdata/debezium/Changes.java", file)
	d.cmd.Stderr = log
	d.in, err = d.cmd.StdinPipe()
	must(t, err)
	out, err := d.cmd.StdoutPipe()
	must(t, err)
	must(t, d.cmd.Start())
	t.Cleanup(func() {
		d.kill()
		_ = log.Close()
		if b, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			lines := strings.Split(strings.TrimSpace(string(b)), "\n")
			t.Logf("Debezium at %s:\n%s", n.Name, strings.Join(lines[max(0, len(lines)-60):], "\n"))
		}
	})
	go func() {
		defer close(d.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			d.takes(lines.Text())
		}
		_ = d.cmd.Wait()
	}()
	return d
}

func (d *debezium) takes(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if why, found := strings.CutPrefix(line, "stopped "); found {
		d.stopped = why
	}
	var x change
	if _, err := fmt.Sscanf(line, "change %s %d %s %d %s", &x.table, &x.key, &x.op, &x.v, &x.gtid); err == nil {
		d.changes = append(d.changes, x)
	}
}

func (d *debezium) told() []change {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changes
}

// hasTold says what it lacks of each writer's version. Later versions come after it.
func (d *debezium) hasTold(want [versionWriters]int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var has [versionWriters]int
	for _, x := range d.changes {
		if w := x.key / versionKeys; w < versionWriters {
			has[w] = max(has[w], x.v)
		}
	}
	for i := range has {
		if has[i] < want[i] {
			return fmt.Errorf("it is at %v, want %v", has, want)
		}
	}
	return nil
}

func (d *debezium) why() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stopped
}

func (d *debezium) ended() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

func (d *debezium) kill() {
	_ = d.cmd.Process.Kill()
	<-d.done
}

// end has it stop in order.
func (d *debezium) end() {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), healLimit)
	defer cancel()
	must(d.t, d.in.Close())
	select {
	case <-d.done:
	case <-ctx.Done():
		d.t.Error("Debezium does not end")
		d.kill()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped != "in order" {
		d.t.Errorf("Debezium stopped: %s", d.stopped)
	}
}
