package robustness

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/core/ha"
	"trireme/internal/ops/demo"
	"trireme/lab/testkit"
	"trireme/lab/verify"
)

// TestNoFault: what only looks like a fault, for longer than the limits after which a fault is found, moves no
// leadership and ends no writes: waits for locks, account statements back to back, which lock logins out each time, a
// storm of logins, and a follower that is stopped again and again.
func TestNoFault(t *testing.T) {
	testkit.Quiet(t, "that leadership stays where it is")
	c := lease(t)
	w := c.load(verify.Config{Writers: 8, Rate: steady()})
	leader := c.healthy()
	before := c.view()
	s := c.session(leader)
	s.exec("DROP DATABASE IF EXISTS gray", "CREATE DATABASE gray", "CREATE TABLE gray.t (id INT PRIMARY KEY, v INT)",
		"INSERT INTO gray.t VALUES (1, 0)")
	s.exec("BEGIN", "UPDATE gray.t SET v = 1")
	blocked := make(chan error, 1)
	waiter := c.session(leader)
	waiter.exec("SET innodb_lock_wait_timeout = 60")
	go func() { blocked <- waiter.try("UPDATE gray.t SET v = 2") }()

	// commits that stand still count as a fault after 10 s, a server without an answer after 5 s
	end := time.Now().Add(12 * time.Second)
	stop := make(chan struct{})
	failed := make(chan error, 2)
	accounts := c.admin(leader)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				failed <- nil
				return
			default:
			}
			user := fmt.Sprintf("gray%d", i%10)
			for _, q := range []string{"CREATE USER IF NOT EXISTS " + user, "GRANT SELECT ON gray.* TO " + user,
				"DROP USER " + user} {
				if err := accounts.try(q); err != nil {
					failed <- fmt.Errorf("%s: %w", q, err)
					return
				}
			}
		}
	}()
	go func() {
		for {
			select {
			case <-stop:
				failed <- nil
				return
			default:
			}
			db, err := c.Direct(leader).Open("")
			if err == nil {
				err = db.PingContext(t.Context())
				_ = db.Close()
			}
			if err != nil {
				failed <- fmt.Errorf("a login: %w", err)
				return
			}
		}
	}()
	victim := c.others(leader)[0]
	for time.Now().Before(end) {
		must(t, c.Signal(victim, syscall.SIGSTOP))
		c.writesMore(w, 50)
		must(t, c.Signal(victim, syscall.SIGCONT))
		c.writesMore(w, 50)
	}
	close(stop)
	for range 2 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	s.exec("COMMIT")
	must(t, <-blocked)
	if now := c.view(); now.Term != before.Term || now.Leader != before.Leader {
		t.Errorf("%s leads term %d, before it was %s in term %d", now.Leader, now.Term, before.Leader, before.Term)
	}
	c.healthy()
	s.exec("DROP DATABASE gray")
	t.Logf("%s", c.check(w))
}

// TestStopWhileWaiting: a daemon that is asked to stop does not wait for the transactions that a switchover under way
// waits for.
func TestStopWhileWaiting(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	target := c.others(leader)[0]
	s := c.session(leader)
	s.exec("DROP DATABASE IF EXISTS gray", "CREATE DATABASE gray", "CREATE TABLE gray.t (id INT PRIMARY KEY)", "BEGIN",
		"INSERT INTO gray.t VALUES (1)")
	done := make(chan string, 1)
	go func() {
		_, out := c.trireme(target, "switchover", "--to", target.Name, "--on-open-trx", "wait=60s")
		done <- out
	}()
	eventually(t, steerLimit, "the switchover waits", func() error {
		_, out := c.inJSON(target, "switchover --dry-run")
		return refusedDry(out, api.KindBusy)
	})
	at := time.Now()
	if !c.StopDaemon(leader) {
		t.Error("SIGTERM did not end the daemon within its limit")
	}
	if took := time.Since(at); took > 15*time.Second {
		t.Errorf("SIGTERM took %v: the open transaction was waited for", took)
	} else {
		t.Logf("the daemon ended after %v", took.Round(time.Millisecond))
	}
	<-done
	c.start(leader)
	if now := c.healthy(); now == leader {
		t.Errorf("%s leads again", leader.Name)
	}
}

// TestXAEndedOnFollower: XA COMMIT and XA ROLLBACK by sessions on the followers, of a transaction that their appliers
// have prepared, take effect there alone. Each follower must say so and go out of service, also after a restart of its
// mysqld, and be seeded by itself, one after the other; the leader goes on, and the transaction is still its to decide.
func TestXAEndedOnFollower(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	c.notWhole() // a server that has just started is watched from where it was, and not from the beginning of the log
	c.crash(c.others(leader)[0])
	leader = c.healthy()
	term, followers := c.view().Term, c.others(leader)
	s := c.session(leader)
	s.exec("DROP DATABASE IF EXISTS gray", "CREATE DATABASE gray", "CREATE TABLE gray.t (id INT PRIMARY KEY)",
		"XA START 'lone'", "INSERT INTO gray.t VALUES (1)", "XA END 'lone'", "XA PREPARE 'lone'")
	c.caughtUp()
	c.says(leader, 0, "pause")
	for i, end := range []string{"XA COMMIT 'lone'", "XA ROLLBACK 'lone'"} {
		lone := c.session(followers[i])
		if err := lone.try(end); err != nil {
			t.Fatalf("a server that refuses it needs no watching: %v", err)
		}
		lone.close()
	}
	for _, n := range followers {
		c.fenced(n)
	}
	c.crash(followers[0]) // a start of mysqld prepares what is missing again, as if nothing had been
	c.fenced(followers[0])
	s.exec("INSERT INTO gray.t VALUES (2)")
	c.says(leader, 0, "resume")
	c.healed("an XA transaction that was ended on followers", 2)
	if v := c.view(); v.Leader != leader.Name || v.Term != term {
		t.Errorf("leadership moved: %s in term %d", v.Leader, v.Term)
	}
	c.session(leader).exec("XA COMMIT 'lone'")
	c.caughtUp()
	c.everywhere("SELECT COUNT(*) FROM gray.t", "2")
	c.equal()
}

// fenced waits until a node says that a session on it has ended an XA transaction, and which one.
func (c *cluster) fenced(n *demo.Node) {
	c.t.Helper()
	m := c.shows(c.leader(), n.Name, "goes out of service", func(m api.MemberView) bool {
		return m.State == api.StateFenced && m.ReasonCode == ha.NeedsSeed && m.ApplyError != nil
	})
	c.t.Log(m.Reason)
	if e := m.ApplyError; !e.Diverged || e.GTID == "" || len(e.Changes) != 1 || e.Changes[0].Table != "gray.t" {
		c.t.Errorf("%s: %+v", n.Name, e)
	}
}
