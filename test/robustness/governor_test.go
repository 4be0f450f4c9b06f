package robustness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"trireme/internal/api"
	"trireme/internal/core/ha"
	"trireme/internal/ops/demo"
	"trireme/lab/needs"
	"trireme/lab/verify"
)

// megabytes is a statement that writes so many rows of 1 MiB, from id first on.
func megabytes(first, n int) string {
	return fmt.Sprintf("INSERT INTO gov.t (id, v) WITH RECURSIVE r (k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM r WHERE k + 1 < %d) SELECT %d + k, REPEAT('x', 1048576) FROM r", n, first)
}

// cacheMax is the limit of new sessions on a node.
func (c *cluster) cacheMax(n *demo.Node) string {
	s := c.admin(n)
	defer s.close()
	return s.value("SELECT @@GLOBAL.max_binlog_cache_size")
}

// awaitCacheMax waits for it.
func (c *cluster) awaitCacheMax(n *demo.Node, good func(string) bool) {
	c.t.Helper()
	eventually(c.t, steerLimit, "the limit of transactions on "+n.Name, func() error {
		if got := c.cacheMax(n); !good(got) {
			return errors.New(got)
		}
		return nil
	})
}

// recorded waits for an event in the history.
func (c *cluster) recorded(kind, text string) {
	c.t.Helper()
	eventually(c.t, steerLimit, "the history tells of "+kind, func() error {
		events, err := c.History(c.t.Context(), c.leader())
		for _, e := range events {
			if err == nil && e.Kind == kind && strings.Contains(e.Message, text) {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("no event with %q", text))
	})
}

// TestGovernor: a large transaction is told of, one that is too large is refused at its statement and leaves no
// trace, the limit moves with leadership, and DDL is seen while it runs and counts in the forecast of a failover until
// a follower has applied it.
func TestGovernor(t *testing.T) {
	t.Parallel()
	c := lease(t)
	leader := c.healthy()
	free := c.cacheMax(leader)
	limited := func(s string) bool { return s == "16777216" }
	unlimited := func(s string) bool { return s == free }
	early := c.session(leader)
	early.exec("DROP DATABASE IF EXISTS gov", "CREATE DATABASE gov", "CREATE TABLE gov.t (id INT PRIMARY KEY, v LONGTEXT)")
	c.says(leader, 0, "config edit transaction_warn=4MiB transaction_refuse=16MiB lag_objective=0s")
	c.awaitCacheMax(leader, limited)

	s := c.session(leader)
	s.exec("BEGIN", "INSERT INTO gov.t VALUES (1, 'kept')")
	var e *mysql.MySQLError
	if err := s.try(megabytes(100, 20)); !errors.As(err, &e) || e.Number != 1197 {
		t.Fatalf("20 MiB are answered with %v", err)
	}
	s.exec("INSERT INTO gov.t VALUES (2, 'kept')", "COMMIT")
	c.everywhere("SELECT GROUP_CONCAT(id ORDER BY id) FROM gov.t", "1,2")
	c.recorded("refused", "transaction_refuse = 16MiB")

	s.exec(megabytes(200, 8))
	c.recorded("large-transaction", "transaction_warn is 4MiB")
	early.exec(megabytes(300, 20)) // a session that was there before the limit knows none: as the page says
	c.recorded("large-transaction", "has 20 MiB")
	c.caughtUp()
	c.everywhere("SELECT COUNT(*) FROM gov.t", "30")

	c.lead(c.others(leader)[0])
	next := c.leader()
	if got := c.cacheMax(next); !limited(got) {
		t.Errorf("the next leader opened writes with a limit of %s", got)
	}
	c.awaitCacheMax(leader, unlimited)
	if err := c.session(next).try(megabytes(500, 20)); !errors.As(err, &e) || e.Number != 1197 {
		t.Errorf("20 MiB are answered by the next leader with %v", err)
	}
	c.says(next, 0, "config edit transaction_warn=0B transaction_refuse=0B")
	c.awaitCacheMax(next, unlimited)
	c.ddlShows(next)
	must(t, c.session(next).try("DROP DATABASE gov"))
}

// ddlShows rebuilds a table, larger each time until it takes long enough to be seen.
func (c *cluster) ddlShows(leader *demo.Node) {
	c.t.Helper()
	s := c.session(leader)
	s.exec("CREATE TABLE gov.rebuilt (id INT AUTO_INCREMENT PRIMARY KEY, v CHAR(200))",
		"INSERT INTO gov.rebuilt (v) WITH RECURSIVE n (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < 400) SELECT a.k FROM n a, n b")
	var running, applied string
	for range 6 {
		began := time.Now()
		done := make(chan error, 1)
		go func() { done <- s.try("ALTER TABLE gov.rebuilt ENGINE=InnoDB, ALGORITHM=COPY") }()
		end := time.Time{}
		eventually(c.t, healLimit, "an ALTER TABLE is through everywhere", func() error {
			v := c.view()
			for _, m := range v.Members {
				for _, h := range m.Heavy {
					if m.Name == v.Leader && h.Kind == api.HeavyDDL && strings.HasPrefix(h.Text, "ALTER TABLE gov.rebuilt") {
						running = fmt.Sprintf("%.1f s old, %.0f %%, %.1f s to replay", h.AgeSeconds, 100*h.Done, h.ReplaySeconds)
					}
				}
			}
			if v.Failover.HeavySeconds > 0.5 {
				applied = fmt.Sprintf("%.1f s of %.1f s", v.Failover.HeavySeconds, v.Failover.Seconds)
			}
			select {
			case err := <-done:
				must(c.t, err)
				end = time.Now()
			default:
			}
			if end.IsZero() {
				return errors.New("it runs on the leader")
			}
			for _, m := range v.Members {
				if m.MySQL != nil && m.Name != v.Leader && m.Raft.Applied+1 < v.CommitIndex {
					return errors.New("followers apply it")
				}
			}
			if time.Since(end) < time.Second {
				return errors.New("followers may not know of it yet")
			}
			return nil
		})
		c.caughtUp()
		c.t.Logf("ALTER TABLE took %v; under way: %s; in the forecast: %s", end.Sub(began).Round(time.Millisecond), running,
			applied)
		if running != "" && applied != "" {
			return
		}
		s.exec("INSERT INTO gov.rebuilt (v) SELECT v FROM gov.rebuilt")
	}
	c.t.Fatalf("DDL was not seen: under way %q, in the forecast %q", running, applied)
}

// TestFollowerDiskFull fills the disk of a follower's relay log, and in the long form those of its raft log and of its
// data. No client that writes notices, but for those of the router of a daemon that ends for it: the same node leads,
// no write fails, and none waits for long. The follower is whole again once there is space.
func TestFollowerDiskFull(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		cannot(t, "only root may mount a file system of a limited size")
	}
	c := lease(t)
	leader := c.healthy()
	victim := c.others(leader)[0]
	c.StopDaemon(victim)
	dirs := []string{"mysql/relay"}
	if needs.IsLong() {
		dirs = append(dirs, "raft", "mysql/data")
	}
	var disks []*disk
	for _, dir := range dirs {
		disks = append(disks, c.mount(filepath.Join(victim.Dir, dir)))
	}
	c.start(victim)
	c.healthy()
	const writers = 8
	// mysqld tries again once a minute; more than that fills the disk again
	w := c.load(verify.Config{Writers: writers, PayloadBytes: 4000, Rate: 10})
	for i, d := range disks {
		c.writesMore(w, 200)
		before, failed, at := c.view(), w.Meter().Failed(), time.Now()
		d.fill()
		eventually(t, healLimit, "the follower makes no progress", func() error {
			m, commit := c.member(victim), c.view().CommitIndex
			if b := commit - min(commit, m.Raft.Applied); victim.DaemonPID() != 0 && b < 200 {
				return fmt.Errorf("it has %d entries to apply", b)
			}
			return nil
		})
		c.writesMore(w, 200)
		c.stays(before)
		gap := w.Meter().LongestGap(at).Length()
		mayFail := int64(0)
		if dirs[i] == "raft" {
			mayFail = writers // its daemon ends, and its router with it
		}
		if n := w.Meter().Failed() - failed; n > mayFail || gap > 10*time.Second {
			t.Errorf("the follower's %s is full: %d writes failed, write gap %v", dirs[i], n, gap)
		}
		if mayFail == 0 {
			eventually(t, healLimit, "it is told which disk is full", func() error {
				m := c.member(victim)
				if m.DiskFull != d.dir || m.State == api.StateHealthy || m.ReasonCode != ha.NotApplying {
					return fmt.Errorf("%s (%s): %s; disk %q", m.State, m.ReasonCode, m.Reason, m.DiskFull)
				}
				return nil
			})
		}
		m := c.member(victim)
		t.Logf("the follower's %s is full: %.0f writes/s, before it %.0f, write gap %v; it is %s (%s) with %d entries to apply",
			dirs[i], w.Meter().Rate(at, time.Now()), w.Meter().Rate(at.Add(-2*time.Second), at), gap.Round(time.Millisecond),
			m.State, m.Reason, c.view().CommitIndex-m.Raft.Applied)
		d.empty()
		roomAt := time.Now()
		eventually(t, healLimit, victim.Name+" is back", func() error {
			if victim.DaemonPID() == 0 { // one whose raft log cannot grow ends
				c.start(victim)
			}
			if m := c.member(victim); m.State != api.StateHealthy {
				return fmt.Errorf("%s: %s", m.State, m.Reason)
			}
			return nil
		})
		c.woken(victim, dirs[i], roomAt)
	}
	c.leadAfterFullDisk(victim, disks[0], w)
	t.Logf("%s", c.check(w))
	c.StopDaemon(victim)
	for _, d := range disks {
		d.remove(true)
	}
	c.start(victim)
	c.healthy()
}

