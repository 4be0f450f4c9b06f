package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/access/router"
)

// routerSessions is a real server behind a router that follows sessions: everything goes through as it does without,
// and sessions go on when the server's epoch changes, which cuts their connections.
func routerSessions(t *testing.T, addr, root string) {
	r := start(t, router.Config{HoldTimeout: 2 * time.Second, Sessions: true, TLS: testTLS(t)})
	epoch := 0
	move := func() {
		epoch++
		r.SetView(router.View{RW: &router.Target{Name: "n1", Addr: addr, Epoch: fmt.Sprint(epoch)}})
	}
	move()
	for name, params := range map[string]string{"plain": "", "TLS": "&tls=skip-verify", "compressed": "&compress=true"} {
		t.Run(name, func(t *testing.T) {
			db := open(t, r.RWAddr(), root, params)
			db.SetMaxOpenConns(1)
			var cipher, ignored string
			if err := db.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&ignored, &cipher); err != nil {
				t.Fatal(err)
			}
			if (cipher != "") != (name == "TLS") {
				t.Errorf("cipher %q", cipher)
			}
			if s := r.Stats().RW; name != "compressed" && s.Followed != 1 || name == "compressed" && s.Tied != 1 {
				t.Errorf("%+v", s)
			}
			throughAndBack(t, db)
			_ = db.Close()
			eventually(t, "the session is gone", func() bool { return r.Stats().RW.Open == 0 })
		})
	}
	t.Run("LOAD DATA LOCAL", func(t *testing.T) { loadData(t, open(t, r.RWAddr(), root, "")) })
	for _, params := range []string{"", "&tls=skip-verify"} {
		t.Run("carried"+params, func(t *testing.T) { carried(t, r, connection(t, r, root, params), move) })
	}
	t.Run("transaction", func(t *testing.T) { carriedTransaction(t, r, connection(t, r, root, ""), move) })
	t.Run("after an error", func(t *testing.T) { behindAnError(t, connection(t, r, root, ""), move) })
	t.Run("prepared elsewhere", func(t *testing.T) { preparedElsewhere(t, connection(t, r, root, ""), move) })
	t.Run("tied", func(t *testing.T) { tiedSession(t, connection(t, r, root, ""), move) })
	t.Run("hold", func(t *testing.T) { heldWriters(t, r, open(t, r.RWAddr(), root, ""), addr, move) })
	t.Run("killed", func(t *testing.T) { killedSession(t, open(t, addr, root, ""), connection(t, r, root, "")) })
	t.Run("wrong password", func(t *testing.T) {
		for _, params := range []string{"", "&tls=skip-verify"} {
			var e *mysql.MySQLError
			if err := open(t, r.RWAddr(), "wrong", params).PingContext(t.Context()); !errors.As(err, &e) || e.Number != 1045 {
				t.Errorf("error %v", err)
			}
		}
	})
	t.Run("statement under way",
		func(t *testing.T) { statementUnderWay(t, open(t, addr, root, ""), connection(t, r, root, ""), move) })
}

