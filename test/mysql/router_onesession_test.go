package mysql_test

import (
	"database/sql"
	"fmt"
	"net"
	"testing"
	"time"

	"trireme/internal/access/router"
	"trireme/internal/mysql/mysqlwire"
)

// routerOneSession compares a session on the splitting port, which uses two sessions of the server, with one on a
// single server.
func routerOneSession(t *testing.T, addr, root string) {
	r := start(t, router.Config{HoldTimeout: limit, DialTimeout: limit, SplitListen: "127.0.0.1:0", TLS: testTLS(t),
		Reads: oneServer{}})
	leader, follower := router.Target{Name: "n1", Addr: addr, Epoch: "1"},
		router.Target{Name: "n2", Addr: addr, Epoch: "1"}
	turn := func(epoch string) {
		leader.Epoch, follower.Epoch = epoch, epoch
		r.SetView(router.View{RW: &leader, RO: []router.Target{follower}})
	}
	turn("1")
	direct, split := open(t, addr, root, ""), open(t, r.SplitAddr(), root, "")
	conn := func(db *sql.DB) *sql.Conn {
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	gives := func(c *sql.Conn, want, q string) {
		t.Helper()
		var got sql.NullString
		if err := c.QueryRowContext(t.Context(), q).Scan(&got); err != nil || got.String != want {
			t.Errorf("%s: %q, want %q (%v)", q, got.String, want, err)
		}
	}
	onFollower := func(what string, f func()) {
		t.Helper()
		before := r.Stats().Split.FollowerReads
		f()
		eventually(t, what+" read the follower", func() bool { return r.Stats().Split.FollowerReads > before })
	}

	// A session has the global values of its beginning, as an account without privileges, too.
	d := conn(direct)
	run(t, d, "CREATE USER weak@'127.0.0.1' IDENTIFIED BY '"+root+"'",
		"SET GLOBAL time_zone = '+02:00', sql_mode = 'PIPES_AS_CONCAT', group_concat_max_len = 4")
	weak, err := sql.Open("mysql", fmt.Sprintf("weak:%s@tcp(%s)/", root, r.SplitAddr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = weak.Close() })
	c, w := conn(split), conn(weak)
	run(t, d, "SET GLOBAL time_zone = DEFAULT, sql_mode = DEFAULT, group_concat_max_len = DEFAULT")
	for _, c := range []*sql.Conn{c, w} {
		onFollower("settings", func() {
			gives(c, "120 12 aaaa",
				"SELECT CONCAT_WS(' ', TIMESTAMPDIFF(MINUTE, UTC_TIMESTAMP(), NOW()), '1' || '2', GROUP_CONCAT(x)) FROM (SELECT 'aaaaaa' x) y")
		})
	}

	// What the last statement has left is there after a ping, too.
	c = conn(split)
	onFollower("diagnostics", func() { gives(c, "0", "SELECT CAST('x' AS SIGNED)") })
	if err := c.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	gives(c, "1 0", "SELECT CONCAT_WS(' ', @@warning_count, @@session.error_count)")
	onFollower("diagnostics", func() { gives(c, "0", "SELECT CAST('x' AS SIGNED)") })
	gives(c, "1", "SHOW COUNT(*) WARNINGS")

	// GET DIAGNOSTICS tells of a read, and later statements at both servers see what it set: the same, of the same types,
	// as on one server.
	const types = "SELECT CONCAT_WS('|', @n, @r, @e, @p, @c, IFNULL(@none, 'null'), COLLATION(@p), COERCIBILITY(@p), @r < 0, JSON_ARRAY(@n, @r, @e, @p))"
	for _, read := range []string{"SELECT CAST('\xc3\xa9' AS SIGNED), 1/0 FROM (SELECT 1 UNION SELECT 2) x", "SELECT 1",
		"SELECT nix FROM (SELECT 1) x"} {
		for _, charset := range []string{"utf8mb4", "latin1", "utf8mb3 COLLATE utf8mb3_bin"} {
			said := [2][]string{}
			for i, c := range []*sql.Conn{conn(direct), conn(split)} {
				told := func(what any) { said[i] = append(said[i], fmt.Sprint(what)) }
				tell := func(q string) {
					_, err := c.ExecContext(t.Context(), q)
					told(err)
				}
				query := func(q string) {
					rows, err := c.QueryContext(t.Context(), q)
					if told(err); err != nil {
						return
					}
					defer rows.Close()
					columns, _ := rows.ColumnTypes()
					for rows.Next() {
						values := make([]sql.NullString, len(columns))
						into := make([]any, len(columns))
						for i := range into {
							into[i] = &values[i]
						}
						told(rows.Scan(into...))
						told(values)
					}
					for _, column := range columns {
						told(column.DatabaseTypeName())
					}
					told(rows.Err())
				}
				tell("SET NAMES " + charset)
				query(read)
				tell("GET DIAGNOSTICS @n = NUMBER, @r = ROW_COUNT")
				tell("GET CURRENT DIAGNOSTICS CONDITION @n @e = MYSQL_ERRNO, @p = MESSAGE_TEXT, @c = CURSOR_NAME")
				tell("GET STACKED DIAGNOSTICS @none = NUMBER")
				tell("GET DIAGNOSTICS CONDITION 9 @none = MESSAGE_TEXT")
				query("SHOW WARNINGS")
				query("SELECT 1")
				query(types)
				query("SELECT @n, @r, @e, @p, @c, @none")
				query("SELECT @n - 5")
			}
			for i := range said[0] {
				if said[0][i] != said[1][i] {
					t.Errorf("%s in %s: on one server %q, here %q", read, charset, said[0][i], said[1][i])
				}
			}
		}
	}

	// Who drops the schema in use has none, at both servers and at the next ones.
	const schema = "SELECT IFNULL(DATABASE(), 'none')"
	run(t, d, "CREATE DATABASE own")
	loggedIn, err := sql.Open("mysql", fmt.Sprintf("root:%s@tcp(%s)/own", root, r.SplitAddr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = loggedIn.Close() })
	for i, c := range []*sql.Conn{conn(split), conn(loggedIn)} {
		run(t, c, "CREATE DATABASE IF NOT EXISTS own", "USE own")
		onFollower("the schema", func() { gives(c, "own", schema) })
		run(t, c, "DROP DATABASE own", "CREATE DATABASE own")
		onFollower("no schema", func() { gives(c, "none", schema) })
		turn(fmt.Sprint(i, "1"))
		run(t, c, "DO 1")
		onFollower("no schema after a move", func() { gives(c, "none", schema) })
		run(t, c, "DO 1")
		gives(c, "none", "SELECT IFNULL(DATABASE(), 'none') FOR UPDATE")
		run(t, c, "USE own")
		onFollower("a schema again", func() { gives(c, "own", schema) })
	}

	// The client hears of the server's timeout as soon as mysqld has it.
	nc, err := net.Dial("tcp", r.SplitAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	idle, err := mysqlwire.Login(t.Context(), nc, mysqlwire.ClientConfig{User: "root", Password: root})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := idle.Exec(t.Context(), "SET SESSION wait_timeout = 1"); err != nil {
		t.Fatal(err)
	}
	_ = nc.SetReadDeadline(time.Now().Add(limit))
	idle.ResetSequence()
	p, err := idle.ReadPacket()
	if err != nil || !mysqlwire.IsERR(p) {
		t.Fatalf("%q, %v", p, err)
	}
	if e, err := mysqlwire.ParseERR(p); err != nil || e.Code != 4031 {
		t.Errorf("%v, %v", e, err)
	}
}
