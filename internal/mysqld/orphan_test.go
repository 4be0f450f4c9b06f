package mysqld

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
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
