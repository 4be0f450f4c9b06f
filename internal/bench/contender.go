package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"trireme/internal/api"
	"trireme/internal/demo"
	"trireme/internal/lab"
	"trireme/internal/verify"
)

// contender is a running system of three data nodes whose write gaps are measured.
type contender interface {
	// login is where the writers go: a router that follows the leader.
	login() verify.Login
	names() []string
	// leader is who takes writes as far as is known now.
	leader(ctx context.Context) (lead, error)
	// settled waits until there is a leader and every node is healthy.
	settled(ctx context.Context) (lead, error)
	healthy(ctx context.Context, name string) (bool, error)
	// behind is how many transactions the slowest follower has not applied yet.
	behind(ctx context.Context) int
	// do hits a node, undo lets go on what was stopped there.
	do(ctx context.Context, f fault, name string) error
	undo(ctx context.Context, name string) error
	// processes of a node that run now.
	processes(name string) []int
	// endpoints opens a connection to every server, to be closed by demo.CloseEndpoints.
	endpoints() ([]verify.Endpoint, error)
	stop()
}

// lead is one time of leadership.
type lead struct {
	Name string
	Term uint64 // grows with each change
	pid  int    // of its mysqld, where that is what tells terms apart
	open bool   // it takes writes
}

// fault is what may happen to a node.
type fault int

const (
	faultKillMySQL fault = iota
	faultKillDaemon
	faultKillHost
	faultEndDaemon
	faultStopDaemon
	faultStopHost
	faultStopMySQL
	faultSwitchover
)

// triremeCluster is Trireme as a contender: made as users make it, its daemons kept running as a service manager does.
type triremeCluster struct{ c *demo.Cluster }

func startTriremeCluster(ctx context.Context, e *environment, dir string) (contender, error) {
	c, err := demo.Create(ctx, demo.Options{Nodes: 3, Dir: filepath.Join(dir, "cluster"), PortBase: e.takePorts(30), MySQL: e.mysqld, Binary: e.binary,
		MySQLOptions: lab.SharedOptions()})
	if err != nil {
		return nil, err
	}
	c.KeepRunning(restartPause, nil)
	return triremeCluster{c}, nil
}

func (t triremeCluster) login() verify.Login                   { return t.c.Routed() }
func (t triremeCluster) endpoints() ([]verify.Endpoint, error) { return t.c.Endpoints() }
func (t triremeCluster) stop()                                 { t.c.Close() }

func (t triremeCluster) names() []string {
	var out []string
	for _, n := range t.c.DataNodes() {
		out = append(out, n.Name)
	}
	return out
}

func (t triremeCluster) leader(ctx context.Context) (lead, error) {
	v, err := t.c.View(ctx)
	return lead{Name: v.Leader, Term: v.Term, open: v.Leader != ""}, err
}

func (t triremeCluster) settled(ctx context.Context) (lead, error) {
	v, err := t.c.WaitHealthy(ctx)
	return lead{Name: v.Leader, Term: v.Term, open: v.Leader != ""}, err
}

func (t triremeCluster) healthy(ctx context.Context, name string) (bool, error) {
	v, err := t.c.View(ctx)
	return slices.ContainsFunc(v.Members, func(m api.MemberView) bool { return m.Name == name && m.State == api.StateHealthy }), err
}

func (t triremeCluster) behind(ctx context.Context) int {
	v, err := t.c.View(ctx)
	if err != nil {
		return 0
	}
	most := uint64(0)
	for _, m := range v.Members {
		most = max(most, v.CommitIndex-min(m.Raft.Applied, v.CommitIndex)) // an entry is at least a transaction
	}
	return int(most)
}

func (t triremeCluster) do(ctx context.Context, f fault, name string) error {
	n := t.c.Node(name)
	switch f {
	case faultKillMySQL:
		if t.c.KillMySQL(n) == 0 {
			return fmt.Errorf("%s has no mysqld", name)
		}
		return nil
	case faultStopMySQL:
		pid := n.MySQLPID()
		if pid == 0 {
			return fmt.Errorf("%s has no mysqld", name)
		}
		return syscall.Kill(pid, syscall.SIGSTOP)
	case faultKillDaemon:
		return t.c.Signal(n, syscall.SIGKILL)
	case faultEndDaemon:
		return t.c.Signal(n, syscall.SIGTERM)
	case faultStopDaemon:
		return t.c.Signal(n, syscall.SIGSTOP)
	case faultKillHost:
		return t.c.SignalHost(n, syscall.SIGKILL)
	case faultStopHost:
		return t.c.SignalHost(n, syscall.SIGSTOP)
	case faultSwitchover:
		_, err := t.c.Switchover(ctx, "")
		return err
	}
	return fmt.Errorf("fault %d is not known", f)
}

func (t triremeCluster) undo(_ context.Context, name string) error {
	return t.c.SignalHost(t.c.Node(name), syscall.SIGCONT)
}

func (t triremeCluster) processes(name string) []int {
	n := t.c.Node(name)
	return []int{n.DaemonPID(), n.MySQLPID()}
}

// backAt is when a node's return began: the start of the first of its processes that did not exist at the fault; without such a one, when
// what was stopped went on.
func backAt(c contender, name string, fault, wentOn time.Time) time.Time {
	first := wentOn
	for _, pid := range c.processes(name) {
		if at, err := startedAt(pid); err == nil && at.After(fault) && (first.Equal(wentOn) || at.Before(first)) {
			first = at
		}
	}
	return first
}

// loadData fills a table through the router.
func loadData(ctx context.Context, c contender, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	db, err := c.login().Open("")
	if err != nil {
		return err
	}
	defer db.Close()
	for _, s := range []string{"CREATE DATABASE ballast", "CREATE TABLE ballast.data (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, payload VARCHAR(1000) NOT NULL)"} {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("making the data: %w", err)
		}
	}
	const rowBytes, rows, sessions = 1000, 500, 4
	var done atomic.Int64
	errs := make(chan error, sessions)
	for i := range sessions {
		go func() {
			random, digits := rand.NewChaCha8([32]byte{byte(i)}), make([]byte, rowBytes/2)
			for done.Add(rowBytes*rows) <= bytes {
				values := make([]string, rows)
				for j := range values {
					_, _ = random.Read(digits) // it never fails
					values[j] = fmt.Sprintf("('%x')", digits)
				}
				if _, err := db.ExecContext(ctx, "INSERT INTO ballast.data (payload) VALUES "+strings.Join(values, ",")); err != nil {
					errs <- fmt.Errorf("making the data: %w", err)
					return
				}
			}
			errs <- nil
		}()
	}
	for range sessions {
		err = errors.Join(err, <-errs)
	}
	return err
}
