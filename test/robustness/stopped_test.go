package robustness

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/demo"
	"trireme/internal/verify"
)

// TestStoppedLeader freezes the leader's daemon. The others must take over; before they do, the guard must have killed the mysqld, so that
// nobody who is connected to it directly reads what is no longer so; and the frozen daemon must not serve when it wakes up.
func TestStoppedLeader(t *testing.T) {
	c := share(t)
	w := c.load(verify.Config{Writers: 16})
	leader := c.healthy()

	// The guard that will be needed is a second one: the first has died, which must harm nobody.
	first := guardOf(t, leader)
	must(t, syscall.Kill(first, syscall.SIGKILL))
	eventually(t, healLimit, "another guard", func() error {
		if pid := guardOf(t, leader); pid == 0 || pid == first {
			return errors.New("none")
		}
		return nil
	})
	c.writesMore(w, loadBeforeKill)
	if now := c.healthy(); now != leader {
		t.Fatalf("%s leads after the guard of %s was killed", now.Name, leader.Name)
	}

	direct := c.connect(leader)
	at := time.Now()
	must(t, c.Signal(leader, syscall.SIGSTOP))
	eventually(t, healLimit, "another leader", func() error {
		for _, n := range c.others(leader) {
			if ok, _ := c.isPrimary(n); ok {
				return nil
			}
		}
		return fmt.Errorf("none takes writes")
	})
	taken := time.Since(at)
	if err := read(direct); err == nil {
		t.Error("the stopped leader's mysqld still answers although another node takes writes")
	}
	must(t, c.Signal(leader, syscall.SIGCONT))
	c.writesMore(w, 50)
	gap := w.Meter().LongestGap(at).Length()
	c.healthy()
	events, err := c.History(t.Context(), leader)
	must(t, err)
	if !slices.ContainsFunc(events, func(e api.Event) bool { return e.Kind == "guard" && e.Time.After(at) }) {
		t.Error("the history does not tell that the guard killed mysqld")
	}
	t.Logf("another leader after %v, write gap %v; %s", taken.Round(time.Millisecond), gap.Round(time.Millisecond), c.check(w))
}

// connect opens one connection to a node's own mysqld.
func (c *cluster) connect(n *demo.Node) *sql.Conn {
	c.t.Helper()
	db, err := c.Direct(n).Open("")
	must(c.t, err)
	c.t.Cleanup(func() { _ = db.Close() })
	conn, err := db.Conn(c.t.Context())
	must(c.t, err)
	must(c.t, read(conn))
	return conn
}

// read asks a server for anything; it has a second.
func read(conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var one int
	return conn.QueryRowContext(ctx, "SELECT 1").Scan(&one)
}

// guardOf is the pid of the guard process among the children of a node's daemon, 0 if there is none.
func guardOf(t *testing.T, n *demo.Node) int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", n.DaemonPID()))
	must(t, err)
	for _, l := range lists {
		b, _ := os.ReadFile(l)
		for _, f := range strings.Fields(string(b)) {
			line, _ := os.ReadFile("/proc/" + f + "/cmdline")
			if args := strings.Split(string(line), "\x00"); len(args) > 1 && args[1] == "guard" {
				pid, err := strconv.Atoi(f)
				must(t, err)
				return pid
			}
		}
	}
	return 0
}
