package bench

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"trireme/internal/demo"
)

// hostProcs are the processes that would share one host.
type hostProcs struct {
	Name   string
	MySQL  int // pid, 0: none (a logger)
	Daemon int // pid, 0: none (a rival)
	Leader bool
}

// system is one candidate of the comparison, running.
type system interface {
	// account is where the load goes: the leader's mysqld, directly.
	account() account
	// hosts lists its processes.
	hosts() []hostProcs
	// leader and replicas are connections to its servers.
	leader() *sql.DB
	replicas() []*sql.DB
	// settle is called before each cell: it makes sure that the system is as it should be (roles, semi-sync on).
	settle(ctx context.Context) error
	// set changes what a variant differs in, such as the number of appliers.
	set(ctx context.Context, v variant) error
	stop()
}

// variant is a setting of a system; the best variant of a cell counts.
type variant struct {
	Name    string
	Workers int // applier workers, 0: as started
}

// standalone is one server at full durability.
type standalone struct{ s *server }

func startStandalone(ctx context.Context, e *environment, dir string) (system, error) {
	s, err := e.startServer(ctx, filepath.Join(dir, "s1"), 1, rivalOptions())
	if err != nil {
		return nil, err
	}
	return &standalone{s}, nil
}

func (s *standalone) account() account                   { return rivalAccount(s.s) }
func (s *standalone) hosts() []hostProcs                 { return rivalHosts(s.s) }
func (s *standalone) leader() *sql.DB                    { return s.s.db }
func (s *standalone) replicas() []*sql.DB                { return nil }
func (s *standalone) settle(context.Context) error       { return nil }
func (s *standalone) set(context.Context, variant) error { return nil }
func (s *standalone) stop()                              { s.s.stop() }
func rivalAccount(s *server) account                     { return account{"127.0.0.1", s.port, "bench", rivalPass} }
func rivalHosts(leader *server, others ...*server) []hostProcs {
	out := []hostProcs{{Name: "leader", MySQL: leader.proc.PID, Leader: true}}
	for i, s := range others {
		out = append(out, hostProcs{Name: "replica " + strconv.Itoa(i+1), MySQL: s.proc.PID})
	}
	return out
}

// semisync is a source with two semi-synchronous replicas at AFTER_SYNC that never falls back to asynchronous.
type semisync struct {
	source  *server
	replica [2]*server
}

// semisyncTimeoutMS is long enough never to fall back within a run.
const semisyncTimeoutMS = 3600_000

func startSemisync(ctx context.Context, e *environment, dir string) (_ system, err error) {
	s := &semisync{}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	o := rivalOptions()
	o["plugin_load_add"] = "semisync_source.so;semisync_replica.so"
	if s.source, err = e.startServer(ctx, filepath.Join(dir, "s1"), 1, o); err != nil {
		return nil, err
	}
	for i := range s.replica {
		if s.replica[i], err = e.startServer(ctx, filepath.Join(dir, "s"+strconv.Itoa(i+2)), i+2, o); err != nil {
			return nil, err
		}
	}
	if err = s.source.exec(ctx, "CREATE USER repl@'%' IDENTIFIED BY '"+rivalPass+"'", "GRANT REPLICATION SLAVE ON *.* TO repl@'%'",
		fmt.Sprintf("SET GLOBAL rpl_semi_sync_source_timeout = %d", semisyncTimeoutMS),
		"SET GLOBAL rpl_semi_sync_source_wait_point = AFTER_SYNC",
		"SET GLOBAL rpl_semi_sync_source_wait_for_replica_count = 1",
		"SET GLOBAL rpl_semi_sync_source_enabled = ON"); err != nil {
		return nil, err
	}
	for _, r := range s.replica {
		if err = r.exec(ctx, "SET GLOBAL rpl_semi_sync_replica_enabled = ON", "SET GLOBAL super_read_only = ON",
			fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = %d, SOURCE_USER = 'repl', SOURCE_PASSWORD = '%s', "+
				"SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 0, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1", s.source.port, rivalPass),
			"START REPLICA"); err != nil {
			return nil, err
		}
	}
	return s, s.settle(ctx)
}

func (s *semisync) account() account   { return rivalAccount(s.source) }
func (s *semisync) hosts() []hostProcs { return rivalHosts(s.source, s.replica[0], s.replica[1]) }
func (s *semisync) leader() *sql.DB    { return s.source.db }
func (s *semisync) replicas() []*sql.DB {
	return []*sql.DB{s.replica[0].db, s.replica[1].db}
}

