package guard

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain makes this program the guard process when it is started as such.
func TestMain(m *testing.M) {
	if os.Getenv("GUARD_TEST_PROCESS") != "" {
		if err := Run(slog.New(slog.NewTextHandler(os.Stderr, nil)), withdrawal); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// withdrawal makes the file that the test names. It fails twice before that.
func withdrawal() error {
	name := os.Getenv("GUARD_TEST_WITHDRAWN")
	if name == "" {
		return nil
	}
	if withdrawals++; withdrawals < 3 {
		return fmt.Errorf("withdrawal %d of 3", withdrawals)
	}
	return os.WriteFile(name, nil, 0o600)
}

var withdrawals int // of this process

// die is the end of the daemon, as the guard sees it.
func (g *Guard) die() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hangUp()
}

// TestWithdraw: the guard withdraws what there is besides mysqld when its time is over, and when the daemon dies, not
// before; and tries again where that fails.
func TestWithdraw(t *testing.T) {
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprintf("dies=%v", dies), func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "withdrawn")
			t.Setenv("GUARD_TEST_WITHDRAWN", name)
			withdrawn := func() bool { _, err := os.Stat(name); return err == nil }
			g := start(t)
			fd, ended := server(t)
			g.Watch(fd)
			g.Until(now() + time.Hour)
			looked := now()
			eventually(t, "the guard looks", func() bool { return time.Duration(g.page.seen.Load()) > looked })
			if withdrawn() {
				t.Fatal("withdrawn while the daemon gives signs of life")
			}
			if dies {
				g.die()
			} else {
				g.Until(now())
			}
			eventually(t, "the server is killed", gone(ended))
			eventually(t, "the rest is withdrawn", withdrawn)
		})
	}
}

