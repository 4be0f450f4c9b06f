package robustness

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
)

// unacknowledged is a statement that a leader writes and cannot replicate.
type unacknowledged struct {
	name    string
	prepare []string
	run     func(*session) error
	query   string // its result on all nodes, afterwards
	want    string
}

// unacknowledgedOnes are lost together, those of one line at the same moment: GRANT waits for a CREATE USER that waits.
func unacknowledgedOnes() [][]unacknowledged {
	one := func(statement string) func(*session) error {
		return func(s *session) error { return s.try(statement) }
	}
	return [][]unacknowledged{{
		{"insert", []string{"CREATE TABLE una.dml (id INT PRIMARY KEY)"}, one("INSERT INTO una.dml VALUES (1)"),
			"SELECT COUNT(*) FROM una.dml", "0"},
		{"update and delete", []string{"CREATE TABLE una.upd (id INT PRIMARY KEY, v INT)",
			"INSERT INTO una.upd VALUES (1, 1), (2, 2)"},
			func(s *session) error {
				return errors.Join(s.try("BEGIN"), s.try("UPDATE una.upd SET v = 7 WHERE id = 1"),
					s.try("DELETE FROM una.upd WHERE id = 2"), s.try("COMMIT"))
			}, "SELECT GROUP_CONCAT(CONCAT(id, ':', v) ORDER BY id) FROM una.upd", "1:1,2:2"},
		{"XA prepare", []string{"CREATE TABLE una.xap (id INT PRIMARY KEY)", "XA START 'una_p'",
			"INSERT INTO una.xap VALUES (1)", "XA END 'una_p'"},
			one("XA PREPARE 'una_p'"), "SELECT COUNT(*) FROM una.xap", "0"},
		{"XA commit", []string{"CREATE TABLE una.xac (id INT PRIMARY KEY)", "XA START 'una_c'",
			"INSERT INTO una.xac VALUES (1)", "XA END 'una_c'", "XA PREPARE 'una_c'"},
			one("XA COMMIT 'una_c'"), "SELECT COUNT(*) FROM una.xac", "0"},
		{"create table", nil, one("CREATE TABLE una.created (id INT PRIMARY KEY)"),
			"SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'una' AND table_name = 'created'", "0"},
		{"drop table", []string{"CREATE TABLE una.dropped (id INT PRIMARY KEY)", "INSERT INTO una.dropped VALUES (5)"},
			one("DROP TABLE una.dropped"), "SELECT SUM(id) FROM una.dropped", "5"},
		{"create user", nil, one("CREATE USER una_user IDENTIFIED BY 'una'"),
			"SELECT COUNT(*) FROM mysql.user WHERE user = 'una_user'", "0"},
	}, {
		{"alter table", []string{"CREATE TABLE una.altered (id INT PRIMARY KEY)", "INSERT INTO una.altered VALUES (5)"},
			one("ALTER TABLE una.altered ADD COLUMN extra INT NOT NULL DEFAULT 3, ALGORITHM=COPY"),
			"SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = 'una' AND table_name = 'altered'", "1"},
		{"grant", []string{"CREATE USER una_grant"}, one("GRANT SELECT ON una.* TO una_grant"),
			"SELECT COUNT(*) FROM mysql.db WHERE user = 'una_grant'", "0"},
	}}
}

// TestUnacknowledgedIsGone: what a killed leader had written but not been able to replicate is gone after it has
// rejoined, for every kind of statement. All three nodes are killed twice, which takes most of its 20 s.
func TestUnacknowledgedIsGone(t *testing.T) {
	t.Parallel()
	c := lease(t)
	for _, together := range unacknowledgedOnes() {
		s := c.session(c.healthy())
		s.exec("CREATE DATABASE IF NOT EXISTS una")
		s.close()
		victim := c.withheld(together)
		c.start(victim)
		leader := c.healthy()
		c.caughtUp()
		wantXA := []string{}
		for _, k := range together {
			t.Log(k.name)
			c.everywhere(k.query, k.want)
			if k.name == "XA commit" { // its XA PREPARE was acknowledged and stays
				wantXA = []string{"una_c"}
			}
		}
		for _, n := range c.DataNodes() {
			if got := c.prepared(n); !slices.Equal(got, wantXA) {
				t.Errorf("%s has prepared transactions %v, want %v", n.Name, got, wantXA)
			}
		}
		if len(wantXA) > 0 {
			s := c.session(leader)
			s.exec("XA COMMIT 'una_c'")
			c.everywhere("SELECT COUNT(*) FROM una.xac", "1")
		}
		c.equal()
	}
}

