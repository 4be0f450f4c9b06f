package robustness

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"trireme/internal/ops/demo"
)

// shardRules is docs/ops/scale-out.md's, for the addresses of two groups.
const shardRules = `dataSources:
  group_0:
    dataSourceClassName: com.zaxxer.hikari.HikariDataSource
    driverClassName: com.mysql.cj.jdbc.Driver
    jdbcUrl: %s
    username: %s
    password: %s
    connectionTimeout: 5000
    maximumPoolSize: 10
  group_1:
    dataSourceClassName: com.zaxxer.hikari.HikariDataSource
    driverClassName: com.mysql.cj.jdbc.Driver
    jdbcUrl: %s
    username: %s
    password: %s
    connectionTimeout: 5000
    maximumPoolSize: 10
rules:
- !SHARDING
  tables:
    orders:
      actualDataNodes: group_${0..1}.orders
      databaseStrategy:
        standard:
          shardingColumn: id
          shardingAlgorithmName: by_id
  shardingAlgorithms:
    by_id:
      type: INLINE
      props:
        algorithm-expression: group_${id %% 2}
`

// TestShardingSphere: two groups are the shards of one table under ShardingSphere-JDBC. One loses its leader while rows
// are written to both: what was acknowledged is there once, in the group that its key belongs to, and a SELECT over
// both groups shows it. It takes about a minute.
func TestShardingSphere(t *testing.T) {
	if !soak() {
		t.Skip("a long run: TRIREME_SOAK=1")
	}
	jars := filepath.Join(drivers(), "sharding")
	java, err := exec.LookPath("java")
	if found, _ := filepath.Glob(filepath.Join(jars, "shardingsphere-jdbc-*.jar")); err != nil || len(found) == 0 {
		t.Fatalf("there is no Java or no %s: scripts/drivers.sh soak", jars)
	}
	groups := []*cluster{createShape(t, shape{nodes: 2, loggers: 1}), createShape(t, shape{nodes: 2, loggers: 1})}
	var words []any
	for _, c := range groups {
		s := c.session(c.healthy())
		s.exec("CREATE DATABASE shop", "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, item VARCHAR(40))")
		s.close()
		var hosts []string
		for _, n := range c.DataNodes() {
			hosts = append(hosts, fmt.Sprintf("127.0.0.1:%d", n.Ports.RW))
		}
		l := c.Routed()
		words = append(words, "jdbc:mysql://"+strings.Join(hosts, ",")+
			"/shop?failOverReadOnly=false&connectTimeout=2000&socketTimeout=10000&allowPublicKeyRetrieval=true&sslMode=DISABLED",
			strconv.Quote(l.User), strconv.Quote(l.Password))
	}
	rules := filepath.Join(t.TempDir(), "sharding.yaml")
	must(t, os.WriteFile(rules, fmt.Appendf(nil, shardRules, words...), 0o600))

	app := startSharded(t, java, jars, rules)
	app.awaits("rows are written", 200)
	leader := groups[0].healthy()
	term := groups[0].view().Term
	before := app.acked()
	groups[0].KillDaemon(leader)
	groups[0].failedOver(term)
	groups[0].start(leader)
	app.awaits("rows are written after a failover of one group", before+200)
	app.end()

	want := map[int64]bool{}
	for _, id := range app.acks {
		want[id] = true
	}
	there := map[int64]bool{}
	for i, c := range groups {
		c.healthy()
		for _, id := range c.ids(c.leader()) {
			if id%2 != int64(i) || there[id] {
				t.Errorf("row %d is in group %d", id, i)
			}
			there[id] = true
		}
		c.equal()
	}
	for id := range want {
		if !there[id] {
			t.Errorf("row %d was acknowledged and is lost", id)
		}
	}
	if len(app.rows) != len(there) || app.count != int64(len(there)) || !slices.IsSorted(app.rows) {
		t.Errorf("a SELECT over both groups shows %d rows in order %t, and counts %d; there are %d", len(app.rows),
			slices.IsSorted(app.rows), app.count, len(there))
	}
	t.Logf("%d rows acknowledged, %d not, %d there in both groups", len(app.acks), app.errs, len(there))
}

// ids are the keys on one node.
func (c *cluster) ids(n *demo.Node) (ids []int64) {
	c.t.Helper()
	s := c.session(n)
	defer s.close()
	rows, err := s.rows("SELECT id FROM shop.orders")
	must(c.t, err)
	for _, r := range rows {
		id, err := strconv.ParseInt(strings.TrimSpace(r), 10, 64)
		must(c.t, err)
		ids = append(ids, id)
	}
	return ids
}

// sharded is Sharded.java, and what it has said.
type sharded struct {
	t     *testing.T
	cmd   *exec.Cmd
	close func() error
	done  chan struct{}

	mu         sync.Mutex
	acks, rows []int64
	errs       int
	last       string // error
	count      int64
}

func startSharded(t *testing.T, java, jars, rules string) *sharded {
	t.Helper()
	a := &sharded{t: t, done: make(chan struct{})}
	a.cmd = exec.Command(java, "-Xmx256m", "-cp", filepath.Join(jars, "*"), "testdata/sharding/Sharded.java", rules)
	a.cmd.Stderr = os.Stderr
	in, err := a.cmd.StdinPipe()
	must(t, err)
	out, err := a.cmd.StdoutPipe()
	must(t, err)
	a.close = in.Close
	must(t, a.cmd.Start())
	t.Cleanup(func() {
		_ = a.cmd.Process.Kill()
		<-a.done
	})
	go func() {
		defer close(a.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			a.takes(lines.Text())
		}
		_ = a.cmd.Wait()
	}()
	return a
}

func (a *sharded) takes(line string) {
	word, rest, _ := strings.Cut(line, " ")
	id, _ := strconv.ParseInt(rest, 10, 64)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch word {
	case "ack":
		a.acks = append(a.acks, id)
	case "row":
		a.rows = append(a.rows, id)
	case "count":
		a.count = id
	case "err":
		a.errs++
		a.last = rest
	}
}

func (a *sharded) acked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.acks)
}

func (a *sharded) awaits(what string, acks int) {
	a.t.Helper()
	eventually(a.t, healLimit, what, func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.acks) < acks {
			return fmt.Errorf("%d acknowledged, %d errors, the last one: %s", len(a.acks), a.errs, a.last)
		}
		return nil
	})
}

// end has it stop writing and read all rows.
func (a *sharded) end() {
	a.t.Helper()
	must(a.t, a.close())
	select {
	case <-a.done:
	case <-time.After(healLimit):
		a.t.Fatal("it does not end")
	}
}
