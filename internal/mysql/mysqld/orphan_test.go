package mysqld

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// parentEnv makes this test binary a daemon that starts the server of the given config, says its pid, and waits to be
// killed.
const parentEnv = "TRIREME_TEST_PARENT"

func beParent() {
	var cfg Config
	if err := json.Unmarshal([]byte(os.Getenv(parentEnv)), &cfg); err != nil {
		fmt.Println("error", err)
		return
	}
	s, err := New(cfg)
	if err == nil {
		err = s.Start(context.Background(), uuidN(1))
	}
	if err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("pid", s.Pid())
	time.Sleep(testLimit) // the test kills us long before
}

// fatEnv makes this test binary a program with memory that the kernel needs a while to give back. It begins with
// something else than TRIREME_, which is not passed on.
const fatEnv = "TEST_FAT_PROCESS"

func beFat() {
	b, err := unix.Mmap(-1, 0, 512<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err == nil {
		err = unix.Madvise(b, unix.MADV_NOHUGEPAGE)
	}
	if err != nil {
		panic(err)
	}
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	leave := make(chan os.Signal, 1)
	signal.Notify(leave, syscall.SIGUSR1)
	_ = os.WriteFile(os.Getenv(fatEnv), nil, 0o600)
	select {
	case <-leave:
		os.Exit(restartCode)
	case <-time.After(testLimit):
	}
}

// The end of mysqld is known before the kernel is done with it. A thread that happens to be the last one is no help:
// several are tried.
func TestDyingIsSeenAtOnce(t *testing.T) {
	if self, err := oldestThread(os.Getpid()); errors.Is(err, unix.EINVAL) {
		t.Skip("Linux before 6.9")
	} else if err != nil {
		t.Fatal(err)
	} else {
		_ = self.Close()
	}
	for range 6 {
		if dyingIsSeen(t) {
			return
		}
	}
	t.Error("never seen earlier than the end")
}

// A mysqld that ends by itself, for a restart, is not taken for a killed one because what is left of it is killed.
func TestDyingKeepsTheExitCode(t *testing.T) {
	for range 3 {
		p := fatProcess(t)
		if err := syscall.Kill(p.pid, syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		<-p.dying
		<-p.done
		if !p.exit.RestartAsked() || p.exit.Asked {
			t.Errorf("exit %+v", p.exit)
		}
	}
}

func fatProcess(t *testing.T) *child {
	dir := t.TempDir()
	t.Setenv(fatEnv, filepath.Join(dir, "ready"))
	exe := must[string](t)(os.Executable())
	p, err := Config{Binary: Binary{Path: exe},
		Dir: dir}.launch(launchSpec{args: []string{"--log-error=" + filepath.Join(dir, "log")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.kill() })
	eventually(t, "the program", func() bool { _, err := os.Stat(os.Getenv(fatEnv)); return err == nil })
	select {
	case <-p.dying:
		t.Fatal("a living process is taken for a dying one")
	default:
	}
	return p
}

func dyingIsSeen(t *testing.T) (early bool) {
	p := fatProcess(t)
	began := time.Now()
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.dying
	dying := time.Since(began)
	select {
	case <-p.done:
	default:
		early = true
	}
	<-p.done
	t.Logf("seen after %v, ended after %v", dying, time.Since(began))
	if p.exit.Signal != syscall.SIGKILL || p.exit.Asked {
		t.Errorf("exit %+v", p.exit)
	}
	return early
}

// When the daemon is killed, its mysqld dies with it, although the thread that forked it has long done other things.
func TestMysqldDiesWithTheDaemon(t *testing.T) { diesWithParent(t, initialized(t)) }

// A mysqld that an earlier daemon has left on the same directory (its Pdeathsig lost) is killed at the next start, if
// the daemon has recorded it. A mysqld that somebody else has started there is not killed, whatever its command line
// says: the start fails.
func TestOrphanIsKilled(t *testing.T) {
	cfg := initialized(t)
	s := started(t, cfg)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(cfg.Socket()); err != nil {
		t.Fatal(err)
	}
	orphan := exec.CommandContext(testContext(t), cfg.Binary.Path, "--defaults-file="+cfg.optionFile(), "--user=root")
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	reaped := make(chan error, 1)
	go func() { reaped <- orphan.Wait() }()
	eventually(t, "the orphan's socket", func() bool { _, err := os.Stat(cfg.Socket()); return err == nil })
	if held, holder, err := lockOn(cfg.DataDir()); err != nil || !held || holder != orphan.Process.Pid {
		t.Fatalf("locked %v by %d (%v), not by %d", held, holder, err, orphan.Process.Pid)
	}
	if err := s.Start(testContext(t), uuidN(2)); !errors.Is(err, ErrInUse) {
		t.Fatalf("a start while a mysqld of somebody else runs: %v", err)
	}
	if err := cfg.noteStarted(orphan.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(testContext(t), uuidN(2)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-reaped:
	case <-time.After(20 * time.Second):
		t.Fatal("the orphan lives")
	}
	if ws, ok := orphan.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("the orphan ended by %v", orphan.ProcessState)
	}
}

// lockerEnv makes this test binary a process that locks the system tablespace in a folder as mysqld does.
const lockerEnv = "TEST_LOCKER"

func beLocker() {
	f, err := os.OpenFile(filepath.Join(os.Getenv(lockerEnv), "ibdata1"), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	if err != nil {
		panic(err)
	}
	fmt.Println("up")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

// TestLeftover: what a command line says is no reason to kill a process; the lock on the data directory and what was
// written down are. A pid that was given to another process is left alone, and so is the holder of the lock that no
// daemon has started.
func TestLeftover(t *testing.T) {
	c := Config{Dir: t.TempDir()}
	if err := os.MkdirAll(c.DataDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	end := func() error { return c.killOrphans(testContext(t)) }
	named := standIn(t, exec.Command("sh", "-c", "echo up; read x", "mysqld", "--defaults-file="+c.optionFile(),
		"--datadir="+c.DataDir()), c.DataDir())
	if err := end(); err != nil || !named.lives() {
		t.Fatalf("a process that is called mysqld and names our files: %v, lives %v", err, named.lives())
	}

	// The same process, written down as of an earlier life of its pid, and of another boot.
	other := startedChild{Pid: named.Process.Pid, Start: 1}
	var err error
	if other.Boot, err = bootID(); err != nil {
		t.Fatal(err)
	}
	write := func(s startedChild) {
		if err := os.WriteFile(filepath.Join(c.Dir, startedName), must[[]byte](t)(json.Marshal(s)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(other)
	if err := end(); err != nil || !named.lives() {
		t.Fatalf("a pid that was given to another process: %v, lives %v", err, named.lives())
	}
	other.Start, _ = startTime(other.Pid)
	other.Boot = "another"
	write(other)
	if err := end(); err != nil || !named.lives() {
		t.Fatalf("a pid of another boot: %v, lives %v", err, named.lives())
	}

	// Another one's lock, and that of a child of what was started.
	locks := exec.Command(must[string](t)(os.Executable()))
	locks.Env = append(os.Environ(), lockerEnv+"="+c.DataDir())
	holder := standIn(t, locks, "")
	if err := end(); !errors.Is(err, ErrInUse) || !holder.lives() {
		t.Fatalf("somebody else has our data directory: %v, lives %v", err, holder.lives())
	}
	group, err := unix.Getpgid(holder.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other.Pid, other.Start = group, 1
	if other.Boot, err = bootID(); err != nil {
		t.Fatal(err)
	}
	write(other)
	if err := end(); err != nil || holder.lives() {
		t.Fatalf("the child of what a daemon has started: %v, lives %v", err, holder.lives())
	}

	// What was written down, before it has a lock.
	if err := c.noteStarted(named.Process.Pid); err != nil {
		t.Fatal(err)
	}
	twin := Config{Dir: t.TempDir()}
	if err := os.CopyFS(twin.Dir, os.DirFS(c.Dir)); err != nil {
		t.Fatal(err)
	}
	if err := twin.killOrphans(testContext(t)); err != nil || !named.lives() {
		t.Fatalf("what the daemon of a directory has started that ours is a copy of: %v, lives %v", err, named.lives())
	}
	if err := end(); err != nil || named.lives() {
		t.Fatalf("what a daemon has started: %v, lives %v", err, named.lives())
	}
}

// stand is a process that stands for a mysqld.
type stand struct{ *exec.Cmd }

// lives is false for one that was killed, reaped or not.
func (s stand) lives() bool { _, ok := startTime(s.Process.Pid); return ok }

// standIn runs a command, in a process group of its own, that says "up" and lives until the test ends.
func standIn(t *testing.T, cmd *exec.Cmd, dir string) stand {
	t.Helper()
	cmd.Dir, cmd.Stderr, cmd.SysProcAttr = dir, os.Stderr, &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return stand{cmd}
}
