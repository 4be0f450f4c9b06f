package systemd

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// listen is a service manager: it gives the next datagram.
func listen(t *testing.T, name string) (next func() string) {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return func() string {
		b := make([]byte, 4096)
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
}

// TestManager: every word as sd_notify(3) has it, on a socket with a name in the file system and on an abstract one.
func TestManager(t *testing.T) {
	for name, socket := range map[string]string{
		"path":     filepath.Join(t.TempDir(), "notify"),
		"abstract": "@trireme-test-" + strconv.Itoa(os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			next := listen(t, socket)
			t.Setenv("NOTIFY_SOCKET", socket)
			t.Setenv("WATCHDOG_USEC", "60000000")
			t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
			m := FromEnvironment()
			if m.Watchdog() != time.Minute {
				t.Errorf("the watchdog waits %v", m.Watchdog())
			}
			for _, c := range []struct {
				say  func()
				want string
			}{
				{func() { m.Ready("n1 leads") }, "READY=1\nSTATUS=n1 leads"},
				{func() { m.Status("two\nREADY=1  lines") }, "STATUS=two READY=1 lines"},
				{m.Feed, "WATCHDOG=1"},
				{m.Unwatch, "WATCHDOG_USEC=0"},
				{func() { m.Stopping("SIGTERM") }, "STOPPING=1\nSTATUS=SIGTERM"},
			} {
				c.say()
				if got := next(); got != c.want {
					t.Errorf("%q, not %q", got, c.want)
				}
			}
			for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
				if v, there := os.LookupEnv(name); there {
					t.Errorf("a child would inherit %s=%s", name, v)
				}
			}
		})
	}
}

// TestNoManager: without one, and with a watchdog that is another process's, nothing is done and nothing fails.
func TestNoManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	m := FromEnvironment()
	m.Ready("")
	m.Feed()
	if m != nil || m.Watchdog() != 0 {
		t.Error("a manager that was not named")
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	if m := FromEnvironment(); m != nil {
		t.Error("a manager that does not listen")
	}
	socket := filepath.Join(t.TempDir(), "notify")
	listen(t, socket)
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "60000000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()+1))
	if m := FromEnvironment(); m == nil || m.Watchdog() != 0 {
		t.Error("the watchdog of another process")
	}
}

// TestFull: a manager that does not read blocks no caller.
func TestFull(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	listen(t, socket)
	t.Setenv("NOTIFY_SOCKET", socket)
	m := FromEnvironment()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 { // more than a socket holds
			m.Feed()
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it waits for ever")
	}
}