// TestDropIfExistsRunsOnce: DROP TABLE IF EXISTS of a missing table leaves no trace in InnoDB. When the table is
// created later, a node that was killed must not run the old DROP again. The long form kills in three ways.
func TestDropIfExistsRunsOnce(t *testing.T) {
	t.Parallel()
	c := lease(t)
	s := c.session(c.healthy())
	s.exec("CREATE DATABASE IF NOT EXISTS dropif", "DROP TABLE IF EXISTS dropif.t")
	s.close()
	kills := leaderKills
	if !needs.IsLong() {
		kills = kills[:1]
	}
	for i, how := range kills {
		leader := c.healthy()
		s := c.session(leader)
		table := fmt.Sprintf("dropif.t%d", i)
		s.exec("DROP TABLE IF EXISTS "+table, "CREATE TABLE "+table+" (id INT PRIMARY KEY)", "CREATE TABLE IF NOT EXISTS "+
			table+" (other INT)",
			"INSERT INTO "+table+" VALUES (1)", "DROP USER IF EXISTS nobody_at_all")
		s.close()
		victims := []*demo.Node{leader, c.others(leader)[0]}
		for _, v := range victims {
			how.kill(c, v)
			if how.restart {
				c.start(v)
			}
			c.healthy()
			c.everywhere("SELECT COUNT(*) FROM "+table, "1")
		}
	}
}

// TestXAPrepared: a prepared XA transaction that was acknowledged survives kills of followers and of the leader,
// switchovers and, in the long form, clean restarts, and can be committed or rolled back at the next leader, exactly
// once.
func TestXAPrepared(t *testing.T) {
	t.Parallel()
	c := lease(t)
	s := c.session(c.healthy())
	s.exec("DROP DATABASE IF EXISTS xa", "CREATE DATABASE xa", "CREATE TABLE xa.t (id INT PRIMARY KEY, v INT)")
	s.close()
	next := 0
	prepare := func() string {
		t.Helper()
		next++
		xid := fmt.Sprintf("xa%d", next)
		s := c.session(c.leader())
		defer s.close()
		s.exec("XA START '"+xid+"'", fmt.Sprintf("INSERT INTO xa.t VALUES (%d, 0)", next), "XA END '"+xid+"'",
			"XA PREPARE '"+xid+"'")
		return xid
	}
	expect := func(when string, xids ...string) {
		t.Helper()
		slices.Sort(xids)
		for _, n := range c.DataNodes() {
			eventually(t, sqlLimit, n.Name+" "+when, func() error {
				if got := c.prepared(n); !slices.Equal(got, xids) {
					return fmt.Errorf("prepared %v, want %v", got, xids)
				}
				return nil
			})
		}
	}
	disturb := []struct {
		name string
		do   func()
		long bool
	}{
		{"follower killed", func() {
			f := c.others(c.healthy())[0]
			c.KillMySQL(f)
			c.KillDaemon(f)
			c.start(f)
		}, false},
		{"follower restarted cleanly", func() {
			f := c.others(c.healthy())[1]
			c.StopDaemon(f)
			c.start(f)
		}, true},
		{"leader's mysqld killed", func() { c.crash(c.healthy()) }, false},
		{"leader killed", func() {
			l := c.healthy()
			c.KillDaemon(l)
			c.start(l)
		}, true},
		{"leader stopped cleanly", func() {
			l := c.healthy()
			c.StopDaemon(l)
			c.start(l)
		}, true},
		{"switchover", func() {
			_, err := c.Switchover(t.Context(), "")
			must(t, err)
		}, false},
	}
	long := prepare() // stays prepared through all of it
	committed := 0
	var adopter *demo.Node
	for _, d := range disturb {
		if d.long && !needs.IsLong() {
			continue
		}
		toCommit, toRollBack, before := prepare(), prepare(), prepare()
		s := c.session(c.leader())
		s.exec("XA COMMIT '" + before + "'") // finished before the fault: must not come back
		committed++
		s.close()
		d.do()
		leader := c.healthy()
		if d.name == "leader's mysqld killed" {
			adopter = leader
		}
		expect("after: "+d.name, long, toCommit, toRollBack)
		s = c.session(leader)
		s.exec("XA COMMIT '"+toCommit+"'", "XA ROLLBACK '"+toRollBack+"'")
		s.close()
		committed++
		expect("after the decisions, "+d.name, long)
		c.everywhere("SELECT COUNT(*) FROM xa.t", fmt.Sprint(committed))
		t.Logf("%s: prepared transactions were kept on all nodes, decided on %s", d.name, leader.Name)
	}
	s = c.session(c.leader())
	s.exec("XA COMMIT '" + long + "'")
	expect("at the end")
	c.everywhere("SELECT COUNT(*) FROM xa.t", fmt.Sprint(committed+1))

	// A leader that has adopted some holds GTIDs that only it has. They are no transactions that it rolled back when it
	// comes back.
	rejoins := func() (list []api.Event) {
		events, err := c.History(t.Context(), adopter)
		must(t, err)
		return slices.DeleteFunc(events, func(e api.Event) bool { return e.Kind != "rejoin" || e.Node != adopter.Name })
	}
	before := len(rejoins())
	c.crash(adopter)
	eventually(t, healLimit, adopter.Name+" tells that it is back", func() error {
		if len(rejoins()) == before {
			return errors.New("not yet")
		}
		return nil
	})
	if e := rejoins()[before]; e.GTIDs != "" {
		t.Errorf("%s says to have rolled back %s", adopter.Name, e.GTIDs)
	}
}

