package drivers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/ops/demo"
)

// TestSplittingStandalone: routers without a node split statements, and keep levels and tokens, as those of nodes do:
// own writes are seen at followers, BEFORE shows what was answered elsewhere, AFTER is answered when every server shows
// it; and values are handed on from router to router, each of which has to be seen, while leadership moves and when it is
// lost.
func TestSplittingStandalone(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	others := c.others(leader)
	c.sql("CREATE DATABASE IF NOT EXISTS apart", "DROP TABLE IF EXISTS apart.own, apart.chain",
		"CREATE TABLE apart.own (id INT PRIMARY KEY)", "CREATE TABLE apart.chain (id INT PRIMARY KEY, v INT)")
	const settings = "sessions = \"carry\"\nconsistency_timeout = \"3s\"\n"
	one, other := startRouter(c, leader, settings), startRouter(c, others[0], settings)
	c.splits(one)
	c.keepsBefore(one, other)
	c.keepsAfter(one, others[1])
	doors := []string{one.split, other.split, net.JoinHostPort(others[0].Host, strconv.Itoa(others[0].Ports.Split))}
	for _, change := range []struct {
		name string
		now  func() *demo.Node
	}{{"switchover", c.switchover}, {"failover", c.failover}} {
		passed, repeated := c.handOn(doors, func() { change.now() })
		t.Logf("%s: %d values handed on, %d statements repeated as told", change.name, passed, repeated)
	}
	c.healthy()
}

// others are the nodes but one.
func (c *cluster) others(but *demo.Node) (nodes []*demo.Node) {
	for _, n := range c.Nodes() {
		if n != but {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// routed is one session.
type routed struct {
	t *testing.T
	*sql.Conn
}

func (c *cluster) routed(addr string, statements ...string) routed {
	c.t.Helper()
	conn, err := c.open(addr).Conn(c.t.Context())
	must(c.t, err)
	c.t.Cleanup(func() { _ = conn.Close() })
	s := routed{c.t, conn}
	s.exec(statements...)
	return s
}

func (s routed) exec(statements ...string) {
	s.t.Helper()
	for _, q := range statements {
		if _, err := s.ExecContext(s.t.Context(), q); err != nil {
			s.t.Fatalf("%s: %v", q, err)
		}
	}
}

func (s routed) value(q string) (v string) {
	s.t.Helper()
	if err := s.QueryRowContext(s.t.Context(), q).Scan(&v); err != nil {
		s.t.Fatalf("%s: %v", q, err)
	}
	return v
}

// splits: what a session has written it reads back, from a follower.
func (c *cluster) splits(r standalone) {
	c.t.Helper()
	const writes = 30
	read := func() (n int) {
		for _, f := range c.others(c.healthy()) {
			db, err := c.Admin(f)
			must(c.t, err)
			var k int
			err =
				db.QueryRow("SELECT COALESCE(SUM(COUNT_STAR), 0) FROM performance_schema.events_statements_summary_by_digest WHERE DIGEST_TEXT LIKE 'SELECT COUNT ( * ) FROM `apart` . `own`%'").Scan(&k)
			must(c.t, errors.Join(err, db.Close()))
			n += k
		}
		return n
	}
	before := read()
	s := c.routed(r.split)
	began := time.Now()
	for i := range writes {
		s.exec(fmt.Sprintf("INSERT INTO apart.own VALUES (%d)", i))
		if got := s.value("SELECT COUNT(*) FROM apart.own"); got != strconv.Itoa(i+1) {
			c.t.Fatalf("after write %d: %s rows", i, got)
		}
	}
	c.t.Logf("%d writes, each read back, took %v", writes, time.Since(began).Round(time.Millisecond))
	if n := read() - before; n < writes*9/10 { // one whose follower does not come in time reads from the leader
		c.t.Errorf("followers ran %d of %d reads", n, writes)
	}
}

// keepsBefore: a reader on 6447 sees what was answered through another router just before, by its level and by a token;
// a token of another cluster is refused.
func (c *cluster) keepsBefore(one, other standalone) {
	c.t.Helper()
	writer, before, told := c.routed(one.write), c.routed(other.read, "SET @@trireme_consistency = 'BEFORE'"),
		c.routed(other.read)
	for i := range 30 {
		writer.exec(fmt.Sprintf("INSERT INTO apart.own VALUES (%d)", 1000+i))
		row := fmt.Sprintf("SELECT COUNT(*) FROM apart.own WHERE id = %d", 1000+i)
		if got := before.value(row); got != "1" {
			c.t.Fatalf("BEFORE does not show write %d", i)
		}
		told.exec("SET @@trireme_token = '" + writer.value("SELECT @@trireme_token") + "'")
		if got := told.value(row); got != "1" {
			c.t.Fatalf("with its token write %d is not there", i)
		}
	}
	var e *mysql.MySQLError
	if _, err := told.ExecContext(c.t.Context(), "SET @@trireme_token = 'elsewhere/1:7'"); !errors.As(err, &e) ||
		e.Number != 1231 {
		c.t.Errorf("a token of another cluster: %v", err)
	}
}

// keepsAfter: a write is answered when every server shows it, and one that does not apply is named.
func (c *cluster) keepsAfter(r standalone, held *demo.Node) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), healLimit)
	defer cancel()
	// the servers are asked themselves, which no statement waits for before
	must(c.t, c.WaitLive(ctx, c.healthy(), len(c.Nodes())))
	writer := c.routed(r.split, "SET @@trireme_consistency = 'AFTER'")
	var servers []*sql.DB
	for _, n := range c.Nodes() {
		db, err := c.Admin(n)
		must(c.t, err)
		defer db.Close()
		servers = append(servers, db)
	}
	began := time.Now()
	for i := range 30 {
		writer.exec(fmt.Sprintf("INSERT INTO apart.own VALUES (%d)", 2000+i))
		for j, db := range servers {
			var n int
			must(c.t, db.QueryRow("SELECT COUNT(*) FROM apart.own WHERE id = ?", 2000+i).Scan(&n))
			if n != 1 {
				c.t.Fatalf("write %d was answered with AFTER, and %s does not show it", i, c.Nodes()[j].Name)
			}
		}
	}
	c.t.Logf("30 writes with AFTER, each read from %d servers, took %v", len(servers), time.Since(began).
		Round(time.Millisecond))
	db, err := c.Admin(held)
	must(c.t, err)
	defer db.Close()
	lock, err := db.Conn(c.t.Context())
	must(c.t, err)
	defer lock.Close()
	_, err = lock.ExecContext(c.t.Context(), "LOCK TABLES apart.own READ")
	must(c.t, err)
	var e *mysql.MySQLError
	if _, err := writer.ExecContext(c.t.Context(), "INSERT INTO apart.own VALUES (3000)"); !errors.As(err, &e) ||
		e.Number != 45802 || !strings.Contains(e.Message, held.Name) {
		c.t.Errorf("%s does not apply, and AFTER says %v", held.Name, err)
	}
	_, err = lock.ExecContext(c.t.Context(), "UNLOCK TABLES")
	must(c.t, err)
	writer.exec("INSERT INTO apart.own VALUES (3001)")
}