// connection is one session, kept.
func connection(t *testing.T, r *router.Router, password, params string) *sql.Conn {
	t.Helper()
	c, err := open(t, r.RWAddr(), password, params).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func one(t *testing.T, c *sql.Conn, q string, args ...any) string {
	t.Helper()
	var v sql.NullString
	if err := c.QueryRowContext(t.Context(), q, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	return v.String
}

// carried has a session keep schema, variables, LAST_INSERT_ID() and prepared statements over three changes of servers.
func carried(t *testing.T, r *router.Router, c *sql.Conn, move func()) {
	run(t, c, "CREATE DATABASE IF NOT EXISTS carried", "USE carried", "DROP TABLE IF EXISTS t",
		"CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)", "SET SESSION sql_mode = 'ANSI_QUOTES'",
		"SET autocommit=0", "SET autocommit=1", "SET NAMES latin1", "INSERT INTO t (v) VALUES (7),(8)")
	stmt, err := c.PrepareContext(t.Context(), "SELECT v + ? FROM t WHERE id = ?")
	if err != nil {
		t.Fatal(err)
	}
	defer stmt.Close()
	before, thread := r.Stats().RW.Carried, one(t, c, "SELECT CONNECTION_ID()")
	for range 3 {
		move()
		var v int
		if err := stmt.QueryRowContext(t.Context(), 10, 2).Scan(&v); err != nil || v != 18 {
			t.Fatalf("prepared statement: %d, %v", v, err)
		}
		if got := one(t, c,
			"SELECT CONCAT_WS(' ', DATABASE(), @@sql_mode, @@autocommit, @@character_set_client, LAST_INSERT_ID())"); got != "carried ANSI_QUOTES 1 latin1 1" {
			t.Fatalf("state %q", got)
		}
		now := one(t, c, "SELECT CONNECTION_ID()")
		if now == thread {
			t.Fatal("the same connection")
		}
		thread = now
		other, err := c.PrepareContext(t.Context(), "SELECT 'other'")
		if err != nil {
			t.Fatal(err)
		}
		var text string
		if err := other.QueryRowContext(t.Context()).Scan(&text); err != nil || text != "other" {
			t.Fatalf("a statement prepared later: %q, %v", text, err)
		}
		_ = other.Close()
	}
	if n := r.Stats().RW.Carried - before; n != 3 {
		t.Errorf("%d times carried", n)
	}
}

// carriedTransaction loses its transaction, is told so in a way that drivers repeat, and goes on.
func carriedTransaction(t *testing.T, r *router.Router, c *sql.Conn, move func()) {
	run(t, c, "CREATE DATABASE IF NOT EXISTS carried", "CREATE TABLE IF NOT EXISTS carried.x (id INT PRIMARY KEY)",
		"DELETE FROM carried.x", "BEGIN", "INSERT INTO carried.x VALUES (1)")
	move()
	var e *mysql.MySQLError
	if _, err := c.ExecContext(t.Context(), "COMMIT"); !errors.As(err, &e) || e.Number != 1213 ||
		string(e.SQLState[:]) != "40001" {
		t.Fatalf("error %v", err)
	}
	if n := one(t, c, "SELECT COUNT(*) FROM carried.x"); n != "0" {
		t.Fatalf("%s rows of a transaction that was lost", n)
	}
	run(t, c, "BEGIN", "INSERT INTO carried.x VALUES (1)", "COMMIT")
}

// behindAnError has its transaction committed by DDL that fails: it has none to lose then. What the error left is there
// to be shown.
func behindAnError(t *testing.T, c *sql.Conn, move func()) {
	run(t, c, "CREATE DATABASE IF NOT EXISTS carried", "CREATE TABLE IF NOT EXISTS carried.x (id INT PRIMARY KEY)",
		"DELETE FROM carried.x", "BEGIN", "INSERT INTO carried.x VALUES (1)")
	_, err := c.ExecContext(t.Context(), "CREATE TABLE carried.x (id INT)")
	wantError(t, err, 1050)
	if n := one(t, c, "SHOW COUNT(*) WARNINGS"); n != "1" {
		t.Errorf("%s warnings", n)
	}
	move()
	if n := one(t, c, "SELECT COUNT(*) FROM carried.x"); n != "1" {
		t.Errorf("%s rows", n)
	}
	run(t, c, "BEGIN", "INSERT INTO carried.x VALUES (2)")
	_, err = c.ExecContext(t.Context(), "INSERT INTO carried.x VALUES (1)")
	wantError(t, err, 1062)
	move()
	_, err = c.ExecContext(t.Context(), "COMMIT")
	wantError(t, err, 1213)
}

// preparedElsewhere uses a statement that was prepared in another schema.
func preparedElsewhere(t *testing.T, c *sql.Conn, move func()) {
	for _, db := range []string{"one", "two"} {
		run(t, c, "CREATE DATABASE "+db, "USE "+db, "CREATE TABLE t (id INT)")
	}
	run(t, c, "USE one")
	stmt, err := c.PrepareContext(t.Context(), "INSERT INTO t VALUES (?)")
	if err != nil {
		t.Fatal(err)
	}
	defer stmt.Close()
	run(t, c, "USE two")
	for i := range 3 {
		if _, err := stmt.ExecContext(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		move()
	}
	if got := one(t, c, "SELECT CONCAT_WS(' ', DATABASE(), (SELECT COUNT(*) FROM one.t), (SELECT COUNT(*) FROM t))"); got != "two 3 0" {
		t.Errorf("%s", got)
	}
}

// tiedSession has what cannot be carried over, and hears of it.
func tiedSession(t *testing.T, c *sql.Conn, move func()) {
	run(t, c, "SET @x = 1")
	move()
	_, err := c.ExecContext(t.Context(), "DO 1")
	var e *mysql.MySQLError
	if !(errors.As(err, &e) && strings.Contains(e.Message, "user variables") || errors.Is(err, mysql.ErrInvalidConn) ||
		strings.Contains(fmt.Sprint(err), "bad connection")) {
		t.Fatalf("error %v", err)
	}
}

// heldWriters commit all the while the router is held, its server's connections are killed, and the view changes: none
// hears an error.
func heldWriters(t *testing.T, r *router.Router, db *sql.DB, addr string, move func()) {
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE d.w (id INT PRIMARY KEY AUTO_INCREMENT, v INT)"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	const writers = 16
	acked := make([]int, writers)
	for i := range writers {
		wg.Go(func() {
			c, err := db.Conn(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for ctx.Err() == nil {
				tx, err := c.BeginTx(t.Context(), nil)
				if err == nil {
					_, err = tx.Exec("INSERT INTO d.w (v) VALUES (?)", i)
				}
				if err == nil {
					_, err = tx.Exec("UPDATE d.w SET v = v + 1 WHERE id = LAST_INSERT_ID()")
				}
				if err == nil {
					err = tx.Commit()
				}
				if err != nil {
					t.Errorf("writer %d after %d: %v", i, acked[i], err)
					return
				}
				acked[i]++
			}
		})
	}
	eventually(t, "all write", func() bool { return r.Stats().RW.Followed == writers })
	for range 5 {
		r.SetView(router.View{KeepRW: true})
		eventually(t, "quiet", r.Quiet)
		move()
		eventually(t, "they go on", func() bool { return r.Stats().RW.Open == writers })
	}
	stop()
	wg.Wait()
	want := 0
	for _, n := range acked {
		want += n
	}
	var got int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM d.w").Scan(&got); err != nil || got != want {
		t.Errorf("%d rows, %d acknowledged, %v", got, want, err)
	}
}

// killedSession is one that an operator ends at the server: the client hears of it.
func killedSession(t *testing.T, direct *sql.DB, c *sql.Conn) {
	id := one(t, c, "SELECT CONNECTION_ID()")
	if _, err := direct.ExecContext(t.Context(), "KILL "+id); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if _, err := c.ExecContext(ctx, "DO 1"); err == nil || ctx.Err() != nil {
		t.Fatalf("error %v", err)
	}
}

// statementUnderWay loses its server: what cannot have been committed can be repeated, of the rest the client is told
// the truth.
func statementUnderWay(t *testing.T, direct *sql.DB, c *sql.Conn, move func()) {
	sleeping := func() (n int) {
		if err := direct.QueryRowContext(t.Context(),
			"SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User sleep'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for q, want := range map[string]uint16{"SELECT SLEEP(30) FROM DUAL": 1213,
		"INSERT INTO d.w (v) SELECT SLEEP(30)": 3168} {
		if one(t, c, "SELECT 1") != "1" {
			t.Fatal("the session does not go on")
		}
		ended, before := make(chan error, 1), sleeping()
		go func() {
			_, err := c.ExecContext(t.Context(), q)
			ended <- err
		}()
		eventually(t, "the statement is under way", func() bool { return sleeping() > before })
		move()
		var e *mysql.MySQLError
		if err := <-ended; !errors.As(err, &e) || e.Number != want {
			t.Errorf("%s: %v", q, err)
		}
	}
}