// TestOwnXAIsLeft: a prepared XA transaction that mysqld's own session has made, in a life before this one too, is not
// adopted when it leads again: rolled back for a moment, it would be lost by a power loss then, for its GTID is on
// disk.
func TestOwnXAIsLeft(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	s := c.session(leader)
	s.exec("DROP DATABASE IF EXISTS ownxa", "CREATE DATABASE ownxa", "CREATE TABLE ownxa.t (id INT PRIMARY KEY)",
		"XA START 'ownxa'", "INSERT INTO ownxa.t VALUES (1)", "XA END 'ownxa'", "XA PREPARE 'ownxa'")
	s.close()
	c.sql(leader, func(conn *sql.Conn) { // else the feed may have to bring it again
		_, err := conn.ExecContext(t.Context(), "FLUSH LOCAL ENGINE LOGS")
		must(t, err)
	})
	before := c.view()
	c.KillDaemon(leader)
	c.failedOver(before.Term)
	c.start(leader)
	c.healthy()
	_, err := c.Switchover(t.Context(), leader.Name)
	must(t, err)
	if c.healthy() != leader {
		t.Fatal("leadership has moved again")
	}
	c.sql(leader, func(conn *sql.Conn) {
		rows, err := conn.QueryContext(t.Context(), "SHOW BINLOG EVENTS IN 'binlog.000001'")
		must(t, err)
		defer rows.Close()
		for rows.Next() {
			var file, kind, info string
			var pos, server, end int64
			must(t, rows.Scan(&file, &pos, &kind, &server, &end, &info))
			if strings.Contains(info, "XA ") {
				t.Errorf("%s has logged %q", leader.Name, info)
			}
		}
		must(t, rows.Err())
	})
	s = c.session(leader)
	s.exec("XA COMMIT 'ownxa'")
	s.close()
	c.everywhere("SELECT COUNT(*) FROM ownxa.t", "1")
}

