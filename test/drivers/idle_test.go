package drivers

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trireme/internal/mysql/mysqlwire"
	"trireme/internal/ops/demo"
)

// What a node's router is to hold, and the memory that its whole daemon may take with it.
const (
	idleSessions    = 5000
	idleMemoryBytes = 200 << 20
)

// comPing is COM_PING (include/my_command.h).
const comPing = 0x0e

// TestIdleSessions: 5,000 sessions that do nothing, through one node's router, leave its daemon within its memory, and
// each of them still works. The servers' limits are build's: max_connections, by which mysqld counts its
// open_files_limit.
func TestIdleSessions(t *testing.T) {
	if !soak() {
		t.Skip("a long run: TRIREME_SOAK=1")
	}
	pool.Close() // daemons that have done nothing else
	// A session takes two descriptors of the daemon, and a router with a splitting port counts three. The daemons inherit
	// this.
	files := unix.Rlimit{Cur: 4 * idleSessions, Max: 4 * idleSessions}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Skipf("%d descriptors for each process cannot be had: %v", files.Cur, err)
	}
	c := lease(t)
	for i, kind := range []struct {
		name string
		tls  *tls.Config
	}{{"passed on", nil}, {"followed", nil}, {"followed, over TLS", &tls.Config{InsecureSkipVerify: true}}} {
		t.Run(kind.name, func(t *testing.T) {
			n := c.Nodes()[i] // each has had no sessions before
			pid := n.DaemonPID()
			before := resident(t, pid, "VmRSS")
			began := time.Now()
			sessions := c.logIn(t, n, kind.tls)
			took := time.Since(began)
			pingAll(t, sessions)
			now, peak := resident(t, pid, "VmRSS"), resident(t, pid, "VmHWM")
			t.Logf("%d idle sessions, %s: the daemon has %d MiB, %d MiB at most, %d MiB without them; logins took %.1f s",
				len(sessions), kind.name, now>>20, peak>>20, before>>20, took.Seconds())
			if peak > idleMemoryBytes {
				t.Errorf("the daemon has taken %d MiB, more than %d", peak>>20, idleMemoryBytes>>20)
			}
			if n.DaemonPID() != pid {
				t.Error("the daemon was started again meanwhile")
			}
		})
	}
}

// logIn opens idleSessions at the read-write port of a node, and closes them at the test's end.
func (c *cluster) logIn(t *testing.T, n *demo.Node, secure *tls.Config) []*mysqlwire.Client {
	t.Helper()
	s := c.State()
	sessions := make([]*mysqlwire.Client, idleSessions)
	t.Cleanup(func() {
		for _, s := range sessions {
			if s != nil {
				_ = s.Close()
			}
		}
		c.usedUp(t)
	})
	cfg := mysqlwire.ClientConfig{User: s.User, Password: s.Password, TLS: secure,
		Attributes: []mysqlwire.Attribute{{Name: "_client_name", Value: "pymysql"}}}
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(sessions) {
					return
				}
				var err error
				if sessions[i], err = logInOnce(t.Context(), net.JoinHostPort(n.Host, strconv.Itoa(n.Ports.RW)), cfg); err != nil {
					err = fmt.Errorf("login %d: %w", i, err)
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
	return sessions
}

func logInOnce(ctx context.Context, addr string, cfg mysqlwire.ClientConfig) (*mysqlwire.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return mysqlwire.Login(ctx, nc, cfg)
}

// TestOwnSessions: the daemon's sessions are as many as are added to the operator's max_connections, at most; the
// leader has most.
func TestOwnSessions(t *testing.T) {
	t.Parallel()
	c := lease(t)
	c.sql("CREATE DATABASE IF NOT EXISTS own", "DROP DATABASE own")
	db := c.admin()
	defer db.Close()
	var n int
	var of string
	if err :=
		db.QueryRow("SELECT COUNT(*), GROUP_CONCAT(PROCESSLIST_USER, ' ', IFNULL(PROCESSLIST_COMMAND, '-'), ' ', IFNULL(PROCESSLIST_INFO, '-'))"+
			" FROM performance_schema.threads WHERE NAME = 'thread/sql/one_connection' AND PROCESSLIST_USER LIKE 'trireme%' AND PROCESSLIST_ID <> CONNECTION_ID()").Scan(&n, &of); err != nil {
		t.Fatal(err)
	}
	if n < 8 || n > 12 {
		t.Errorf("%d sessions of the daemon: %s", n, of)
	}
	want := idleSessions + 300
	if !soak() {
		want = 300
	}
	var all int
	if err := db.QueryRow("SELECT @@GLOBAL.max_connections").Scan(&all); err != nil || all-12 != want {
		t.Errorf("%d sessions, of which 12 are the daemon's: applications should have %d, %v", all, want, err)
	}
}

// usedUp waits until the servers have let the sessions go.
func (c *cluster) usedUp(t *testing.T) {
	t.Helper()
	db := c.admin()
	defer db.Close()
	eventually(t, healLimit, "the sessions have ended", func() error {
		var left int
		if err := db.QueryRow("SELECT COUNT(*) FROM performance_schema.threads WHERE PROCESSLIST_USER = ?", c.State().User).
			Scan(&left); err != nil {
			return err
		}
		if left > 100 {
			return fmt.Errorf("%d are left", left)
		}
		return nil
	})
}

// pingAll lets each session ask its server.
func pingAll(t *testing.T, sessions []*mysqlwire.Client) {
	t.Helper()
	for i, s := range sessions {
		_ = s.NetConn().SetDeadline(time.Now().Add(statementLimit))
		err := s.WriteCommand(comPing, nil)
		if err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
		if p, err := s.ReadPacket(); err != nil || !mysqlwire.IsOK(p) {
			t.Fatalf("session %d: %q, %v", i, p, err)
		}
	}
}

// resident is a line of a process's memory in /proc/PID/status, in bytes.
func resident(t *testing.T, pid int, line string) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, rest, found := strings.Cut(string(b), line+":")
	f := strings.Fields(rest)
	if !found || len(f) < 2 || f[1] != "kB" {
		t.Fatalf("no %s of process %d", line, pid)
	}
	kib, err := strconv.ParseInt(f[0], 10, 64)
	must(t, err)
	return kib << 10
}