// mysqldSleeps is for how long mysqld's receiver sleeps once it has met a full disk.
const mysqldSleeps = time.Minute

// woken: a node whose relay log's disk has room again does not sleep on.
func (c *cluster) woken(n *demo.Node, dir string, room time.Time) {
	c.t.Helper()
	took := time.Since(room)
	c.t.Logf("%s is back %v after its %s had room again", n.Name, took.Round(100*time.Millisecond), dir)
	if took > mysqldSleeps/2 {
		c.t.Errorf("%s slept on for %v", n.Name, took)
	}
}

// leadAfterFullDisk: a node whose disk was full for a moment is the only one that can lead.
func (c *cluster) leadAfterFullDisk(n *demo.Node, relay *disk, w *verify.Workload) {
	c.t.Helper()
	leader := c.healthy()
	third := c.others(leader)[0]
	if third == n {
		third = c.others(leader)[1]
	}
	c.StopDaemon(third)
	relay.fill()
	eventually(c.t, healLimit, n.Name+" stands still", func() error {
		commit, m := c.view().CommitIndex, c.member(n)
		if backlog := commit - min(commit, m.Raft.Applied); backlog < 100 {
			return fmt.Errorf("it has only %d entries to apply", backlog)
		}
		return nil
	})
	term := c.view().Term
	c.KillDaemon(leader)
	relay.empty()
	at := time.Now()
	c.start(third)
	c.writesAfter(w, term)
	took := time.Since(at)
	c.t.Logf("writes are open %v after the disk had room again", took.Round(100*time.Millisecond))
	if took > mysqldSleeps/2 {
		c.t.Errorf("no node led for %v", took)
	}
	c.start(leader)
	c.healthy()
}