// way is how a value is handed on: by a token, or by the level of both sessions alone.
type way struct {
	level string
	token bool
}

var ways = []way{{"EVENTUAL", true}, {"BEFORE", false}, {"AFTER", false}}

// handOn has pairs of sessions hand values on to each other, a pair in each way from each door to the next, before,
// while and after disturb runs.
func (c *cluster) handOn(doors []string, disturb func()) (passed, repeated int64) {
	c.t.Helper()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(c.t.Context())
	defer stop()
	var pairs []*pair
	for i := range doors {
		for _, w := range ways {
			p := &pair{t: c.t, key: len(pairs), way: w}
			for k := range p.ends {
				p.ends[k] = c.routed(doors[(i+k)%len(doors)], "SET @@trireme_consistency = '"+w.level+"'")
			}
			p.ends[0].exec(fmt.Sprintf("REPLACE INTO apart.chain VALUES (%d, 0)", p.key))
			pairs = append(pairs, p)
		}
	}
	for _, p := range pairs {
		wg.Go(func() { p.run(ctx) })
	}
	goOn := func(when string) {
		for _, p := range pairs {
			more := p.passed.Load() + 5
			eventually(c.t, healLimit, fmt.Sprintf("%s: pair %d (%+v) goes on", when, p.key, p.way), func() error {
				if n := p.passed.Load(); n < more && !c.t.Failed() {
					return fmt.Errorf("%d of %d", n, more)
				}
				return nil
			})
		}
	}
	goOn("before")
	disturb()
	goOn("after it")
	for _, p := range pairs {
		passed, repeated = passed+p.passed.Load(), repeated+p.repeated.Load()
	}
	return passed, repeated
}

// pair is two sessions at different routers.
type pair struct {
	t                *testing.T
	key              int
	way              way
	ends             [2]routed
	passed, repeated atomic.Int64
}

// run hands a value back and forth until ctx ends. Who reads less than was handed on to it is a failure of the test.
func (p *pair) run(ctx context.Context) {
	token, value := "", 0
	for turn := 0; ctx.Err() == nil; turn++ {
		s, got := p.ends[turn%2], 0
		err := p.again(ctx, func() (err error) {
			if token != "" {
				if _, err = s.ExecContext(p.t.Context(), "SET @@trireme_token = '"+token+"'"); err != nil {
					return err
				}
			}
			return s.QueryRowContext(p.t.Context(), fmt.Sprintf("SELECT v FROM apart.chain WHERE id = %d", p.key)).Scan(&got)
		})
		if err == nil && got < value && ctx.Err() == nil {
			p.t.Errorf("pair %d (%+v) reads %d, and %d was handed on", p.key, p.way, got, value)
			return
		}
		// Repeated, so it says what to write and not what to add.
		if err == nil {
			err = p.again(ctx, func() error {
				_, err := s.ExecContext(p.t.Context(), fmt.Sprintf("UPDATE apart.chain SET v = %d WHERE id = %d", value+1, p.key))
				return err
			})
		}
		if err == nil && p.way.token {
			err = p.again(ctx, func() error { return s.QueryRowContext(p.t.Context(), "SELECT @@trireme_token").Scan(&token) })
		}
		if err != nil {
			if ctx.Err() == nil {
				p.t.Errorf("pair %d (%+v): %v", p.key, p.way, err)
			}
			return
		}
		value++
		p.passed.Add(1)
	}
}

// again repeats what the router said was rolled back, is not known, or could not be kept, and what a mysqld that was
// just closed for writes has refused: a planned switchover does not wait for routers without a token. All of it may be
// repeated here.
func (p *pair) again(ctx context.Context, f func() error) error {
	const readOnly = 1290
	for {
		err := f()
		var e *mysql.MySQLError
		if err == nil || ctx.Err() != nil || !errors.As(err, &e) {
			return err
		}
		if e.Number != readOnly && !strings.Contains(e.Message, "Trireme") {
			return err
		}
		p.repeated.Add(1)
	}
}
