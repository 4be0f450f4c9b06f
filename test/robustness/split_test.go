package robustness

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/ops/demo"
	"trireme/lab/verify"
)

// splitPort opens sessions on the splitting port of a node's router.
func (c *cluster) splitPort(n *demo.Node) *sql.DB {
	c.t.Helper()
	l := c.Direct(n)
	l.Addr = verify.Fixed(fmt.Sprintf("%s:%d", n.Host, n.Ports.Split))
	db, err := l.Open("")
	must(c.t, err)
	return db
}

// TestSplitting: on 6450 of every node a session writes at the leader, reads at a follower, and always sees what it has
// written; with tokens so does another session at another node, while leadership moves and when it is lost.
func TestSplitting(t *testing.T) {
	t.Parallel()
	c := lease(t)
	c.healthy()
	setup := c.pin(c.splitPort(c.Nodes()[0]))
	setup.exec("CREATE DATABASE split", "CREATE TABLE split.own (id INT PRIMARY KEY)",
		"CREATE TABLE split.chain (id INT PRIMARY KEY, v INT)")
	before := c.followersSelects()
	began := time.Now()
	for i := range 60 {
		n := c.Nodes()[i%3]
		s := setup
		if i < 6 {
			s = c.pin(c.splitPort(n))
		}
		s.exec(fmt.Sprintf("INSERT INTO split.own VALUES (%d)", i))
		if got := s.value("SELECT COUNT(*) FROM split.own"); got != strconv.Itoa(i+1) {
			t.Fatalf("after write %d through %s: %s rows", i, n.Name, got)
		}
	}
	t.Logf("60 writes, each read back, took %v", time.Since(began).Round(time.Millisecond))
	if n := c.followersSelects() - before; n < 60 {
		t.Errorf("followers ran %d of 60 reads", n)
	}
	c.levels()
	r := c.relay(8, func() {
		res, err := c.Switchover(t.Context(), "")
		must(t, err)
		t.Logf("switchover to %s: write gap %.0f ms", res.To, res.WriteGapMS)
	})
	t.Logf("after a switchover: %s", r)
	if r.unexpected > 0 {
		t.Errorf("%d statements failed after a switchover", r.unexpected)
	}
	r = c.relay(8, func() {
		v := c.view()
		c.overBacklog(4000)
		c.failedOver(v.Term)
	})
	t.Logf("after a failover: %s", r)
	c.healthy()
}

// followersSelects is how many SELECTs the followers' mysqlds have run.
func (c *cluster) followersSelects() (n int) {
	for _, f := range c.others(c.leader()) {
		var name string
		var v int
		c.sql(f, func(conn *sql.Conn) {
			must(c.t, conn.QueryRowContext(c.t.Context(), "SHOW GLOBAL STATUS LIKE 'Com_select'").Scan(&name, &v))
		})
		n += v
	}
	return n
}

// levels reads on 6447 with BEFORE what was written elsewhere just before, and hears of it when a follower cannot keep
// it.
func (c *cluster) levels() {
	c.t.Helper()
	leader := c.leader()
	follower := c.others(leader)[0]
	l := c.Direct(follower)
	l.Addr = verify.Fixed(fmt.Sprintf("%s:%d", follower.Host, follower.Ports.RO))
	db, err := l.Open("")
	must(c.t, err)
	reader, writer := c.pin(db), c.session(leader)
	reader.exec("SET SESSION group_replication_consistency = 'BEFORE'")
	for i := range 30 {
		writer.exec(fmt.Sprintf("REPLACE INTO split.own VALUES (%d)", 1000+i))
		if got := reader.value(fmt.Sprintf("SELECT COUNT(*) FROM split.own WHERE id = %d", 1000+i)); got != "1" {
			c.t.Fatalf("BEFORE on 6447 does not show write %d", i)
		}
	}
	if got := reader.value("SELECT @@trireme_consistency"); got != "BEFORE" {
		c.t.Errorf("level %q", got)
	}
	c.afterWrites(follower)
}