// TestLagObjective: commits are slowed for a follower that applies less than is written, and not for one that stands
// still, nor once it keeps up. How near to the objective the follower stays is a matter of time, and of ha's
// TestFlowModel.
func TestLagObjective(t *testing.T) {
	t.Parallel()
	const objective = 4
	c := lease(t)
	leader := c.healthy()
	victim := c.others(leader)[0]
	c.says(leader, 0, fmt.Sprintf("config edit lag_objective=%ds", objective))
	w := c.load(verify.Config{Writers: 16})
	c.writesMore(w, 200)
	free := w.Meter().Rate(time.Now().Add(-2*time.Second), time.Now())

	pid := c.member(victim).MySQL.PID
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- hinder(pid, stop) }()
	var flow api.FlowView
	eventually(t, healLimit, "commits are slowed for "+victim.Name, func() error {
		f, err := c.flow()
		if err == nil && f.Node == victim.Name && f.DelaySeconds >= 0.01 {
			flow = f
			return nil
		}
		return errors.Join(err, fmt.Errorf("%+v", f))
	})
	t.Logf("%.0f writes/s before; %+v", free, flow)
	close(stop)
	must(t, <-stopped)
	c.unslowed("it keeps up", victim)

	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	at := time.Now()
	eventually(t, healLimit, "a stopped mysqld is known to be", func() error {
		f, err := c.flow()
		if err == nil && f.Node == victim.Name && f.DelaySeconds > 0.2 {
			t.Errorf("commits are slowed for a mysqld that is stopped: %+v", f)
		}
		if time.Since(at) < 3*objective*time.Second {
			return errors.New("not yet")
		}
		return err
	})
	must(t, syscall.Kill(pid, syscall.SIGCONT))
	c.healthy()
	c.unslowed("it comes back", victim)
	c.says(leader, 0, "config edit lag_objective=0s")
	t.Logf("%s", c.check(w))
}

