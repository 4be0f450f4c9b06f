package robustness

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/api"
	"trireme/internal/ops/demo"
	"trireme/lab/testkit"
	"trireme/lab/verify"
)

// leave asks the leader.
func (c *cluster) leave(asked *demo.Node, req api.LeaveRequest) (api.LeaveResult, error) {
	cl := c.Client(asked)
	defer cl.Close()
	return api.Leave.Ask(c.t.Context(), cl, req)
}

// restartMySQL kills a node's mysqld, and waits until it has another.
func (c *cluster) restartMySQL(n *demo.Node) {
	c.t.Helper()
	pid := c.KillMySQL(n)
	eventually(c.t, healLimit, n.Name+" has a new mysqld", func() error {
		if m := c.member(n); m.State != api.StateHealthy || m.MySQL == nil || m.MySQL.PID == pid {
			return errors.New(m.State)
		}
		return nil
	})
}

// TestLeave follows docs/ops/leave.md: a cluster with holes in what its nodes have executed, that has failed over and
// been written to, becomes a source and a replica; a dead node forbids it, and what is taken back leaves a healthy
// cluster.
func TestLeave(t *testing.T) {
	t.Parallel()
	c := create(t, 2, 1)
	leader := c.healthy()
	follower := c.others(leader)[0]
	s := c.session(leader)
	s.exec("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
		"INSERT INTO shop.t (v) VALUES (1)")
	s.close()
	c.caughtUp()
	// A local statement on each, which the log does not have: the replica must not ask its source for it.
	for _, n := range []*demo.Node{follower, leader} {
		if n == leader {
			_, err := c.Switchover(t.Context(), follower.Name)
			must(t, err)
			c.healthy()
		}
		f := c.session(n)
		f.exec("REPAIR TABLE shop.t")
		f.close()
	}
	leader, follower = follower, leader
	c.healthy()

	// Refused while somebody is missing, by every node alike; nothing has changed.
	logger := c.Nodes()[2]
	c.KillDaemon(logger)
	eventually(t, healLimit, "the logger is missed", func() error {
		for _, m := range c.view().Members {
			if m.Name == logger.Name && m.State != api.StateDown {
				return errors.New(m.State)
			}
		}
		return nil
	})
	if _, err := c.leave(follower, api.LeaveRequest{}); api.KindOf(err) != api.KindNotReady ||
		!strings.Contains(err.Error(), logger.Name) {
		t.Errorf("left without %s: %v", logger.Name, err)
	}
	if res, err := c.leave(leader, api.LeaveRequest{DryRun: true}); err != nil || res.ProblemKind != api.KindNotReady ||
		!strings.Contains(res.Problem, logger.Name) {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := c.leave(leader, api.LeaveRequest{IfTerm: 1}); api.KindOf(err) != api.KindChanged {
		t.Errorf("left in an old term: %v", err)
	}
	c.start(logger)
	c.healthy()
	eventually(t, healLimit, "the leader, too, hears of the logger", func() error {
		res, err := c.leave(leader, api.LeaveRequest{DryRun: true})
		if err == nil && res.Problem != "" {
			err = errors.New(res.Problem)
		}
		return err
	})

	// A follower that cannot be made ready: everything is taken back.
	blocked := filepath.Join(follower.Dir, "mysql", "binlog-plain")
	must(t, os.WriteFile(blocked, nil, 0o600))
	if _, err := c.leave(leader, api.LeaveRequest{}); api.KindOf(err) != api.KindNotReady ||
		!strings.Contains(err.Error(), follower.Name) {
		t.Errorf("left although %s cannot: %v", follower.Name, err)
	}
	must(t, os.Remove(blocked))
	c.healthy()
	w := c.load(verify.Config{Writers: 4, Rate: steady()})
	c.writesMore(w, 50)
	must(t, w.Stop())

	// XA: what is prepared does not outlive a replica's restart, and what the applier has prepared and ended leaves no
	// trace in its tables.
	s = c.session(leader)
	s.exec("XA START 'x'", "INSERT INTO shop.t (v) VALUES (3)", "XA END 'x'", "XA PREPARE 'x'")
	if res, err := c.leave(leader, api.LeaveRequest{DryRun: true}); err != nil || !res.ProblemKind.Refused() {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := c.leave(leader, api.LeaveRequest{}); !api.KindOf(err).Refused() {
		t.Errorf("left with a prepared XA transaction: %v", err)
	}
	s.exec("XA COMMIT 'x'")
	uuid := s.value("SELECT @@server_uuid")
	s.close()
	c.caughtUp()
	if _, err := c.leave(leader, api.LeaveRequest{}); !api.KindOf(err).Refused() ||
		!strings.Contains(err.Error(), follower.Name) {
		t.Errorf("left although a restart of %s forgets an XA PREPARE: %v", follower.Name, err)
	}
	c.healthy()
	c.restartMySQL(follower)

	var res api.LeaveResult
	eventually(t, healLimit, "the leader, too, knows that "+follower.Name+" is healthy", func() (err error) {
		res, err = c.leave(leader, api.LeaveRequest{DryRun: true})
		if err == nil && res.Problem != "" {
			err = errors.New(res.Problem)
		}
		return err
	})
	if res.Source.Name != leader.Name || len(res.Replicas) != 1 || len(res.Loggers) != 1 {
		t.Fatalf("%+v", res)
	}
	began := time.Now()
	_, err := c.leave(follower, api.LeaveRequest{})
	must(t, err)
	source, replica := c.plain(leader), c.plain(follower)
	eventually(t, healLimit, "the source takes writes", func() error {
		_, err := source.ExecContext(t.Context(), "INSERT INTO shop.t (v) VALUES (2)")
		return err
	})
	t.Logf("the source takes writes again after %v", time.Since(began).Round(time.Millisecond))
	eventually(t, healLimit, "the replica has everything", func() error {
		if err := replica.PingContext(t.Context()); err != nil {
			return err
		}
		a, b := get1(t, source, "SELECT @@gtid_executed"), get1(t, replica, "SELECT @@gtid_executed")
		if a != b {
			return fmt.Errorf("source %s, replica %s, %s", a, b,
				get1(t, replica, "SELECT GROUP_CONCAT(LAST_ERROR_MESSAGE) FROM performance_schema.replication_connection_status"))
		}
		return nil
	})
	for _, q := range []string{"SELECT CONCAT(COUNT(*), ' ', SUM(v)) FROM shop.t",
		"SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'workload'"} {
		if a, b := get1(t, source, q), get1(t, replica, q); a != b {
			t.Errorf("%s: source %s, replica %s", q, a, b)
		}
	}
	if got := get1(t, source, "SELECT @@server_uuid"); strings.Contains(got, uuid) {
		t.Errorf("the source has the server_uuid of its last life, %s, and may give its numbers again", got)
	}
	if v := get1(t, source,
		"SELECT CONCAT(@@super_read_only, @@log_replica_updates, @@sync_binlog, @@innodb_flush_log_at_trx_commit)"); v != "0111" {
		t.Errorf("settings of the source: %s", v)
	}
	if v := get1(t, replica, "SELECT CONCAT(@@super_read_only, @@log_replica_updates)"); v != "11" {
		t.Errorf("settings of the replica: %s", v)
	}
	if n := get1(t, source, "SELECT COUNT(*) FROM performance_schema.replication_connection_configuration"); n != "0" {
		t.Errorf("the source has %s replication channels", n)
	}
	// No daemon starts there again.
	for _, n := range c.Nodes() {
		out, err := exec.CommandContext(t.Context(), testkit.Program(t, testkit.Trireme), "node", "--config",
			filepath.Join(n.Dir, "trireme.toml")).CombinedOutput()
		if err == nil {
			t.Errorf("%s: %v: %s", n.Name, err, out)
		}
	}
}

// TestLeaveWithoutItsLeader: the leader dies when all others are ready to be its plain replicas. The one that leads
// then, and follows it again later, has the feed back: from the old leader's mysqld it would read what Raft does not
// have (S3, S5).
func TestLeaveWithoutItsLeader(t *testing.T) {
	t.Parallel()
	c := leaseTagged(t)
	first := c.healthy()
	for _, n := range c.others(first) { // its applier may have prepared XA transactions, with which no cluster is left
		c.restartMySQL(n)
	}
	term, before := c.view().Term, c.fired(first)
	const spec = "leave.prepared=kill@1"
	c.command(first, "arm "+spec)
	c.awaitFired(first, before, spec, func(c *cluster, n *demo.Node) error {
		_, err := c.leave(n, api.LeaveRequest{})
		return err
	})
	second := c.failedOver(term)
	c.start(first)
	c.healthy()
	w := c.load(verify.Config{Writers: 2, Rate: 10})
	c.writesMore(w, 20)
	fed := func() {
		t.Helper()
		for _, n := range c.others(first) {
			s := c.admin(n)
			if port := s.value("SELECT PORT FROM performance_schema.replication_connection_configuration"); port ==
				strconv.Itoa(c.member(first).MySQL.Port) {
				t.Errorf("%s replicates from %s's mysqld", n.Name, first.Name)
			}
			s.close()
		}
	}
	fed()
	if second.Name != first.Name {
		_, err := c.Switchover(t.Context(), first.Name)
		must(t, err)
		c.healthy()
	}
	c.writesMore(w, 20)
	fed()
	t.Log(c.check(w))
}

// plain connects to what was a node's mysqld.
func (c *cluster) plain(n *demo.Node) *sql.DB {
	l := c.Direct(n)
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = l.User, l.Password, "tcp", l.Addr()
	return openDB(c.t, cfg)
}