// afterWrites writes with AFTER and reads everywhere, without any wait; a follower that does not apply is told of.
func (c *cluster) afterWrites(held *demo.Node) {
	c.t.Helper()
	c.countLive(c.healthy(), len(c.DataNodes())) // the servers are asked themselves, which no statement waits for before
	writer := c.pin(c.splitPort(held))
	writer.exec("SET @@trireme_consistency = 'AFTER'")
	var readers []*session
	for _, n := range c.DataNodes() {
		readers = append(readers, c.session(n))
	}
	began := time.Now()
	for i := range 30 {
		writer.exec(fmt.Sprintf("INSERT INTO split.own VALUES (%d)", 2000+i))
		for j, r := range readers {
			if got := r.value(fmt.Sprintf("SELECT COUNT(*) FROM split.own WHERE id = %d", 2000+i)); got != "1" {
				c.t.Fatalf("write %d was answered with AFTER, and %s does not show it", i, c.DataNodes()[j].Name)
			}
		}
	}
	c.t.Logf("30 writes with AFTER, each read from 3 servers, took %v", time.Since(began).Round(time.Millisecond))
	c.sql(held, func(lock *sql.Conn) {
		_, err := lock.ExecContext(c.t.Context(), "LOCK TABLES split.own READ")
		must(c.t, err)
		var e *mysql.MySQLError
		if err := writer.try("INSERT INTO split.own VALUES (3000)"); !errors.As(err, &e) || e.Number != 45802 ||
			!strings.Contains(e.Message, held.Name) {
			c.t.Errorf("%s does not apply, and AFTER says %v", held.Name, err)
		}
		_, err = lock.ExecContext(c.t.Context(), "UNLOCK TABLES")
		must(c.t, err)
	})
	writer.exec("INSERT INTO split.own VALUES (3001)")
}

// overBacklog crashes the leader while no follower applies what was answered last. Who has asked for
// BEFORE_ON_PRIMARY_FAILOVER, by either name, reads that row from the next leader.
func (c *cluster) overBacklog(row int) {
	c.t.Helper()
	ctx, leader := c.t.Context(), c.healthy()
	followers := c.others(leader)
	port, err := c.throughRouter(followers[0]).Open("")
	must(c.t, err)
	readers := []*session{c.pin(port), c.pin(c.splitPort(followers[1]))}
	readers[0].exec("SET SESSION group_replication_consistency = 'BEFORE_ON_PRIMARY_FAILOVER'")
	readers[1].exec("SET @@trireme_consistency = 'BEFORE_ON_PRIMARY_FAILOVER'")
	c.sql(followers[0], func(one *sql.Conn) {
		c.sql(followers[1], func(other *sql.Conn) {
			for _, lock := range []*sql.Conn{one, other} {
				_, err := lock.ExecContext(ctx, "LOCK TABLES split.own READ")
				must(c.t, err)
			}
			term := c.view().Term
			c.session(leader).exec(fmt.Sprintf("INSERT INTO split.own VALUES (%d)", row))
			question := fmt.Sprintf("SELECT COUNT(*) FROM split.own WHERE id = %d", row)
			for _, lock := range []*sql.Conn{one, other} {
				var rows int
				must(c.t, lock.QueryRowContext(ctx, question).Scan(&rows))
				if rows != 0 {
					c.t.Error("a follower applies in spite of a lock")
				}
			}
			c.crash(leader)
			answers := make(chan string, len(readers))
			for _, r := range readers {
				go func() {
					var rows int
					err := again(ctx, &relayed{}, func() error { // FOR SHARE: at the leader on 6450, too
						return r.conn.QueryRowContext(ctx, question+" FOR SHARE").Scan(&rows)
					})
					answers <- fmt.Sprint(rows, " ", err)
				}()
			}
			eventually(c.t, healLimit, "another leader is elected", func() error {
				v, err := c.View(ctx)
				return errors.Join(err, atLeast(int(v.Term), int(term)+1))
			})
			for _, lock := range []*sql.Conn{one, other} {
				if _, err := lock.ExecContext(ctx, "UNLOCK TABLES"); err != nil {
					c.t.Logf("its lock has ended: %v", err)
				}
			}
			for range readers {
				if got := <-answers; got != "1 <nil>" {
					c.t.Errorf("after a failover, of a row that was answered before: %s", got)
				}
			}
		})
	})
}