// TestLagIsTold: of a follower that applies slowly the cluster tells seconds, bytes and how long it needs for them; of
// one that stands still, since when what it lacks is committed; and of one that has caught up, nothing of it. Half a
// minute.
func TestLagIsTold(t *testing.T) {
	needs.Long(t)
	c := lease(t)
	leader := c.healthy()
	victim := c.others(leader)[0]
	pid := c.member(victim).MySQL.PID
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	told := func(what string, f func(*api.MySQLView) bool) (my api.MySQLView) {
		t.Helper()
		eventually(t, healLimit, what, func() error {
			m := c.member(victim)
			if m.MySQL == nil || m.MySQL.LagSeconds == nil || m.MySQL.LagBytes == nil || !f(m.MySQL) {
				return fmt.Errorf("%+v", m.MySQL)
			}
			my = *m.MySQL
			return nil
		})
		return my
	}
	none := func(my *api.MySQLView) bool {
		return *my.LagSeconds == 0 && *my.LagBytes == 0 && my.CatchUpSeconds != nil && *my.CatchUpSeconds == 0
	}

	w := c.load(verify.Config{Writers: 16})
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- hinder(pid, stop) }()
	slow := told("it lags", func(my *api.MySQLView) bool {
		return *my.LagSeconds >= 1 && *my.LagBytes > 0 && my.CatchUpSeconds != nil && *my.CatchUpSeconds > 0
	})
	close(stop)
	must(t, <-stopped)
	t.Logf("%s", c.check(w))
	t.Logf("it lagged %.1f s and %d bytes, which need %.1f s", *slow.LagSeconds, *slow.LagBytes, *slow.CatchUpSeconds)
	told("it has caught up", none)

	db, err := c.Routed().Open("")
	must(t, err)
	defer db.Close()
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	before := time.Now()
	_, err = db.ExecContext(t.Context(), "CREATE DATABASE lagging")
	must(t, err)
	after := time.Now()
	told("one commit is lacking", func(my *api.MySQLView) bool {
		lag := time.Duration(*my.LagSeconds * float64(time.Second))
		if most := time.Since(before); lag > most+time.Second {
			t.Errorf("it lags by %v, and all that it lacks was committed less than %v ago", lag, most)
		}
		return lag > 3*time.Second && lag > time.Since(after)-2*time.Second
	})
	must(t, syscall.Kill(pid, syscall.SIGCONT))
	told("it has caught up again", none)
	_, err = db.ExecContext(t.Context(), "DROP DATABASE lagging")
	must(t, err)
}

// flow is flow control as the leader tells it.
func (c *cluster) flow() (api.FlowView, error) {
	v, err := c.View(c.t.Context())
	if err == nil && v.Flow == nil {
		err = errors.New("no flow control")
	}
	if err != nil {
		return api.FlowView{}, err
	}
	return *v.Flow, nil
}

// unslowed waits until a follower has caught up and commits go as fast as they can.
func (c *cluster) unslowed(why string, n *demo.Node) {
	c.t.Helper()
	eventually(c.t, healLimit, "commits are not slowed: "+why, func() error {
		f, err := c.flow()
		if m := c.member(n); err == nil && (f.DelaySeconds > 0 || m.MySQL == nil || m.MySQL.LagSeconds == nil ||
			*m.MySQL.LagSeconds > 2) {
			err = fmt.Errorf("%+v, %+v", f, m.MySQL)
		}
		return err
	})
}

// hinder makes a process slow, until stop: it runs for a tenth of the time.
func hinder(pid int, stop chan struct{}) error {
	for {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		<-time.After(450 * time.Millisecond)
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			return err
		}
		select {
		case <-stop:
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}