// TestEventAcrossFailover: a scheduled event runs on the leader only, goes on after a failover on the new one, and not
// on the ex-leader that comes back.
func TestEventAcrossFailover(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	s := c.session(leader)
	s.exec("DROP DATABASE IF EXISTS ev", "CREATE DATABASE ev",
		"CREATE TABLE ev.t (id INT AUTO_INCREMENT PRIMARY KEY, server INT)",
		"CREATE EVENT ev.e ON SCHEDULE EVERY 1 SECOND DO INSERT INTO ev.t (server) VALUES (@@server_id)",
		"CREATE EVENT ev.off ON SCHEDULE EVERY 1 SECOND DISABLE DO INSERT INTO ev.t (server) VALUES (-1)")
	fires := func(on *demo.Node) {
		t.Helper()
		s := c.session(on)
		defer s.close()
		id := s.value("SELECT @@server_id")
		last := s.value("SELECT COALESCE(MAX(id), 0) FROM ev.t")
		eventually(t, sqlLimit, "the event fires on "+on.Name, func() error {
			if s.value("SELECT COUNT(*) >= 2 FROM ev.t WHERE id > "+last+" AND server = "+id) != "1" {
				return fmt.Errorf("fewer than two rows by server %s since then", id)
			}
			return nil
		})
		if n := s.value("SELECT COUNT(*) FROM ev.t WHERE id > " + last + " AND server <> " + id); n != "0" {
			t.Errorf("%s rows by other servers while %s led", n, on.Name)
		}
	}
	fires(leader)
	s.close()
	c.KillDaemon(leader)
	next := c.leader()
	fires(next)
	c.start(leader)
	c.healthy()
	fires(c.leader())
	c.crash(c.leader())
	c.healthy()
	fires(c.leader())
	s = c.session(c.leader())
	if n := s.value("SELECT COUNT(*) FROM ev.t WHERE server = -1"); n != "0" {
		t.Errorf("the disabled event ran %s times", n)
	}
	s.exec("DROP DATABASE ev")
	s.close()
}

// TestLocalStatementsOnFollowers: REPAIR and ANALYZE … HISTOGRAM on a read-only follower take GTIDs of its own. They
// must neither hide transactions from it nor make it look divergent.
func TestLocalStatementsOnFollowers(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	s := c.session(leader)
	s.exec("DROP DATABASE IF EXISTS loc", "CREATE DATABASE loc",
		"CREATE TABLE loc.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)", "INSERT INTO loc.t (v) VALUES (1), (2), (3)")
	c.caughtUp()
	victim := c.others(leader)[0]
	// Whether it succeeds does not matter (a histogram fails with 1290), but it must be written there, and end: an
	// application's account can run it on any follower, and one that waited for an acknowledgement would hold up
	// everything that the applier commits.
	local := func(statement string) {
		t.Helper()
		f := c.session(victim)
		defer f.close()
		watch := c.admin(victim)
		defer watch.close()
		before, err := watch.binlogEnd()
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, _ = f.conn.ExecContext(ctx, statement)
		if ctx.Err() != nil {
			t.Fatalf("%s on a follower does not end", statement)
		}
		end, err := watch.binlogEnd()
		must(t, err)
		if end == before {
			t.Fatalf("%s left no trace in the follower's binary log: nothing is tested", statement)
		}
	}
	local("REPAIR TABLE loc.t")
	local("ANALYZE TABLE loc.t UPDATE HISTOGRAM ON v")
	s.exec("INSERT INTO loc.t (v) VALUES (4)")
	c.caughtUp() // the applier goes on
	// What is local stays local when its life leads: led and retired, and led again, and killed then.
	s.close()
	for range 2 {
		for _, to := range []*demo.Node{victim, leader} {
			_, err := c.Switchover(t.Context(), to.Name)
			must(t, err)
			c.healthy()
		}
		local("REPAIR TABLE loc.t")
	}
	s = c.session(leader)
	c.caughtUp()
	c.crash(victim)
	c.healthy()
	s.exec("INSERT INTO loc.t (v) VALUES (5)")
	local("ANALYZE TABLE loc.t UPDATE HISTOGRAM ON v")
	c.KillDaemon(victim)
	s.exec("INSERT INTO loc.t (v) VALUES (6)")
	s.close()
	c.start(victim)
	c.healthy()
	// The node with local statements becomes leader and ex-leader.
	_, err := c.Switchover(t.Context(), victim.Name)
	must(t, err)
	s = c.session(c.leader())
	s.exec("INSERT INTO loc.t (v) VALUES (7)")
	s.close()
	c.crash(victim)
	c.healthy()
	c.everywhere("SELECT CONCAT(COUNT(*), ' ', SUM(v)) FROM loc.t", "7 28")
}