// relayed is what became of a relay.
type relayed struct {
	passed, retried, unexpected int
	first                       error // of those unexpected
	last                        error // of those repeated
}

func (r relayed) String() string {
	return fmt.Sprintf("%d values passed on with a token, %d statements repeated as told (%v), %d failed (%v)", r.passed,
		r.retried, r.last, r.unexpected, r.first)
}

// relay has pairs of sessions at different nodes pass values to each other, with a token each, while disturb runs: each
// reads what it was passed and writes the next. One that reads less than it was passed is a failure of the test.
func (c *cluster) relay(pairs int, disturb func()) (out relayed) {
	c.t.Helper()
	ctx, stop := context.WithCancel(c.t.Context())
	defer stop()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var passed atomic.Int64
	for i := range pairs {
		from, to := c.splitPort(c.Nodes()[i%3]), c.splitPort(c.Nodes()[(i+1)%3])
		c.t.Cleanup(func() { from.Close(); to.Close() })
		wg.Go(func() {
			r := passOn(ctx, c.t, i, &passed, from, to)
			mu.Lock()
			defer mu.Unlock()
			out.passed, out.retried, out.unexpected = out.passed+r.passed, out.retried+r.retried, out.unexpected+r.unexpected
			if out.first == nil {
				out.first = r.first
			}
			if r.last != nil {
				out.last = r.last
			}
		})
	}
	goesOn := func() {
		more := int(passed.Load()) + 20*pairs
		eventually(c.t, healLimit, "values are passed on", func() error { return atLeast(int(passed.Load()), more) })
	}
	goesOn()
	disturb()
	goesOn()
	stop()
	wg.Wait()
	return out
}

// passOn is one pair: a value goes back and forth until ctx ends.
func passOn(ctx context.Context, t *testing.T, key int, passed *atomic.Int64, dbs ...*sql.DB) (r relayed) {
	var conns [2]*sql.Conn
	for i, db := range dbs {
		conn, err := db.Conn(t.Context())
		if err != nil {
			r.unexpected, r.first = 1, err
			return r
		}
		defer conn.Close()
		conns[i] = conn
	}
	if _, err := conns[0].ExecContext(t.Context(), fmt.Sprintf("REPLACE INTO split.chain VALUES (%d, 0)", key)); err != nil {
		r.unexpected, r.first = 1, err
		return r
	}
	token, value := "", 0
	for turn := 0; ctx.Err() == nil; turn++ {
		conn := conns[turn%2]
		var got int
		var next string
		err := again(ctx, &r, func() (err error) {
			if token != "" {
				if _, err = conn.ExecContext(t.Context(), "SET @@trireme_token = '"+token+"'"); err != nil {
					return err
				}
			}
			return conn.QueryRowContext(t.Context(), fmt.Sprintf("SELECT v FROM split.chain WHERE id = %d", key)).Scan(&got)
		})
		if err == nil && got < value {
			t.Errorf("pair %d reads %d after a token for %d", key, got, value)
			return r
		}
		// Repeated, so it says what to write and not what to add.
		if err == nil {
			err = again(ctx, &r, func() error {
				_, err := conn.ExecContext(t.Context(), fmt.Sprintf("UPDATE split.chain SET v = %d WHERE id = %d", value+1, key))
				return err
			})
		}
		if err == nil {
			err = again(ctx, &r, func() error { return conn.QueryRowContext(t.Context(), "SELECT @@trireme_token").Scan(&next) })
		}
		if err != nil {
			if ctx.Err() == nil {
				r.unexpected++
				r.first = errors.Join(r.first, err)
			}
			return r
		}
		token, value = next, value+1
		r.passed++
		passed.Add(1)
	}
	return r
}

// again repeats what the router said was rolled back, is not known, or could not be carried out: all of it may be
// repeated here.
func again(ctx context.Context, r *relayed, f func() error) error {
	for {
		err := f()
		var e *mysql.MySQLError
		if err == nil || ctx.Err() != nil || !errors.As(err, &e) || !strings.Contains(e.Message, "Trireme") {
			return err
		}
		r.retried, r.last = r.retried+1, err
	}
}
