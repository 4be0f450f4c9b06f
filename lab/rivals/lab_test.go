package rivals

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme/internal/base/poll"
	"trireme/lab/child"
	"trireme/lab/faultfs"
	"trireme/lab/needs"
	"trireme/lab/testkit"
	"trireme/lab/verify"
	"trireme/lab/wan"
)

// newLab skips a test that starts real servers where there is no mysqld, unless it is required.
func newLab(t *testing.T) *Lab {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real servers")
	}
	needs.MySQL(t)
	l, err := New(t.Context(), Options{Dir: t.TempDir(), Binary: testkit.Program(t, testkit.Trireme)})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestMain(m *testing.M) {
	child.Main(wan.Forwarder, faultfs.Server)
	os.Exit(testkit.Run(m))
}

// small is the least shape in which a system is what it is.
func small(t *testing.T, l *Lab, s System) Shape {
	t.Helper()
	if s.Missing != nil {
		if err := s.Missing(l); err != nil {
			t.Skip(err)
		}
	}
	shape := Shape{Nodes: 2, Variant: s.Variants[0], Dir: t.TempDir()}
	if s.Ours {
		shape.Nodes = 3
	}
	return shape
}

// TestSystems starts each system once: what is written to it reaches all its servers, and it leaves nothing running.
// The long form covers all systems, the short one a system of each kind.
func TestSystems(t *testing.T) {
	l := newLab(t)
	short := []string{semisyncSystem.Name, mgrEventualSystem.Name, triremeSystem.Name}
	for _, s := range Systems() {
		if !needs.IsLong() && !slices.Contains(short, s.Name) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel() // much of it is waiting
			useSystem(t, l, s, small(t, l, s))
		})
	}
}

// TestOnHosts is the same on emulated hosts, with the router in front of them.
func TestOnHosts(t *testing.T) {
	l := newLab(t)
	topology, err := wan.Load("lan")
	if err != nil {
		t.Fatal(err)
	}
	s := mgrAfterSystem
	if mgrRouterSystem.Missing(l) == nil {
		s = mgrRouterSystem
	}
	shape := small(t, l, s)
	shape.Topology, shape.CPUs, shape.Variant = &topology, 1, s.Variants[len(s.Variants)-1]
	useSystem(t, l, s, shape)
}

func useSystem(t *testing.T, l *Lab, s System, shape Shape) {
	r, err := s.Start(t.Context(), l, shape)
	if errors.Is(err, wan.ErrNoBudget) {
		t.Skip(err)
	}
	needs.Netns(t, err)
	stopped := false
	defer func() {
		if !stopped {
			r.Stop()
		}
	}()
	if leader := r.Hosts()[0]; !leader.Leader || leader.MySQL == 0 {
		t.Errorf("the first host is no leader: %+v", leader)
	}
	if running := processesOf(t, shape.Dir); len(running) == 0 {
		t.Fatal("no process names the directory: leftovers would not be found")
	}
	if (r.Network() != nil) != (shape.Topology != nil) {
		t.Errorf("network %v with topology %v", r.Network(), shape.Topology)
	}
	rows := writeRows(t, r)
	if err := r.Settle(t.Context()); err != nil {
		t.Error(err)
	}
	waitApplied(t, r)
	for _, h := range r.Hosts() {
		if h.MySQL == 0 {
			continue // a logger's, or the client's
		}
		var got int
		if err := r.DB(h.Name).QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+Database+".t").Scan(&got); err != nil ||
			got != rows {
			t.Errorf("%s has %d of %d rows, %v", h.Name, got, rows, err)
		}
	}
	var pids []int
	for _, h := range r.Hosts() {
		pids = append(pids, h.Pids()...)
	}
	stopped = true
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			t.Errorf("process %d is still there", pid)
		}
	}
	wantNoProcess(t, shape.Dir)
}

// writeRows writes a row at each place that takes writes, and says how many.
func writeRows(t *testing.T, r Running) int {
	t.Helper()
	rows := 0
	for _, via := range []Via{Direct, Router, VIP} {
		targets, err := r.Targets(via)
		if err != nil {
			if via == Direct || !errors.Is(err, ErrNotHere) {
				t.Errorf("%s: %v", via, err)
			}
			continue
		}
		for _, target := range targets {
			db := dial(t, target)
			if rows == 0 {
				execute(t, db, "CREATE TABLE t (id INT PRIMARY KEY)")
				waitApplied(t, r)
			}
			execute(t, db, fmt.Sprintf("INSERT INTO t VALUES (%d)", rows))
			rows++
		}
	}
	return rows
}

func dial(t *testing.T, target Target) *sql.DB {
	t.Helper()
	login := verify.Login{Addr: verify.Fixed(fmt.Sprintf("%s:%d", target.Host, target.Port)), User: target.User,
		Password: target.Password, StatementTimeout: time.Minute}
	db, err := login.Open(Database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func waitApplied(t *testing.T, r Running) {
	t.Helper()
	err := poll.Within(t.Context(), time.Minute, "all servers", func(ctx context.Context) error {
		n, err := r.Backlog(ctx)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d transactions are not applied", n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestInterrupted cancels starts in the middle: nothing of them may run on. The long form has the systems of many parts
// too.
func TestInterrupted(t *testing.T) {
	l := newLab(t)
	for _, c := range []struct {
		system System
		long   bool
		when   func(running []string) bool // their command lines
	}{
		{semisyncSystem, false, func(running []string) bool { return len(running) > 1 }},
		{triremeSystem, false, func(running []string) bool { return len(running) > 3 }},
		{mgrEventualSystem, true, func(running []string) bool { return len(running) > 1 }},
		{mgrRouterSystem, true,
			func(running []string) bool { return strings.Contains(strings.Join(running, " "), "--bootstrap") }},
		{mgrRouterSystem, true,
			func(running []string) bool { return strings.Contains(strings.Join(running, " "), "mysqlrouter.conf") }},
	} {
		if c.long && !needs.IsLong() {
			continue
		}
		t.Run(c.system.Name, func(t *testing.T) {
			for try := 1; !interrupted(t, l, c.system, c.when); try++ {
				if try == 10 {
					t.Fatal("it was always up before it could be interrupted")
				}
			}
		})
	}
}

// interrupted starts a system and ends its context at a moment. False: the moment was over, and the system up, before
// anybody saw it.
func interrupted(t *testing.T, l *Lab, system System, when func(running []string) bool) bool {
	t.Helper()
	shape := small(t, l, system)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := make(chan bool, 1)
	go func() {
		defer cancel()
		for !when(processesOf(t, shape.Dir)) {
			select {
			case <-ctx.Done():
				seen <- false
				return
			case <-time.After(time.Millisecond): // a router that was started serves some 50 ms later
			}
		}
		seen <- true
	}()
	r, err := system.Start(ctx, l, shape)
	cancel()
	switch saw := <-seen; {
	case err != nil && !saw:
		t.Fatalf("the moment never came: %v", err)
	case err == nil:
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}
	wantNoProcess(t, shape.Dir)
	return err != nil
}

// processesOf are the command lines of all processes that name the directory.
func processesOf(t *testing.T, dir string) []string {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Error(err)
	}
	var out []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), dir) {
			out = append(out, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return out
}

// wantNoProcess of a system goes on. A mysqld whose daemon was killed is killed by the daemon's guard, a moment later.
func wantNoProcess(t *testing.T, dir string) {
	t.Helper()
	if err := poll.Within(t.Context(), 10*time.Second, "the end of all processes", func(context.Context) error {
		if running := processesOf(t, dir); len(running) > 0 {
			return fmt.Errorf("still running: %.400q", running)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