// TestLargeTransaction: 64 MiB in one transaction pass without an election and in bounded memory of the daemons.
func TestLargeTransaction(t *testing.T) {
	t.Parallel()
	c := lease(t)
	c.healthy()
	ctx, cancel := context.WithTimeout(t.Context(), healLimit)
	defer cancel()
	before, err := c.View(ctx)
	must(t, err)
	l := c.Routed()
	l.StatementTimeout = 2 * time.Minute
	db, err := l.Open("")
	must(t, err)
	s := c.pin(db)
	s.exec("DROP DATABASE IF EXISTS big", "CREATE DATABASE big",
		"CREATE TABLE big.t (id INT AUTO_INCREMENT PRIMARY KEY, v LONGBLOB)")
	begin := time.Now()
	s.exec("BEGIN")
	for range 64 {
		s.exec("INSERT INTO big.t (v) VALUES (REPEAT(RANDOM_BYTES(1024), 1024))")
	}
	built := time.Now()
	s.exec("COMMIT")
	committed := time.Now()
	c.caughtUp()
	c.everywhere("SELECT SUM(LENGTH(v)) >> 20 FROM big.t", "64")
	applied := time.Now()
	after, err := c.View(ctx)
	must(t, err)
	if after.Term != before.Term || after.Leader != before.Leader {
		t.Errorf("an election: %s in term %d, then %s in term %d", before.Leader, before.Term, after.Leader, after.Term)
	}
	for _, n := range c.Nodes() {
		peak := peakMemory(t, n.DaemonPID())
		t.Logf("%s: daemon's peak memory %d MiB", n.Name, peak>>20)
		if peak > 512<<20 {
			t.Errorf("%s: its daemon used %d MiB for a transaction of 64 MiB", n.Name, peak>>20)
		}
	}
	t.Logf("64 MiB: rows %v, COMMIT %v, applied everywhere %v later", built.Sub(begin).Round(time.Millisecond),
		committed.Sub(built).Round(time.Millisecond), applied.Sub(committed).Round(time.Millisecond))
	s.exec("DROP DATABASE big")
}

// TestApplicationCannotReleaseCommits: the application's account cannot do what would release waiting commits or change
// Trireme's own accounts.
func TestApplicationCannotReleaseCommits(t *testing.T) {
	t.Parallel()
	c := lease(t)
	s := c.session(c.healthy())
	for _, st := range []string{
		"SET GLOBAL rpl_semi_sync_source_enabled = OFF", "SET PERSIST rpl_semi_sync_source_enabled = OFF",
		"SET PERSIST_ONLY rpl_semi_sync_source_enabled = OFF", "SHUTDOWN", "UNINSTALL PLUGIN rpl_semi_sync_source",
		"SET SESSION sql_log_bin = 0", "RESET BINARY LOGS AND GTIDS", "SET GLOBAL super_read_only = OFF",
		"ALTER USER trireme_admin@localhost IDENTIFIED BY 'x'", "DROP USER trireme_repl@localhost",
		"UPDATE mysql.user SET account_locked = 'Y'", "SET GLOBAL gtid_purged = '+aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1'",
		"CREATE TABLE test_engine.m (i INT) ENGINE=MyISAM",
	} {
		if err := s.try(st); err == nil {
			t.Errorf("%s was allowed", st)
		} else if strings.Contains(err.Error(), "syntax") {
			t.Errorf("%s: %v: nothing was tested", st, err)
		}
	}
}