// TestWithdrawFails: a guard that cannot withdraw does not outlive its daemon for long.
func TestWithdrawFails(t *testing.T) {
	t.Setenv("GUARD_TEST_WITHDRAWN", filepath.Join(t.TempDir(), "no such directory", "withdrawn"))
	g := start(t)
	fd, ended := server(t)
	g.Watch(fd)
	pid := g.Pid()
	g.die()
	eventually(t, "the server is killed", gone(ended))
	eventually(t, "the guard is gone", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
}

const limit = 10 * time.Second

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !f(); <-time.After(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// server is a program that stands for mysqld.
func server(t *testing.T) (pidfd *os.File, ended chan struct{}) {
	t.Helper()
	fd := -1
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{PidFD: &fd}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if fd < 0 {
		t.Fatal("this kernel has no pidfd")
	}
	ended = make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return os.NewFile(uintptr(fd), "pidfd"), ended
}

func start(t *testing.T) *Guard {
	t.Helper()
	t.Setenv("GUARD_TEST_PROCESS", "1")
	g, err := Start([]string{"/proc/self/exe"}, false, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func gone(ended chan struct{}) func() bool {
	return func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}
}

// TestOverdue: a server lives as long as the moment is moved ahead, and not much longer.
func TestOverdue(t *testing.T) {
	g := start(t)
	fd, ended := server(t)
	g.Watch(fd)
	const lease = 300 * time.Millisecond
	var until time.Duration
	for begin := now(); now() < begin+5*lease; <-time.After(10 * time.Millisecond) {
		if gone(ended)() {
			if killed := time.Duration(g.page.killed.Load()); killed < until {
				t.Fatalf("killed at %v although its daemon gave signs of life until %v", killed, until)
			}
			t.Skip("this test did not run for as long as the guard waits")
		}
		until = now() + lease
		g.Until(until)
	}
	last := time.Duration(g.page.until.Load())
	eventually(t, "the server is killed", gone(ended))
	if !g.Killed() || time.Duration(g.page.killed.Load()) < last {
		t.Errorf("killed at %v, its time was over at %v", time.Duration(g.page.killed.Load()), last)
	}
	t.Logf("killed %v after its time was over", time.Duration(g.page.killed.Load())-last)

	// The next server begins without a past.
	g.Until(0)
	fd, ended = server(t)
	g.Watch(fd)
	if g.Killed() {
		t.Error("the next server counts as killed")
	}
	looked := now()
	eventually(t, "the guard looks twice", func() bool { return time.Duration(g.page.seen.Load()) > looked+lookInterval })
	if gone(ended)() {
		t.Fatal("a server that serves nothing was killed")
	}
}

// TestKilledOnly: a server that had died before the guard came to kill it does not count as killed.
func TestKilledOnly(t *testing.T) {
	fd, ended := server(t)
	w := watch{page: &page{}, mysqld: int(fd.Fd()), log: slog.New(slog.DiscardHandler)}
	w.kill("a test")
	if w.page.killed.Load() == 0 || !w.done {
		t.Error("it was killed, and the guard does not say so")
	}
	eventually(t, "the server is killed", gone(ended))
	w.page.killed.Store(0)
	w.done = false
	w.kill("a test")
	if at := w.page.killed.Load(); at != 0 || !w.done {
		t.Errorf("it was dead already, and the guard says that it killed it at %d", at)
	}
}

// TestEarlier: the guard sleeps until a moment that then comes sooner.
func TestEarlier(t *testing.T) {
	g := start(t)
	fd, ended := server(t)
	g.Watch(fd)
	g.Until(now() + time.Hour)
	looked := now()
	eventually(t, "the guard looks", func() bool { return time.Duration(g.page.seen.Load()) > looked })
	at := now()
	g.Until(at + 10*time.Millisecond)
	eventually(t, "the server is killed", gone(ended))
	if late := time.Duration(g.page.killed.Load()) - at; late > lookInterval/2 {
		t.Errorf("killed %v after it was told", late)
	}
}

// TestDaemonDies: the guard takes the server with it, and goes itself.
func TestDaemonDies(t *testing.T) {
	g := start(t)
	fd, ended := server(t)
	g.Watch(fd)
	pid := g.Pid()
	g.Close()
	eventually(t, "the server is killed", gone(ended))
	eventually(t, "the guard is gone", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
}

// TestCloseStopped: a guard that is stopped does not keep its daemon from ending.
func TestCloseStopped(t *testing.T) {
	g := start(t)
	if err := syscall.Kill(g.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		g.Close()
		close(closed)
	}()
	eventually(t, "Close returns", gone(closed))
	if !gone(g.stopped)() {
		t.Error("the guard still runs")
	}
}

// TestGuardReplaced: a guard that is killed, or stopped, is replaced by one that knows the server.
func TestGuardReplaced(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(sig.String(), func(t *testing.T) {
			g := start(t)
			fd, ended := server(t)
			g.Watch(fd)
			pid := g.Pid()
			if err := syscall.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
			if sig == syscall.SIGSTOP {
				g.page.seen.Store(int64(now() - silence)) // what a stopped guard comes to
			}
			eventually(t, "another guard", func() bool {
				g.Until(now() + time.Hour)
				p := g.Pid()
				return p != 0 && p != pid
			})
			if gone(ended)() {
				t.Fatal("the server went with its guard")
			}
			g.Until(now() + 50*time.Millisecond)
			eventually(t, "the server is killed by the new guard", gone(ended))
		})
	}
}

// TestIdle: a guard costs next to nothing, also when the time of a mysqld is over that it was never given (the kernel
// has no pidfd).
func TestIdle(t *testing.T) {
	t.Run("serving", func(t *testing.T) {
		g := start(t)
		fd, _ := server(t)
		g.Watch(fd)
		idle(t, g, func() { g.Until(now() + 800*time.Millisecond) })
	})
	t.Run("overdue, no server", func(t *testing.T) {
		g := start(t)
		over := now() - time.Second
		idle(t, g, func() { g.Until(over) })
	})
}

// idle measures a guard that is told something ten times a second.
func idle(t *testing.T, g *Guard, tell func()) {
	t.Helper()
	cpu := func() time.Duration { // of the guard, ns (the kernel's sched-stats.rst)
		threads, err := filepath.Glob("/proc/" + strconv.Itoa(g.Pid()) + "/task/*/schedstat")
		if err != nil || len(threads) == 0 {
			t.Fatal("no threads", err)
		}
		var sum int64
		for _, f := range threads {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			n, err := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		return time.Duration(sum)
	}
	begin := now()
	eventually(t, "the guard runs", func() bool { tell(); return time.Duration(g.page.seen.Load()) > begin })
	before, begin := cpu(), now()
	for now() < begin+2*time.Second {
		tell()
		<-time.After(100 * time.Millisecond)
	}
	if used := cpu() - before; used > 20*time.Millisecond {
		t.Errorf("%v of CPU time in 2 s", used)
	} else {
		t.Logf("%v of CPU time in 2 s", used)
	}
}
