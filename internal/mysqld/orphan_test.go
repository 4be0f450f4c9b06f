package mysqld

import (
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

// parentEnv makes this test binary a daemon that starts the server of the given config, says its pid, and waits to be killed.
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

// fatEnv makes this test binary a program with memory that the kernel needs a while to give back. It begins with something else than
// TRIREME_, which is not passed on.
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

// The end of mysqld is known before the kernel is done with it. A thread that happens to be the last one is no help: several are tried.
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
	p, err := Config{Binary: Binary{Path: exe}, Dir: dir}.launch(launchSpec{args: []string{"--log-error=" + filepath.Join(dir, "log")}})
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

// A mysqld that an earlier daemon left behind on the same directory (its Pdeathsig lost) is killed at the next start.
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
