package robustness

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"trireme/internal/api"
	"trireme/internal/ops/demo"
	"trireme/lab/testkit"
)

// TestServiceManager is a node under a service manager (packaging/trireme.service): it is ready when its API listens,
// says what it does, feeds the watchdog and, while it is stopped, does not, and says that it ends. mysqld does not know
// of the manager.
func TestServiceManager(t *testing.T) {
	t.Parallel()
	needMySQL(t)
	dir := t.TempDir()
	base, err := demo.FreePortBase(1)
	must(t, err)
	port := func(i int) string { return strconv.Itoa(base + i) }
	home := append(os.Environ(), "XDG_CONFIG_HOME="+dir)
	init := exec.Command(testkit.Program(t, testkit.Trireme), "init", "--name", "n1", "--dir", filepath.Join(dir, "n1"),
		"--host", "127.0.0.1", "--bind", "127.0.0.1", "--mysql-port", port(0), "--peer-port", port(1), "--api-port", port(2),
		"--rw-port", port(3), "--ro-port", port(4), "--split-port", port(5), "--stream-port", "0")
	init.Env = home
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("init: %v\n%s", err, out)
	}
	manager := listenNotify(t, filepath.Join(dir, "notify"))
	var log bytes.Buffer
	daemon := exec.Command(testkit.Program(t, testkit.Trireme), "node", "--config",
		filepath.Join(dir, "n1", "trireme.toml"))
	daemon.Env = append(home, "NOTIFY_SOCKET="+filepath.Join(dir, "notify"), "WATCHDOG_USEC=2000000")
	daemon.Stderr = &log
	must(t, daemon.Start())
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	manager.await("READY=1")
	url := "http://127.0.0.1:" + port(2)
	res, err := http.Get(url + "/liveness")
	if err != nil {
		t.Fatalf("ready, and the API does not answer: %v", err)
	}
	_ = res.Body.Close()
	manager.await("STATUS=")
	client := api.NewClient(url, "", nil)
	defer client.Close()
	var pid int
	eventually(t, createTime, "no leader", func() error {
		v, err := client.Cluster(t.Context())
		if err != nil || v.Leader == "" {
			return errors.Join(err, errors.New("no node leads"))
		}
		pid = v.Members[0].MySQL.PID
		return nil
	})
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	must(t, err)
	if bytes.Contains(env, []byte("NOTIFY_SOCKET")) || bytes.Contains(env, []byte("WATCHDOG_")) {
		t.Error("mysqld would speak to the service manager as if it were the daemon")
	}
	// The terminal that it was started from closes.
	must(t, daemon.Process.Signal(syscall.SIGHUP))
	manager.drain()
	manager.await("WATCHDOG=1")
	manager.await("WATCHDOG=1")

	// Stopped it says nothing, and when it goes on it says so again.
	must(t, daemon.Process.Signal(syscall.SIGSTOP))
	manager.drain()
	if got := manager.next(2 * time.Second); got != "" {
		t.Errorf("a daemon that is stopped says %q", got)
	}
	must(t, daemon.Process.Signal(syscall.SIGCONT))
	manager.await("WATCHDOG=1")

	must(t, daemon.Process.Signal(syscall.SIGTERM))
	manager.await("STOPPING=1")
	if err := daemon.Wait(); err != nil {
		t.Errorf("a polite stop: %v", err)
	}
}

// notifySocket is a service manager's.
type notifySocket struct {
	t    *testing.T
	conn *net.UnixConn
}

func listenNotify(t *testing.T, name string) notifySocket {
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return notifySocket{t, conn}
}

// next is what is said within a time, empty if nothing is.
func (s notifySocket) next(limit time.Duration) string {
	b := make([]byte, 8192)
	must(s.t, s.conn.SetReadDeadline(time.Now().Add(limit)))
	n, err := s.conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	}
	must(s.t, err)
	return string(b[:n])
}

// drain takes what was said before.
func (s notifySocket) drain() {
	for s.next(100*time.Millisecond) != "" {
	}
}

// await waits until something that begins so is said.
func (s notifySocket) await(prefix string) {
	s.t.Helper()
	for deadline := time.Now().Add(createTime); time.Now().Before(deadline); {
		if strings.HasPrefix(s.next(time.Until(deadline)), prefix) {
			return
		}
	}
	s.t.Fatalf("no node says %s", prefix)
}
