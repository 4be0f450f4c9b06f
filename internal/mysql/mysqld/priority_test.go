package mysqld

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Every thread of the daemon runs ahead, its mysqlds do not.
func TestRaisePriority(t *testing.T) {
	was := niceOf(t, os.Getpid())
	if was < 0 {
		t.Skipf("this test runs with nice %d itself", was)
	}
	t.Cleanup(func() {
		mysqldNice.Store(nil)
		if err := renice(os.Getpid(), was); err != nil {
			t.Error(err)
		}
	})
	if err := RaisePriority(); err != nil {
		t.Skip(err)
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			t.Fatal(err)
		}
		if nice := niceOf(t, tid); nice != ahead {
			t.Errorf("thread %d of %d: nice %d", tid, len(tasks), nice)
		}
	}
	program := filepath.Join(t.TempDir(), "mysqld")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := Config{Dir: t.TempDir(), Binary: Binary{Path: program}}
	p, err := c.launch(launchSpec{args: []string{"--no-defaults", "--log-error=" + filepath.Join(t.TempDir(), "err")}})
	if err != nil {
		t.Fatal(err)
	}
	nice := niceOf(t, p.pid)
	if err := unix.Kill(p.pid, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	<-p.done
	if nice != was {
		t.Errorf("mysqld: nice %d, this process began with %d", nice, was)
	}
}

func TestNiceOfMysqld(t *testing.T) {
	for _, c := range []struct {
		began         int
		raised, alone bool
		want          int
	}{
		{0, true, false, 0},
		{5, true, false, 5},
		{-10, true, false, 0}, // by a service manager
		{0, true, true, 0},
		{0, false, false, 0},
		{0, false, true, 10},
	} {
		if got := niceOfMysqld(c.began, c.raised, c.alone); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func niceOf(t *testing.T, tid int) int {
	t.Helper()
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	if err != nil {
		t.Fatal(err)
	}
	return 20 - raw
}