// settle waits until both replicas acknowledge and semi-sync is on.
func (s *semisync) settle(ctx context.Context) error {
	return poll(ctx, 30*time.Second, "semi-sync with two replicas", func(ctx context.Context) (bool, error) {
		var name, clients, status string
		if err := s.source.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_source_clients'").Scan(&name, &clients); err != nil {
			return false, err
		}
		if err := s.source.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_source_status'").Scan(&name, &status); err != nil {
			return false, err
		}
		return clients == "2" && status == "ON", nil
	})
}

func (s *semisync) set(ctx context.Context, v variant) error {
	for _, r := range s.replica {
		if err := r.exec(ctx, "STOP REPLICA SQL_THREAD", fmt.Sprintf("SET GLOBAL replica_parallel_workers = %d", v.Workers),
			"START REPLICA SQL_THREAD"); err != nil {
			return err
		}
	}
	return nil
}

func (s *semisync) stop() {
	for _, x := range []*server{s.source, s.replica[0], s.replica[1]} {
		if x != nil {
			x.stop()
		}
	}
}

// trireme is a cluster of three data nodes, made as users make it.
type trireme struct {
	c     *demo.Cluster
	lead  string
	conns map[string]*sql.DB
}

func startTrireme(ctx context.Context, e *environment, dir string) (system, error) {
	c, err := demo.Create(ctx, demo.Options{Nodes: 3, Dir: dir, PortBase: e.takePorts(30), MySQL: e.mysqld, Binary: e.binary, MySQLOptions: sharedOptions()})
	if err != nil {
		return nil, err
	}
	t := &trireme{c: c, conns: map[string]*sql.DB{}}
	for _, n := range c.DataNodes() {
		if t.conns[n.Name], err = c.Direct(n).Open(""); err != nil {
			t.stop()
			return nil, err
		}
	}
	if err := t.settle(ctx); err != nil {
		t.stop()
		return nil, err
	}
	if _, err := t.leader().ExecContext(ctx, "CREATE DATABASE "+benchDatabase); err != nil {
		t.stop()
		return nil, err
	}
	return t, nil
}

func (t *trireme) account() account {
	s := t.c.State()
	return account{"127.0.0.1", t.c.Node(t.lead).Ports.MySQL, s.User, s.Password}
}

func (t *trireme) hosts() []hostProcs {
	var out []hostProcs
	for _, n := range t.c.Nodes() {
		out = append(out, hostProcs{Name: n.Name, MySQL: n.MySQLPID(), Daemon: n.DaemonPID(), Leader: n.Name == t.lead})
	}
	return out
}

func (t *trireme) leader() *sql.DB { return t.conns[t.lead] }

func (t *trireme) replicas() []*sql.DB {
	var out []*sql.DB
	for name, db := range t.conns {
		if name != t.lead {
			out = append(out, db)
		}
	}
	return out
}

func (t *trireme) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	v, err := t.c.WaitHealthy(ctx)
	t.lead = v.Leader
	return err
}

func (t *trireme) set(context.Context, variant) error { return nil }

func (t *trireme) stop() {
	for _, db := range t.conns {
		db.Close()
	}
	t.c.Close()
}

// poll until ok, an error that lasts, or the limit.
func poll(ctx context.Context, limit time.Duration, what string, f func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		ok, err := f(ctx)
		if err == nil && ok {
			return nil
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = ctx.Err()
			}
			return fmt.Errorf("waiting for %s: %w", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// caughtUp waits until every replica has executed what the leader has, and returns how long that took. Writers must have
// stopped.
func caughtUp(ctx context.Context, s system, limit time.Duration) (time.Duration, error) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var set string
	if err := s.leader().QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&set); err != nil {
		return 0, fmt.Errorf("leader's gtid_executed: %w", err)
	}
	for _, r := range s.replicas() {
		var timedOut int
		err := r.QueryRowContext(ctx, "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, ?)", set, int(limit.Seconds())).Scan(&timedOut)
		if err == nil && timedOut != 0 {
			err = context.DeadlineExceeded
		}
		if err != nil {
			return 0, fmt.Errorf("replica applying the rest: %w", err)
		}
	}
	return time.Since(begin), nil
}
