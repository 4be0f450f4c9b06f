package loop

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCalmMonitor: the thread that is calmed is the one that naps, and it naps less.
func TestCalmMonitor(t *testing.T) {
	before := naps(t)
	if err := CalmMonitor(); errors.Is(err, fs.ErrPermission) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	after := naps(t)
	if after > before/2 {
		t.Errorf("%d naps, and %d once it is calm", before, after)
	}
}

// naps counts the naps of the monitor thread while the process is woken forty times for a long system call.
func naps(t *testing.T) int {
	t.Helper()
	monitor, err := monitorThread()
	if err != nil {
		t.Fatal(err)
	}
	count := func() int {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", monitor))
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`\nvoluntary_ctxt_switches:\s+(\d+)`).FindSubmatch(text)
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	began := count()
	long := unix.Timespec{Nsec: 5e6}
	for range 40 {
		time.Sleep(time.Millisecond)
		_ = unix.Nanosleep(&long, nil) // announced: it wakes the monitor
	}
	return count() - began
}
